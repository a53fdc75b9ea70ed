"""Reductions against the textbook's alpha-beta model: simulated, added up and charged."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import prod
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.time import TimeCost
from hypar_opt.hardware.array import COLLECTIVES, Array
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import total_cost
from hypar_opt.plan.arguments import problem_of
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.step import program
from hypar_opt.simulator.tasks import ComputeTask, ExchangeKind, Task
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.tensors import workload_of
from tests.simulator.plans import IN_LOCKSTEP, array, plans
from tests.slow import examples, slow_after, slow_off_diagonal

ALPHA, BETA = Fraction(1, 250), Fraction(1, 64)
"""Seconds of a message, and of a byte."""

FEATURES, UNITS, BATCH = 24, 40, 8


def switch(accelerators: int, collective: str = "pairwise") -> Array:
    """Accelerators around one switch, which never limits: whoever sends has all of its link."""
    link = {"bandwidth": "64 B/s", "latency": "2 ms"}
    nodes = [{"id": n, "accelerator": n} for n in range(accelerators)]
    edges = [{"source": n, "target": "switch"} | link for n in range(accelerators)]
    wired = {"kind": "graph", "graph": {"nodes": [*nodes, {"id": "switch"}], "edges": edges}}
    wired_array = array(wired, operations="1e30 op/s", dram_bandwidth="1e30 B/s")
    return wired_array.model_copy(update={"collective": collective})


def one_layer() -> ho.Network:
    layer = {"name": "fc", "kind": "fc", "units": UNITS}
    description = {"name": "one", "input": {"features": FEATURES}, "layer": [layer]}
    return ho.Network.model_validate(description)


def plan_of_one(array: Array, solver: str, reading: str, **arguments: Any) -> ho.Plan:
    return ho.solve(
        one_layer(),
        solver=solver,
        array=array,
        batch=BATCH,
        cost="time",
        reading=reading,
        constraints={"runnable": False},
        **arguments,
    )


def all_alike(plan: ho.Plan) -> float:
    """The seconds of a step, which simulation, closed form and cost agree on."""
    step = ho.simulate(plan)
    assert step.seconds == pytest.approx(step.closed_form, rel=1e-9)
    assert step.seconds == pytest.approx(plan.cost.total / per_second(plan), rel=1e-9)
    return step.seconds


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
@pytest.mark.parametrize("reading", ["text", "figures", "executed"])
def test_gradients_between_pairs_are_recursive_halving_and_doubling(
    levels: int, reading: str
) -> None:
    """2 log2 p messages, but that the topmost level's two are one; 2 (p - 1) / p n bytes."""
    p = 2**levels
    seconds = all_alike(plan_of_one(switch(p), "data", reading))
    weights = 4 * FEATURES * UNITS
    expected = (2 * levels - 1) * ALPHA + Fraction(2 * (p - 1), p) * weights * BETA
    assert seconds == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_partial_sums_of_the_text_are_all_reduced_and_those_of_a_run_scattered_and_gathered(
    levels: int,
) -> None:
    p, outputs = 2**levels, 4 * BATCH * UNITS
    moved = Fraction(p - 1, p) * outputs * BETA
    text = all_alike(plan_of_one(switch(p), "model", "text"))
    assert text == pytest.approx(float((2 * levels - 1) * ALPHA + 2 * moved), rel=1e-9)
    run = all_alike(plan_of_one(switch(p), "model", "executed"))
    assert run == pytest.approx(float(2 * (levels * ALPHA + moved)), rel=1e-9)
    forward = all_alike(plan_of_one(switch(p), "model", "executed", inference=True))
    assert forward == pytest.approx(float(levels * ALPHA + moved), rel=1e-9)


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_around_a_ring_an_all_reduce_is_twice_a_reduce_scatter(levels: int) -> None:
    """2 (p - 1) messages of n / p bytes; a reduce-scatter, and an all-gather, p - 1."""
    p = 2**levels
    weights, outputs = 4 * FEATURES * UNITS, 4 * BATCH * UNITS
    gradients = all_alike(plan_of_one(switch(p, "ring"), "data", "executed"))
    assert gradients == pytest.approx(float(2 * (p - 1) * (ALPHA + weights * BETA / p)), rel=1e-9)
    run = ho.simulate(plan_of_one(switch(p, "ring"), "model", "executed"))
    for phase in ("forward", "backward"):
        seconds = float((p - 1) * (ALPHA + outputs * BETA / p))
        assert run.phases[phase][1] == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize(("p", "messages"), [(3, 4), (5, 8), (6, 5), (9, 2 + 4 + 2), (12, 7)])
