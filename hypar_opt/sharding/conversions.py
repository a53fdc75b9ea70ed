"""The steps that convert a tensor from one layout into another, and what each moves.

A tensor has a layout at each level of the hierarchy, H1 first. A step changes the layout at one
level: the parts of every group there exchange what the others need. Splits are aligned with levels:
an index of an axis has one digit per level, and a device keeps the indices with its own digits,
regardless of which other levels split the same axis. So levels are independent: the bytes of a step
depend on other levels only through the copies of the tensor before the step.

An axis need not be divided evenly: of 7 indices three parts have 3, 2 and 2, at every level.
Slices, reductions and gathers move the same with uneven parts; an all-to-all leaves in place what a
part has of both axes.

Slices, reduce-scatters and all-gathers move the same over several levels one by one or joined.
All-to-alls do not: one by one they move 1 - 1/n of the tensor at each level, joined 1 - 1/m, with m
the product of all n.
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
    COLUMN,
    EXPERT,
    PARTIAL,
    ROW,
    SHUFFLED,
    TOKEN,
    WHOLE,
    Layout,
    dual_layout,
    is_split,
)
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from hypar_opt.workload.layer_tensors import Extent

Layouts = tuple[Layout, ...]
"""The layout of a tensor at each level, H1 first."""


class StepKind(StrEnum):
    """How a step changes a tensor's layout at one level."""

    SLICE = "slice"
    """A replica is sliced to a part, or all but one are zeros: nothing moves."""
    PAD = "pad"
    """A part is padded with zeros to an addend of the whole: the error of a slice."""
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    ALL_GATHER = "all-gather"
    ALL_REDUCE = "all-reduce"
    """A reduce-scatter and, later, the all-gather of its result."""
    HALO = "halo"
    """An exchange of halos, rows or columns: ``hypar_opt.sharding.program.Halo``."""


def _exchanged(tensor: Extent, source: Layout, target: Layout, parts: int) -> int:
    """Return the elements that an all-to-all between two axes moves, in all parts.

    Each part keeps what it has of both axes; of an axis that is not divided evenly the first parts
    have an index more. So 1/n of the tensor is kept if either axis is divided evenly.
    """
    # `divmod` and `min` take no arrays of Python's integers.
    first, second = tensor.along(source), tensor.along(target)
    rows, columns = first // parts, second // parts
    more_rows, more_columns = first % parts, second % parts
    both = (more_rows + more_columns - abs(more_rows - more_columns)) // 2
    local = parts * rows * columns + rows * more_columns + columns * more_rows + both
    return elements_not_local(tensor, first * second, local)


def elements_not_local(tensor: Extent, pairs: int, kept: int) -> int:
    """Return the elements of all pairs of indices of two axes but those kept in place."""
    return tensor.elements // pairs * (pairs - kept)


def _reordered(tensor: Extent, parts: int) -> int:
    """Return the elements that a reordering of channels moves: all but 1/n of them."""
    return tensor.elements // tensor.channels * (tensor.channels - tensor.channels // parts)


_DUAL_KINDS = {
    StepKind.SLICE: StepKind.PAD,
    StepKind.PAD: StepKind.SLICE,
    StepKind.REDUCE_SCATTER: StepKind.ALL_GATHER,
    StepKind.ALL_GATHER: StepKind.REDUCE_SCATTER,
}


class Step(NamedTuple):
    """One step of a conversion: at one level, or an all-to-all joined over several.

    Parameters
    ----------
    levels
        From 0 for H1, the topmost first.
    parts
        Of each of these levels.
    sources, targets
        The tensor's layouts at these levels before and after.
    copies
        The copies of each element in the parts of other levels before the step, on all devices.
    """

    kind: StepKind
    levels: tuple[int, ...]
    parts: tuple[int, ...]
    sources: Layouts
    targets: Layouts
    copies: int

    @property
    def level(self) -> int:
        """The topmost of its levels, the only one except for joined all-to-alls."""
        return self.levels[0]

    def moved(self, tensor: Extent) -> int:
        """Return the elements that all devices receive across the level of a step at one."""
        (parts,), (source,), (target,) = self.parts, self.sources, self.targets
        match self.kind:
            case StepKind.SLICE | StepKind.PAD:
                elements = 0
            case StepKind.ALL_TO_ALL if reorders(source, target):
                elements = _reordered(tensor, parts)
            case StepKind.ALL_TO_ALL:
                elements = _exchanged(tensor, source, target, parts)
            case _:
                times = 2 if self.kind is StepKind.ALL_REDUCE else 1
                elements = times * tensor.elements * (parts - 1)
        return self.copies * elements


def dual(layouts: Layouts) -> Layouts:
    """Return the layouts of a tensor's error, given those of the tensor."""
    return tuple(map(dual_layout, layouts))


