"""Exchanges of the program that run beside the computations next to them."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.hardware import arrays
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.run import run as run_tasks
from hypar_opt.simulator.run import run_by_events
from hypar_opt.simulator.step import program
from hypar_opt.simulator.tasks import ComputeTask, ExchangeKind, ExchangeTask, Task, predecessors
from tests.cli.shell import command
from tests.slow import slow_off_diagonal

NETWORK = ho.gpt(layers=2, hidden=1024, heads=8, tokens=2048, vocabulary=1000)


def plan_of(degrees: str, bandwidth: str = "345 GB/s", latency: str = "0 s") -> ho.Plan:
    described = arrays.load("h100-8").description()
    described["topology"]["link"] = {"bandwidth": bandwidth, "latency": latency}
    own = ho.Array.model_validate(described)
    return ho.solve(NETWORK, array=own, batch=8, choices="all", degrees=degrees)


def tasks_of(plan: ho.Plan, **options: Any) -> tuple[Task, ...]:
    assert plan.array is not None
    workload = Instance.of_plan(plan).workload
    rows = rows_of_plan(plan, workload)
    return program(plan, workload, plan.array.description, RunOptions(**options), rows)


def computed(tasks: tuple[Task, ...], phase: str, layer: str) -> float:
    own = [t for t in tasks if isinstance(t, ComputeTask) and (t.phase, t.layer) == (phase, layer)]
    return sum(task.seconds for task in own)


@pytest.mark.parametrize("bandwidth", ["1 GB/s", "345 GB/s", "100 TB/s"])
def test_attention_goes_on_with_the_keys_and_values_that_are_there(bandwidth: str) -> None:
    """With four parts it begins with a quarter, and two levels bring a quarter and a half."""
    plan = plan_of("dp=1,cp=4,tp=2", bandwidth)
    assert plan.array is not None
    on = plan.array.description.interconnect
    tasks = tasks_of(plan, overlap="none")
    attention = "decoder.0.attention"
    gathered = [
        run_tasks([task], on).seconds
        for task in tasks
        if isinstance(task, ExchangeTask)
        and (task.layer, task.phase, task.step) == (attention, "forward", "all-gather")
    ]
    assert len(gathered) == 4  # of keys and values, over two levels
    exchanged, whole = sum(gathered), computed(tasks, "forward", attention)
    first = gathered[0] + gathered[2]
    ringed = max(max(whole / 4, first) + whole / 4, exchanged) + whole / 2
    # In either pass of either block, and nothing else is divided.
    saved = 2 * (whole + exchanged - ringed)
    backward = computed(tasks, "backward", attention)
    of_errors = max(backward / 2 + exchanged - first, backward * 3 / 4) + first
    saved += 2 * (backward + exchanged - max(of_errors, backward))
    before, after = (ho.simulate(plan, overlap="none", ring=own) for own in (False, True))
    assert before.in_lockstep
    assert after.in_lockstep
    assert before.seconds - after.seconds == pytest.approx(saved, rel=1e-9)
    assert [own.bytes for own in after.levels] == pytest.approx([x.bytes for x in before.levels])


@pytest.mark.parametrize("hidden", [0.25, 1])
@pytest.mark.parametrize("bandwidth", ["10 GB/s", "345 GB/s", "100 TB/s"])
def test_a_fraction_of_tensor_parallelisms_exchanges_hides_behind_products(
    hidden: float, bandwidth: str
) -> None:
    plan = plan_of("dp=1,tp=8", bandwidth)
    assert plan.array is not None
    before, after = (ho.simulate(plan, overlap="none", hidden=own) for own in (0, hidden))
    assert [own.bytes for own in after.levels] == pytest.approx([x.bytes for x in before.levels])
    assert before.seconds * (1 - hidden * before.communication / before.seconds) <= after.seconds
    assert after.seconds <= before.seconds
    if bandwidth == "100 TB/s":  # what hides takes less than any product
        tasks = tasks_of(plan, overlap="none", hidden=hidden)
        beside = [task for task in tasks if task.stream]
        assert beside
        on = plan.array.description.interconnect
        saved = sum(run_tasks([task], on).seconds for task in map(alone, beside))
        assert before.seconds - after.seconds == pytest.approx(saved, rel=1e-6)


@pytest.mark.parametrize("hidden", [0.5, 1.0])
def test_computations_wait_for_weights_as_an_exchange_beside_them_does(hidden: float) -> None:
    """Of a block that begins its backward pass with a gather of errors, this comes first."""
    lines = (
        {"name": "up", "kind": "fc", "units": 256},
        {"name": "down", "kind": "fc", "units": 64},
    )
    chain = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "chain",
            "input": {"tokens": 64, "features": 64},
            "layer": [
                {"name": "first", "kind": "fc", "units": 64},
                {"name": "loss", "kind": "output", "inputs": ["mlp"]},
            ],
            "block": [{"name": "mlp", "repeat": 3, "inputs": ["first"], "layer": lines}],
        }
    )
    fix = ["*@H1=data", "*@H2=data", "*up@H3=data", "*down@H3=model"]
    plan, trained = ho.solve(chain, array="h100-8", batch=8, fix=fix), {"overlap": "prefetch"}
    before = weights_before(tasks_of(plan, **trained, shard="weights"))
    after = weights_before(tasks_of(plan, **trained, shard="weights", hidden=hidden))
    assert all(before[f"mlp.{n}.down", "backward"] for n in range(3))
    assert before.keys() == after.keys()
    assert all(before[own] <= after[own] for own in before)


def weights_before(tasks: tuple[Task, ...]) -> dict[tuple[str, str], set[tuple[str, str, int]]]:
    """Return, of each layer's first computation in a pass, the gathers of weights before it."""
    before: list[set[int]] = []
    for own in predecessors(tasks):
        before.append(set(own).union(*(before[other] for other in own)))
    computed: dict[tuple[str, str], set[tuple[str, str, int]]] = {}
    gathers = {
        number: (task.layer, str(task.phase), task.levels[0])
        for number, task in enumerate(tasks)
        if isinstance(task, ExchangeTask) and task.kind is ExchangeKind.WEIGHTS
    }
    for number, task in enumerate(tasks):
        if isinstance(task, ComputeTask):
            waited = {gathers[own] for own in before[number] & gathers.keys()}
            computed.setdefault((task.layer, task.phase), waited)
    return computed


