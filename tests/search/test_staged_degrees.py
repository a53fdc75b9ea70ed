"""Configurations with stages: what they take is what simulate and memory say of their plans."""

from __future__ import annotations

import io
import random
from collections import defaultdict
from itertools import accumulate, combinations, pairwise
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import hypar_opt as ho
import hypar_opt.plan.configuration
from hypar_opt.display.terminal.configurations import configurations_view
from hypar_opt.instance.stage import stage_instance
from hypar_opt.models import load, names
from hypar_opt.models.gpt import gpt
from hypar_opt.plan.configuration import Configuration, configuration_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stages import even_stages
from hypar_opt.plan.stated import gathered_as, stated_problem
from hypar_opt.plan.stated_degrees import pinned, stated_degrees
from hypar_opt.plan.trained import trained
from hypar_opt.planning.priced import plan_of_configuration
from hypar_opt.search.cuts import balanced_cuts
from hypar_opt.search.staged_degrees import (
    Shape,
    StagedEvaluator,
    search_stages,
)
from hypar_opt.studies.configurations import Configurations
from hypar_opt.workload.patterns import words_by_layer
from hypar_opt.workload.stages import block_starts
from tests.slow import slow_after

NETWORK = gpt(layers=4, hidden=256, heads=4, tokens=64, vocabulary=4096)
"""Small, with tied embeddings."""


def text_of(found: Configurations) -> str:
    """What a wide terminal shows."""
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(configurations_view(found))
    return console.export_text()


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
        held = evaluator.whole.estimated_memory(one, *evaluator.shape_of(one))[0]
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
            most = evaluator.max_blocks(Shape(one.pp, one.interleave, one.cuts))
            fewer = (one.blocks or most) - 1
            less = (
                one._replace(blocks=fewer) if fewer else one._replace(recompute="none", blocks=None)
            )
            assert not all(evaluator.fits(at.memory, at.reserve) for at in evaluator.counted(less))


def test_where_none_fits_it_names_what_needs_least(problem: Problem) -> None:
    """Of all, counted one by one, with all blocks computed again."""
    kept = problem.constraints.model_copy(update={"memory": 1})
    tight = problem.model_copy(update={"constraints": kept})
    fixed = {"tp": 1, "micro_batches": 4}
    found = search_stages(NETWORK, tight, counts=[2, 4], fixed=fixed)
    assert (found.best, found.simulated) == ((), 0)
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
    assert [own.memory for own in found.smallest] == sorted(needs)[:3]
    for candidate in found.smallest:
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


@pytest.mark.parametrize("one", [Configuration(dp_shard=4), Configuration(tp=4)])
def test_a_layer_weighs_what_it_adds_to_a_step_with_each_micro_batch(
    problem: Problem, one: Configuration
) -> None:
    """Its passes, with what they wait for; updates and the reduction of gradients come once."""
    evaluator, count = StagedEvaluator(NETWORK, problem, 2), 2
    one = one._replace(micro_batches=count)
    added: defaultdict[str, float] = defaultdict(float)
    for factor, sign in ((1, -1), (2, 1)):
        longer = evaluator.whole.problem.model_copy(update={"batch": factor * problem.batch})
        plan = plan_of_configuration(NETWORK, longer, one._replace(micro_batches=factor * count))
        for part in ho.simulate(plan, overlap="none").layers:
            added[part.layer] += sign * (part.compute + part.communication)
    program = evaluator.whole.programs([one])[one[:6], count]
    weights = dict(zip((layer.name for layer in NETWORK.layers), program * count, strict=True))
    assert weights == pytest.approx(added)


def test_configure_lists_stages_where_they_are_asked_for() -> None:
    asked: dict[str, Any] = {"batch": 8, "bound": "none", "best": 3}
    fix = "tp=1,micro_batches=4,zero=state"
    found = ho.configure(NETWORK, "h100-8", **asked, stages=2, fix=fix)
    assert {own.configuration.pp for own in found} == {2}
    assert found.best.seconds == pytest.approx(ho.simulate(found.plan()).seconds, rel=1e-9)
    row = found.rows()[0]
    assert (row["pp"], row["exposed"]) == (2, None)
    assert row["bubble"] > 0
    assert "--pipeline-model-parallel-size 2" in found.to("megatron")
    both = ho.configure(NETWORK, "h100-8", **asked, stages="auto", fix=fix)
    without = ho.configure(NETWORK, "h100-8", **asked, fix=fix)
    together = sorted([*(own.seconds for own in without), *(own.seconds for own in both)])
    assert both.best.seconds == together[0]
    assert "pp" not in without.rows()[0]
    # Of stages it is not known how many fit that were not simulated.
    assert (found.fitting, both.fitting) == (None, None)
    assert without.fitting is not None
    shown = [text_of(own) for own in (found, both, without)]
    of_stages, of_both, of_none = (text.partition(":")[2] for text in shown)
    assert f"{found.simulated} simulated, all of which fit in 85 GB" in of_stages
    assert f"{both.simulated} simulated, all of which fit in 85 GB" in of_both
    assert f"{without.fitting} fit in 85 GB, {without.simulated} simulated" in of_none


