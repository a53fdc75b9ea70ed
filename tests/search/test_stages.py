"""The fastest plans in pipeline stages, against all cuts, stages and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, product
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.costs.stage_messages import tied_reductions
from hypar_opt.display.labels import stages_in_words
from hypar_opt.errors import HyparError, InfeasibleError, NoAnswerError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.stage import check_shards, stage_instance
from hypar_opt.instance.staged import StagedPlan, in_stages_of
from hypar_opt.integers import divisors
from hypar_opt.models import load, names
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stages import Stages
from hypar_opt.planning.search import solve_jointly
from hypar_opt.search.memory.incumbent import NothingFitsError
from hypar_opt.search.memory.modes import TrainingMode
from hypar_opt.search.result import SearchRequest
from hypar_opt.search.short_steps import ShortSteps
from hypar_opt.search.stages import StagesFound, in_stages
from hypar_opt.simulator.pipeline_order import in_flight, orders
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import Status
from hypar_opt.studies.random_networks import random_chain, random_graph
from hypar_opt.studies.simulation import per_second
from hypar_opt.studies.validation.machines import array_of as machine_array
from hypar_opt.studies.validation.machines import known_machines
from hypar_opt.workload.parallelism import part_word
from hypar_opt.workload.patterns import all_words
from hypar_opt.workload.recomputation import recomputed_words
from hypar_opt.workload.shards import Shards, shards_of
from hypar_opt.workload.stages import cuts_between_blocks
from tests import slow
from tests.clocks import tick_when_read
from tests.slow import slow_after, slow_off_diagonal

SMALL = 8
"""The seeds below which problems are small; first of all are three chains, then a GPT."""
SEEDS = [*dict.fromkeys((3, 6, 2, 7, *range(100)))]
SHAPES = [(1, 4), (2, 2), (4, 1), (1, 8), (2, 4), (4, 2)]


def array_of(nodes: int, per_node: int) -> ho.Array:
    """Nodes of A100s."""
    described = find_array("a100-4x8").description()
    described["topology"] |= {"nodes": nodes, "per_node": per_node}
    return ho.Array.model_validate(described)


def searched(
    network: ho.Network, problem: Problem, counts: Sequence[int] | None = None
) -> StagesFound:
    instance = Instance.to_search(network, problem)
    return in_stages(SearchRequest(instance, SOLVERS["dp"]()), counts)


def taken(instance: Instance) -> Fraction | None:
    """What the best plan of a stage takes; None if none fits."""
    try:
        plan = solve_jointly(instance, "dp")
    except (InfeasibleError, NoAnswerError):
        return None
    return Fraction(plan.cost.total) / per_second(plan)


def every_charge(
    network: ho.Network, problem: Problem, counts: Sequence[int], batches: Sequence[int]
) -> Iterator[tuple[Fraction, int, int, tuple[int, ...]]]:
    """Yield what a step takes in all stages that fit: by a search of each one's own problem."""
    assert problem.array is not None
    borders = [0, *cuts_between_blocks(network), len(network.layers)]
    for count in counts:
        for batch in batches:
            training = problem.training.model_copy(update={"micro_batches": batch})
            own = problem.model_copy(update={"training": training})
            held = [in_flight(order, (1.0,))[0] for order in orders("1f1b", count, batch)]

            @cache
            def stage(
                number: int,
                first: int,
                end: int,
                own: Problem = own,
                held: Sequence[int] = held,
                count: int = count,
            ) -> Fraction | None:
                if count == 1:
                    return taken(Instance.to_search(network, own))
                chunk = range(first, end)
                return taken(stage_instance(network, own, number, count, [chunk], [held[number]]))

            for ends in combinations(borders[1:-1], count - 1):
                places = [*pairwise((0, *ends, borders[-1]))]
                each = [stage(number, *place) for number, place in enumerate(places)]
                if (seconds := [own for own in each if own is not None]) == each:
                    rest = sum(seconds) - max(seconds)
                    tied = summed(problem, Stages(network, count, (*ends, borders[-1])))
                    yield max(seconds) + rest / batch + tied, count, batch, ends


def summed(problem: Problem, stages: Stages) -> Fraction:
    """The seconds in which stages sum gradients of weights that they share."""
    assert problem.array is not None
    sums = tied_reductions(stages, problem.array.description, problem.element_bytes)
    return sum((own.seconds for own in sums), Fraction())


