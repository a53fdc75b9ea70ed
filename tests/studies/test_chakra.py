"""Chakra's traces: protobuf's bytes, a run's bytes, the simulator's times, in one order for all."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.execution.formats import FORMATS
from hypar_opt.execution.virtual.fabric import Fabric
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import COLLECTIVES, Array
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.plan.stages import Stages
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.planning.priced import plan_of_stages, plans_of_stages
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.program import Program
from hypar_opt.simulator import chakra
from hypar_opt.simulator.chakra import Traces, by_micro_batch
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.pipeline_order import StagePass, orders
from hypar_opt.simulator.step import phases_of, program
from hypar_opt.simulator.streams import OVERLAPS
from hypar_opt.simulator.tasks import ComputeTask, ExchangeTask, predecessors
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.studies.chakra import _dimensions, _network, _system
from hypar_opt.studies.simulation import simulated_passes, simulated_step, step_of
from hypar_opt.studies.targets import own_array
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.stages import cuts
from tests.cli.shell import command
from tests.instance import test_staged as staged
from tests.simulator.plans import IN_LOCKSTEP, KERNELS, plan_on, plans
from tests.simulator.plans import array as small_array
from tests.slow import ALL, examples, slow_after
from tests.strategies.groups import nodes as two_nodes
from tests.strategies.groups import of_counts
from tests.strategies.written_plans import every_rows, fully_connected, written
from tests.studies.chakra_reader import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    Node,
    exported,
    moved,
    read,
)

Files = dict[str, Any]


def level_of(plan: ho.Plan, ranks: tuple[int, ...]) -> int:
    """The level that tells accelerators apart, from 0: their numbers differ in its digit alone."""
    assert plan.array is not None
    assert plan.problem.placement is not None
    place = plan.array.description.interconnect.place
    differ = [
        level
        for level, digit in enumerate(plan.problem.placement)
        for stride, parts in [place(digit)]
        if len({rank // stride % parts for rank in ranks}) > 1
    ]
    (level,) = differ
    return level


def received(plan: ho.Plan) -> dict[tuple[int, int, str], Fraction]:
    """The bytes that traces say, by device, level and kind; an all-reduce is two halves."""
    traces, files = exported(plan)
    total: dict[tuple[int, int, str], Fraction] = defaultdict(Fraction)
    for device, kind, ranks, size in moved(traces, files[".groups.json"]):
        level = level_of(plan, ranks)
        kinds = ["reduce-scatter", "all-gather"] if kind == "all-reduce" else [kind]
        for half in kinds:
            total[device, level, half] += Fraction(size) / len(kinds)
    return total


def operations(plan: ho.Plan) -> dict[tuple[int, str], Fraction]:
    """The bytes of a plan's operations by level and kind, of all devices together."""
    workload = Instance.of_plan(plan).workload
    rows, joined = rows_of_plan(plan, workload), plan.joins_levels
    ran = Program(workload, rows, plan.hierarchy, joined=joined)
    total: dict[tuple[int, str], Fraction] = defaultdict(Fraction)
    for exchange in exchanges_of_step(ran, phases_of(plan)):
        assert exchange.kind is not None
        kind = "message" if exchange.kind == "halo" else str(exchange.kind)
        kinds = ["reduce-scatter", "all-gather"] if kind == "all-reduce" else [kind]
        for half in kinds:
            own = Fraction(exchange.elements * plan.element_bytes, len(kinds))
            total[exchange.level, half] += own
    return total


def test_every_plan_of_a_small_network_has_the_bytes_of_its_operations() -> None:
    """Exactly, on each device and at each level, whatever all layers choose."""
    asked: dict[str, Any] = {"batch": 16, "array": arrays.load("hmc-htree-4")}
    asked |= {"choices": CHOICES[:3], "reading": "executed"}
    plan_of = written(fully_connected(8, 16, 4), "joint", **asked)
    kinds = Counter[str]()
    for rows in [*every_rows(2, 2, 3)][:: 1 if ALL else 7]:
        plan = plan_of(rows)
        expected = {
            (device, *key): size / 4
            for key, size in operations(plan).items()
            for device in range(4)
            if size
        }
        assert received(plan) == expected
        kinds.update(kind for _, _, kind in expected)
    assert {*kinds} == {"reduce-scatter", "all-gather", "all-to-all"}


