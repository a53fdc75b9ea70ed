"""A model with constraints of one's own has the best of the plans that keep to them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.plan.arguments import problem_of
from hypar_opt.solvers.backends.base import load_pulp
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.strategies.plans import every_plan, totals_of

pytestmark = pytest.mark.filterwarnings("ignore:PULP_CBC_CMD:DeprecationWarning")


def chain(*units: int) -> ho.Network:
    layers = [{"name": f"fc {n}", "kind": "fc", "units": size} for n, size in enumerate(units)]
    given = {"features": 6}
    return ho.Network.model_validate({"name": "chain", "input": given, "layer": layers})


@pytest.mark.parametrize("reading", ["text", "executed"])
@pytest.mark.parametrize("choices", [2, 3])
def test_the_best_of_the_plans_that_keep_to_a_constraint(choices: int, reading: str) -> None:
    network, words = chain(4, 9, 5), CHOICES[:choices]
    asked: Any = {"batch": 3, "levels": 2, "choices": words, "reading": reading}
    problem = problem_of(network, **asked)
    workload = workload_of(network, 3, words, shared_tensors=reading == "executed")
    plans = list(every_plan(3, 2, choices))
    totals = totals_of(workload, COSTS["bytes"].from_problem(problem, workload), plans)
    found = []
    for least in range(7):
        model = ho.model(network, **asked)
        places = list(itertools.product(range(3), (1, 2)))
        data = sum(model.takes(f"fc {n}", level, "data") for n, level in places)
        model.problem += data >= least
        model.problem.solve(load_pulp().PULP_CBC_CMD(msg=False))
        kept = [
            total
            for plan, total in zip(plans, totals, strict=True)
            if sum(row.count(0) for row in plan) >= least
        ]
        plan = model.plan()
        assert plan.cost.total == min(kept) == model.problem.objective.value()
        assert sum(row.count("data") for row in plan.parallelism) >= least
        assert plan.solver.status == "feasible"
        found.append(plan.cost.total)
    assert found[0] == ho.solve(network, search="joint", **asked).cost.total < found[-1]


def test_what_the_model_has_not_and_what_is_not_solved_are_refused_by_name() -> None:
    model = ho.model(chain(4), batch=2, levels=1)
    for layer, level, word in (("fc", 1, "data"), ("fc 0", 2, "data"), ("fc 0", 1, "output")):
        with pytest.raises(ho.HyparError, match=f"no choice '{word}' of '{layer}' at H{level}"):
            model.takes(layer, level, word)
    with pytest.raises(ho.HyparError, match="has no solution"):
        model.plan()
    model.problem += model.takes("fc 0", 1, "data") + model.takes("fc 0", 1, "model") >= 2
    model.problem.solve(load_pulp().PULP_CBC_CMD(msg=False))
    with pytest.raises(ho.HyparError, match="has no solution"):
        model.plan()
    with pytest.raises(ho.HyparError, match="levels should be 1 or more"):
        ho.model("lenet-c", levels=0)
