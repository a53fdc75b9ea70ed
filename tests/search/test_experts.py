"""Plans of mixtures of experts: optima are those of exhaustion, and expert parallelism emerges."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.slow import slow_after
from tests.strategies.mixtures import mixture, smallest

THREE: dict[str, Any] = {"choices": CHOICES, "search": "joint"}


@pytest.mark.parametrize("batch", [2, 8, 48])
@pytest.mark.parametrize("sizes", [(2,), (3,), (4,)])
def test_the_optimum_is_the_least_that_any_program_moves(
    batch: int, sizes: tuple[int, ...]
) -> None:
    """Of every choice of each layer, and every layout of the logits, which two layers read."""
    network = smallest()
    workload = workload_of(network, batch, CHOICES, shared_tensors=True)
    allowed = [
        [column for column, choice in enumerate(own) if choice and not choice.last_resort]
        for own in workload.choices_of_nodes
    ]
    least = min(
        sum(one.elements for one in exchanges_of_step(Program(workload, [row], Hierarchy(sizes))))
        for row in itertools.product(*allowed)
    )
    plan = ho.solve(network, batch=batch, hierarchy=sizes, whole_levels=True, **THREE)
    assert plan.cost.total == 4 * least


@pytest.mark.parametrize("seed", range(4))
def test_all_exact_solvers_agree_on_mixtures(seed: int) -> None:
    for search in ("levelwise", "joint"):
        asked: dict[str, Any] = {"batch": 8, "levels": 1 + seed % 2, "choices": CHOICES}
        totals = {
            solver: ho.solve(mixture(seed), solver=solver, search=search, **asked).cost.total
            for solver in ("dp", "ilp")
        }
        assert len(set(totals.values())) == 1, totals


@pytest.mark.parametrize("seeds", slow_after(1, [range(2), range(2, 4)]))
@pytest.mark.parametrize("cost", ["bytes", "time", "energy"])
@pytest.mark.parametrize("choices", [CHOICES[:2], CHOICES])
def test_an_optimum_is_proved_by_the_second_derivation(
    cost: str, choices: tuple[str, ...], seeds: range
) -> None:
    for seed in seeds:
        asked: dict[str, Any] = {"batch": 8, "cost": cost, "choices": choices}
        plan = ho.solve(mixture(seed), search="joint", array="hmc-htree-4", **asked)
        ho.check_certificate(plan, ho.certify(plan))


@pytest.mark.parametrize(
    ("batch", "sizes", "total"),
    [
        (2, (2,), 28_330_655_744),
        (4, (2, 2), 103_085_998_080),
        (8, (2, 2, 2), 287_224_856_576),
        (8, (8,), 203_774_197_760),
    ],
)
def test_data_and_expert_parallelism_together_are_mixtrals_optimum(
    batch: int, sizes: tuple[int, ...], total: int
) -> None:
    """The totals are those of a prototype with all axes as choices, level by level."""
    asked: dict[str, Any] = {"batch": batch, "hierarchy": sizes, "whole_levels": True}
    plan = ho.solve("mixtral-8x7b", constraints={"even": True}, **asked, **THREE)
    assert (plan.cost.total, plan.solver.status) == (total, "optimal")
    words = dict(zip(plan.layers, zip(*plan.parallelism, strict=True), strict=True))
    assert set(words["decoder.0.up"]) == set(words["decoder.31.down"]) == {"experts"}
    assert set(words["decoder.0.dispatch"]) == set(words["decoder.31.query"]) == {"data"}


def test_experts_are_split_as_far_as_there_are_any() -> None:
    """Of one sequence nothing but the four experts can be split: two levels do, a third repeats."""
    asked: dict[str, Any] = {"batch": 1, "constraints": {"even": True, "fix": ("router=model",)}}
    plan = ho.solve(smallest(), levels=2, **asked, **THREE)
    assert [row[2] for row in plan.parallelism] == ["experts", "experts"]
    plan = ho.solve(smallest(), levels=3, **asked, **THREE)
    assert sorted(row[2] for row in plan.parallelism) == ["experts", "experts", "whole"]
