"""The steps that convert a tensor from one layout into another, and what each moves.

A tensor has a layout at each level of the hierarchy, H1 first. A step changes the layout at one
level: the parts of every group there exchange what the others need. Splits are aligned with levels:
an index of an axis has one digit per level, and a device keeps the indices with its own digits,
regardless of which other levels split the same axis. So levels are independent: the bytes of a step
depend on other levels only through the size of each device's shard before the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from hypar_opt.sharding.layouts import BATCH, PARTIAL, WHOLE, Layout, dual_layout, is_split

Layouts = tuple[Layout, ...]
"""The layout of a tensor at each level, H1 first."""


class StepKind(StrEnum):
    """How a step changes a tensor's layout at one level."""

    SLICE = "slice"
    """A replica is sliced to a part: nothing moves."""
    PAD = "pad"
    """A part is padded with zeros to an addend of the whole: the error of a slice."""
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    ALL_GATHER = "all-gather"
    ALL_REDUCE = "all-reduce"
    """A reduce-scatter and, later, the all-gather of its result."""


def _share(kind: StepKind, parts: int) -> Fraction:
    """Return the amount that a device receives, as a fraction of its shard before the step."""
    match kind:
        case StepKind.SLICE | StepKind.PAD:
            return Fraction()
        case StepKind.ALL_GATHER:
            return Fraction(parts - 1)
        case StepKind.ALL_REDUCE:
            return 2 * (1 - Fraction(1, parts))
    return 1 - Fraction(1, parts)


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
    parts
        Of that level.
    source, target
        The tensor's layout at that level before and after.
    copies
        Copies of each element, on all devices together, before the step.
    """

    kind: StepKind
    level: int
    parts: int
    source: Layout
    target: Layout
    copies: int

    def moved(self, elements: int) -> Fraction:
        """Return the elements that all devices together receive, of a tensor of ``elements``."""
        return _share(self.kind, self.parts) * elements * self.copies


def dual(layouts: Layouts) -> Layouts:
    """Return the layouts of a tensor's error, given those of the tensor."""
    return tuple(map(dual_layout, layouts))


@lru_cache(maxsize=4096)
def conversion(source: Layouts, target: Layouts, sizes: tuple[int, ...]) -> tuple[Step, ...]:
    """Return the steps that convert ``source`` into ``target``, in the order that moves least.

    Slices come first, then reduce-scatters from the deepest level up, all-to-alls, and
    all-gathers from the topmost level down.

    Parameters
    ----------
    sizes
        The parts of each level.

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
        copies = _copies(now, sizes)
        steps.append(Step(kind, level, sizes[level], now[level], to, copies))
        now[level] = to

    for level in levels:
        if source[level] == WHOLE and is_split(target[level]):
            take(StepKind.SLICE, level, target[level])
    for level in reversed(levels):
        if source[level] == PARTIAL != target[level]:
            take(StepKind.REDUCE_SCATTER, level, scattered(target[level]))
    for level in levels:
        if now[level] != target[level] and is_split(now[level]) and is_split(target[level]):
            take(StepKind.ALL_TO_ALL, level, target[level])
    for level in levels:
        if is_split(now[level]) and target[level] == WHOLE:
            take(StepKind.ALL_GATHER, level, WHOLE)
    if tuple(now) != target:
        raise ValueError(f"no conversion from {source} to {target}")
    return tuple(steps)


def _copies(layouts: Sequence[Layout], sizes: Sequence[int]) -> int:
    """Return the copies of each element: a replica or an addend in each part."""
    return math.prod(
        size for layout, size in zip(layouts, sizes, strict=True) if not is_split(layout)
    )


def scattered(target: Layout) -> Layout:
    """Return the layout into which partial sums are reduce-scattered on their way to a target."""
    return target if is_split(target) else BATCH


def backward(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps of the error, given those of its tensor: their duals, in reverse.

    Each moves as much as the step that it mirrors.
    """
    mirrored = []
    for step in reversed(steps):
        kind = _DUAL_KINDS.get(step.kind, step.kind)
        # Before a mirrored step the error is split as its tensor is after the step itself.
        others = step.copies // (1 if is_split(step.source) else step.parts)
        copies = others * (1 if is_split(step.target) else step.parts)
        source, target = dual_layout(step.target), dual_layout(step.source)
        mirrored.append(Step(kind, step.level, step.parts, source, target, copies))
    return tuple(mirrored)


def all_reduce(layouts: Layouts, sizes: tuple[int, ...]) -> tuple[Step, ...]:
    """Return the steps that all-reduce a tensor where its layout is partial, topmost first.

    Between pairs it is recursive halving from the deepest level up, then doubling: at a level each
    device holds the part that the levels below have left.
    """
    copies, steps = _copies(layouts, sizes), []
    for level in reversed(range(len(layouts))):
        if layouts[level] == PARTIAL:
            kind = StepKind.ALL_REDUCE
            steps.append(Step(kind, level, sizes[level], PARTIAL, WHOLE, copies))
            copies //= sizes[level]
    return tuple(reversed(steps))
