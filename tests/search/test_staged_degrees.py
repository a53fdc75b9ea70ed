"""Configurations with stages: what they take is what simulate and memory say of their plans."""

from __future__ import annotations

import random
from itertools import accumulate, combinations, pairwise
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
import hypar_opt.plan.configuration
from hypar_opt.models.gpt import gpt
from hypar_opt.pipeline import plan_of_configuration
from hypar_opt.plan.configuration import Configuration, configuration_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stated import stated_problem
from hypar_opt.search.cuts import balanced_cuts
from hypar_opt.search.staged_degrees import (
    Shape,
    StagedEvaluator,
    search_stages,
)
from hypar_opt.workload.stages import block_starts

NETWORK = gpt(layers=4, hidden=256, heads=4, tokens=64, vocabulary=4096)
"""Small, with tied embeddings."""


@pytest.fixture(scope="module")
def problem() -> Problem:
    asked: Any = {
        "batch": 8,
        "array": "h100-8",
        "optimizer": "adam",
        "choices": "all",
        "cost": "time",
    }
    return stated_problem(NETWORK, asked)[1]


def _drawn(
    problem: Problem, count: int, number: int
) -> tuple[StagedEvaluator, list[Configuration]]:
    """Return some configurations of so many stages, of some that fit in any memory."""
    evaluator = StagedEvaluator(NETWORK, problem, count)
    family = [*ho.plan.configuration.family(NETWORK, evaluator.problem, recompute=("none", "full"))]
    every = [
        one._replace(blocks=blocks if one.recompute == "full" else None)
        for cut in evaluator.cut(family)
        for one in cut
        for blocks in (1, None)
    ]
    return evaluator, random.Random(number).sample(every, number)


@pytest.mark.parametrize("count", [2, 4])
def test_what_it_takes_is_what_its_plan_takes(problem: Problem, count: int) -> None:
    evaluator, drawn = _drawn(problem, count, 3)
    for one in drawn:
        plan = plan_of_configuration(NETWORK, problem, one)
        evaluated = evaluator.evaluate(one, evaluator.counted(one))
        assert evaluated.seconds == pytest.approx(ho.simulate(plan).seconds, rel=1e-9)
        assert evaluated.memory == ho.memory(plan).total
        # No bound exceeds it, and what may not fit does not.
        assert evaluator.bounds([one])[0] <= evaluated.seconds
        held = evaluator.whole.held(one, *evaluator.shape_of(one))[0]
        assert held == pytest.approx(evaluated.memory, rel=2**-10)


def test_a_plan_of_a_configuration_is_that_configuration(problem: Problem) -> None:
    for one in (
        Configuration(dp_shard=2, tp=2, pp=2, micro_batches=4, zero="state"),
        Configuration(dp_shard=2, pp=4, micro_batches=2, recompute="full", zero="weights"),
        Configuration(
            dp_shard=2, cp=2, pp=2, interleave=2, micro_batches=4, recompute="full", blocks=1
        )._replace(blocks=None),
        Configuration(dp_shard=4, pp=2, cuts=(3, 1), micro_batches=2, recompute="full", blocks=2),
    ):
        assert configuration_of(plan_of_configuration(NETWORK, problem, one)) == one


def test_the_best_are_those_of_all(problem: Problem) -> None:
    fixed = {"tp": [1, 2], "micro_batches": [2, 4], "zero": ["none", "state"], "cp": 1}
    found = search_stages(NETWORK, problem, counts=[2], count=3, fixed=fixed)
    evaluator = StagedEvaluator(NETWORK, problem, 2)
    whole = ho.plan.configuration.family(
        NETWORK, evaluator.problem, fixed=fixed | {"dp_replicate": 1}, recompute=("none",)
    )
    every = [one for cut in evaluator.cut([*whole]) for one in cut]
    seconds = sorted(evaluator.evaluate(one, evaluator.counted(one)).seconds for one in every)
    # In this memory nothing has to be computed again.
    assert [own.seconds for own in found.best] == pytest.approx(seconds[:3], rel=1e-9)
    assert found.complete
    assert found.simulated <= len(every)