def drawn(rng: Random, most: int) -> ho.Network:
    """A network of few places to cut it."""
    while True:
        kind = rng.choice(["gpt", "gpt", "chain", "graph" if most > 5 else "chain"])
        if kind == "gpt":
            heads = rng.choice([2, 4])
            network = ho.gpt(
                layers=rng.randint(1, 3),
                hidden=heads * rng.choice([16, 64, 256]),
                heads=heads,
                tokens=rng.choice([16, 128, 512]),
                vocabulary=rng.choice([64, 1000]),
                tied=rng.random() < 0.5,
            )
        elif kind == "chain":
            network = random_chain(rng, "chain")
        else:
            network = random_graph(rng, most=5, largest=64)
        if 1 <= len(cuts_between_blocks(network)) <= most and len(network.layers) <= 35:
            return network


def problem_on(array: ho.Array, batch: int, **more: Any) -> Problem:
    more = {"choices": ("data", "model", "output"), **more}
    return problem_of(array=array, batch=batch, cost="time", **more)


def held_by(plan: StagesFound) -> int:
    """The bytes of the fullest device."""
    each = zip(plan.plans, plan.results, strict=True)
    return max(way_of(own.instance).counted(result).bytes for own, result in each)


def way_of(instance: Instance) -> TrainingMode:
    return TrainingMode(SearchRequest(instance, SOLVERS["dp"]()))


@pytest.mark.parametrize("seed", slow_after(2, SEEDS))
def test_stages_are_the_best_of_all(seed: int) -> None:
    rng = Random(seed)
    shape = rng.choice(SHAPES if seed >= SMALL else SHAPES[:3])
    network, array = drawn(rng, 7 if seed >= SMALL else 5), array_of(*shape)
    batch = rng.choice([2, 3, 8, 16])
    training: dict[str, Any] = {}
    if batch > 3:
        training["micro_batches"] = rng.choice(divisors(batch))
    constraints: dict[str, Any] = {"optimizer": rng.choice(["adam", "sgd"])}
    problem = problem_on(array, batch, training=training, constraints=constraints)
    try:
        ample = searched(network, problem)
    except HyparError:
        assert not [*every_charge(network, problem, [1, 2, 4][: seed % 3 + 1], [1])]
        return
    if rng.random() < 0.75:
        constraints["memory"] = int(held_by(ample) * rng.uniform(0.3, 1.0))
        problem = problem_on(array, batch, training=training, constraints=constraints)
    _check(network, problem)


def _check(network: ho.Network, problem: Problem, counts: Sequence[int] | None = None) -> None:
    most = len(cuts_between_blocks(network)) + 1
    every_count = [n for n in divisors(problem.accelerators)[:-1] if n <= most]
    stated = problem.training.micro_batches
    batches = [stated] if stated else divisors(problem.batch)
    every = [*every_charge(network, problem, counts or every_count, batches)]
    if not every:
        with pytest.raises((InfeasibleError, NoAnswerError, NothingFitsError)):
            searched(network, problem, counts)
        return
    found, least = searched(network, problem, counts), min(every)[0]
    # The least is of stages that each receive what suits them.
    assert found.bound <= least
    if problem.constraints.memory is None:
        assert found.bound == least <= found.seconds
    assert (found.bound == found.seconds) == (found.status is Status.OPTIMAL)
    stages = found.stages
    if stages.parts == 1:
        assert found.seconds == found.plans[0].seconds
    else:
        staged = in_stages_of(problem, stages.parts, found.micro_batches, "1f1b")
        whole = StagedPlan.of(network, staged, stages, found.plans)
        assert whole.seconds == found.seconds
        recomputed_words(network, whole.problem.training.recompute)  # which a file may state
    for own, result in zip(found.plans, found.results, strict=True):
        counted = way_of(own.instance).counted(result)
        assert counted.fits
        assert counted.amount == own.seconds


def blocks_taken(network: ho.Network, problem: Problem, blocks: range) -> Fraction | None:
    """What some blocks take as an inner one of eight stages."""
    (repeat,) = network.repeats
    chunk = range(repeat.repetitions[blocks.start].start, repeat.repetitions[blocks.stop - 1].stop)
    return taken(stage_instance(network, problem, 1, 8, [chunk], [1]))