def alone(task: Task) -> Task:
    assert isinstance(task, ExchangeTask)
    fields = {name: getattr(task, name) for name in ExchangeTask.__dataclass_fields__}
    return ExchangeTask(**{**fields, "after": None, "stream": 0})


@pytest.mark.parametrize(
    ("overlap", "collective"),
    slow_off_diagonal(["none", "gradient", "prefetch"], ["pairwise", "ring"]),
)
def test_both_run_beside_any_queue_as_all_events_do(overlap: str, collective: str) -> None:
    plan = plan_of("dp=2,cp=2,tp=2", latency="7 us")
    assert plan.array is not None
    options: dict[str, Any] = {"overlap": overlap, "collective": collective, "shard": "weights"}
    options |= {"recompute": "full"}
    tasks = tasks_of(plan, **options, ring=True, hidden=0.5)
    assert prod(2 for task in tasks if task.stream > 1) > 1
    on = plan.array.description.interconnect
    found, expected = run_tasks(tasks, on), run_by_events(tasks, on)
    assert found.seconds == pytest.approx(expected.seconds, rel=1e-9)
    assert sum(found.task_seconds) == pytest.approx(found.seconds)
    plain = ho.simulate(plan, **options)
    ringed = ho.simulate(plan, **options, ring=True)
    assert ringed.lower_bound <= ringed.seconds * (1 + 1e-9)
    assert ringed.seconds <= plain.seconds * (1 + 1e-9)


def test_an_array_states_both_and_options_come_first() -> None:
    plan = plan_of("dp=1,cp=4,tp=2", latency="7 us")
    assert plan.array is not None
    both: dict[str, Any] = {"ring": True, "hidden": 1.0}
    own = plan.array.description.model_copy(update=both)
    stated = ho.simulate(plan, array=own, other_array=True)
    assert stated.seconds == ho.simulate(plan, **both).seconds
    assert stated.seconds < ho.simulate(plan).seconds
    plain = ho.simulate(plan, array=own, other_array=True, ring=False, hidden=0)
    assert plain.seconds == ho.simulate(plan).seconds


def test_without_context_or_tensor_parallelism_nothing_changes() -> None:
    plan = plan_of("dp=8")
    assert ho.simulate(plan, ring=True, hidden=1.0) == ho.simulate(plan)


def test_what_hides_more_than_all_is_refused(tmp_path: Path) -> None:
    ran = command(["simulate", "gpt2", "--array", "h100-8", "--hidden", "1.5"], tmp_path)
    assert ran.status == 2
    assert "--hidden should be from 0 to 1, got 1.5" in ran.errors
    with pytest.raises(HyparError, match="hidden should be from 0 to 1"):
        ho.simulate(plan_of("dp=8"), hidden=-0.5)
