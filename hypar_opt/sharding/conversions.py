"""The steps that convert a tensor from one layout into another, and what each moves.

A tensor has a layout at each level of the hierarchy, H1 first. A step changes the layout at one
level: the parts of every group there exchange what the others need. Splits are aligned with levels:
an index of an axis has one digit per level, and a device keeps the indices with its own digits,
regardless of which other levels split the same axis. So levels are independent: the bytes of a step
depend on other levels only through the copies of the tensor before the step.

An axis need not be divided evenly: of 7 indices three parts have 3, 2 and 2, at every level. What
is sliced, reduced or gathered is the same for any parts; an all-to-all keeps in place what a part
has of both axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.sharding.layouts import (
    BATCH,
    CHANNEL,
    PARTIAL,
    SHUFFLED,
    WHOLE,
    Layout,
    dual_layout,
    is_split,
)
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from hypar_opt.workload.layer_tensors import Extent

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


def _exchanged(tensor: Extent, source: Layout, target: Layout, parts: int) -> int:
    """Return the elements that an all-to-all between two axes moves, in all parts.

    Each part keeps what it has of both; the first parts have an index more of an axis that is not
    divided evenly. So an n-th of the tensor is kept where either axis is.
    """
    # `divmod` and `min` take no arrays of Python's integers.
    first, second = tensor.along(source), tensor.along(target)
    own, others = first // parts, second // parts
    more, left = first % parts, second % parts
    both = (more + left - abs(more - left)) // 2
    kept = parts * own * others + own * left + others * more + both
    return moved_but(tensor, first * second, kept)


def moved_but(tensor: Extent, pairs: int, kept: int) -> int:
    """Return the elements of all pairs of indices of two axes but those kept in place."""
    return tensor.elements // pairs * (pairs - kept)


def _reordered(tensor: Extent, parts: int) -> int:
    """Return the elements that another order of channels moves: all but an n-th of these."""
    return tensor.elements // tensor.channels * (tensor.channels - tensor.channels // parts)


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

    def moved(self, tensor: Extent) -> int:
        """Return the elements that all devices together receive."""
        match self.kind:
            case StepKind.SLICE | StepKind.PAD:
                return 0
            case StepKind.ALL_TO_ALL if {self.source, self.target} <= {CHANNEL, SHUFFLED}:
                return self.copies * _reordered(tensor, self.parts)
            case StepKind.ALL_TO_ALL:
                exchanged = _exchanged(tensor, self.source, self.target, self.parts)
                return self.copies * exchanged
            case StepKind.ALL_GATHER:
                return self.copies * tensor.elements * (self.parts - 1)
        # Partial sums are an addend in each part.
        times = 2 if self.kind is StepKind.ALL_REDUCE else 1
        return times * self.copies // self.parts * tensor.elements * (self.parts - 1)


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


def scattered(target: Layout, otherwise: Layout = BATCH) -> Layout:
    """Return the layout into which partial sums are reduce-scattered on their way to a target.

    It is split by another axis, such as the batch, where the target is whole, or all on one side.
    """
    return target if is_split(target) and target not in SIDES else otherwise


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