@pytest.mark.parametrize("seed", slow_after(1, [2, 0, 1, *range(3, 60)]))
def test_layers_that_share_weights_are_in_the_best_stages(seed: int) -> None:
    """Of a chain with a wide weight in two to four places, which is best in one stage or a few."""
    rng = Random(seed)
    places = {*rng.sample(range(4), rng.randint(2, 4))}
    layers: list[dict[str, Any]] = []
    for n in range(4):
        width = 256 if n in places else rng.choice([16, 32])
        layers += [
            {"name": f"in{n}", "kind": "fc", "units": width},
            {"name": f"wide{n}", "kind": "fc", "units": width},
        ]
        if n in places and n > min(places):
            layers[-1]["tied"] = f"wide{min(places)}"
    described = {
        "name": "wide",
        "schema": "hypar-opt/network/2",
        "input": {"features": 16},
        "layer": layers,
    }
    network = ho.Network.model_validate(described)
    array = array_of(*rng.choice([(1, 4), (2, 2), (4, 1), (2, 4)]))
    training = {"micro_batches": rng.choice([2, 4])}
    _check(network, problem_on(array, 4, training=training))


def test_equal_blocks_take_as_much_each() -> None:
    network = ho.gpt(layers=12, hidden=12288, heads=96, tokens=2048, vocabulary=51200)
    problem = problem_on(array_of(8, 8), 64, training={"micro_batches": 64})
    two, three, ten = (blocks_taken(network, problem, range(1, 1 + n)) for n in (2, 3, 10))
    assert two is not None
    assert three is not None
    assert ten == two + 8 * (three - two)


@pytest.mark.parametrize("memory", [80 * 10**9, 700 * 10**6])
def test_a_small_model_has_one_stage(memory: int) -> None:
    """As the best of all cuts of 1, 2 and 4 stages do, in 2 and 4 micro-batches.

    The seconds are those of another search, which solves each stage by itself; of a loss that
    writes what each operation leaves.
    """
    network = ho.gpt(layers=4, hidden=1024, heads=16, tokens=512, vocabulary=8000)
    selene = known_machines()["selene"]
    accelerator = {**selene["accelerator"], "reserve": "1 B", "loss": "eager"}
    machines = {"selene": {**selene, "accelerator": accelerator}}
    array = machine_array(machines, "selene", 8, fused=False, bucket="1 TB")
    constraints = {"optimizer": "adam", "memory": memory}
    found = []
    for count in (2, 4):
        stated = {"micro_batches": count}
        problem = problem_on(array, 16, training=stated, constraints=constraints)
        found.append(searched(network, problem, [1, 2, 4]))
        if count == 2:
            assert found[0].seconds == taken(Instance.to_search(network, problem))
    best = min(found, key=lambda own: own.seconds)
    assert (best.stages.parts, best.micro_batches) == (1, 2)
    assert best.seconds == Fraction(5_441_106_255_582, 10**15)
    assert best.status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("memory", "blocks"),
    [(840_000, "full recomputation of 2"), (950_000, "op-level recomputation of 1")],
)
def test_what_stages_recompute_is_stated_of_blocks(
    memory: int, blocks: str, tmp_path: Path
) -> None:
    """Where a stage recomputes all its blocks, its layers outside of them state nothing."""
    network = ho.gpt(layers=3, hidden=64, heads=2, tokens=64, vocabulary=200)
    how: Any = {"batch": 8, "stages": 2, "micro_batches": 4, "shard": "none", "memory": memory}
    plan = ho.solve(network, array=array_of(2, 2), choices=("data", "model"), **how)
    plan.save(tmp_path / "plan.json")
    read = ho.read_plan(tmp_path / "plan.json")
    assert read == plan
    assert read.stages is not None
    assert f"{blocks} of 3 blocks" in stages_in_words(read, read.stages)


@pytest.mark.parametrize(
    ("sizes", "optimizer"),
    slow_off_diagonal([((1, 4), 16), ((2, 2), 8), ((1, 8), 16)], ["sgd", "adam"]),
)
def test_stages_are_no_slower_than_equal_ones_or_none(
    sizes: tuple[tuple[int, int], int], optimizer: str
) -> None:
    """Although what a stage sends may not suit the next one, as an embedding by channel."""
    shape, batch = sizes
    stated: Any = {"array": array_of(*shape), "batch": batch, "optimizer": optimizer}
    network = ho.gpt(layers=4, hidden=256, heads=4, tokens=64, vocabulary=1000)
    best = ho.solve(network, stages="auto", **stated)
    others = [ho.solve(network, stages=1, **stated)]
    others += [
        ho.solve(network, degrees=f"pp={parts}", **stated)
        for parts in stated["array"].part_counts[1:]
    ]
    for other in others:
        assert charged(best) <= charged(other)


def charged(plan: ho.Plan) -> Fraction:
    """What a plan is charged, in seconds."""
    return Fraction(plan.cost.total) / per_second(plan)


