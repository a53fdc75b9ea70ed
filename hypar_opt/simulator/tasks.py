"""The tasks of one training step: computations on local shards, and exchanges between shards.

All accelerators run the same tasks, each on its own shards, which are equally large. A task
belongs to one of an accelerator's streams. A stream runs one task at a time: of those that may
start, the first in the order of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeVar

from hypar_opt.hardware.patterns import MessageRound
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase


class ExchangeKind(StrEnum):
    """Which tensor an exchange moves."""

    PARTIAL_SUMS = "partial sums"
    """The output's forward, in model parallelism; the error's backward, in output parallelism."""
    ERRORS = "errors"
    """All-gathered backward, where the forward pass has reduce-scattered partial sums."""
    BOUNDARY = "boundary"
    """Feature maps or errors between two layers that are split differently."""
    GRADIENTS = "gradients"
    """All-reduced in data parallelism."""
    WEIGHTS = "weights"
    """All-gathered where data parallelism splits them, too."""
    HALOS = "borders of images"
    """Rows and columns of an input that parts of images read of those before and behind."""
    STATISTICS = "statistics"
    """The sums over channels of a norm or a loss, all-reduced where channels are split."""


FOREGROUND, GRADIENT_STREAM, FIRST_BRANCH = 0, 1, 2
"""An accelerator's streams: its computations and all that overlaps with nothing; the all-reduces
of gradients; from the third on, the exchanges of branches that overlap each other."""

OfParts = tuple[float, ...]
"""An amount of the accelerators of each part of H1, by their numbers."""

Dependencies = tuple[int, ...]
"""The numbers of the tasks that must end before a tensor is complete."""


@dataclass(frozen=True)
class ComputeTask:
    """Work of one layer and pass on local shards, in seconds.

    Parameters
    ----------
    after
        As in `ExchangeTask`.
    """

    layer: str
    phase: Phase
    seconds: float
    after: Dependencies | None = None
    of_parts: OfParts | None = None
    """The seconds in each part of H1 between groups; ``seconds`` are the longest ones."""
    once: bool = False
    """Whether only the last micro-batch of a step has it."""

    @property
    def stream(self) -> int:
        """An accelerator computes in the foreground."""
        return FOREGROUND

    @property
    def name(self) -> str:
        """Its name in timelines."""
        return f"{self.layer} {self.phase}"


@dataclass(frozen=True)
class ExchangeTask:
    """Messages between all accelerators at once, in rounds.

    An accelerator goes on with the next round once its own messages of a round have been delivered
    and it has received as many.

    Parameters
    ----------
    layer
        The layer whose tensor moves; at a boundary, the later layer.
    levels
        The hierarchy levels that it crosses, from 0 for H1: one, or several around a ring.
    digits
        The digit of an accelerator's number that each of these levels splits.
    bytes
        Sent by all accelerators together, in all rounds.
    rounds
        The messages of every accelerator, round after round.
    stream
        The accelerators' stream. A stream's exchanges run in program order, overlapped with
        other streams.
    after
        The tasks before it that it waits for; None for all those of the foreground.
    step
        The collective step; None if the reading only says how many bytes move.
    """

    layer: str
    phase: Phase
    kind: ExchangeKind
    levels: tuple[int, ...]
    digits: tuple[int, ...]
    bytes: float
    rounds: tuple[MessageRound, ...]
    stream: int = FOREGROUND
    after: Dependencies | None = None
    step: StepKind | None = None
    sent: tuple[float, ...] = ()
    """The bytes if all sent as much as the longest part of a tensor, or as the accelerators of each
    part of H1; empty where all send as much."""
    between: tuple[Fraction, ...] = ()
    """What each of three or more parts of H1 sends each other one, row by row; empty where all send
    as much, and where it crosses other levels, too."""
    once: bool = False
    """Whether only the last micro-batch of a step has it."""
    collective: StepKind | None = None
    """What accelerators call for it: of an all-reduce, level by level, also one of its halves."""

    @property
    def of_parts(self) -> bool:
        """Whether the accelerators of the parts of H1 send different amounts."""
        return len(self.sent) > 1

    @property
    def is_together(self) -> bool:
        """Whether all accelerators begin each round together: between unequal parts of H1.

        Else messages of a part that is ahead would share links with those of the round before.
        """
        return self.of_parts and 0 in self.levels

    @property
    def name(self) -> str:
        """Its name in timelines."""
        # Which exchange moves partial sums, errors and gradients is one for the whole step.
        kind = self.kind
        step = f" {self.step}" if kind is ExchangeKind.BOUNDARY and self.step else ""
        return f"{self.layer} {kind}{step} {self.level_names}"

    @property
    def level_names(self) -> str:
        """The levels that it crosses, as ``"H1 H3"``."""
        return " ".join(f"H{level + 1}" for level in self.levels)


Task = ComputeTask | ExchangeTask

Changed = TypeVar("Changed", bound=Task)


def changed(task: Changed, **fields: Any) -> Changed:
    """Return a task with other fields: as ``dataclasses.replace``, in a tenth of its time.

    No field of a task is checked, or follows from others; and a step has tens of thousands.
    """
    copied = object.__new__(type(task))
    vars(copied).update(vars(task), **fields)
    return copied


def before_last_micro_batch(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks of a micro-batch before the last: those of the last alone take no time."""
    return only(tasks, lambda task: not task.once)


def only(tasks: Sequence[Task], belongs: Callable[[Task], bool]) -> list[Task]:
    """Return all tasks; those that do not belong take no time, and only keep the order."""
    return [
        task if belongs(task) else ComputeTask(task.layer, task.phase, 0.0, task.after)
        for task in tasks
    ]


def rounds_of(tasks: Sequence[Task]) -> Iterator[MessageRound]:
    """Yield the rounds of all exchanges."""
    for task in tasks:
        if isinstance(task, ExchangeTask):
            yield from task.rounds


def stream_count(tasks: Sequence[Task]) -> int:
    """Return how many streams an accelerator has."""
    return 1 + max((task.stream for task in tasks), default=FOREGROUND)


def predecessors(tasks: Sequence[Task]) -> list[Dependencies]:
    """Return the earlier tasks that each task waits for.

    Raises
    ------
    ValueError
        If a task waits for one that does not come before it.
    """
    # The last task of each stream, if it has any, stands for those before it in the stream.
    last: dict[int, int] = {}
    waits_for = []
    for number, task in enumerate(tasks):
        if task.after is None:
            before = {last[stream] for stream in (FOREGROUND, task.stream) if stream in last}
        else:
            if not all(0 <= other < number for other in task.after):
                raise ValueError(f"task {number} should wait for earlier ones, got {task.after}")
            before = set(task.after)
            # Accelerators exchange with each other, and so have to in one order.
            if isinstance(task, ExchangeTask) and task.stream in last:
                before.add(last[task.stream])
        waits_for.append(tuple(sorted(before)))
        last[task.stream] = number
    return waits_for
