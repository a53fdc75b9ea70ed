"""The tasks of one training step: computations on local shards, and exchanges between shards.

All accelerators run the same tasks in the same order, each on its own shards, which are equally
large.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hypar_opt.costs.readings import Phase


class ExchangeKind(StrEnum):
    """Which tensor an exchange moves."""

    PARTIAL_SUMS = "partial sums"
    """Of the output forward, in model parallelism; of the error backward, in output parallelism."""
    ERRORS = "errors"
    """All-gathered backward, where the forward pass has reduce-scattered partial sums."""
    BOUNDARY = "boundary"
    """Feature maps or errors between two layers that are split differently."""
    GRADIENTS = "gradients"
    """All-reduced in data parallelism."""


@dataclass(frozen=True)
class Compute:
    """Work of one layer and pass on local shards, in seconds."""

    layer: str
    phase: Phase
    seconds: float

    @property
    def name(self) -> str:
        """Its name in timelines."""
        return f"{self.layer} {self.phase}"


@dataclass(frozen=True)
class Exchange:
    """Messages of equal size between all accelerators at once.

    An accelerator goes on once its own message has been delivered and it has received one.

    Parameters
    ----------
    layer
        The layer whose tensor moves; at a boundary the later one.
    levels
        The hierarchy levels that it crosses, H1 being 0: one, or several around a ring.
    bits
        For every one of these levels, the bit of an accelerator's number that it splits.
    bytes
        Sent by all accelerators together, over all messages.
    messages
        Messages of every accelerator, of equal size, sent one after the other.
    ring
        If true, the 2^len(bits) accelerators whose numbers differ in ``bits`` alone form a ring
        in the order of their numbers, and each sends to the next. Otherwise the two
        accelerators whose numbers differ in the one bit send to each other.
    background
        Runs overlapped with the tasks that follow; exchanges in the background run one after
        the other.
    """

    layer: str
    phase: Phase
    kind: ExchangeKind
    levels: tuple[int, ...]
    bits: tuple[int, ...]
    bytes: float
    messages: int = 1
    ring: bool = False
    background: bool = False

    @property
    def name(self) -> str:
        """Its name in timelines."""
        return f"{self.layer} {self.kind} {self.level_names}"

    @property
    def level_names(self) -> str:
        """The levels that it crosses, as ``"H1 H3"``."""
        return " ".join(f"H{level + 1}" for level in self.levels)


Task = Compute | Exchange


def is_overlapped(task: Task) -> bool:
    """Return whether a task runs in the background, overlapped with those that follow."""
    return isinstance(task, Exchange) and task.background