def test_blocks_with_a_head_are_cut_before_they_are_half() -> None:
    """A head of several blocks' work goes with fewer of them."""
    network = ho.gpt(layers=8, hidden=1024, heads=8, tokens=2048, vocabulary=64000, tied=False)
    problem = problem_on(array_of(2, 4), 32, training={"micro_batches": 32})
    found = searched(network, problem, [2])
    (repeat,) = network.repeats
    first, _ = found.stages.ends
    assert sum(own.stop <= first for own in repeat.repetitions) > 4
    assert found.status is Status.OPTIMAL


def test_stages_that_are_alike_are_named_by_their_own_layers() -> None:
    """What is sent is received as it was stored, so that words say all of the plan."""
    network = ho.gpt(layers=6, hidden=4096, heads=32, tokens=2048, vocabulary=51200)
    problem = problem_on(array_of(4, 4), 16, training={"micro_batches": 16})
    found = searched(network, problem, [4])
    assert problem.array is not None
    merged = problem.array.description.hierarchy().merged(4)
    assert merged is not None
    choices = *map(part_word, range(4)), *problem.choices
    update = {"levels": merged.levels, "parts": merged.sizes, "choices": choices}
    staged = problem.model_copy(update=update)
    plan = StagedPlan.of(network, staged, found.stages, found.plans)
    plan.check()
    assert plan.seconds == found.seconds
    assert [own.seconds for own in plan.plans] == [own.seconds for own in found.plans]


def mixture(loads: Sequence[Sequence[int]]) -> ho.Network:
    """A block of experts for each load of them."""
    block: list[dict[str, Any]] = [
        {"name": "router", "kind": "router", "experts": 4, "top_k": 2, "load": loads},
        {"name": "dispatch", "kind": "dispatch", "inputs": ["input", "router"]},
        {"name": "up", "kind": "experts", "units": 256},
        {"name": "down", "kind": "experts", "units": 64},
        {"name": "combine", "kind": "combine", "inputs": ["down", "router"]},
    ]
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "mixture",
            "input": {"tokens": 64, "vocabulary": 512},
            "layer": [
                {"name": "token", "kind": "embedding", "features": 64},
                {"name": "head", "kind": "fc", "units": 512, "inputs": ["b"]},
                {"name": "loss", "kind": "output", "loss": "softmax"},
            ],
            "block": [
                {"name": "b", "repeat": len(loads), "inputs": ["token"], "layer": block},
            ],
        }
    )


def growing(blocks: int) -> ho.Network:
    """Blocks of one kind, whose maps grow from one to the next, as DenseNet's do."""
    block: list[dict[str, Any]] = [
        {"name": "conv", "kind": "conv", "kernel": 3, "filters": 32, "padding": 1},
        {"name": "concat", "kind": "concat", "inputs": ["input", "conv"]},
    ]
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "growing",
            "input": {"channels": 32, "height": 32, "width": 32},
            "layer": [{"name": "fc", "kind": "fc", "units": 16, "inputs": ["b"]}],
            "block": [{"name": "b", "repeat": blocks, "inputs": ["input"], "layer": block}],
        }
    )


DIFFERENT = {
    "loads": mixture([(1, 1, 1, 1), (5, 1, 1, 3), (2, 2, 2, 2), (4, 2, 1, 1)]),
    "maps": growing(5),
}
"""Networks of blocks of which not all are alike."""


@pytest.mark.parametrize("name", slow_after(1, ["maps", "loads"]))
def test_stages_of_blocks_that_differ_are_the_best_of_all(name: str) -> None:
    problem = problem_on(array_of(4, 2), 16, training={"micro_batches": 4})
    _check(DIFFERENT[name], problem, [4])