def test_what_is_fixed_holds_of_all_and_leaves_out_no_other() -> None:
    asked: dict[str, Any] = {"batch": 8, "bound": "none", "best": 1000}
    pinned = "tp=1,micro_batches=4,zero=state"
    every = [
        own.configuration
        for own in ho.configure(NETWORK, "h100-8", **asked, stages="auto", fix=pinned)
    ]
    assert {(own.pp, own.interleave) for own in every} == {(1, 1), (2, 1), (2, 2), (4, 1)}
    cases: tuple[tuple[Any, str, set[int], set[int]], ...] = (
        ("auto", "pp=1", {1}, {1}),
        ("auto", "pp=2", {2}, {1, 2}),
        (None, "pp=4", {4}, {1}),
        (4, "pp=4", {4}, {1}),
        (2, "interleave=2", {2}, {2}),
        ("auto", "interleave=2", {2}, {2}),
        ("auto", "interleave=1", {1, 2, 4}, {1}),
        (1, "pp=1,interleave=1", {1}, {1}),
    )
    for stages, fix, parts, chunks in cases:
        found = ho.configure(NETWORK, "h100-8", **asked, stages=stages, fix=f"{pinned},{fix}")
        kept = [own for own in every if own.pp in parts and own.interleave in chunks]
        assert [own.configuration for own in found] == kept, fix


def test_fixed_recomputation_is_not_left_out_where_all_fits() -> None:
    asked: dict[str, Any] = {"batch": 8, "bound": "none", "stages": 2}
    found = ho.configure(NETWORK, "h100-8", **asked, fix="tp=1,micro_batches=2,recompute=full")
    assert {own.configuration.recompute for own in found} == {"full"}


def test_cuts_are_a_column_where_stages_have_unequally_many_blocks() -> None:
    asked: dict[str, Any] = {
        "batch": 8,
        "bound": "none",
        "stages": 2,
        "fix": "tp=1,cp=1,micro_batches=2",
    }
    # By the forward pass alone the head would be as two blocks of four.
    head = gpt(layers=4, hidden=256, heads=4, tokens=64, vocabulary=64000)
    found = ho.configure(head, "h100-8", **asked, best=100)
    cuts = ["+".join(map(str, own.configuration.cuts)) for own in found]
    assert {*cuts} == {"", "3+1"}
    header, *rows = text_of(found).splitlines()[2 : 3 + len(found)]
    column = slice(header.index("cuts"), header.index("  cp"))
    assert [row[column].strip().replace("-", "") for row in rows] == cuts
    even = ho.configure(head, "h100-8", **asked | {"fix": "tp=1,cp=1,micro_batches=2,interleave=2"})
    assert "cuts" not in text_of(even)


@pytest.mark.parametrize(
    ("stages", "fix", "says"),
    [
        (3, None, "parts"),
        (8, None, "two accelerators or more"),
        (2, "micro_batches=3", "no configuration of 2 stages"),
        (None, "interleave=2", "fix: interleave=2 needs stages, as stages='auto'"),
        (None, "pp=1,interleave=2", "fix: interleave=2 needs stages"),
        ("auto", "pp=1,interleave=2", "fix: interleave=2 needs stages"),
        (
            "auto",
            "interleave=3",
            "there is no configuration of stages for .* with fix='interleave=3'",
        ),
        (2, "pp=1", "fix: pp=1 contradicts stages=2"),
        (1, "pp=2", "fix: pp=2 contradicts stages=1"),
        (None, "pp=1,tp=3", "fix: tp should be one of 1, 2, 4 for batch 8 of .* got 3"),
    ],
)
def test_what_no_stages_are_is_refused(stages: Any, fix: Any, says: Any) -> None:
    with pytest.raises(ho.HyparError, match=says):
        ho.configure(NETWORK, "h100-8", batch=8, bound="none", stages=stages, fix=fix)


@pytest.mark.parametrize(
    ("replicas", "zero", "says"),
    [
        (1, "state", "optimizer state sharded (ZeRO-1)"),
        (1, "weights", "weights sharded (ZeRO-3)"),
        (2, "state+weights", "weights sharded over 2, state over 4"),
    ],
)
def test_memory_says_what_is_sharded_as_the_plan_does(
    problem: Problem, replicas: int, zero: str, says: str
) -> None:
    one = Configuration(dp_replicate=replicas, dp_shard=4 // replicas, pp=2, zero=zero)
    plan = plan_of_configuration(NETWORK, problem, one)
    held = ho.memory(plan)
    assert held.document()["shard"] == plan.training.shard
    assert trained({"shard": held.options["shard"]}, held.plan) == says
    assert configuration_of(plan).zero == zero


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


@pytest.mark.parametrize("name", [name for name in names() if load(name).repeats])
@pytest.mark.parametrize(
    "stated", slow_after(1, ["pp=2,tp=2", "pp=2,cp=2,tp=2", "pp=2,tp=2,v=2", "pp=4,tp=2"])
)
def test_layers_of_stages_of_stated_degrees_gather_as_those_of_the_network(
    name: str, stated: str
) -> None:
    asked: Any = {
        "batch": 8,
        "array": "h100-8",
        "choices": "all",
        "cost": "time",
        "optimizer": "adam",
    }
    network, problem = stated_problem(name, asked)
    try:
        own = stated_degrees(network, problem, stated, None)
        stages = even_stages(network, own.pp, own.interleave)
    except ho.HyparError:
        pytest.skip("the network has no such degrees")
    problem = gathered_as(own, network, problem)
    layers = [layer.name for layer in network.layers]
    words = dict(zip(layers, words_by_layer(problem.training.gather, layers, ""), strict=True))
    for part in range(own.pp):
        chunks = stages.chunks_of(part)
        stage = stage_instance(network, problem, part, own.pp, chunks, [1] * own.interleave)
        inside = pinned(stage.network, stage.problem, own.inside)
        here = [layer.name for layer in stage.network.layers]
        gathered = words_by_layer(inside.training.gather, here, "")
        assert [
            word or "once" for layer, word in zip(here, gathered, strict=True) if layer in words
        ] == [words[layer] or "once" for layer in here if layer in words]