@pytest.mark.parametrize("collective", ["pairwise", "ring", "hierarchical"])
def test_gradients_of_any_number_of_accelerators(p: int, messages: int, collective: str) -> None:
    """Each of n parts sends to each other one to reduce, and again to gather; two parts, once."""
    if collective == "ring":
        messages = 2 * (p - 1)
    if collective == "hierarchical":  # a ring for each prime factor: of two, two messages
        messages = 2 * sum(n - 1 for n in Hierarchy((p,)).in_primes.sizes)
    wired_array = switch(p, collective)
    plan = ho.solve(one_layer(), solver="data", array=wired_array, batch=p, cost="time")
    moved = Fraction(2 * (p - 1), p) * 4 * FEATURES * UNITS
    assert all_alike(plan) == pytest.approx(float(messages * ALPHA + moved * BETA), rel=1e-9)


def test_each_algorithm_takes_a_time_of_its_own_on_a_torus() -> None:
    """An algorithm without rounds of its own would be that of another name."""
    link = {"bandwidth": "64 B/s", "latency": "2 ms"}
    torus = array({"kind": "torus", "shape": [4, 4], "link": link})
    plan = plan_of_one(torus, "data", "executed")
    seconds = [ho.simulate(plan, collective=name).seconds for name in COLLECTIVES]
    for one, other in itertools.combinations(seconds, 2):
        assert one != pytest.approx(other)


def layers_of(*units: int) -> ho.Network:
    layers = [{"name": f"fc{n}", "kind": "fc", "units": count} for n, count in enumerate(units)]
    description = {"name": "layers", "input": {"features": FEATURES}, "layer": layers}
    return ho.Network.model_validate(description)


@pytest.mark.parametrize("collective", ["pairwise", "ring", "hierarchical"])
@given(units=st.lists(st.integers(1, 9), min_size=1, max_size=6), capacity=st.integers(1, 1000))
@examples(15)
def test_gradients_in_buckets_have_a_latency_a_bucket(
    collective: str, units: list[int], capacity: int
) -> None:
    """From the last layer on, as many as a bucket holds; the bytes are the same."""
    network = layers_of(*units)
    wired_array = switch(6, collective)
    bucket = wired_array.model_copy(update={"bucket": Fraction(capacity)})
    sizes = [4 * a * b for a, b in itertools.pairwise([FEATURES, *units])]
    buckets, left = 0, 0
    for size in reversed(sizes):
        if not buckets or size > left:
            buckets, left = buckets + 1, capacity
        left -= size
    unbucketed, together = (
        all_alike(ho.solve(network, solver="data", array=array, batch=6, cost="time"))
        for array in (wired_array, bucket)
    )
    messages = {"pairwise": 5, "ring": 10, "hierarchical": 6}[collective]
    saved = (len(units) - buckets) * messages * float(ALPHA)
    assert together == pytest.approx(unbucketed - saved, rel=1e-9)


@given(plans(IN_LOCKSTEP, cost="time"), st.integers(1, 100))
@examples(20)
def test_a_plan_in_buckets_takes_its_cost_and_is_charged_no_more(
    plan: ho.Plan, capacity: int
) -> None:
    """As many latencies where layers of a bucket reduce alike, else more, but not more than apart.

    Nothing else changes: the array without buckets moves the same bytes.
    """
    assert plan.array is not None
    bucket = plan.array.description.model_copy(update={"bucket": Fraction(capacity)})
    problem = problem_of(**dict(plan.problem) | {"array": bucket})
    instance, rows = Instance(plan.network.description, problem), plan.assignments()
    total, charged = (total_cost(instance, rows, charged=charged) for charged in (False, True))
    together, unbucketed = ho.simulate(plan, bucket, other_array=True), ho.simulate(plan)
    seconds = float(total) / cast(TimeCost, instance.cost).per_unit
    assert seconds == pytest.approx(together.closed_form, rel=1e-9)
    assert charged <= total
    assert together.closed_form <= unbucketed.closed_form * (1 + 1e-9)
    overlapped = ho.simulate(plan, bucket, other_array=True, overlap="gradient")
    assert overlapped.lower_bound <= overlapped.seconds * (1 + 1e-9)
    assert overlapped.seconds <= together.closed_form * (1 + 1e-9)
    assert [level.bytes for level in together.levels] == pytest.approx(
        [level.bytes for level in unbucketed.levels]
    )


