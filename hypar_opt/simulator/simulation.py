"""Simulate a plan's training step, and report its time, traffic, energy and memory."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.device_load import papers_memory
from hypar_opt.costs.energy import WORD_BYTES
from hypar_opt.frozen import FrozenDict
from hypar_opt.simulator.bounds import critical_path, in_sequence, lower_bound
from hypar_opt.simulator.memory import memory_of
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.result import (
    LayerTime,
    LevelTraffic,
    LinkTraffic,
    StepEnergy,
    StepResult,
)
from hypar_opt.simulator.rounds import by_level
from hypar_opt.simulator.run import Measurements, run, seconds_of
from hypar_opt.simulator.spans import trace_of
from hypar_opt.simulator.step import (
    StepTimes,
    fullest_experts,
    launching,
    phases_of,
    program,
    repeats_on,
)
from hypar_opt.simulator.tasks import ExchangeTask, Task, before_last_micro_batch
from hypar_opt.step.states import states_from_rows
from hypar_opt.step.work import layer_macs, local_words

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.device_memory import DeviceMemory
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload

_ALIKE = 1e-9
"""Relative tolerance within which links are equally loaded: their seconds differ by rounding."""


def simulate_step(
    plan: Plan,
    workload: Workload,
    array: Array,
    options: RunOptions,
    *,
    rows: Rows,
) -> StepResult:
    """Simulate one training step of a plan.

    Parameters
    ----------
    workload
        The tensors of the plan's problem: ``hypar_opt.instance.instance.Instance.workload``.
    array
        With as many accelerators as the plan. The plan's own placement applies if the plan was
        made for this array.
    rows : (levels, nodes)
        The choices of all the workload's nodes, as `hypar_opt.costs.shared_nodes.rows_with_shared`
        returns them.

    Raises
    ------
    HyparError
        If the profile is not of this network and batch.
    ValueError
        If a row has no choice for each node.
    """
    collective, overlap = options.on(array)
    if any(len(row) != len(workload.nodes) for row in rows):
        raise ValueError(f"a row should have a choice for each of {len(workload.nodes)} nodes")
    tasks = program(plan, workload, array, options, rows)
    measured = _measured(tasks, array, options)
    bounds = _bounds(tasks, array.interconnect, options, in_lockstep=measured.in_lockstep)
    repeats = repeats_on(plan.network.description, plan.problem, workload, array, options)
    # The device waits where it is faster than the host launches its kernels.
    launched = options.micro_batches * launching(plan.problem, workload, array, repeats)
    stalls = max(0.0, launched - measured.seconds)
    memory, capacity, device_memory = _memory(plan, workload, array, rows, options)
    times = _passes(plan, workload, repeats)
    words, between_vaults = _accessed(plan, workload, rows, times)
    macs = zip(
        times, layer_macs(workload, array.accelerator.mac_count, options.input_sizes), strict=True
    )
    return StepResult(
        plan=plan,
        array=array.name,
        collective=collective,
        overlap=overlap,
        seconds=measured.seconds + stalls,
        in_lockstep=measured.in_lockstep,
        closed_form=bounds[0] + stalls,
        lower_bound=bounds[1] + stalls,
        layers=_layers(tasks, measured) + _stalled(stalls),
        levels=_levels(tasks, measured, array.interconnect),
        links=_links(measured, array.interconnect),
        bottleneck=_bottleneck(measured, array.interconnect),
        known_energy=_energy(
            array,
            macs=sum(often * once for often, once in macs),
            # An element may be smaller than a word.
            dram_words=Fraction(words * plan.element_bytes, WORD_BYTES),
            measured=measured,
        ),
        memory=memory,
        capacity=capacity,
        device_memory=device_memory,
        vault_words=between_vaults * (array.accelerator.vaults - 1),
        events=measured.events,
        trace=trace_of(measured, tasks, array.interconnect) if options.trace else None,
        stated_training=FrozenDict(options.stated_training),
        experts=fullest_experts(plan.problem, workload, rows, repeats),
    )


def step_times(
    plan: Plan,
    workload: Workload,
    array: Array,
    options: RunOptions,
    *,
    rows: Rows,
) -> StepTimes:
    """Return what the seconds of `simulate_step` are computed from, and nothing else."""
    tasks = program(plan, workload, array, options, rows)
    on = array.interconnect
    repeats = repeats_on(plan.network.description, plan.problem, workload, array, options)
    return StepTimes(
        seconds_of(tasks, on, efficiency=array.efficiency_of_overlap),
        seconds_of(before_last_micro_batch(tasks), on, efficiency=array.efficiency_of_overlap),
        launching(plan.problem, workload, array, repeats),
    )


def _passes(plan: Plan, workload: Workload, repeats: Repeats) -> list[int]:
    """Return how often a step passes through each node."""
    forward, backward = repeats.passes(len(workload.nodes))
    return list(map(int, forward + (len(phases_of(plan)) - 1) * backward))


def _accessed(plan: Plan, workload: Workload, rows: Rows, times: Sequence[int]) -> tuple[int, int]:
    """Return the words of all accelerators that a step accesses, and those between vaults.

    Parameters
    ----------
    times
        How often it passes through each node.
    """
    nodes = np.arange(len(workload.nodes))
    weights, inputs, outputs = local_words(
        workload, nodes, states_from_rows(rows, len(nodes)), plan.hierarchy
    )
    # Split by image, input channel or output channel, a layer has two of its three tensors in the
    # vaults that use them; the third, chosen to be the smallest, moves between all vaults.
    smallest = np.minimum(np.minimum(weights, inputs), outputs)
    columns = (weights + inputs + outputs).tolist(), smallest.tolist()
    accessed, between = (sum(map(mul, times, column)) for column in columns)
    return accessed, between


def _measured(tasks: Sequence[Task], array: Array, options: RunOptions) -> Measurements:
    """Run all micro-batches."""
    interconnect, efficiency = array.interconnect, array.efficiency_of_overlap
    measured = run(tasks, interconnect, record=options.trace, efficiency=efficiency)
    before = options.micro_batches - 1
    if not before:
        return measured
    earlier = run(before_last_micro_batch(tasks), interconnect, efficiency=efficiency)
    return measured.after(earlier, before)


def _bounds(
    tasks: Sequence[Task], interconnect: Interconnect, options: RunOptions, *, in_lockstep: bool
) -> tuple[float, float]:
    """Return the seconds of all micro-batches in sequence, and at least."""
    before = options.micro_batches - 1
    earlier = before_last_micro_batch(tasks) if before else ()
    sequence, lowest = (
        bound(tasks, interconnect) + (before * bound(earlier, interconnect) if before else 0.0)
        for bound in (in_sequence, critical_path if in_lockstep else lower_bound)
    )
    return sequence, lowest


def _stalled(seconds: float) -> tuple[LayerTime, ...]:
    return (LayerTime("host", "launches", seconds, 0.0),) if seconds else ()


def _memory(
    plan: Plan, workload: Workload, array: Array, rows: Rows, options: RunOptions
) -> tuple[int, int, DeviceMemory | None]:
    """Return the bytes that the fullest accelerator needs and has.

    By tensor or by layer, as the array's model says.
    """
    if array.step_model.memory_by_tensor:
        footprint = memory_of(plan, workload, rows, options, array)
        return footprint.total, footprint.capacity or 0, footprint
    capacity = int(array.accelerator.dram_capacity)
    return papers_memory(workload, rows, plan)[0], capacity, None


def _layers(tasks: Sequence[Task], measured: Measurements) -> tuple[LayerTime, ...]:
    """Return the time of every layer and pass, in the order of the step."""
    times: dict[tuple[str, str], list[float]] = {}
    for task, seconds in zip(tasks, measured.task_seconds, strict=True):
        compute_communication = times.setdefault((task.layer, task.phase), [0.0, 0.0])
        compute_communication[isinstance(task, ExchangeTask)] += seconds
    return tuple(LayerTime(*key, *seconds) for key, seconds in times.items())


def _levels(
    tasks: Sequence[Task], measured: Measurements, interconnect: Interconnect
) -> tuple[LevelTraffic, ...]:
    """Return the traffic of every level: a ring's seconds by the bytes that cross each."""
    seconds = by_level(tasks, measured.task_seconds, interconnect)
    traffic = zip(measured.level_bytes, seconds, strict=True)
    return tuple(
        LevelTraffic(level, *bytes_and_seconds)
        for level, bytes_and_seconds in enumerate(traffic, 1)
    )


