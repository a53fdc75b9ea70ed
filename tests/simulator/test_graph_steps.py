"""A step of a graph: what it moves, who waits for whom, and what overlaps."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.hardware.profile import Profile
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_levels
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.plan.stored_layouts import plan_tensors, rows_of_plan
from hypar_opt.sharding.program import Program
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.run import run as run_tasks
from hypar_opt.simulator.simulation import simulate_step
from hypar_opt.simulator.step import phases_of, program
from hypar_opt.simulator.tasks import ExchangeKind, ExchangeTask, Task, predecessors
from hypar_opt.simulator.trace import chrome_trace
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.units import PREFIXES
from hypar_opt.workload.parallelism import CHOICES
from tests.simulator.plans import IN_LOCKSTEP, LINK, UNEVEN, array, plan_on, plans, run
from tests.slow import examples

PAIR: dict[str, Any] = {"kind": "htree", "accelerators": 2, "link": LINK}


def tasks_of(plan: ho.Plan, **options: Any) -> tuple[Task, ...]:
    assert plan.array is not None
    instance = Instance.of_plan(plan)
    rows = rows_of_plan(plan, instance.workload)
    array_, options_ = plan.array.description, RunOptions(**options)
    return program(plan, instance.workload, array_, options_, rows)


def exchanges_of(plan: ho.Plan, **options: Any) -> list[ExchangeTask]:
    return [task for task in tasks_of(plan, **options) if isinstance(task, ExchangeTask)]


@examples(30)
@given(plans(IN_LOCKSTEP + UNEVEN))
def test_what_moves_is_what_the_cost_charges_by_level_and_pass(plan: ho.Plan) -> None:
    assert [level.bytes for level in run(plan).levels] == pytest.approx(list(plan.cost.per_level))
    instance = Instance.of_plan(plan)
    workload, cost = instance.workload, cast(CommunicationCost, instance.cost)
    moved = exchanges_of(plan)
    for phase in cost.phases:
        tensors = plan_tensors(plan, workload)
        charged = price_levels(workload, cost.of(phase), plan.assignments(), tensors)
        for level, expected in enumerate(charged):
            own = [task.bytes for task in moved if (task.phase, task.levels) == (phase, (level,))]
            assert sum(own) == pytest.approx(float(expected))


@examples(30)
@given(plans(IN_LOCKSTEP, readings=RUN_READINGS))
def test_a_run_is_the_very_steps_of_the_program(plan: ho.Plan) -> None:
    """By pass, level and kind of exchange, replicas of what is whole among them."""
    workload = Instance.of_plan(plan).workload
    expected: defaultdict[tuple[str, str, int], Fraction] = defaultdict(Fraction)
    rows, joined = rows_of_plan(plan, workload), plan.joins_levels
    ran = Program(workload, rows, plan.hierarchy, joined=joined)
    for exchange in exchanges_of_step(ran, phases_of(plan)):
        assert exchange.kind is not None
        expected[exchange.phase, exchange.kind, exchange.level] += Fraction(
            exchange.elements * plan.element_bytes
        )
    moved: defaultdict[tuple[str, str, int], Fraction] = defaultdict(Fraction)
    for task in exchanges_of(plan):
        assert task.step is not None
        moved[task.phase, task.step, task.levels[0]] += Fraction(task.bytes)
    assert moved == pytest.approx(expected)  # thirds are rounded
    assert [level.bytes for level in run(plan).levels] == pytest.approx(list(plan.cost.per_level))


@examples(30)
@given(plans(IN_LOCKSTEP), st.sampled_from(["pairwise", "ring"]))
def test_overlap_is_between_the_critical_path_and_nothing_overlapping(
    plan: ho.Plan, collective: str
) -> None:
    none, gradient, branches = (
        run(plan, overlap=overlap, collective=collective)
        for overlap in ("none", "gradient", "branches")
    )
    assert branches.closed_form == gradient.closed_form == none.closed_form
    assert none.lower_bound == none.closed_form or not none.in_lockstep
    in_front = sum(
        layer.compute + (layer.phase != "gradient") * layer.communication for layer in none.layers
    )
    gradients = sum(layer.communication for layer in none.layers if layer.phase == "gradient")
    if gradient.in_lockstep:  # so that tasks take as long as in closed form
        assert gradient.lower_bound >= max(in_front, gradients) * (1 - 1e-9)
        assert gradient.lower_bound <= (in_front + gradients) * (1 + 1e-9)
    for step in (none, gradient, branches):
        assert step.seconds <= none.seconds * (1 + 1e-9)
        assert step.seconds >= step.lower_bound * (1 - 1e-9)
        spent = sum(layer.compute + layer.communication for layer in step.layers)
        assert spent == pytest.approx(step.seconds, rel=1e-9)
        assert step.compute == pytest.approx(none.compute)
        assert [level.bytes for level in step.levels] == pytest.approx(
            [level.bytes for level in none.levels]
        )


@examples(20)
@given(plans(IN_LOCKSTEP, cost="energy"))
def test_energy_and_memory_are_what_the_cost_and_the_constraint_count(plan: ho.Plan) -> None:
    step = run(plan)
    per_joule = next(parts for parts, name in PREFIXES.items() if plan.cost.unit == f"{name}joules")
    assert step.energy.total == pytest.approx(float(plan.cost.total) / per_joule)
    assert plan.array is not None
    if step.device_memory is not None:
        return  # one's own array counts what a device holds, energy's constraint as the paper does
    for memory, fits in ((step.memory, True), (step.memory - 1, False)):
        constraints = plan.constraints.model_copy(update={"memory": max(memory, 1)})
        problem = plan.problem.model_copy(update={"constraints": constraints})
        with nullcontext() if fits or memory < 1 else pytest.raises(ho.HyparError):
            Instance(plan.network.description, problem).constraints.check(plan.assignments())


@examples(20)
@given(plans(IN_LOCKSTEP, chain=True))
def test_a_chain_has_nothing_but_gradients_to_overlap(plan: ho.Plan) -> None:
    gradient, branches = (run(plan, overlap=overlap) for overlap in ("gradient", "branches"))
    assert plan.array is not None
    if plan.array.description.accelerator.update and not plan.inference:
        # An update waits for its own gradient alone, and else for all before it, too.
        assert branches.seconds <= gradient.seconds * (1 + 1e-9)
        return
    assert branches == gradient


@examples(30)
@given(plans(IN_LOCKSTEP + UNEVEN))
def test_tasks_wait_for_their_operands_and_streams_run_one_at_a_time(plan: ho.Plan) -> None:
    assert plan.array is not None
    tasks = tasks_of(plan, overlap="branches")
    done = run_tasks(tasks, plan.array.description.interconnect, record=True)
    before = predecessors(tasks)
    for spans in done.spans:
        assert [span.task for span in spans] == list(range(len(tasks)))
        for span in spans:
            assert all(spans[other].end <= span.start for other in before[span.task])
        for stream in {task.stream for task in tasks}:
            own = sorted(
                (span.start, span.end) for span in spans if tasks[span.task].stream == stream
            )
            assert all(early[1] <= late[0] for early, late in pairwise(own))
    assert run_tasks(tasks, plan.array.description.interconnect, record=True) == done


def network_of(features: int, *layers: dict[str, Any]) -> ho.Network:
    described = {"schema": "hypar-opt/network/2", "name": "graph", "layer": list(layers)}
    return ho.Network.model_validate(described | {"input": {"features": features}})


def fc(name: str, read: str, units: int = 8) -> dict[str, Any]:
    return {"name": name, "kind": "fc", "units": units, "inputs": [read]}


BRANCHES = network_of(
    8,
    fc("left", "input"),
    fc("right", "input"),
    {"name": "sum", "kind": "add"} | {"inputs": ["left", "right"]},
)


def test_a_branchs_partial_sums_are_exchanged_while_the_other_branch_is_computed() -> None:
    # A branch is computed in 2 s, and its partial sums, 1600 bytes a message at 8 a second, take
    # 200. The left ones have 16 bytes' start; then the two share the link, until 400.
    found = array(PAIR, operations="6400 op/s", dram_bandwidth="1 PB/s")
    rows = [["model", "model", "data"]]
    plan = plan_on(BRANCHES, found, rows, batch=100, reading="executed", inference=True)
    assert spans_of(plan, overlap="none") == {
        "left forward": (0, 2),
        "left partial sums H1": (2, 202),
        "right forward": (202, 204),
        "right partial sums H1": (204, 404),
        "sum forward": (404, 404),
    }
    assert spans_of(plan, overlap="branches") == {
        "left forward": (0, 2),
        "right forward": (2, 4),
        # Alone until 4, then at half the rate.
        "left partial sums H1": (2, 400),
        "right partial sums H1": (4, 402),
        "sum forward": (402, 402),
    }


def spans_of(plan: ho.Plan, **options: Any) -> dict[str, tuple[float, float]]:
    trace = run(plan, trace=True, **options).trace
    assert trace is not None
    return {
        span.name: (
            round(span.start_us / 1e6, 9),
            round((span.start_us + span.duration_us) / 1e6, 9),
        )
        for span in trace.accelerators[0].spans
    }


def test_a_tensor_of_several_readers_is_converted_once_and_its_errors_are_added_first() -> None:
    """Three readers by channel: one all-to-all each way, and not three."""
    readers = [f"read{n}" for n in range(3)]
    network = network_of(
        8,
        fc("write", "input"),
        *(fc(name, "write") for name in readers),
        {"name": "sum", "kind": "add", "inputs": readers},
    )
    rows = [["data", "model", "model", "model", "data"]]
    plan = plan_on(network, array(PAIR), rows, batch=4, reading="executed")
    tasks = tasks_of(plan, overlap="branches")
    moved = [
        (number, task)
        for number, task in enumerate(tasks)
        if isinstance(task, ExchangeTask) and task.kind is ExchangeKind.BOUNDARY
    ]
    assert [(task.layer, str(task.phase), task.bytes) for _, task in moved] == [
        ("write", "forward", 4 * 8 * 4 / 2),
        ("write", "backward", 4 * 8 * 4 / 2),
    ]
    back = tasks[moved[1][0]]
    ends = [tasks[number].layer for number in back.after or ()]
    assert sorted(ends) == readers
    text = plan_on(network, array(PAIR), rows, batch=4, reading="text")
    boundaries = [task for task in exchanges_of(text) if task.kind is ExchangeKind.BOUNDARY]
    assert sorted(task.layer for task in boundaries if task.phase == "forward") == readers


def test_the_gradient_of_shared_weights_is_reduced_once_after_the_last_user() -> None:
    described = {
        "schema": "hypar-opt/network/2",
        "name": "tied",
        "input": {"tokens": 2, "vocabulary": 6},
        "layer": [
            {"name": "embed", "kind": "embedding", "features": 8},
            {"name": "head", "kind": "fc", "units": 6, "tied": "embed"},
        ],
    }
    network = ho.Network.model_validate(described)
    plan = plan_on(network, array(PAIR), [["data", "data"]], batch=4, reading="executed")
    tasks = tasks_of(plan, overlap="branches")
    ((number, reduced),) = [
        (number, task) for number, task in enumerate(tasks) if isinstance(task, ExchangeTask)
    ]
    assert reduced.kind is ExchangeKind.GRADIENTS
    assert reduced.bytes == 2 * 6 * 8 * 4
    waits_for = {(tasks[other].layer, str(tasks[other].phase)) for other in reduced.after or ()}
    assert waits_for == {("embed", "gradient"), ("head", "gradient")}
    assert number > max(reduced.after or ())


def test_rows_without_a_choice_for_what_is_shared_are_refused() -> None:
    plan = plan_on(BRANCHES, array(PAIR), batch=4, reading="executed")
    assert plan.array is not None
    workload = Instance.of_plan(plan).workload
    with pytest.raises(ValueError, match="a choice for each of 3 nodes"):
        simulate_step(plan, workload, plan.array.description, RunOptions(), rows=[[0, 1]])


def test_a_layer_that_is_whole_is_computed_on_all_sides() -> None:
    network = network_of(8, fc("fc", "input"), {"name": "norm", "kind": "norm", "norm": "affine"})
    times = {"forward": "8 s", "backward": "8 s", "gradient": "8 s"}
    profile = Profile.model_validate(
        {"batch": 4, "layer": [{"name": name} | times for name in ("fc", "norm")]}
    )
    computed = {}
    for choice in ("data", "whole"):
        plan = plan_on(
            network,
            array(PAIR),
            [["data", choice]],
            batch=4,
            reading="executed",
            choices=CHOICES,
        )
        layers = run(plan, profile=profile).layers
        computed[choice] = {layer.compute for layer in layers if layer.layer == "norm"}
    assert computed == {"data": {4}, "whole": {8}}


def test_a_trace_names_what_each_exchange_does() -> None:
    plan = plan_on(
        network_of(8, fc("up", "input"), fc("down", "up")),
        array(PAIR),
        [["data", "output"]],
        batch=4,
        reading="executed",
        choices=CHOICES,
    )
    trace = run(plan, trace=True).trace
    assert trace is not None
    named = {
        event["name"]: event["args"]["exchange"]
        for event in chrome_trace(trace)["traceEvents"]
        if "exchange" in event.get("args", {})
    }
    assert named == {
        "down boundary all-gather H1": "all-gather",
        "down boundary reduce-scatter H1": "reduce-scatter",
        "up gradients H1": "all-reduce",
    }
