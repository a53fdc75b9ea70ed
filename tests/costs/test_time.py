"""The cost in seconds: added up by hand, searched by brute force, proved and refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.physical import finest, rounded
from hypar_opt.costs.work import Work
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError, RefusedError
from hypar_opt.hardware.accelerator import Accelerator
from hypar_opt.hardware.array import Array
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.sharding.passes import INFERENCE, TRAINING
from hypar_opt.studies.simulation import per_second
from hypar_opt.units import PREFIXES
from hypar_opt.workload.parallelism import CHOICES, PAPERS_CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.hardware.cubes import cubes
from tests.slow import examples, slow_after
from tests.strategies.arrays import stages_by_hand
from tests.strategies.mixtures import mixture
from tests.strategies.networks import networks
from tests.strategies.plans import (
    Asked,
    asked_of_arrays,
    counts,
    every_plan,
    macs,
    plans,
    total,
    totals_of,
    workload,
)
from tests.strategies.problems import keeps

EXACT = ["dp", "brute", "ilp", "cpsat"]
COST = st.sampled_from(["time", "energy"])


def by_hand(plan: ho.Plan) -> tuple[Fraction, Fraction, int]:
    """The seconds of a step's exchanges and of its work, and how many summands these have."""
    assert plan.array is not None
    assert plan.placement is not None
    array, phases = plan.array.description, INFERENCE if plan.inference else TRAINING
    exchanges, count = Fraction(), 0
    for phase in phases:
        # Bytes by what they belong to: a layer's choice, or a boundary at a level.
        moved: dict[tuple[int, ...], list[tuple[int, Fraction]]] = {}
        cost = CommunicationCost(plan.cost.reading, plan.element_bytes, (phase,))
        above: list[tuple[int, ...]] = []
        for bit, row in zip(plan.placement, plan.assignments(), strict=True):
            table = level_table(cost, workload(plan), above)
            for layer, choice in enumerate(row):
                amount = table.in_units(int(table.node[layer, choice]))
                # It reduces the tensor that the other choices split.
                others = {"data", "model", "output"} - {plan.choices[choice]}
                amount = of_largest_shard(plan, amount, layer, others)
                moved.setdefault((layer, choice), []).append((bit, amount))
            for edge, (source, target) in enumerate(table.ends):
                amount = table.in_units(int(table.edge[edge, row[source], row[target]]))
                amount = max(
                    of_largest_shard(plan, amount, source, {"data", "output"}),
                    of_largest_shard(plan, amount, target, {"data", "model"}),
                )
                moved[edge, 0, bit] = [(bit, amount)]
            above.append(row)
        for key, parts in moved.items():
            crossed = [(bit, amount) for bit, amount in parts if amount]
            once = len(key) == 3 or (plan.cost.reading == "executed" and phase != "gradient")
            if crossed:
                exchanges += seconds_by_hand(array, crossed, 1 if once else 2, len(key) == 3)
                count += len(crossed)
    work = len(phases) * sum(work_by_hand(plan), Fraction()) + updates_by_hand(plan)
    # A pass by kernels is rounded by itself, its launches and each update, too.
    return exchanges, work, count + (1 if array.accelerator.gemm is None else 7) * len(plan.layers)