@pytest.mark.parametrize(("bucket", "buckets"), [("1 GB", 1), ("25 MB", 3), (0, 107)])
def test_resnet_in_data_parallelism_has_a_ring_of_latencies_a_bucket(
    bucket: int | str, buckets: int
) -> None:
    """By hand: 13.11 ms of compute and bytes, and 126 messages of 12 us: 14.6 ms in one bucket."""
    nodes = {"kind": "nodes", "nodes": 8, "per_node": 8}
    link = {"bandwidth": "300 GB/s", "latency": "1 us"}
    fabric = {"bandwidth": "200 Gb/s", "latency": "5 us"}
    nodes_array = array(
        nodes | {"link": link, "fabric": fabric},
        operations="312 TFLOPS",
        utilisation=0.5,
        dram_bandwidth="2 TB/s",
        dram_capacity="80 GB",
    ).model_copy(update={"collective": "ring", "element_bytes": 2})
    arguments: dict[str, Any] = {
        "array": nodes_array,
        "bucket": bucket,
        "batch": 2048,
        "cost": "time",
    }
    plan = ho.solve("resnet-50", solver="data", **arguments)
    step = ho.simulate(plan)
    assert step.seconds == pytest.approx(13.1134e-3 + buckets * 126 * 12e-6, rel=1e-5)
    assert step.closed_form == pytest.approx(step.seconds, rel=1e-9)
    assert plan.cost.total / per_second(plan) == pytest.approx(step.closed_form, rel=1e-9)


@pytest.mark.parametrize(
    "shape", slow_after(5, [[4, 4, 4], [2, 2, 2], [3, 3], [5], [3, 4], [4, 6], [8, 8]])
)
def test_a_torus_reduces_over_all_its_links_at_once(shape: list[int]) -> None:
    """Of equal dimensions at the bandwidth of all links of an accelerator; in lockstep.

    Of unequal ones no faster than that, and at most as long as if it went on round by round.
    """
    link = {"bandwidth": "64 B/s", "latency": "2 ms"}
    torus = {"kind": "torus", "shape": shape, "link": link}
    torus_array = array(torus, operations="1e30 op/s", dram_bandwidth="1e30 B/s")
    torus_array = torus_array.model_copy(update={"collective": "ring"})
    p = prod(shape)
    step = ho.simulate(
        ho.solve(one_layer(), solver="data", array=torus_array, batch=p, cost="time")
    )
    # In a dimension of two accelerators both directions are one link's.
    links = sum(min(size - 1, 2) for size in shape)
    moved = Fraction(2 * (p - 1), p) * 4 * FEATURES * UNITS
    least = moved / links * BETA
    if len({*shape}) > 1:
        assert float(least) <= step.seconds <= step.closed_form
        return
    rounds = 2 * sum(size - 1 for size in shape)
    assert step.in_lockstep
    assert step.seconds == pytest.approx(float(least + rounds * Fraction(2, 1000)), rel=1e-9)
    assert step.closed_form == pytest.approx(step.seconds, rel=1e-9)
    assert len({round(one.bytes, 6) for one in step.links}) == 1


def test_a_large_all_reduce_on_a_cube_takes_its_bandwidth() -> None:
    """Within 5 % on the TPU's 4 x 4 x 4, six links of 50 GB/s; all links move as much.

    VGG-A's gradients of 132,851,392 weights take 1.744 ms; around one ring a tensor, 14 ms.
    """
    network = layers_of(2**20, 2**10)
    for trained in (network, ho.load("vgg-a")):
        plan = ho.solve(trained, array="tpu-v4-4x4x4", solver="data", batch=64, inference=False)
        step = ho.simulate(plan)
        gradients = sum(workload_of(trained, 64).weights) * plan.element_bytes
        assert step.phases["gradient"][1] == pytest.approx(
            2 * 63 / 64 * gradients / (6 * 50e9), rel=0.05
        )
        assert len({round(one.bytes) for one in step.links}) == 1
    assert plan.element_bytes == 2
    assert step.phases["gradient"][1] == pytest.approx(1.744e-3, rel=0.05)
    unbucketed = ho.solve("vgg-a", array="tpu-v4-4x4x4", solver="data", batch=64, bucket=0)
    around = ho.simulate(unbucketed, collective="one-ring")
    assert around.phases["gradient"][1] == pytest.approx(14e-3, rel=1e-3)


def test_a_hierarchical_all_reduce_saves_a_rings_latencies() -> None:
    """Eight nodes of eight: 28 messages in place of 126; 14 of them leave the node."""
    rings = {}
    for collective in ("ring", "hierarchical"):
        arguments: Any = {"array": of_nodes(collective), "batch": 64, "cost": "time"}
        plan = ho.solve("resnet-50", solver="data", **arguments)
        rings[collective] = plan.cost.total / per_second(plan)
    gradients = sum(1 for elements in workload_of(ho.load("resnet-50"), 64).stored if elements)
    saved = gradients * (126 * 12e-6 - 14 * 12e-6 - 14 * 2e-6)
    assert rings["ring"] - rings["hierarchical"] == pytest.approx(saved, rel=1e-6)