@lru_cache(maxsize=4096)
def conversion(
    source: Layouts,
    target: Layouts,
    sizes: tuple[int, ...],
    even: frozenset[Layout] | None = None,
) -> tuple[Step, ...]:
    """Return the steps that convert ``source`` into ``target``, in the order that moves least.

    Slices come first, then reduce-scatters from the deepest level up, all-to-alls, all-gathers from
    the topmost level down, and padding of parts to addends. Of replicas that become addends, all
    but one are zeroed.

    Parameters
    ----------
    sizes
        The parts of each level.
    even
        To join all-to-alls over levels, the tensor's axes as `even_axes` returns them; None to take
        them level by level.
    """
    levels = range(len(source))
    now = list(source)
    steps: list[Step] = []

    def take(kind: StepKind, level: int, to: Layout) -> None:
        before, now[level] = now[level], WHOLE
        copies = _copies(now, sizes) // sizes[level]
        steps.append(Step(kind, (level,), (sizes[level],), (before,), (to,), copies))
        now[level] = to

    for level in levels:
        if source[level] == WHOLE != target[level]:
            take(StepKind.SLICE, level, target[level])
    for level in reversed(levels):
        if source[level] == PARTIAL != target[level]:
            take(StepKind.REDUCE_SCATTER, level, scatter_layout(target[level]))
    for some in _together(now, target, even):
        before, to = (tuple(layouts[level] for level in some) for layouts in (now, target))
        parts, copies = tuple(sizes[level] for level in some), _copies(now, sizes)
        steps.append(Step(StepKind.ALL_TO_ALL, some, parts, before, to, copies))
        for level in some:
            now[level] = target[level]
    for level in levels:
        if is_split(now[level]) and target[level] == WHOLE:
            take(StepKind.ALL_GATHER, level, WHOLE)
    for level in levels:
        if is_split(now[level]) and target[level] == PARTIAL:
            take(StepKind.PAD, level, PARTIAL)
    return tuple(steps)


def _together(
    source: Sequence[Layout], target: Sequence[Layout], even: frozenset[Layout] | None
) -> list[tuple[int, ...]]:
    """Return the levels of each all-to-all from one layout to another.

    They are joined if at most one of their axes is divided unevenly. A part then keeps exactly 1/n
    of the tensor, whatever the other levels split; the overlap of two uneven axes would depend on
    those.
    """
    pairs = list(zip(source, target, strict=True))
    exchanged = [level for level, pair in enumerate(pairs) if exchanges(*pair)]
    if even is None:
        return [(level,) for level in exchanged]
    reordered = [(level,) for level in exchanged if reorders(*pairs[level])]
    joined = [level for level in exchanged if not reorders(*pairs[level])]
    axes = {layout for level in joined for layout in pairs[level]}
    if len(axes - even) > 1:
        return [(level,) for level in exchanged]
    return reordered + [tuple(joined)] * bool(joined)


def exchanges(source: Layout, target: Layout) -> bool:
    """Return whether an all-to-all leads from one layout to the other."""
    return source != target and is_split(source) and is_split(target)


def reorders(source: Layout, target: Layout) -> bool:
    """Return whether an all-to-all leads to the same channels in another order."""
    return {source, target} <= {CHANNEL, SHUFFLED}


def even_axes(tensor: Extent, accelerators: int) -> frozenset[Layout]:
    """Return a tensor's axes that all levels together divide evenly, and so any of them."""
    axes = (BATCH, CHANNEL, TOKEN, ROW, COLUMN, EXPERT)
    return frozenset(axis for axis in axes if tensor.along(axis) % accelerators == 0)


def _copies(layouts: Sequence[Layout], sizes: Sequence[int]) -> int:
    """Return the copies of each element: a replica or an addend in each part."""
    return math.prod(
        size for layout, size in zip(layouts, sizes, strict=True) if not is_split(layout)
    )


def scatter_layout(target: Layout, otherwise: Layout = BATCH) -> Layout:
    """Return the layout into which partial sums are reduce-scattered on their way to a target.

    If the target is whole, or all in one part, it is split by ``otherwise``, such as the batch.
    """
    return target if is_split(target) and target not in PART_WORDS else otherwise


def backward(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps of the error, given those of its tensor: their duals, in reverse.

    Each moves as much as the step that it mirrors.
    """
    return tuple(
        step._replace(
            kind=_DUAL_KINDS.get(step.kind, step.kind),
            sources=dual(step.targets),
            targets=dual(step.sources),
        )
        for step in reversed(steps)
    )


def all_reduce(layouts: Layouts, sizes: tuple[int, ...]) -> tuple[Step, ...]:
    """Return the steps that all-reduce a tensor where its layout is partial, topmost first.

    Between pairs it is recursive halving from the deepest level up, then doubling: at a level each
    device holds the shard that remains from the levels below.
    """
    copies, steps = _copies(layouts, sizes), []
    for level in reversed(range(len(layouts))):
        if layouts[level] == PARTIAL:
            copies //= sizes[level]
            kind, ends = StepKind.ALL_REDUCE, ((PARTIAL,), (WHOLE,))
            steps.append(Step(kind, (level,), (sizes[level],), *ends, copies))
    return tuple(reversed(steps))