@pytest.mark.parametrize(
    "network",
    slow_after(4, [*DIFFERENT.values(), *map(load, ("resnet-18", "inception-v3", *names()))]),
    ids=lambda network: network.name,
)
def test_with_all_repetitions_a_short_step_has_the_layers_of_its_stage(network: ho.Network) -> None:
    problem = problem_on(array_of(1, 4), 16)
    borders = cuts_between_blocks(network)
    for cut in borders[:: -(-len(borders) // 8) or 1]:
        for part, chunk in enumerate((range(cut), range(cut, len(network.layers)))):
            stage = stage_instance(network, problem, part, 2, [chunk], [1])
            steps = ShortSteps(stage.network, stage.problem)
            counts = tuple(block.count for block in stage.network.repeats)
            assert steps._network(counts).layers == stage.network.layers


@pytest.mark.parametrize("stages", [4, "auto"])
def test_levels_between_stages_shard_nothing(stages: Any) -> None:
    asked: dict[str, Any] = {"array": "h100-8", "batch": 8, "cost": "time", "micro_batches": 4}
    network = ho.gpt(layers=4, hidden=64, heads=2, tokens=16, vocabulary=64)
    plan = ho.solve(network, **asked, stages=stages, shard="state@H2-H3")
    if stages == 4:
        assert plan.training.shard == "state"


def test_layers_may_have_the_names_of_messages() -> None:
    problem = problem_on(array_of(1, 4), 16, training={"micro_batches": 4})
    charges = []
    for names_of in (
        ("a", "b", "c", "d"),
        ("a", "received", "c", "d"),
        ("a", "sent", "c", "d"),
        ("a", "received", "received'", "sent"),
    ):
        layers = [{"name": name, "kind": "fc", "units": 64} for name in names_of]
        described = {"schema": "hypar-opt/network/2", "name": "chain", "input": {"features": 64}}
        network = ho.Network.model_validate({**described, "layer": layers})
        charges.append(searched(network, problem, [2]).seconds)
    assert len({*charges}) == 1


def test_a_limit_leaves_a_plan_that_fits_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a limit leaves a plan no longer one leaves none, and the longest leaves the best."""
    network = ho.gpt(layers=2, hidden=256, heads=4, tokens=128, vocabulary=512)
    stated: Any = {"array": array_of(2, 2), "batch": 8, "optimizer": "adam", "stages": "auto"}
    best = ho.solve(network, **stated)
    tight = stated | {"memory": ho.memory(best).total // 2}
    best = ho.solve(network, **tight)
    has_plan, stopped = False, 0
    for ticks in (10, *range(200, 1000, 100 if slow.ALL else 400), 10**6):
        tick_when_read(monkeypatch)
        try:
            plan = ho.solve(network, **tight, time_limit=float(ticks))
        except NoAnswerError:
            assert not has_plan
            continue
        has_plan = True
        stopped += plan.solver.stopped_by is not None
        memory = ho.memory(plan)
        assert memory.capacity is not None
        assert memory.total <= memory.capacity
        assert charged(plan) >= charged(best)
    assert charged(plan) == charged(best)
    assert stopped


def test_a_choice_of_the_network_need_be_none_of_each_stage() -> None:
    network = ho.gpt(layers=2, hidden=32, heads=4, tokens=8, vocabulary=64)
    asked: dict[str, Any] = {"array": "rtx4090x4", "batch": 8, "stages": 2, "micro_batches": 2}
    fewer = ho.solve(network, **asked, choices=("data", "model", "output"))
    plan = ho.solve(network, **asked, choices=("data", "model", "output", "addends"))
    assert plan.is_staged
    assert plan.cost.total <= fewer.cost.total
    ho.verify(plan).check()
    with pytest.raises(HyparError, match="tokens needs a network of tokens"):
        ho.solve("lenet-c", **asked, choices=("data", "model", "tokens"))


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 4), (4, 2), (6, 2), (6, 4), (12, 2), (18, 2)])
def test_stages_shard_over_the_accelerators_that_levels_of_the_array_say(
    nodes: int, per_node: int
) -> None:
    """Or are refused: of 12 nodes H3 is three, and four in each of three stages are twice two."""
    network = ho.gpt(layers=2, hidden=32, heads=4, tokens=8, vocabulary=64)
    array = array_of(nodes, per_node)
    hierarchy, layers = array.hierarchy(), len(network.layers)
    for count, first in product(array.part_counts[1:], range(1, hierarchy.levels)):
        part = array.part(count).hierarchy()
        among, size = prod(hierarchy.sizes[first:]), part.accelerators
        split = min(among, size)
        # The accelerators that shard with one another, from the first of each stage on.
        aligned = all(
            [number // among - start // among for number in range(start, start + size)]
            == [number // split for number in range(size)]
            for start in range(0, hierarchy.accelerators, size)
        )
        word = Shards(first, first, first).word(hierarchy.levels)
        problem = problem_on(array, 2 * hierarchy.accelerators, shard=word)
        if not aligned:
            with pytest.raises(HyparError, match="cut through the"):
                check_shards(problem, part)
            continue
        check_shards(problem, part)
        stage = stage_instance(network, problem, 0, count, [range(layers // 2)], [1])
        (own,) = {*all_words(stage.problem.training.shard or "")}
        level = shards_of(own).weights
        assert level is not None
        assert prod(part.sizes[level:]) == split
