"""A training step on an array of accelerators, event by event."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.compute import NO_SIZES, Sizes, layer_macs, local_words, memory_load
from hypar_opt.costs.energy import WORD_BYTES
from hypar_opt.simulator.machine import Run, run
from hypar_opt.simulator.result import Energy, LayerTime, LevelTraffic, LinkTraffic, StepResult
from hypar_opt.simulator.step import final_counts, phases_of, program
from hypar_opt.simulator.tasks import Compute, Exchange, Task
from hypar_opt.simulator.trace import chrome_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.profile import Profile
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.tensors import Workload


def simulate(
    plan: Plan,
    workload: Workload,
    array: Array,
    *,
    collective: str | None = None,
    overlap: str = "none",
    profile: Profile | None = None,
    input_sizes: Sizes = NO_SIZES,
    trace: bool = False,
) -> StepResult:
    """Simulate one step of a plan.

    Parameters
    ----------
    array
        As many accelerators as the plan has; placed as the plan says, if it knows of any array.
    collective
        ``pairwise``, the paper's, or ``ring``; None for the array's own.
    overlap
        ``none``, or ``gradient``: gradients are exchanged beside the work that follows.
    profile
        Measured seconds in place of the accelerator's computed ones.
    input_sizes
        What to count multiply-accumulates with, in place of the network's own input sizes.
    trace
        Record what happens when, as a Chrome trace.

    Raises
    ------
    HyparError
        If a name is unknown, or the profile does not fit.
    """
    tasks = program(
        plan,
        workload,
        array,
        collective=collective,
        overlap=overlap,
        profile=profile,
        input_sizes=input_sizes,
    )
    lower_bound, closed_form = added_up(tasks, array.interconnect)
    done = run(tasks, array.interconnect, record=trace)
    counts, phases = final_counts(plan, workload), phases_of(plan)
    needed = memory_load(workload, counts, plan)
    weights, inputs, outputs = local_words(workload, counts)
    words = int((weights + inputs + outputs).sum()) * len(phases) * plan.element_bytes
    return StepResult(
        seconds=done.seconds,
        closed_form=closed_form,
        lower_bound=lower_bound,
        layers=_layers(tasks, done),
        levels=_levels(tasks, done),
        links=_links(done, array.interconnect),
        bottleneck=_bottleneck(done, array.interconnect),
        energy=_energy(
            array,
            macs=sum(layer_macs(workload, array.accelerator, input_sizes)) * len(phases),
            words=Fraction(words, WORD_BYTES),
            done=done,
        ),
        memory=-(-int(needed.sum()) >> plan.levels),
        capacity=int(array.accelerator.dram_capacity),
        # Spread by image, input channel or output channel, a layer leaves two of its tensors
        # with the vaults that use them; the third, the smallest, goes to or from all others.
        vault_words=int(np.minimum(np.minimum(weights, inputs), outputs).sum())
        * (array.accelerator.vaults - 1)
        * len(phases),
        events=done.events,
        trace=chrome_trace(done, tasks, array.interconnect) if trace else None,
    )


def added_up(tasks: Sequence[Task], interconnect: Interconnect) -> tuple[float, float]:
    """Return seconds between which tasks end that all accelerators begin together.

    One after the other, an exchange takes its messages' latencies and its bytes over what the
    topology gives its pattern: the upper of the two, and both where nothing overlaps. What is
    in the background waits only for the tasks before it and for others in the background: that
    is the longest that has to be, the lower.
    """
    foreground = background = total = 0.0
    for task in tasks:
        seconds = task.seconds if isinstance(task, Compute) else _exchanging(task, interconnect)
        total += seconds
        if isinstance(task, Exchange) and task.background:
            background = max(foreground, background) + seconds
        else:
            foreground += seconds
    return max(foreground, background), total


def _exchanging(task: Exchange, interconnect: Interconnect) -> float:
    split = interconnect.ring(task.bits) if task.ring else interconnect.bisection(task.bits[0])
    return task.messages * float(split.latency) + task.bytes * float(split.seconds_per_byte)


def _layers(tasks: Sequence[Task], done: Run) -> tuple[LayerTime, ...]:
    found: dict[tuple[str, str], list[float]] = {}
    for task, seconds in zip(tasks, done.task_seconds, strict=True):
        times = found.setdefault((task.layer, task.phase), [0.0, 0.0])
        times[isinstance(task, Exchange)] += seconds
    return tuple(LayerTime(*key, *times) for key, times in found.items())


def _levels(tasks: Sequence[Task], done: Run) -> tuple[LevelTraffic, ...]:
    """Seconds of a ring stand with the topmost level that it crosses."""
    seconds = [0.0] * len(done.level_bytes)
    for task, taken in zip(tasks, done.task_seconds, strict=True):
        if isinstance(task, Exchange):
            seconds[task.levels[0]] += taken
    return tuple(
        LevelTraffic(level, moved, taken)
        for level, (moved, taken) in enumerate(zip(done.level_bytes, seconds, strict=True), 1)
    )


def _links(done: Run, interconnect: Interconnect) -> tuple[LinkTraffic, ...]:
    names = [link.name for link in interconnect.links]
    traffic = zip(
        names, done.link_bytes, done.link_busy, done.link_seconds_at_capacity, strict=True
    )
    return tuple(LinkTraffic(*each) for each in traffic)


def _bottleneck(done: Run, interconnect: Interconnect) -> tuple[str, int] | None:
    longest = max(done.link_seconds_at_capacity, default=0.0)
    if not longest:
        return None
    alike = [
        link.name
        for link, full in zip(interconnect.links, done.link_seconds_at_capacity, strict=True)
        if full >= longest * (1 - 1e-9)
    ]
    return alike[0], len(alike) - 1


def _energy(array: Array, *, macs: int, words: Fraction, done: Run) -> Energy:
    constants = array.energy
    return Energy(
        macs=float(macs * constants.mac),
        sram=float(macs * constants.sram),
        dram=float(words * constants.dram),
        remote=sum(done.level_bytes) / WORD_BYTES * float(constants.remote),
        hops=sum(done.link_bytes) / WORD_BYTES * float(constants.hop),
    )