def tasks_of(plan: ho.Plan, **options: Any) -> tuple[Any, ...]:
    assert plan.array is not None
    instance = Instance.of_plan(plan)
    rows = rows_of_plan(plan, instance.workload)
    array = plan.array.description
    return program(plan, instance.workload, array, RunOptions(**options), rows)


def traced(plan: ho.Plan, micro_batches: int = 1, **options: Any) -> list[list[Node]]:
    assert plan.array is not None
    interconnect = plan.array.description.interconnect
    traces = Traces(by_micro_batch(tasks_of(plan, **options), micro_batches), interconnect)
    return [read(traces.of(device)) for device in range(plan.accelerators)]


@examples(12)
@given(plans(IN_LOCKSTEP, readings=RUN_READINGS))
def test_any_plan_has_the_bytes_of_its_operations_and_the_simulators_times(plan: ho.Plan) -> None:
    """To half a byte of what a device passes in, where shards are uneven, and half a microsecond.

    The half microsecond is of the sum of all computations so far.
    """
    moved_bytes, count = received(plan), plan.accelerators
    for (level, kind), size in operations(plan).items():
        own = [moved_bytes.pop((device, level, kind), Fraction()) for device in range(count)]
        assert len({*own}) == 1
        assert abs(own[0] - size / count) <= plan.hierarchy.sizes[level] - Fraction(1, 2)
    assert not any(moved_bytes.values())
    for nodes in traced(plan):
        check_times(nodes, tasks_of(plan))


def check_times(nodes: list[Node], tasks: Iterable[Any]) -> None:
    """Compare each computation with the simulator's, and the time of all so far."""
    computed = [task for task in tasks if isinstance(task, ComputeTask) and task.seconds]
    own = [node for node in nodes if node.type == COMPUTE]
    assert [node.name for node in own] == [task.name for task in computed]
    exact, whole = Fraction(), 0
    for node, task in zip(own, computed, strict=True):
        exact, whole = exact + Fraction(task.seconds) * 10**6, whole + node.micros
        assert abs(exact - whole) <= Fraction(1, 2)


def before(waits_for: Iterable[Sequence[int]]) -> list[set[int]]:
    """All that each waits for, directly or not; both are numbered from 0."""
    sets: list[set[int]] = []
    for own in waits_for:
        sets.append({*own}.union(*(sets[other] for other in own)))
    return sets


def test_what_waits_for_what_is_as_simulated_whatever_overlaps() -> None:
    """Streams and prefetching: a node waits for all that its task waits for, and no other."""
    network = "gpt:layers=2,hidden=256,heads=4,tokens=64,vocabulary=512"
    asked: dict[str, Any] = {"array": "rtx4090x4", "batch": 8, "degrees": "dp=2,tp=2"}
    plan = ho.solve(network, **asked)
    orders = set()
    for overlap in OVERLAPS:
        tasks = tasks_of(plan, overlap=overlap, shard="weights")
        kept = [n for n, task in enumerate(tasks) if getattr(task, "seconds", 1)]
        number = {task: node for node, task in enumerate(kept)}
        simulated = before(predecessors(tasks))
        expected = [{number[m] for m in simulated[n] if m in number} for n in kept]
        for nodes in traced(plan, overlap=overlap, shard="weights"):
            assert [node.id for node in nodes] == [*range(1, len(kept) + 1)]
            assert before([n - 1 for n in node.after] for node in nodes) == expected
            check_times(nodes, tasks)
        orders.add(tuple(map(frozenset, expected)))
    assert len(orders) == len(OVERLAPS)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_rings_over_several_levels_have_the_bytes_of_all(collective: str) -> None:
    array = arrays.load("hmc-torus-8").model_copy(update={"collective": collective})
    plan = ho.solve("lenet-c", array=array, batch=64, reading="executed")
    traces, files = exported(plan)
    sizes = [size for _, _, _, size in moved(traces, files[".groups.json"])]
    assert sum(sizes) == sum(operations(plan).values())
    assert sum(sizes) == sum(level.bytes for level in simulated_step(plan).levels)


