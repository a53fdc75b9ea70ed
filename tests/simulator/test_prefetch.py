"""Weights prefetched, and gradients reduced, a unit at a time beside the program."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import hypar_opt as ho
from hypar_opt.hardware import arrays
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.machine import TaskSpan
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.run import run as run_tasks
from hypar_opt.simulator.run import run_by_events
from hypar_opt.simulator.step import program
from hypar_opt.simulator.tasks import (
    GRADIENT_STREAM,
    ComputeTask,
    ExchangeKind,
    ExchangeTask,
    Task,
    changed,
)
from tests.simulator.plans import IN_LOCKSTEP, KERNELS, UNEVEN, array, plan_on, plans, run
from tests.slow import examples
from tests.strategies.written_plans import choosing

NODES = IN_LOCKSTEP[5]
SHARDS = ("none", "state", "gradients", "weights", "weights@H2-H3", "state+weights@H3")


def gpt_on(topology: dict[str, Any], layers: int = 3, batch: int = 24, **more: Any) -> ho.Plan:
    network = ho.gpt(layers=layers, hidden=16, heads=4, tokens=8, vocabulary=40)
    found = array(topology, **KERNELS)
    found = found.model_copy(update=more)
    return plan_on(network, found, batch=batch, element_bytes=2, cost="bytes")


def tasks_of(plan: ho.Plan, **options: Any) -> tuple[Task, ...]:
    assert plan.array is not None
    workload = Instance.of_plan(plan).workload
    rows = rows_of_plan(plan, workload)
    return program(plan, workload, plan.array.description, RunOptions(**options), rows)


def unit_of(task: Task) -> str:
    """The block of a task of the network below, as ``decoder.2``; else the root."""
    parts = task.layer.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else "root"


def seconds_in(tasks: list[Task], found: ho.Array) -> float:
    """The seconds of some tasks one after the other."""
    return sum(
        task.seconds
        if isinstance(task, ComputeTask)
        else run_tasks([changed(task, after=None)], found.interconnect).seconds
        for task in tasks
    )


@pytest.mark.parametrize("fast", [0.02, 0.2, 1, 300], ids=["links", "more", "less", "computing"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_equal_blocks_take_what_the_closed_form_says(recompute: str, fast: float) -> None:
    """Only the queue exchanges: a block takes its computations, or the collectives beside it."""
    count = 5
    link = {"bandwidth": f"{fast * 20} B/s", "latency": "1 ms"}
    plan = gpt_on({"kind": "htree", "accelerators": 4, "link": link}, count)
    assert plan.array is not None
    found = plan.array.description
    options = {"overlap": "prefetch", "shard": "weights", "recompute": recompute}
    tasks = tasks_of(plan, **options)
    queue = [task for task in tasks if task.stream == GRADIENT_STREAM]
    of_root = [task for task in queue if unit_of(task) == "root"]
    of_block = [task for task in queue if unit_of(task) == "decoder.1"]

    def moved(own: list[Task], kind: ExchangeKind) -> float:
        return seconds_in([t for t in own if isinstance(t, ExchangeTask) and t.kind is kind], found)

    root, root_back = (
        moved(of_root, own) for own in (ExchangeKind.WEIGHTS, ExchangeKind.GRADIENTS)
    )
    gather = moved(of_block, ExchangeKind.WEIGHTS) / 2  # in both passes
    scatter = moved(of_block, ExchangeKind.GRADIENTS)
    computing = [task for task in tasks if isinstance(task, ComputeTask)]
    update = sum(task.seconds for task in computing if task.once)
    ran = [task for task in computing if not task.once]
    number = [n for n, task in enumerate(ran) if unit_of(task) != "root"]
    half = next(n for n, task in enumerate(ran) if task.phase is Phase.GRADIENT)
    prefix = sum(task.seconds for task in ran[: number[0]])
    behind = sum(task.seconds for task in ran[number[-1] + 1 :])
    ends = [task.seconds for task in ran[:half] if unit_of(task) == "root"]
    head = sum(ends) - prefix
    blocks = [task for task in ran if unit_of(task) == "decoder.1"]
    at = [n for n, task in enumerate(ran) if unit_of(task) == "decoder.1"]
    forward = sum(task.seconds for n, task in zip(at, blocks, strict=True) if n < half)
    backward = sum(task.seconds for task in blocks) - forward
    head_back = sum(t.seconds for t in ran[half:] if unit_of(t) == "root") - behind
    expected = (
        root
        + max(prefix, gather)
        + (count - 1) * max(forward, gather)
        + forward
        + head
        + max(head_back, gather)
        + max(backward, gather)
        + (count - 2) * max(backward, gather + scatter)
        + max(max(backward, scatter) + scatter, backward + behind)
        + root_back
        + update
    )
    step = run(plan, **options)
    assert step.in_lockstep
    assert step.seconds == pytest.approx(expected, rel=1e-12)
    if fast in {0.02, 300}:
        assert (gather > forward) is (gather + scatter > backward) is (fast < 1)


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_who_waits_for_whom(shard: str, recompute: str) -> None:
    plan = gpt_on(NODES, bucket=600)
    assert plan.array is not None
    tasks = tasks_of(plan, overlap="prefetch", shard=shard, recompute=recompute)
    done = run_tasks(tasks, plan.array.description.interconnect, record=True)
    spans: dict[int, TaskSpan] = {span.task: span for span in done.spans[0]}
    queue = [n for n, task in enumerate(tasks) if task.stream == GRADIENT_STREAM]
    front = [n for n, task in enumerate(tasks) if task.stream != GRADIENT_STREAM]
    # Each stream runs its tasks in their order, one at a time.
    for stream in (queue, front):
        for one, other in pairwise(stream):
            assert spans[one].end <= spans[other].start
    updates = [n for n in front if tasks[n].once]
    assert updates
    assert spans[updates[0]].start >= spans[queue[-1]].end
    backward = next(n for n in front if tasks[n].phase is Phase.GRADIENT)
    for n in queue:
        task = tasks[n]
        assert isinstance(task, ExchangeTask)
        unit, behind = unit_of(task), [m for m in front if m > n and not tasks[m].once]
        before = [m for m in front if m < n]
        if task.kind is ExchangeKind.WEIGHTS:
            # As long as its unit does nothing, and never before the unit before that has begun.
            own = [m for m in behind if unit_of(tasks[m]) == unit or unit == "root"]
            assert spans[own[0]].start >= spans[n].end
            if unit == "root":
                assert not before
            elif before:
                last = unit_of(tasks[before[-1]])
                assert spans[before[-1]].end <= spans[n].start
                assert last != unit or before[-1] < backward <= own[0]
        elif not task.once:
            # Reduced when all of its unit has been through.
            assert spans[before[-1]].end <= spans[n].start
            assert all(unit_of(tasks[m]) != unit for m in behind)
    assert sum(done.task_seconds) == pytest.approx(done.seconds)


def test_a_unit_is_gathered_and_reduced_in_one_collective_a_level() -> None:
    plan = gpt_on(NODES)
    names = [
        (unit_of(task), task.phase, task.kind, task.levels)
        for task in tasks_of(plan, overlap="prefetch", shard="weights")
        if isinstance(task, ExchangeTask)
    ]
    assert len(set(names)) == len(names)  # each tensor by itself would be many of each
    kinds = {(unit, phase, kind) for unit, phase, kind, _ in names}
    assert {own for own in kinds if own[2] is ExchangeKind.WEIGHTS} == {
        ("root", Phase.FORWARD, ExchangeKind.WEIGHTS),
        *(
            (f"decoder.{n}", phase, ExchangeKind.WEIGHTS)
            for n in range(3)
            for phase in (Phase.FORWARD, Phase.BACKWARD)
        ),
    }
    alone, joined = (run(plan, overlap=own, shard="weights") for own in ("gradient", "prefetch"))
    # The root, whose weights are kept, is gathered once in place of three times: the head, the
    # norm before it and the embedding share or have some of them.
    assert sum(level.bytes for level in joined.levels) < sum(level.bytes for level in alone.levels)


@pytest.mark.parametrize("collective", ["pairwise", "hierarchical", "ring"])
@pytest.mark.parametrize("seed", range(3))
def test_a_unit_exchanges_as_much_over_the_same_levels_as_its_layers(
    collective: str, seed: int
) -> None:
    """Weights of layers that split otherwise are gathered over other levels, also below as many."""
    plan, rng = gpt_on(NODES, 2, collective=collective), Random(seed)
    columns = [[int(rng.random() < 0.3) for _ in range(plan.levels)] for _ in plan.layers]
    plan = choosing(plan, tuple(zip(*columns, strict=True)))

    def exchanged(overlap: str) -> dict[tuple[Any, ...], float]:
        total: defaultdict[tuple[Any, ...], float] = defaultdict(float)
        for task in tasks_of(plan, overlap=overlap, shard="weights"):
            if isinstance(task, ExchangeTask) and task.kind is ExchangeKind.WEIGHTS:
                total[unit_of(task), task.phase, task.levels] += task.bytes
        # The root is gathered once.
        return {key: bytes_ for key, bytes_ in total.items() if key[0] != "root"}

    assert exchanged("prefetch") == pytest.approx(exchanged("gradient"))
    assert exchanged("prefetch")


@examples(25)
@given(
    plans(IN_LOCKSTEP + UNEVEN, readings=["executed", "joined"]),
    st.sampled_from(["none", "state", "gradients", "weights"]),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from([1, 2]),
)
def test_a_step_takes_no_less_than_program_or_queue_and_no_longer_than_both(
    plan: ho.Plan, shard: str, recompute: str, micro_batches: int
) -> None:
    """Units of a layer, of any networks and choices."""
    options = {"shard": shard, "recompute": recompute, "micro_batches": micro_batches}
    plan = plan.model_copy(update={"batch": micro_batches * plan.batch})
    none, prefetch = (run(plan, overlap=own, **options) for own in ("none", "prefetch"))
    assert prefetch.seconds >= prefetch.lower_bound * (1 - 1e-9)
    assert sum(own.compute + own.communication for own in prefetch.layers) == pytest.approx(
        prefetch.seconds
    )
    if not none.in_lockstep or not prefetch.in_lockstep:
        return
    assert prefetch.seconds <= prefetch.closed_form * (1 + 1e-9)
    if shard != "state":  # whose halves have a latency each, and no longer one together
        assert prefetch.seconds <= none.seconds * (1 + 1e-9)
    if micro_batches == 1:
        tasks = tasks_of(plan, overlap="prefetch", **options)
        assert plan.array is not None
        found = plan.array.description
        for behind in (True, False):
            own = [task for task in tasks if (task.stream == GRADIENT_STREAM) is behind]
            assert prefetch.seconds >= seconds_in(own, found) * (1 - 1e-9)


@examples(10)
@given(plans(IN_LOCKSTEP + UNEVEN, readings=["executed"]))
def test_without_a_queue_it_is_a_step_in_which_nothing_overlaps(plan: ho.Plan) -> None:
    plan = plan.model_copy(update={"inference": True})
    assert run(plan, overlap="prefetch") == run(plan, overlap="none")


@pytest.mark.parametrize("topology", [NODES, *UNEVEN, IN_LOCKSTEP[2]], ids=lambda t: t["kind"])
@pytest.mark.parametrize("collective", ["pairwise", "ring"])
def test_one_accelerator_of_each_class_runs_as_all_do(
    topology: dict[str, Any], collective: str
) -> None:
    plan = gpt_on(topology, 2, collective=collective)
    assert plan.array is not None
    on = plan.array.description.interconnect
    tasks = tasks_of(plan, overlap="prefetch", shard="weights", recompute="full")
    found, expected = run_tasks(tasks, on), run_by_events(tasks, on)
    assert found.seconds == pytest.approx(expected.seconds, rel=1e-9)
    assert found.task_seconds == pytest.approx(expected.task_seconds, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("shard", ["none", "gradients", "weights"])
def test_inefficient_overlap_slows_down_what_overlaps(shard: str) -> None:
    plan = gpt_on(NODES)
    assert plan.array is not None
    found = plan.array.description
    seconds = []
    for efficiency in (None, 1.0, 0.75, 0.5, 1e-9):
        own = found.model_copy(update={"overlap_efficiency": efficiency, "overlap": "prefetch"})
        step = ho.simulate(plan, array=own, other_array=True, shard=shard)
        assert sum(layer.compute + layer.communication for layer in step.layers) == pytest.approx(
            step.seconds
        )
        seconds.append(step.seconds)
        assert step.seconds <= step.closed_form * (1 + 1e-9)
    exact, one, *slower, none = seconds
    assert exact == one
    # Each second in which both are busy takes 2 - e; at 0 they might as well take turns.
    both = none - one
    assert both > 0
    assert slower == pytest.approx([one + 0.25 * both, one + 0.5 * both])


def test_llama_70b_on_64_h100_takes_as_long_as_worked_out_elsewhere() -> None:
    """TRAINED's oracle E2, of another implementation: FSDP with full recomputation."""
    step = ho.simulate(
        "llama-70b",
        array="mosaic-h100-8x8",
        batch=64,
        solver="data",
        optimizer="adam",
        shard="weights",
        recompute="full",
        early_stop=True,
        overlap="prefetch",
    )
    assert step.seconds == pytest.approx(4.6672, abs=5e-5)


def test_groups_of_accelerators_prefetch_too() -> None:
    plan = ho.solve("gpt2", array="a100-h100-2x8", batch=32, solver="data")
    none, prefetch = (
        ho.simulate(plan, overlap=own, shard="weights") for own in ("none", "prefetch")
    )
    assert prefetch.lower_bound <= prefetch.seconds < none.seconds


def test_an_array_states_the_efficiency_of_overlap() -> None:
    described = arrays.load("h100-8").description()
    for wrong in (0, 1.5, "half"):
        with pytest.raises(ValidationError, match="overlap_efficiency"):
            ho.Array.model_validate({**described, "overlap_efficiency": wrong})