def test_levels_have_the_time_of_the_bytes_that_cross_them() -> None:
    """Of a ring of 16 two messages cross H1 and H2 each, four H3, and eight H4."""
    link = {"bandwidth": "64 B/s", "latency": "2 ms"}
    nodes = {"kind": "nodes", "nodes": 4, "per_node": 4, "link": link, "fabric": link}
    nodes_array = array(nodes, operations="1e30 op/s", dram_bandwidth="1e30 B/s")
    nodes_array = nodes_array.model_copy(update={"collective": "ring"})
    plan = ho.solve(one_layer(), solver="data", array=nodes_array, batch=16, cost="time")
    step = ho.simulate(plan)
    parts = [2 / 16, 2 / 16, 4 / 16, 8 / 16]
    assert [level.seconds / step.seconds for level in step.levels] == pytest.approx(parts)
    total = plan.cost.total
    assert [float(charged / total) for charged in plan.cost.per_level] == pytest.approx(parts)
    assert sum(plan.cost.per_level) == total


def of_nodes(collective: str) -> Array:
    """Eight nodes of eight, as in the findings: its links never limit."""
    link = {"bandwidth": "1e6 TB/s", "latency": "1 us"}
    fabric = {"bandwidth": "1e6 TB/s", "latency": "5 us"}
    nodes = {"kind": "nodes", "nodes": 8, "per_node": 8, "link": link, "fabric": fabric}
    nodes_array = array(nodes, operations="1e30 op/s", dram_bandwidth="1e30 B/s")
    return nodes_array.model_copy(update={"collective": collective})


def tasks_of(plan: ho.Plan) -> tuple[Task, ...]:
    assert plan.array is not None
    workload = workload_of(plan.network.description, plan.batch, plan.choices)
    return program(plan, workload, plan.array.description, RunOptions(), plan.assignments())


def test_a_run_reduces_from_the_deepest_level_up_and_gathers_from_the_topmost_down() -> None:
    """And the error is whole before the gradient needs it: docs/assumptions.md."""
    plan = ho.solve(
        "lenet-c", array="hmc-htree-8", reading="executed", constraints={"fix": ("fc1=model",)}
    )
    tasks = [task for task in tasks_of(plan) if task.layer == "fc1"]
    order = [
        f"{task.phase}: compute"
        if isinstance(task, ComputeTask)
        else f"{task.kind} {task.levels[0]}"
        for task in tasks
        if isinstance(task, ComputeTask) or task.kind is not ExchangeKind.BOUNDARY
    ]
    assert order == [
        "forward: compute",
        *("partial sums 2", "partial sums 1", "partial sums 0"),
        *("errors 0", "errors 1", "errors 2"),
        "gradient: compute",
        "backward: compute",
    ]


GRIDS: list[tuple[str, tuple[int, ...], bool]] = [
    # The kind, its shape, and whether all messages of a round go as far where levels are whole.
    *(("ring", (n,), True) for n in (3, 4, 5, 6, 8, 9)),
    ("torus", (6,), True),
    ("torus", (4, 6), True),
    *(("mesh", (n,), n < 4) for n in (2, 3, 4, 5, 6, 8)),
    ("mesh", (3, 5), False),
]


@pytest.mark.parametrize(("topology", "whole"), slow_off_diagonal(GRIDS, [True, False]))
def test_a_sum_is_the_time_of_two_parts_or_whole_rings_and_else_an_upper_bound(
    topology: tuple[str, tuple[int, ...], bool], whole: bool
) -> None:
    kind, shape, as_far = topology
    size = {"accelerators": shape[0]} if kind == "ring" else {"shape": shape}
    table = {"kind": kind, **size, "link": {"bandwidth": "64 B/s", "latency": "2 s"}}
    grid = array(table, operations="1e30 op/s", dram_bandwidth="1e30 B/s")
    grid = grid.model_copy(update={"whole_levels": whole})
    for choice in ("data", "model"):
        plan = ho.solve(
            one_layer(),
            array=grid,
            batch=BATCH * prod(shape),
            cost="time",
            constraints={"runnable": False, "fix": [f"*={choice}"]},
            training={"micro_batches": 1, "shard": "none"},
        )
        step = ho.simulate(plan)
        assert step.closed_form * per_second(plan) == pytest.approx(plan.cost.total, rel=1e-9)
        assert step.seconds <= step.closed_form * (1 + 1e-9)
        if {*plan.hierarchy.sizes} == {2} or (as_far and len(plan.hierarchy.sizes) == len(shape)):
            assert step.seconds == pytest.approx(step.closed_form, rel=1e-9)
        elif choice == "data":
            assert step.seconds < step.closed_form * (1 - 1e-3)
