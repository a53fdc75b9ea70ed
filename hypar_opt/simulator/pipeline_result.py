"""The result of a simulated step in pipeline stages: times, waits and memory of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

from hypar_opt.frozen import FrozenDict
from hypar_opt.plan.training import training_columns
from hypar_opt.results import Column, Columns
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.result import StepResult
from hypar_opt.simulator.spans import Span, StepTrace, Track
from hypar_opt.simulator.tasks import ComputeTask
from hypar_opt.units import (
    SECONDS,
    format_bytes,
    format_hundredths,
    format_percent,
    format_share,
    format_si,
)

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.device_memory import DeviceMemory
    from hypar_opt.simulator.pipeline import PipelineStep, StagePasses


@dataclass(frozen=True)
class StageTime:
    """Time and memory of a stage in a step.

    Parameters
    ----------
    part
        The part of H1.
    layers
        In short.
    passes
        By itself.
    seconds
        The seconds of its computations and internal exchanges, in all micro-batches, and of sums of
        gradients with other stages.
    tied
        The part of these that sums gradients of weights that other stages share.
    bubble
        The remaining fraction of the step.
    in_flight
        The most micro-batches in flight of each of its chunks.
    memory
        The memory of its fullest accelerator.
    """

    part: str
    layers: str
    passes: StagePasses
    seconds: float
    tied: float
    bubble: float
    in_flight: tuple[int, ...]
    memory: DeviceMemory


STAGES = Columns(
    "part",
    Column("layers", "layers"),
    Column("forward", "forward", SECONDS, lambda stage: sum(stage.passes.forward), type=float),
    Column("backward", "backward", SECONDS, lambda stage: sum(stage.passes.backward), type=float),
    Column("once", "once", SECONDS, "passes.once", type=float),
    Column("message", "message", SECONDS, "passes.message", type=float),
    "tied",
    Column("seconds", "total", SECONDS),
    Column("bubble", "bubble", format_share),
    Column("in_flight", of=lambda stage: fmean(stage.in_flight), type=float),
    Column("", "in flight", of=lambda stage: format_hundredths(fmean(stage.in_flight))),
    Column("memory", "memory", format_bytes, "memory.total", type=int),
    Column("capacity", of="memory.capacity", type=int | None),
    entry=StageTime,
)
"""Of a stage, a `StageTime`."""


@dataclass(frozen=True, repr=False)
class PipelineResult(StepResult):
    """One training step of a plan in pipeline stages.

    As for a step without stages it has the time, with the plan's charge as closed form and the
    longest stage as lower bound, the memory of the accelerator with least to spare, and a trace
    with a track for each stage. There is no breakdown by layer, level or link, and no energy.
    Contention of messages with a stage's own exchanges is not modelled.

    Parameters
    ----------
    stages
        H1's first part first.
    """

    contents = Columns(
        "seconds",
        Column("charged_seconds", of="closed_form"),
        "bubble",
        Column("schedule", of="plan.training.schedule", type=str),
        Column("stages", type=STAGES),
        *StepResult.contents.select("memory", "capacity"),
        *training_columns(attrgetter("plan.training.non_default")),
    )

    stages: tuple[StageTime, ...] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        array: str,
        how: tuple[str, str],
        step: PipelineStep,
        charged: float,
        stages: tuple[StageTime, ...],
        trace: StepTrace | None,
    ) -> Self:
        """Return the result of a step that was walked through its schedule.

        Parameters
        ----------
        how
            The collective and the overlap inside stages.
        charged
            The plan's charge in seconds, without overlap.
        """
        fullest = max((stage.memory for stage in stages), key=lambda held: -(held.margin or 0))
        collective, overlap = how
        return cls(
            plan=plan,
            array=array,
            collective=collective,
            overlap=overlap,
            seconds=step.seconds,
            in_lockstep=True,
            closed_form=charged,
            lower_bound=max(stage.seconds for stage in stages),
            layers=(),
            levels=(),
            links=(),
            bottleneck=None,
            known_energy=None,
            memory=fullest.total,
            capacity=fullest.capacity or 0,
            vault_words=0,
            events=sum(map(len, step.passes)),
            trace=trace,
            stated_training=FrozenDict(plan.training.non_default),
            device_memory=fullest,
            stages=stages,
        )

    @property
    def bubble(self) -> float:
        """The part of the step in which a stage waits, as a mean of all."""
        return fmean(stage.bubble for stage in self.stages)

    def __repr__(self) -> str:
        step, bubble = format_si(self.seconds, "s"), format_percent(self.bubble)
        return (
            f"<PipelineResult of {self.plan.network.name} on {self.array}: step {step},"
            f" {len(self.stages)} stages, bubble {bubble}>"
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each stage, in seconds and bytes: rows of a data frame.

        In flight are micro-batches; of a stage of several chunks each counts as its share.
        """
        return [*map(STAGES.row, self.stages)]


def trace_of_stages(step: PipelineStep, names: Sequence[str]) -> StepTrace:
    """Return the passes of each stage over time, and its reductions and updates, as tracks.

    A pass has the number of its micro-batch, and of its chunk if a stage has several. What stages
    reduce together has the name of the layer whose weights they share.

    Parameters
    ----------
    names
        Of the tracks.
    """
    tracks = []
    stages = zip(names, step.passes, step.intervals, step.run.ended, strict=True)
    for part, (name, order, intervals, ended) in enumerate(stages):
        several = any(one.chunk for one in order)
        numbers = [
            f"{one.micro_batch + 1}.{one.chunk + 1}" if several else f"{one.micro_batch + 1}"
            for one in order
        ]
        spans = [
            _span(*interval, number, one.phase)
            for number, one, interval in zip(numbers, order, intervals, strict=True)
        ]
        spans.append(_span(intervals[-1][1], ended, "reductions and update", Phase.GRADIENT))
        spans += [
            _span(start, start + float(reduction.seconds), f"{reduction.layer} H1", Phase.GRADIENT)
            for start, reduction in step.tied
            if part in reduction.parts
        ]
        tracks.append(Track(name, tuple(span for span in spans if span.duration_us)))
    return StepTrace(tuple(tracks), ())


def _span(start: float, end: float, name: str, phase: Phase) -> Span:
    return Span.between(start, end, (ComputeTask(name, phase, end - start),))