def test_micro_batches_follow_one_another_and_gradients_are_reduced_in_the_last() -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-4", batch=16, reading="executed")
    tasks, count = tasks_of(plan), 3
    once = [task for task in tasks if not task.once]
    assert len(once) < len(tasks)
    for nodes in traced(plan, count):
        assert [node.name for node in nodes] == [task.name for task in (*once * 2, *tasks)]
        waited = before([n - 1 for n in node.after] for node in nodes)
        for first in (len(once), 2 * len(once)):
            assert all({*range(first)} <= own for own in waited[first:])


PART_WORDS = ("data", "model", "output", "first", "second")


def of_groups(*choices: str, **more: Any) -> ho.Plan:
    """A chain between two groups of two accelerators, of which one has a quarter."""
    network = fully_connected(8, *(16 * n for n, _ in enumerate(choices, 1)))
    pins = [f"fc{n}@H1={word}" for n, word in enumerate(choices, 1)]
    pins += [f"fc{n}@H2=data" for n, _ in enumerate(choices, 1)]
    asked: dict[str, Any] = {"array": two_nodes(2), "batch": 48, "cost": "time", "share": 0.25}
    asked |= {"choices": PART_WORDS, "reading": "executed"} | more
    return ho.solve(network, **asked, constraints={"fix": tuple(pins), "runnable": False})


def ends_in_order(traces: list[list[Node]], groups: dict[str, list[int]]) -> None:
    """Let each device go through its exchanges in order, and wait in each for all that take part.

    That all come to their ends shows that the two ends of a pair are in one order, and that all
    members of a communicator have its collectives in one order.
    """
    at: list[list[tuple[Any, ...]]] = []
    for device, nodes in enumerate(traces):
        own: list[tuple[Any, ...]] = []
        for node in nodes:
            if node.type == COLLECTIVE:
                name = node.attributes["pg_name"]
                assert device in groups[name]
                size, kind = node.attributes["comm_size"], node.attributes["comm_type"]
                own.append((tuple(groups[name]), name, kind, size))
            elif node.type in (SEND, RECEIVE):
                keys = ("comm_src", "comm_dst", "comm_tag", "comm_size")
                source, target, tag, size = (node.attributes[key] for key in keys)
                assert device == (source if node.type == SEND else target)
                own.append(((source, target), tag, size))
        at.append(own[::-1])
    while any(at):
        ready = [
            device
            for device, own in enumerate(at)
            if own and all(at[other] and at[other][-1] == own[-1] for other in own[-1][0])
        ]
        assert ready, [own[-1:] for own in at]
        for device in ready:
            at[device].pop()