def _links(measured: Measurements, interconnect: Interconnect) -> tuple[LinkTraffic, ...]:
    columns = zip(
        interconnect.links,
        measured.link_bytes,
        measured.link_busy,
        measured.link_seconds_at_capacity,
        strict=True,
    )
    return tuple(
        LinkTraffic(link.name, moved, busy, full, link.count) for link, moved, busy, full in columns
    )


def _bottleneck(measured: Measurements, interconnect: Interconnect) -> tuple[str, int] | None:
    """Return the most loaded link and how many others equal it; None if no byte moved."""
    longest = max(measured.link_seconds_at_capacity, default=0.0)
    if not longest:
        return None
    links = zip(interconnect.links, measured.link_seconds_at_capacity, strict=True)
    busiest = [link for link, seconds in links if seconds >= longest * (1 - _ALIKE)]
    return busiest[0].name, sum(link.count for link in busiest) - 1


def _energy(
    array: Array, *, macs: int, dram_words: Fraction, measured: Measurements
) -> StepEnergy | None:
    """Return the energy of operations and words, of all accelerators together, if known."""
    constants = array.energy
    if constants is None:
        return None
    return StepEnergy(
        macs=float(macs * constants.mac),
        sram=float(macs * constants.sram),
        dram=float(dram_words * constants.dram),
        # A word between accelerators costs its memory accesses once, and energy per link crossed.
        remote=sum(measured.level_bytes) / WORD_BYTES * float(constants.remote),
        hops=sum(
            link.count * moved
            for link, moved in zip(array.interconnect.links, measured.link_bytes, strict=True)
        )
        / WORD_BYTES
        * float(constants.hop),
    )