def of_largest_shard(plan: ho.Plan, amount: Fraction, layer: int, splits: set[str]) -> Fraction:
    """Bytes as if all parts of a tensor were like the longest, in whole quarters of elements."""
    quarters = amount * 4 / plan.element_bytes
    sizes = workload(plan).layers[layer].sizes
    for word, axis, count in zip(CHOICES, "bio", counts(plan)[layer], strict=True):
        if word in splits:
            padded = -(-sizes[axis] // 2**count) * 2**count
            quarters = Fraction(-(-quarters * padded // sizes[axis]))
    return quarters * plan.element_bytes / 4


def seconds_by_hand(
    array: Array, crossed: list[tuple[int, Fraction]], often: int, boundary: bool
) -> Fraction:
    """Of a reduction over some bits, H1's first: alpha-beta, with the topmost crossed once.

    Around rings it is all rounds of each stage, twice for an all-reduce.
    """
    if array.collective != "pairwise" and not boundary:
        moved = dict(crossed)
        return sum(
            (
                often * link.latency + sum(map(moved.__getitem__, bits)) * link.seconds_per_byte
                for bits, link in stages_by_hand(array, [bit for bit, _ in crossed])
            ),
            Fraction(),
        )
    splits = [array.interconnect.bisection(bit) for bit, _ in crossed]
    messages = [1] + [often] * (len(crossed) - 1)
    return sum(
        (
            times * split.latency + amount * split.seconds_per_byte
            for times, split, (_, amount) in zip(messages, splits, crossed, strict=True)
        ),
        Fraction(),
    )


def work_by_hand(plan: ho.Plan) -> list[Fraction]:
    """One pass of each layer on one accelerator: the slower of its units and its DRAM.

    These networks have products alone, so that by kernels it is launched besides.
    """
    assert plan.array is not None
    accelerator = plan.array.description.accelerator
    bandwidth = accelerator.dram_bandwidth * Fraction(str(accelerator.elementwise or 1))
    sizes, seconds = workload(plan), []
    for place, (layer, (d, m, o)) in enumerate(zip(sizes.layers, counts(plan), strict=True)):
        rows = (layer.weight[0], layer.output[2]) if layer.kind == "conv" else (1, 1)
        used = accelerator.utilisation_of(*rows)
        if layer.kind == "conv" and accelerator.conv:
            used = Fraction(str(accelerator.conv))
        rate = accelerator.units * accelerator.operations * used / 2
        # Of an axis that is not divided evenly the longest part counts.
        by_image, by_input, by_output = (
            Fraction(-(-layer.sizes[axis] // 2**count), layer.sizes[axis])
            for axis, count in (("b", d), ("i", m), ("o", o))
        )
        words = sizes.weights[place] * by_input * by_output
        words += sizes.inputs[place] * by_image * by_input
        words += sizes.pooled[place] * by_image * by_output
        computing = macs(plan)[place] * by_image * by_input * by_output / rate
        seconds.append(max(computing, words * plan.element_bytes / bandwidth))
    return [each + (accelerator.launch or 0) for each in seconds]


def updates_by_hand(plan: ho.Plan) -> Fraction:
    """The seconds in which one accelerator updates its weights."""
    assert plan.array is not None
    accelerator, sizes = plan.array.description.accelerator, workload(plan)
    if accelerator.update is None or plan.inference:
        return Fraction()
    words = Fraction()
    for weights, layer, (d, m, o) in zip(sizes.weights, sizes.layers, counts(plan), strict=True):
        # Of a state that is sharded each replica updates its part.
        own = Fraction(weights, 2**d if plan.training.shard == "state" else 1)
        for axis, count in (("i", m), ("o", o)):
            own *= Fraction(-(-layer.sizes[axis] // 2**count), layer.sizes[axis])
        words += own
    bandwidth = accelerator.dram_bandwidth * Fraction(str(accelerator.elementwise or 1))
    return words * accelerator.update / bandwidth


@examples(90)
@given(plans("time"))
def test_a_plan_costs_its_messages_and_its_passes_added_up(plan: ho.Plan) -> None:
    exchanges, work, summands = by_hand(plan)
    parts = per_second(plan)
    communication = plan.cost.communication
    assert communication is not None
    assert abs(total(plan) - (exchanges + work) * parts) <= Fraction(summands, 2)
    assert abs(sum(map(Fraction, communication)) - exchanges * parts) <= Fraction(summands, 2)
    assert all(a >= b for a, b in zip(plan.cost.per_level, communication, strict=True))
    assert plan.cost.per_level[:-1] == communication[:-1]  # work is charged with the last


@given(st.fractions(0, 10**20))
def test_the_unit_is_the_finest_whose_sums_fit_64_bits(worst: Fraction) -> None:
    parts = finest(worst)
    assert parts in PREFIXES
    finer = [other for other in PREFIXES if other > parts]
    assert all(4 * worst * other >= 2**63 for other in finer)
    assert 4 * worst * parts < 2**63 or parts == 1


@pytest.mark.parametrize("rate", [Fraction(2**80, 3), Fraction(3, 2**80), Fraction(2**80 + 1, 7)])
@pytest.mark.parametrize("amounts", [[0, 0], [0, 5], [2**80, 1]])
def test_rates_beyond_64_bits_are_exact(rate: Fraction, amounts: list[int]) -> None:
    exact = [amount * rate for amount in amounts]
    integers = np.array(amounts, np.int64 if max(amounts) < 2**62 else object)
    up = [(2 * each.numerator + each.denominator) // (2 * each.denominator) for each in exact]
    assert rounded(integers, rate).tolist() == up


@given(st.lists(st.integers(0, 2**70), min_size=1), st.fractions(0, 10**6), st.fractions(0, 10**6))
def test_an_amount_is_rounded_to_the_nearest_whole_number(
    amounts: list[int], each: Fraction, once: Fraction
) -> None:
    exact = [amount * each + (once if amount else 0) for amount in amounts]
    found = rounded(np.array(amounts, object), each, once)
    assert all(abs(a - b) <= Fraction(1, 2) for a, b in zip(found, exact, strict=True))


@pytest.mark.parametrize(
    ("bandwidth", "unit"),
    slow_after(
        4,
        [
            ("16 Gb/s", "femtoseconds"),
            ("10 kb/s", "nanoseconds"),
            ("1e-3 b/s", "milliseconds"),
            ("1e-10 b/s", "seconds"),
            ("16 Mb/s", "picoseconds"),
            ("1 b/s", "microseconds"),
            ("1e-6 b/s", "seconds"),
        ],
    ),
)
def test_slow_links_make_the_unit_coarser_and_the_plan_says_so(bandwidth: str, unit: str) -> None:
    array = validate(Array, cubes(kind="ring", accelerators=4, link={"bandwidth": bandwidth}))
    plan = ho.solve("vgg-a", cost="time", array=array)
    assert plan.cost.unit == unit
    exchanges, work, summands = by_hand(plan)
    assert abs(total(plan) - (exchanges + work) * per_second(plan)) <= summands
    assert plan.solver.status == "optimal"
    ho.check_certificate(plan, ho.certify(plan))


@examples(40)
@given(networks(longest=3), asked_of_arrays(), COST, st.sampled_from(EXACT), st.data())
def test_joint_is_brute_force_over_every_plan_that_fits(
    network: ho.Network, asked: Asked, cost: str, solver: str, data: st.DataObject
) -> None:
    if len(asked["choices"]) ** (len(network.layers) * asked["array"].levels) > 2**10:
        asked["choices"] = PAPERS_CHOICES
    sizes = workload_of(network, asked["batch"], asked["choices"])
    limits = st.none() | st.integers(1, 4 * asked["element_bytes"] * sizes.elements)
    asked["constraints"] |= {"memory": data.draw(limits), "optimizer": "adam"}
    # Two exchanges of shards may be rounded otherwise than the one; two micro-batches be faster.
    asked |= {"shard": "none", "micro_batches": 1}
    if problem_of(cost=cost, **asked).device_memory is not None:
        asked["constraints"]["memory"] = None  # tests/search/test_within_memory.py
    problem = problem_of(cost=cost, **asked)
    charged = COSTS[cost].from_problem(problem, sizes)
    plans = every_plan(len(network.layers), problem.levels, len(sizes.choices))
    kept = [rows for rows in plans if keeps(sizes, problem, rows)]
    totals = dict(zip(kept, totals_of(sizes, charged, kept), strict=True))
    if not totals:
        with pytest.raises(ho.HyparError, match="no plan fits"):
            ho.solve(network, solver=solver, cost=cost, **asked)
        return
    try:
        plan = ho.solve(network, solver=solver, cost=cost, **asked)
    except RefusedError as error:
        assume("counts in 64 bits" not in str(error))
        raise
    assert plan.assignments() == min(totals, key=lambda rows: totals[rows])
    assert plan.cost.total == plan.solver.bound == min(totals.values())
    assert (plan.solver.search, plan.solver.status) == ("joint", "optimal")
    assert validate(ho.Plan, json.loads(plan.to_json())) == plan
    if plan.constraints.memory is None:
        ho.check_certificate(plan, ho.certify(plan))


@examples(24)
@given(networks(longest=3), asked_of_arrays(2), COST)
def test_level_by_level_solvers_agree_or_are_refused_where_a_ring_joins_levels(
    network: ho.Network, asked: Asked, cost: str
) -> None:
    array: Array = asked["array"]
    found = {level_by_level(network, solver, cost, asked) for solver in EXACT}
    if isinstance(answer := found.pop(), str):
        assert array.collective != "pairwise"
        assert array.levels > 1
        assert cost == "time" or array.energies.hop
        assert answer == (
            "a reduction joins several levels, as around a ring: it needs search='joint'"
        )
    else:
        joint = ho.solve(network, cost=cost, search="joint", **asked)
        assert joint.cost.total <= answer[1]
    assert not found


def level_by_level(
    network: ho.Network, solver: str, cost: str, asked: Asked
) -> str | tuple[Any, int | float]:
    """What a solver finds, or why not."""
    try:
        plan = ho.solve(network, solver=solver, search="levelwise", cost=cost, **asked)
    except RefusedError as error:
        return str(error).removeprefix(f"solver {solver!r} on {network.name}: ")
    assert (plan.solver.scope, plan.solver.status) == ("level", "optimal")
    ho.check_certificate(plan, ho.certify(plan))
    return plan.parallelism, plan.cost.total


@pytest.mark.parametrize("cost", ["time", "energy"])
@pytest.mark.parametrize("memory", [31_347_456, 32_000_000, 40_000_000])
def test_memory_level_by_level_keeps_to_it_and_never_beats_joint(cost: str, memory: int) -> None:
    asked: Any = {"cost": cost, "array": "hmc-htree-4", "constraints": {"memory": memory}}
    level, joint = (
        ho.solve("cifar-c", search=search, **asked) for search in ("levelwise", "joint")
    )
    assert Instance.of_plan(level).constraints.allow(level.assignments())
    assert level.cost.total >= joint.cost.total == joint.solver.bound
    ho.check_certificate(level, ho.certify(level))


def test_a_plan_of_an_array_with_another_order_of_levels_costs_what_that_does(
    tmp_path: Path,
) -> None:
    """On a mesh of 2 by 4 the placement is part of the price."""
    array = validate(Array, cubes(kind="mesh", shape=[2, 4], link={"bandwidth": "1 GB/s"}))
    totals = {}
    for order in array.orders():
        plan = ho.solve("lenet-c", cost="time", array=array, placement=order)
        file = tmp_path / "plan.json"
        ho.write_plan(plan, file)
        assert ho.read_plan(file) == plan
        totals[order] = plan.cost.total
    assert len(totals) == 3
    document = plan.document() | {"placement": array.placement}
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match="cost, total: should be"):
        ho.read_plan(file)


@pytest.mark.parametrize("cost", ["time", "energy"])
@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({}, "cost={!r} needs an array: array=NAME or a path (hypar_opt.hardware.arrays.names())"),
        (
            {"levels": 3},
            "cost={!r} needs an array: array=NAME or a path (hypar_opt.hardware.arrays.names())",
        ),
        (
            {"array": "hmc-htree-4", "level_weights": (2, 1)},
            "level_weights goes with cost='bytes'; with cost={!r} the array says what a"
            " level costs",
        ),
        ({"array": "one"}, "cost={!r} needs an array of two accelerators or more"),
        (
            {"array": "hmc-htree-4", "levels": 3},
            "levels: should be 2, since the array hmc-htree-4 has 4 accelerators, got 3",
        ),
        (
            {"array": "hmc-htree-4", "placement": (0, 1)},
            "placement: should be one that the array's htree allows, as [1, 0], got [0, 1]",
        ),
        ({"placement": (0, 1)}, "placement: should be there with an array, and null without"),
    ],
)
def test_what_an_array_decides_is_not_asked_for(
    cost: str, asked: dict[str, Any], complaint: str
) -> None:
    if asked.get("array") == "one":
        link = {"bandwidth": "1 GB/s"}
        one = validate(Array, cubes(kind="ring", accelerators=1, link=link))
        asked = asked | {"array": one}
    with pytest.raises(ho.HyparError) as raised:
        ho.solve("lenet-c", cost=cost, **asked)
    assert str(raised.value) == complaint.format(cost)


# Which split is which level.


@examples(40)
@given(networks(longest=2), asked_of_arrays(2), COST)
def test_placed_is_brute_force_over_orders_and_plans(
    network: ho.Network, asked: Asked, cost: str
) -> None:
    array = asked["array"]
    del asked["placement"]
    placed = ho.solve(network, cost=cost, place=True, **asked)
    totals = {}
    for order in array.orders():
        problem = problem_of(cost=cost, placement=order, **asked)
        sizes = workload_of(network, problem.batch, problem.choices)
        charged = COSTS[cost].from_problem(problem, sizes)
        every = list(every_plan(len(network.layers), problem.levels, len(sizes.choices)))
        totals[order] = min(totals_of(sizes, charged, every)) / in_a_unit(charged.unit)
    assert placed.placement is not None
    best = min(totals.values())
    assert Fraction(total(placed), in_a_unit(placed.cost.unit)) == totals[placed.placement]
    assert totals[placed.placement] == best
    if totals[array.placement] == best:
        assert placed.placement == array.placement  # of equals the default


def in_a_unit(unit: str) -> int:
    prefix = unit.removesuffix("seconds").removesuffix("joules")
    return next(parts for parts, name in PREFIXES.items() if name == prefix)


def crossed(slow: str, fast: str) -> Array:
    """Four accelerators in a square; across the default's first split the links are fast."""
    nodes = [{"id": number, "accelerator": number} for number in range(4)]
    pairs = ((0, 1, slow), (2, 3, slow), (0, 2, fast), (1, 3, fast))
    edges = [{"source": u, "target": v, "bandwidth": b} for u, v, b in pairs]
    return validate(Array, cubes(kind="graph", graph={"nodes": nodes, "edges": edges}))


def test_orders_are_compared_in_one_unit() -> None:
    """Near the largest sum that fits, one order must not count in a coarser unit."""
    for speed in range(1, 12, 2):
        array = crossed(slow=f"{speed} MB/s", fast=f"{10 * speed} MB/s")
        plans = [
            ho.solve("vgg-a", cost="time", array=array, placement=order) for order in array.orders()
        ]
        assert len({plan.cost.unit for plan in plans}) == 1
        placed = ho.solve("vgg-a", cost="time", array=array, place=True)
        assert placed.cost.total == min(plan.cost.total for plan in plans)


def test_placing_is_refused_where_bytes_are_all_there_is() -> None:
    for asked in ({}, {"array": "hmc-torus-16"}, {"cost": "time"}):
        with pytest.raises(ho.HyparError, match="place=True goes with array and cost='time' or"):
            ho.solve("sfc", place=True, **asked)  # type: ignore[arg-type]


def test_slots_of_experts_are_no_rows_of_a_kernel() -> None:
    """A row-stationary array takes experts as any other product of matrices."""
    rows = {"pe_array": {"rows": 10, "columns": 14}, "dram_bandwidth": "320 TB/s"}
    cube = cubes()["accelerator"] | rows
    del cube["utilisation"]
    accelerator = validate(Accelerator, cube)
    work = workload_of(mixture(0), 4, PAPERS_CHOICES)
    assert {node.sizes["k"] for node in work.nodes if node.kind == "experts"} == {4}
    (seconds,) = Work(accelerator, Hierarchy(())).passes(work, [], INFERENCE).values()
    for node, own in zip(work.nodes, seconds, strict=True):
        assert own == node.macs / accelerator.macs_per_second(1, 1) or not node.macs