def test_within_memory_fewer_blocks_would_not_fit(problem: Problem) -> None:
    fixed = {"tp": 1, "cp": 1, "micro_batches": 2, "zero": "none"}
    (free,) = search_stages(NETWORK, problem, counts=[2], count=1, fixed=fixed).best
    kept = problem.constraints.model_copy(update={"memory": free.memory * 9 // 10})
    tight = problem.model_copy(update={"constraints": kept})
    evaluator = StagedEvaluator(NETWORK, tight, 2)
    for own in search_stages(NETWORK, tight, counts=[2], count=5, fixed=fixed).best:
        one = own.configuration
        assert all(evaluator.fits(at.memory, at.reserve) for at in evaluator.counted(one))
        if one.recompute != "none":
            most = evaluator.most_blocks(Shape(one.pp, one.interleave, one.cuts))
            fewer = (one.blocks or most) - 1
            less = (
                one._replace(blocks=fewer) if fewer else one._replace(recompute="none", blocks=None)
            )
            assert not all(evaluator.fits(at.memory, at.reserve) for at in evaluator.counted(less))


def test_where_none_fits_it_names_what_needs_least(problem: Problem) -> None:
    """Of all, counted one by one, with all blocks computed again."""
    kept = problem.constraints.model_copy(update={"memory": 1})
    tight = problem.model_copy(update={"constraints": kept})
    fixed = {"tp": [1, 2], "micro_batches": [2, 4, 8]}
    found = search_stages(NETWORK, tight, counts=[2, 4], fixed=fixed)
    assert (found.best, found.fitting) == ((), 0)
    needs = []
    for count in (2, 4):
        evaluator = StagedEvaluator(NETWORK, tight, count)
        whole = ho.plan.configuration.family(
            NETWORK,
            evaluator.problem,
            fixed=fixed | {"dp_replicate": 1},
            recompute=evaluator.whole.policies,
        )
        needs += [
            max(stage.memory for stage in evaluator.counted(one))
            for cut in evaluator.cut([*whole])
            for one in cut
        ]
    assert [own.memory for own in found.least] == sorted(needs)[:3]
    for candidate in found.least:
        plan = plan_of_configuration(NETWORK, problem, candidate.configuration)
        assert ho.memory(plan).total == candidate.memory


@pytest.mark.parametrize("seed", range(8))
def test_the_heaviest_of_balanced_stages_is_the_lightest(seed: int) -> None:
    """Of all cuts between blocks; what is outside of these is in the first or the last stage."""
    drawn = random.Random(seed)
    network = gpt(layers=6, hidden=64, heads=2, tokens=64, vocabulary=128)
    weights = np.array([drawn.randrange(1000) for _ in network.layers])
    starts = block_starts(network)
    for count in range(2, 7):
        heaviest = [
            max(weights[first:end].sum() for first, end in pairwise((0, *cuts, len(weights))))
            for cuts in combinations(starts[1:], count - 1)
        ]
        numbers = balanced_cuts(network, weights, count)
        assert (len(numbers), sum(numbers)) == (count, 6)
        cuts = [starts[number] for number in accumulate(numbers[:-1])]
        ends = pairwise((0, *cuts, len(weights)))
        assert max(weights[first:end].sum() for first, end in ends) == min(heaviest)
    assert balanced_cuts(network, weights, 7) == ()


def test_even_cuts_and_those_by_time(problem: Problem) -> None:
    even = gpt(layers=8, hidden=256, heads=2, tokens=64, vocabulary=16)
    evaluator = StagedEvaluator(even, problem, 4)
    one = Configuration(dp_shard=2, micro_batches=4)
    ((first,), *others) = evaluator.cut([one])
    assert (first.interleave, first.cuts) == (1, ())
    assert {(own.interleave, own.cuts) for (own,) in others} >= {(2, ())}
    assert all(own.pp == 4 for (own,) in others)
    # Interleaved stages have micro-batches in their multiples.
    odd = one._replace(micro_batches=2)
    assert all(own.interleave == 1 for cut in evaluator.cut([odd]) for own in cut)
    few = StagedEvaluator(gpt(layers=3, hidden=64, heads=2, tokens=64, vocabulary=16), problem, 4)
    assert not [*few.cut([one])]


def test_balanced_stages_take_less_where_the_head_is_long(problem: Problem) -> None:
    """Each configuration is cut by its own program, which differs between micro-batches."""
    heavy = gpt(layers=8, hidden=1024, heads=4, tokens=512, vocabulary=50000)
    evaluator = StagedEvaluator(heavy, problem.model_copy(update={"batch": 64}), 2)
    ones = [Configuration(dp_shard=4, micro_batches=8)]
    ones += [Configuration(tp=4, micro_batches=count) for count in (8, 16, 64)]
    even, *balanced = (cut for cut in evaluator.cut(ones) if cut[0].interleave == 1)
    assert even[0].cuts == ()
    seconds = {one[:7]: evaluator.evaluate(one, evaluator.counted(one)).seconds for one in even}
    programs = evaluator.whole.programs(ones)
    cuts = [
        balanced_cuts(heavy, np.rint(programs[one[:6], one[6]] * 1e12).astype(np.int64), 2)
        for one in ones
    ]
    assert len({*cuts}) == 3
    apart = [one for cut in balanced for one in cut]
    assert {one[:7]: one.cuts for one in apart} == {
        one[:7]: own for one, own in zip(ones, cuts, strict=True) if own != (4, 4)
    }
    for one in apart:
        assert evaluator.evaluate(one, evaluator.counted(one)).seconds < seconds[one[:7]]


def test_configure_lists_stages_where_they_are_asked_for() -> None:
    asked: dict[str, Any] = {"batch": 8, "bound": "none", "best": 3}
    found = ho.configure(NETWORK, "h100-8", **asked, stages=2, fix="tp=1,micro_batches=4")
    assert {own.configuration.pp for own in found} == {2}
    assert found.best.seconds == pytest.approx(ho.simulate(found.plan()).seconds, rel=1e-9)
    row = found.rows()[0]
    assert (row["pp"], row["exposed"]) == (2, None)
    assert row["bubble"] > 0
    assert "--pipeline-model-parallel-size 2" in found.to("megatron")
    both = ho.configure(NETWORK, "h100-8", **asked, stages="auto", fix="tp=1,micro_batches=4")
    without = ho.configure(NETWORK, "h100-8", **asked, fix="tp=1,micro_batches=4")
    together = sorted([*(own.seconds for own in without), *(own.seconds for own in both)])
    assert both.best.seconds == together[0]
    assert "pp" not in without.rows()[0]


@pytest.mark.parametrize(
    ("stages", "fix", "says"),
    [
        (3, None, "parts"),
        (8, None, "two accelerators or more"),
        (2, "micro_batches=3", "no configuration of 2 stages"),
    ],
)
def test_what_no_stages_are_is_refused(stages: Any, fix: Any, says: Any) -> None:
    with pytest.raises(ho.HyparError, match=says):
        ho.configure(NETWORK, "h100-8", batch=8, bound="none", stages=stages, fix=fix)


def test_stated_degrees_have_stages() -> None:
    asked: dict[str, Any] = {"array": "h100-8", "batch": 8, "optimizer": "adam", "memory": "array"}
    plan = ho.solve(NETWORK, **asked, degrees="tp=2,pp=2,dp=2")
    own = configuration_of(plan)
    assert (own.pp, own.tp, own.dp_replicate * own.dp_shard) == (2, 2, 2)
    assert plan.stages is not None
    assert plan.stages.ends == (plan.stages.ends[0], len(NETWORK.layers))
    cut = ho.solve(*(NETWORK,), **asked, micro_batches=2, degrees="pp=2,dp=4", cuts=["decoder.3"])
    assert configuration_of(cut).cuts == (3, 1)
    chunks = ho.solve(NETWORK, **asked, micro_batches=2, degrees="pp=2,dp=4,v=2")
    assert configuration_of(chunks).interleave == 2
    for wrong, says in (
        ({"cuts": ["decoder.3"]}, "cuts goes with pp"),
        ({"degrees": "pp=2,dp=4", "cuts": ["decoder.9"]}, "no layer or block is called"),
        ({"degrees": "pp=2,dp=4", "stages": 2}, "stages goes without pp"),
        ({"degrees": "pp=2,dp=4", "micro_batches": 3}, "should divide the batch of 8"),
    ):
        with pytest.raises(ho.HyparError, match=says):
            ho.solve(NETWORK, **asked | wrong)
