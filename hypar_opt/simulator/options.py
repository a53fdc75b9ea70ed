"""The options of a simulated step: algorithm, overlap, measured times, recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.checked import check
from hypar_opt.costs.compute import NO_SIZES, Sizes
from hypar_opt.errors import UnknownNameError
from hypar_opt.frozen import Frozen
from hypar_opt.simulator.streams import OVERLAPS

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.profile import Profile

COLLECTIVES = ("pairwise", "ring", "one-ring", "hierarchical")


@dataclass(frozen=True)
class RunOptions(Frozen):
    """Options of a simulated step.

    Parameters
    ----------
    collective
        The algorithm of all-reduces, reduce-scatters and all-gathers: ``pairwise``, the
        paper's, ``ring``, ``one-ring`` or ``hierarchical``; None for the array's own.
    overlap
        ``none``; ``gradient``: gradients are all-reduced while later tasks run; ``branches``:
        every exchange overlaps whatever does not wait for it, such as another branch's
        computations. None for the array's own.
    profile
        Measured seconds, in place of those computed from the accelerator.
    input_sizes
        Input sizes by which multiply-accumulates are counted, instead of the network's.
    trace
        Whether to record the spans of every accelerator and link.

    Raises
    ------
    UnknownNameError
        If there is no such collective or overlap.
    """

    collective: str | None = None
    overlap: str | None = None
    profile: Profile | None = None
    input_sizes: Sizes = NO_SIZES
    trace: bool = False

    def __post_init__(self) -> None:
        check(type(self), vars(self))
        super().__post_init__()
        if self.collective and self.collective not in COLLECTIVES:
            raise UnknownNameError("collective", self.collective, list(COLLECTIVES))
        if self.overlap and self.overlap not in OVERLAPS:
            raise UnknownNameError("overlap", self.overlap, list(OVERLAPS))

    def on(self, array: Array) -> tuple[str, str]:
        """Return the collective and the overlap: an array's own where the options name none."""
        return self.collective or array.collective, self.overlap or array.overlap or "none"
