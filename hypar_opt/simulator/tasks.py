"""What every accelerator does in one training step, in order.

All accelerators run one program, each on its own shards, which are equally large.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hypar_opt.costs.readings import Phase


class Kind(StrEnum):
    """Why accelerators exchange data."""

    PARTIAL_SUMS = "partial sums"
    """Model parallelism's, forward; output parallelism's, backward."""
    ERRORS = "errors"
    """All-gathered backward, where the forward pass has reduce-scattered partial sums."""
    BOUNDARY = "boundary"
    """Feature maps or errors between two layers that are split differently."""
    GRADIENTS = "gradients"
    """Data parallelism's."""


@dataclass(frozen=True)
class Compute:
    """Work on local shards."""

    layer: str
    phase: Phase
    seconds: float


@dataclass(frozen=True)
class Exchange:
    """Every accelerator sends as much, and goes on once its own has arrived and it has theirs.

    Parameters
    ----------
    layer
        The layer whose tensor moves; of a boundary the later one.
    levels
        The hierarchy levels it crosses, H1 being 0: one, or several for a ring.
    bits
        The bit of an accelerator's number that each of these levels splits.
    bytes
        Sent by all accelerators together.
    messages
        That each accelerator sends, one after the other, all alike.
    ring
        Not between pairs, whose numbers differ in the one bit, but around a ring of all
        2^len(bits) accelerators whose numbers differ in these bits alone, in the order of
        their numbers, to the next in the ring.
    background
        Runs beside the tasks that follow; such exchanges run one after the other.
    """

    layer: str
    phase: Phase
    kind: Kind
    levels: tuple[int, ...]
    bits: tuple[int, ...]
    bytes: float
    messages: int = 1
    ring: bool = False
    background: bool = False


Task = Compute | Exchange
