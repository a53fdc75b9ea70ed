"""A baseline disproves a bound, and stands beside a plan without a reason, only if it fits."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import hypar_opt as ho
from hypar_opt.errors import InputError
from hypar_opt.instance.instance import Instance
from hypar_opt.search.simplices import weights_near
from hypar_opt.studies.advice import refused_baselines
from tests.search.test_within_memory import drawn
from tests.slow import slow_after
from tests.strategies.written_plans import claiming

BASELINES = ("Data Parallelism", "Model Parallelism")


def baselines_of(plan: ho.Plan) -> list[ho.Plan]:
    """Data and Model Parallelism, which train as a plan does, and claim that none costs less."""
    instance, every = Instance.of_plan(plan), []
    for column in range(len(BASELINES)):
        own = claiming(plan, instance, ((column,) * len(plan.layers),) * plan.levels)
        claims = {"status": "optimal", "bound": own.cost.total, "gap": 0.0}
        every.append(own.model_copy(update={"solver": plan.solver.model_copy(update=claims)}))
    return every


@pytest.mark.parametrize("seed", slow_after(4, range(300)))
def test_what_does_not_fit_disproves_no_bound_and_is_said_not_to(seed: int, tmp_path: Path) -> None:
    network, asked = drawn(seed)
    training = {"micro_batches": 1, "recompute": "none", "shard": "none"}
    asked["training"] = {**asked.get("training", {}), **training}
    free = ho.solve(network, **asked, search="joint")
    holds = sorted(ho.memory(own).tensors for own in baselines_of(free))
    limit = Random(seed).choice([holds[0], holds[1] - 1, holds[1]])
    limits = {**asked["constraints"], "memory": limit}
    plan = ho.solve(network, **{**asked, "constraints": limits})
    file, said = tmp_path / "plan.json", " ".join(refused_baselines(plan))
    plan.save(file)
    assert ho.read_plan(file) == plan
    others = baselines_of(plan)
    fit = [ho.memory(own).tensors <= limit for own in others]
    assert [f"{name} does not fit: " in said for name in BASELINES] == [not own for own in fit]
    totals = [own.cost.total for own in others]
    # The dearer one claims to be optimal.
    dear = totals.index(max(totals))
    if all(fit) and totals[0] != totals[1]:
        others[dear].save(file)
        with pytest.raises(InputError, match="solver, bound: should be at most"):
            ho.read_plan(file)


def test_corners_on_one_line_have_weights() -> None:
    corners = ((10_000, 0, 0), (5_000, 5_000, 0), (0, 10_000, 0))
    weights = weights_near(corners, (5_000, 2_500, 2_500))
    assert sum(weights) == pytest.approx(1)
    assert min(weights) > 0
