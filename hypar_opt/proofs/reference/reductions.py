"""What is reduced in a plan's step: partial sums, by pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hypar_opt.proofs.reference.buckets import Share
    from hypar_opt.proofs.reference.repetitions import Pass


class Often(NamedTuple):
    """How often a tensor is all-reduced in a step, or the halves of that are taken apart."""

    all_reduces: int = 0
    scatters: int = 0
    gathers: int = 0


class Reduction(NamedTuple):
    """Partial sums of one of a node's tensors, reduced in one pass."""

    step: Pass
    choices: frozenset[int]
    """Those that leave partial sums."""
    copying: frozenset[int]
    """Those that leave copies in each part, all of which are reduced at the levels below."""
    quarters: int
    """In the whole step, at a level of two parts above which nothing is split."""
    often: Often
    latency: Share | None = None
    """Its share of its bucket's latency; None for one of its own."""
    repeating: frozenset[int] = frozenset()
    """The choices whose parts each repeat it, at whichever level."""
    levels: frozenset[int] | None = None
    """Those at which it takes place; None for all."""
    only: frozenset[int] | None = None
    """Those of them at which the quarters are of it; None for all."""

    def takes_place(self, level: int) -> bool:
        """Whether so many quarters are reduced at a level."""
        return all(own is None or level in own for own in (self.levels, self.only))


class Reduced(NamedTuple):
    """What a node reduces in one pass."""

    levels: dict[int, int]
    """Amounts, by level."""
    often: Often
    latency: Share | None = None
