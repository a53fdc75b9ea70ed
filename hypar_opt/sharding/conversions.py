"""What converting a tensor from one layout into another moves, step by step.

A tensor has a layout at each level of the hierarchy, H1 first. A step changes the layout at one
level: the two halves of every group there exchange what the other needs. Splits are aligned with
levels: an index of an axis carries a label of a bit a level, and a device keeps the indices with
its own bits, whichever other levels split the same axis. So levels are independent, and what a
step moves depends on the others only by the size of what each device holds at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from hypar_opt.sharding.layouts import DUALS, Layout

Layouts = tuple[Layout, ...]
"""The layout of a tensor at each level, H1 first."""

_SPLIT = frozenset((Layout.BATCH, Layout.CHANNEL, Layout.SHUFFLED))


class StepKind(StrEnum):
    """How a step changes a tensor's layout at one level."""

    SLICE = "slice"
    """A replica is cut to half: nothing moves."""
    PAD = "pad"
    """A half becomes an addend of the whole, zero elsewhere: the error of a slice."""
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    ALL_GATHER = "all-gather"
    ALL_REDUCE = "all-reduce"
    """A reduce-scatter and, later, the all-gather of its result."""


_SHARES = {
    StepKind.REDUCE_SCATTER: Fraction(1, 2),
    StepKind.ALL_TO_ALL: Fraction(1, 2),
    StepKind.ALL_GATHER: Fraction(1),
    StepKind.ALL_REDUCE: Fraction(1),
}
"""What a device receives, as a share of what it holds before the step."""

_DUAL_KINDS = {
    StepKind.SLICE: StepKind.PAD,
    StepKind.PAD: StepKind.SLICE,
    StepKind.REDUCE_SCATTER: StepKind.ALL_GATHER,
    StepKind.ALL_GATHER: StepKind.REDUCE_SCATTER,
}


class Step(NamedTuple):
    """One step of a conversion, at one level.

    Parameters
    ----------
    level
        From 0 for H1.
    source, target
        The tensor's layout at that level before and after.
    unsplit
        The number of all levels at which the tensor is not split before the step.
    """

    kind: StepKind
    level: int
    source: Layout
    target: Layout
    unsplit: int

    def moved(self, elements: int) -> Fraction:
        """Return the elements that all devices together receive, of a tensor of ``elements``."""
        # 2^H devices hold elements / 2^split each.
        return _SHARES.get(self.kind, Fraction()) * (elements << self.unsplit)


def dual(layouts: Layouts) -> Layouts:
    """Return the layouts of the error of a tensor that is so laid out."""
    return tuple(DUALS[layout] for layout in layouts)


@lru_cache(maxsize=4096)
def conversion(source: Layouts, target: Layouts) -> tuple[Step, ...]:
    """Return the steps that turn ``source`` into ``target``, in the order that moves least.

    Slices come first, then reduce-scatters from the deepest level up, all-to-alls, and
    all-gathers from the topmost level down.

    Raises
    ------
    ValueError
        If the target has partial sums where the source has none: only errors are padded, by
        `backward`.
    """
    levels = range(len(source))
    now = list(source)
    steps: list[Step] = []

    def take(kind: StepKind, level: int, to: Layout) -> None:
        unsplit = sum(layout not in _SPLIT for layout in now)
        steps.append(Step(kind, level, now[level], to, unsplit))
        now[level] = to

    for level in levels:
        if source[level] is Layout.WHOLE and target[level] in _SPLIT:
            take(StepKind.SLICE, level, target[level])
    for level in reversed(levels):
        if source[level] is Layout.PARTIAL and target[level] is not Layout.PARTIAL:
            take(StepKind.REDUCE_SCATTER, level, scattered(target[level]))
    for level in levels:
        if now[level] is not target[level] and now[level] in _SPLIT and target[level] in _SPLIT:
            take(StepKind.ALL_TO_ALL, level, target[level])
    for level in levels:
        if now[level] in _SPLIT and target[level] is Layout.WHOLE:
            take(StepKind.ALL_GATHER, level, Layout.WHOLE)
    if tuple(now) != target:
        raise ValueError(f"no conversion from {source} to {target}")
    return tuple(steps)


def scattered(target: Layout) -> Layout:
    """Return the layout into which partial sums are reduce-scattered on their way to a target."""
    return target if target in _SPLIT else Layout.BATCH


def backward(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps of the error, given those of its tensor: their duals, in reverse.

    Each moves what the step that it mirrors moves.
    """
    mirrored = []
    for step in reversed(steps):
        kind = _DUAL_KINDS.get(step.kind, step.kind)
        # Before a mirrored step the error is split as its tensor is after the step itself.
        unsplit = step.unsplit - (step.source not in _SPLIT) + (step.target not in _SPLIT)
        mirrored.append(Step(kind, step.level, DUALS[step.target], DUALS[step.source], unsplit))
    return tuple(mirrored)


def all_reduce(layouts: Layouts) -> tuple[Step, ...]:
    """Return the steps that all-reduce a tensor where its layout is partial, topmost first.

    Between pairs it is recursive halving from the deepest level up, then doubling: at a level
    each device has what the levels below have left it.
    """
    levels = [level for level, layout in enumerate(layouts) if layout is Layout.PARTIAL]
    unsplit = sum(layout not in _SPLIT for layout in layouts)
    return tuple(
        Step(
            StepKind.ALL_REDUCE,
            level,
            Layout.PARTIAL,
            Layout.WHOLE,
            unsplit - (len(levels) - 1 - above),
        )
        for above, level in enumerate(levels)
    )