@pytest.mark.parametrize(
    "choices",
    slow_after(
        3,
        [
            "first output second",
            "model data first",
            "data second data",
            "first second first",
            "second second",
            "output model data",
        ],
    ),
)
def test_parts_of_their_own_send_and_receive_what_a_run_does(choices: str) -> None:
    plan = of_groups(*choices.split())
    traces, files = exported(plan)
    groups = files[".groups.json"]
    ends_in_order(traces, groups)
    levels = [Fraction()] * plan.levels
    for _, _, ranks, size in moved(traces, groups):
        levels[level_of(plan, ranks)] += Fraction(size)
    ran, simulated = ho.run(plan), simulated_step(plan)
    counted = ran.counted or (0,) * plan.levels
    assert levels == [level.bytes for level in simulated.levels] == [*counted]
    # A device computes what its part does, and has no node of what the other part alone does.
    for device, nodes in enumerate(traces):
        tasks = [task for task in tasks_of(plan) if isinstance(task, ComputeTask)]
        own = [(task.of_parts or (task.seconds,) * 2)[device // 2] for task in tasks]
        micros = sum(node.micros for node in nodes)
        assert abs(micros - 10**6 * sum(map(Fraction, own), Fraction())) <= Fraction(1, 2)
        assert sum(node.type == COMPUTE for node in nodes) == sum(map(bool, own))


THREE = ("data", "model", "output", "first", "second", "third")


def of_three(counts: tuple[int, ...], choices: Sequence[str], collective: str) -> ho.Plan:
    """A chain between three groups, of which the last has most."""
    array = of_counts(counts, collective=collective)
    network = fully_connected(48, *(48 * n for n, _ in enumerate(choices, 1)))
    pins = [f"fc{n}@H1={word}" for n, word in enumerate(choices, 1)]
    pins += [f"*@H{level}=data" for level in range(2, array.levels + 1)]
    asked: dict[str, Any] = {"array": array, "batch": 48, "cost": "time", "reading": "executed"}
    asked |= {"choices": THREE, "share": (0.25, 0.125, 0.625)}
    return ho.solve(network, **asked, constraints={"fix": tuple(pins), "runnable": False})


@pytest.mark.parametrize("collective", ["pairwise", "ring"])
@pytest.mark.parametrize(
    ("counts", "choices"),
    slow_after(
        2,
        [
            ((2, 2, 2), ("data", "model", "output")),
            ((1, 1, 2), ("output", "second", "model")),
            ((1, 1, 2), ("model", "output", "data")),
            ((2, 2, 2), ("first", "model", "third")),
            *[*product([(2, 2, 2), (1, 1, 2)], product(THREE, repeat=3))][::7],
        ],
    ),
)
def test_parts_of_three_groups_send_each_other_what_a_run_does(
    counts: tuple[int, ...],
    choices: Sequence[str],
    collective: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pair by pair; around a ring, whose messages pass on others', in all."""
    plan = of_three(counts, choices, collective)
    traces, files = exported(plan)
    groups, parts = files[".groups.json"], plan.hierarchy.sizes[0]
    ends_in_order(traces, groups)
    pairs: Counter[tuple[int, int]] = Counter()
    exchange = Fabric.exchange

    def counted(own: Fabric, message: Any, purpose: Any, *below: int) -> Any:
        arrived = exchange(own, message, purpose, *below)
        of_pass = purpose.source.phase is not Phase.GRADIENT
        if purpose.level == 0 and of_pass and purpose.kind is not StepKind.ALL_REDUCE:
            for device, received in enumerate(arrived):
                for peer, block in received.items():
                    ends = (peer * parts // plan.accelerators, device * parts // plan.accelerators)
                    pairs[ends] += block.size * plan.element_bytes
        return arrived

    monkeypatch.setattr(Fabric, "exchange", counted)
    ran, total = ho.run(plan), Fraction()
    messages: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for device, kind, ranks, size in moved(traces, groups):
        total += Fraction(size)
        own, *others = (rank * parts // plan.accelerators for rank in (device, *ranks))
        for other in {*others} - {own} if kind != "all-reduce" else ():
            messages[other, own] += Fraction(size) / (len(others) - 1)
    assert total == sum(ran.counted or ())
    assert total == sum(level.bytes for level in simulated_step(plan).levels)
    if collective == "pairwise":
        assert {ends: own for ends, own in messages.items() if own} == +pairs
    else:
        assert sum(messages.values()) == sum(pairs.values())


def test_a_border_has_a_tag_for_each_direction_and_micro_batch() -> None:
    plan = of_groups("first", "second", "first", micro_batches=3)
    (nodes, *_), _ = exported(plan)
    tags = [node.attributes["comm_tag"] for node in nodes if node.type == SEND]
    # Forward over the first border, backward over the second, in each of three micro-batches.
    assert tags == [0, 3, 4, 7, 8, 11]
    assert tags == [0 + 4 * n + k for n in range(3) for k in (0, 3)]


@cache
def in_stages(schedule: str, parts: int, chunks: int, **trains: str) -> ho.Plan:
    """A small GPT on eight accelerators, cut behind additions; the weights at its ends are tied."""
    network = staged.SMALL
    stated = staged.problem(staged.nodes(2, 4), parts)
    training = stated.training.model_copy(update={"schedule": schedule, **trains})
    stated = stated.model_copy(update={"training": training})
    ends = *cuts(network)[2 : 1 + parts * chunks], len(network.layers)
    return plan_of_stages(staged.solved(network, stated, Stages(network, parts, ends)))


IN_STAGES = slow_after(
    3,
    [
        ("1f1b", 4, 2, "full"),
        ("zb-h1", 4, 1, "none"),
        ("gpipe", 2, 1, "none"),
        ("1f1b", 2, 2, "none"),
        ("1f1b", 4, 2, "none"),
        ("1f1b", 2, 1, "full"),
        ("1f1b", 4, 1, "none"),
        ("gpipe", 4, 1, "full"),
        ("zb-h1", 2, 1, "full"),
    ],
)

stages_exported = cache(exported)


def passes_alone(plan: ho.Plan) -> dict[Phase, tuple[float, ...]]:
    """What a stage's passes take as simulated, if exchanges take no time."""
    described = own_array(plan).description()
    described["topology"] |= {
        key: {"bandwidth": "1e30 B/s", "latency": "0 s"} for key in ("link", "fabric")
    }
    passes = simulated_passes(plan, Array.model_validate(described))
    return dict(zip((Phase.FORWARD, Phase.BACKWARD, Phase.GRADIENT), passes[:3], strict=True))


def schedule_of(plan: ho.Plan) -> tuple[tuple[StagePass, ...], ...]:
    stages, training = plan.stages, plan.training
    assert stages is not None
    return orders(training.schedule, stages.parts, training.micro_batches or 1, stages.chunks)


@pytest.mark.parametrize(("schedule", "parts", "chunks", "recompute"), IN_STAGES)
def test_stages_send_each_other_and_inside_what_a_run_does(
    schedule: str, parts: int, chunks: int, recompute: str
) -> None:
    """In one order at both ends, also if these wait for each other."""
    plan = in_stages(schedule, parts, chunks, recompute=recompute)
    traces, files = stages_exported(plan)
    groups, each = files[".groups.json"], plan.accelerators // parts
    ends_in_order(traces, groups)
    inside, between, tags = [Fraction()] * parts, Fraction(), Counter[tuple[int, int]]()
    for device, kind, ranks, size in moved(traces, groups):
        if len({rank // each for rank in ranks}) == 1:
            inside[device // each] += Fraction(size)
            continue
        between += Fraction(size)
        assert len({rank % each for rank in ranks}) == 1
        if kind == "all-reduce":  # of the tied weights' gradients
            assert [rank // each for rank in ranks] == [0, parts - 1]
    assert inside == [own.cost.executed_bytes for own in plans_of_stages(plan)]
    assert sum(inside) + between == plan.cost.executed_bytes
    counted = ho.run(plan).counted
    assert counted is not None
    assert [between, sum(inside)] == [counted[0], sum(counted[1:])]
    borders, count = parts * chunks - 1, plan.training.micro_batches or 1
    for device, nodes in enumerate(traces):
        for node in nodes:
            if node.type == SEND:
                keys = "comm_src", "comm_dst", "comm_tag"
                source, target, tag = (node.attributes[key] for key in keys)
                micro_batch, rest = divmod(tag, 2 * borders)
                border, backward = divmod(rest, 2)
                assert source == device
                assert source // each == (border + backward) % parts
                assert target // each == (border + 1 - backward) % parts
                tags[device % each, tag] += 1
                assert micro_batch < count
    assert len(tags) == each * 2 * borders * count
    assert {*tags.values()} == {1}


@pytest.mark.parametrize(("schedule", "parts", "chunks", "recompute"), IN_STAGES)
def test_stages_compute_by_their_schedule_as_simulated(
    schedule: str, parts: int, chunks: int, recompute: str
) -> None:
    """Between what they receive and what they send; reductions and updates once, at the end."""
    plan = in_stages(schedule, parts, chunks, recompute=recompute)
    traces, _ = stages_exported(plan)
    each, borders = plan.accelerators // parts, parts * chunks - 1
    assert plan.stages is not None
    names = [layer.name for layer in plan.network.description.layers]
    own_plans, passes = plans_of_stages(plan), schedule_of(plan)
    for device in range(0, plan.accelerators, each):
        part = device // each
        chunk_of = {
            names[n]: number for number, own in enumerate(plan.stages.chunks_of(part)) for n in own
        }
        step, rows = step_of(own_plans[part], own_array(own_plans[part]), {})
        tasks = [own for own in program(*step, rows=rows) if isinstance(own, ComputeTask)]
        tasks = [own for own in tasks if own.seconds]
        of_pass: dict[tuple[Phase, int], list[ComputeTask]] = defaultdict(list)
        for n, own in enumerate(tasks):
            # What runs again forward is part of the backward pass.
            again = own.name in (other.name for other in tasks[:n])
            backward = own.phase is not Phase.FORWARD or again
            phase = Phase.BACKWARD if backward else Phase.FORWARD
            if schedule == "zb-h1" and own.phase is Phase.GRADIENT:
                phase = Phase.GRADIENT
            if not own.once:
                of_pass[phase, chunk_of[own.layer]].append(own)
        once = [own for own in tasks if own.once]
        expected = [own for one in passes[part] for own in of_pass[one.phase, one.chunk]]
        check_times(traces[device], [*expected, *once])
        simulated = passes_alone(own_plans[part])
        waited = before([n - 1 for n in node.after] for node in traces[device])
        computed = [n for n, node in enumerate(traces[device]) if node.type == COMPUTE]
        ends = {
            (node.type, node.attributes["comm_tag"]): n
            for n, node in enumerate(traces[device])
            if node.type in (SEND, RECEIVE)
        }
        done, whole, exact = 0, 0, 0.0
        for phase, chunk, micro_batch in passes[part]:
            count = len(of_pass[phase, chunk])
            own_nodes, done = {*computed[done : done + count]}, done + count
            exact += simulated[phase][chunk] - (
                simulated[Phase.GRADIENT][chunk]
                if schedule == "zb-h1" and phase is Phase.BACKWARD
                else 0.0
            )
            whole += sum(traces[device][n].micros for n in own_nodes)
            assert whole == pytest.approx(10**6 * exact, abs=0.51)
            if phase is Phase.GRADIENT:
                continue
            backward, place = phase is Phase.BACKWARD, chunk * parts + part
            read, sent = (place, place - 1) if backward else (place - 1, place)
            for kind, border in ((RECEIVE, read), (SEND, sent)):
                end = ends.pop((kind, 2 * (border + micro_batch * borders) + backward), None)
                assert (end is not None) == (0 <= border < borders)
                if end is not None and kind == SEND:
                    assert own_nodes <= waited[end]
                elif end is not None:
                    assert all(end in waited[n] for n in own_nodes)
        assert not ends


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["weights", "gradients"])
@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 2), ("zb-h1", 1)])
def test_stages_with_shards_exchange_what_is_simulated(
    schedule: str, chunks: int, shard: str
) -> None:
    plan = in_stages(schedule, 2, chunks, shard=shard)
    traces, files = stages_exported(plan)
    ends_in_order(traces, files[".groups.json"])
    inside = [Fraction()] * 2
    for device, _, ranks, size in moved(traces, files[".groups.json"]):
        if len({rank // 4 for rank in ranks}) == 1:
            inside[device // 4] += Fraction(size)
    count = plan.training.micro_batches or 1
    for part, own in enumerate(plans_of_stages(plan)):
        step, rows = step_of(own, own_array(own), {})
        exchanges = [task for task in program(*step, rows=rows) if isinstance(task, ExchangeTask)]
        assert inside[part] == sum(own.bytes * (1 if own.once else count) for own in exchanges)


def test_files_lie_beside_a_script_that_runs_astra_sim_on_them(tmp_path: Path) -> None:
    ho.solve("lenet-c", array="hmc-htree-4", batch=16).save(tmp_path / "plan.json")
    done = command(["export", "plan.json", "--to", "chakra", "--output", "a step.sh"], tmp_path)
    assert (done.status, done.output) == (0, "")
    names = [f"a step.{end}" for end in ("sh", "system.json", "network.json", "memory.json")]
    names += ["a step.groups.json", *(f"a step.{rank}.et" for rank in range(4))]
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", *names}
    script = tmp_path / "a step.sh"
    assert script.read_text() == ho.export(tmp_path / "plan.json", "chakra")
    environment = {**os.environ, "ASTRA_SIM": "echo"}
    called = subprocess.run(
        ["sh", str(script), "--logging-folder=log"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    keys = ["workload", "comm-group", "system", "network", "remote-memory"]
    ends = ["", ".groups.json", ".system.json", ".network.json", ".memory.json"]
    base = str(tmp_path / "a step")
    options = [f"--{key}-configuration={base}{end}" for key, end in zip(keys, ends, strict=True)]
    assert called == " ".join([*options, "--logging-folder=log"]) + "\n"
    assert json.loads(Path(f"{base}.memory.json").read_text())["memory-type"]
    assert len(read(Path(f"{base}.3.et").read_bytes())) > 0


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [
        ("a100-4x8", [("Switch", 8, 230, 14), ("Switch", 4, 20, 24)]),
        ("tpu-v4-4x4x4", [("Ring", 4, 50, 1)] * 3),
        ("hmc-htree-8", [("Switch", 8, 0.4, 0)]),
    ],
)
def test_the_network_is_the_arrays(name: str, dimensions: list[Any]) -> None:
    """Accelerators next to each other first; in units of 2^30 bytes a second, and nanoseconds."""
    array = arrays.load(name)
    network = _network(_dimensions(array))
    rows = zip(
        *(network[key] for key in ("topology", "npus_count", "bandwidth", "latency")), strict=True
    )
    assert [*rows] == [
        (kind, count, pytest.approx(rate * 10**9 / 2**30), pytest.approx(latency * 1000))
        for kind, count, rate, latency in dimensions
    ]
    system = _system(array, _dimensions(array))
    for key, value in system.items():
        assert len(value) == len(dimensions) if key.endswith("implementation") else True


def test_what_traces_cannot_say_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMATS["chakra"]()
    with pytest.raises(ho.HyparError, match="solved without an array"):
        form.text(ho.solve("lenet-c", levels=2), approximate=False)
    with pytest.raises(ho.HyparError, match="on one accelerator splits nothing"):
        form.text(ho.solve("lenet-c", levels=0), approximate=False)
    pins = ("*@H1=model", "*@H2=model")
    around = ho.solve(
        fully_connected(48, 48, 48),
        array=of_counts((2, 2, 2), collective="ring"),
        batch=48,
        cost="time",
        reading="executed",
        share=(0.25, 0.25, 0.5),
        constraints={"fix": pins, "runnable": False},
    )
    said = "3 parts of H1 send different amounts over H1 H2 around one ring"
    with pytest.raises(RefusedError, match=said):
        form.text(around, approximate=False)
    small = ho.solve("lenet-c", array="hmc-htree-4", batch=16)
    monkeypatch.setattr(chakra, "MAX_NODES", 119)
    with pytest.raises(RefusedError, match="up to 120 nodes, and at most 119 are written"):
        form.text(small, approximate=False)


def test_what_is_not_expressed_stands_in_the_script() -> None:
    form = FORMATS["chakra"]()
    plain = form.text(ho.solve("lenet-c", array="hmc-htree-4", batch=16), approximate=False)
    assert "Not expressed" not in plain
    edges = [{"source": 0, "target": 1, "bandwidth": "8 B/s"}]
    graph = {"nodes": [{"id": n, "accelerator": n} for n in range(2)], "edges": edges}
    found = small_array({"kind": "graph", "graph": graph}, **KERNELS | {"host": "1 ms"})
    found = found.model_copy(update={"overlap_efficiency": 0.5})
    rows = [["output", "data"]]
    plan = plan_on(fully_connected(6, 9, 4), found, rows, batch=5, choices=CHOICES[:3])
    said = form.text(plan, approximate=False)
    for lack in ("uneven shards:", "overlap_efficiency:", "host:", "the links of a graph:"):
        assert f"# Not expressed: {lack}" in said
