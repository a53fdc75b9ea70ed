"""The largest shard of a tensor with unevenly divided axes, for which exchanges wait.

Of 12 heads in eight parts the largest has two, so that the tensor counts as one of 16. An amount
that is no multiple of an axis is rounded up, axis by axis, in the order of the choices. Of experts
with a load the largest shard is that of the consecutive experts that take most tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.integers import scale
from hypar_opt.step.states import level_choices, replicas
from hypar_opt.workload.layouts import FIRST_SPLIT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.hierarchy import Hierarchy, SplitRule
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.operators.maps import Load
    from hypar_opt.workload.tensors import Workload

PaddedSizes = Sequence[tuple["NDArray[np.int64]", "NDArray[np.int64]"]]
"""For each unevenly divided axis: its size, and that of as many parts as large as the largest."""

_NOWHERE = np.zeros(1, bool)


class SplitLoads(NamedTuple):
    """The loads of axes that choices split.

    Parameters
    ----------
    loads
        Counts along an axis.
    numbers : (choices, ...)
        Of the load of each axis, from 1; 0 of an even one.
    """

    loads: tuple[Load, ...]
    numbers: NDArray[np.int64]


def padded_sizes(
    sizes: Sequence[NDArray[np.int64]] | NDArray[np.int64],
    states: States,
    hierarchy: Hierarchy,
    at_h1: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
    loads: SplitLoads | None = None,
) -> PaddedSizes:
    """Return the axes of tensors that states over all levels divide unevenly.

    Parameters
    ----------
    sizes : (choices, ...)
        The size of the axis that each choice splits; 0 where it splits none of the tensor's.
    at_h1
        Returns how many indices a part of H1 has of axes of some sizes, where its parts are
        unequal: the largest shards are then those of that part.
    loads
        None if all are even.
    """
    pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    axes = np.asarray(sizes)
    behind = tuple(range(1, axes.ndim))
    remainders = np.logical_or.reduce(axes % hierarchy.accelerators, axis=behind)
    for choice, (size, remainder) in enumerate(zip(axes, remainders, strict=True)):
        top = (states[0][0] == choice) & (size > 0) if at_h1 and states else _NOWHERE
        loaded = loads is not None and loads.numbers[choice].any()
        if not (remainder or loaded or (top is not _NOWHERE and top.any())):
            continue  # no level leaves a remainder
        splits = ((choices == choice) & (size > 0) for choices in level_choices(states))
        parts = replicas(splits, hierarchy.sizes)
        extents = divided = np.where(size > 0, size, 1)
        below = parts
        if at_h1 and top.any():
            divided = np.where(top, at_h1(extents), extents)
            below = np.where(top, parts // hierarchy.sizes[0], parts)
        pair = (extents, -(-divided // below) * parts)
        if loads is not None and loaded:
            pair = _by_load(loads, choice, parts, *pair)
        whole, padded_size = pair
        if loaded or np.count_nonzero(padded_size != whole):
            pairs.append(pair)
    return pairs


def _by_load(
    loads: SplitLoads, choice: int, parts: Integers, *even: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a size and its padded size, in tokens where the axis has a load."""
    numbers, parts, *axis = np.broadcast_arrays(loads.numbers[choice], parts, *even)
    whole, padded_size = (extents.copy() for extents in axis)
    for number in np.unique(numbers[numbers > 0]).tolist():
        load = loads.loads[number - 1]
        for count in np.unique(parts[numbers == number]).tolist():
            has = (numbers == number) & (parts == count)
            whole[has], padded_size[has] = sum(load), most_loaded(load, count) * count
    return whole, padded_size


@lru_cache(maxsize=1024)
def most_loaded(load: Load, parts: int) -> int:
    """Return the tokens of the part of consecutive experts that has most of them.

    The first parts have the remainder's experts.
    """
    fewest, more = divmod(len(load), parts)
    ends = [part * fewest + min(part, more) for part in range(parts + 1)]
    return max(sum(load[begin:end]) for begin, end in itertools.pairwise(ends))


def padded(amounts: Integers, pairs: PaddedSizes, *, down: bool = False) -> Integers:
    """Return amounts of tensors as if all parts were as large as the largest, rounded."""
    scaled = amounts
    for size, padded_size in pairs:
        scaled = scale(scaled, (padded_size, size), "down" if down else "up")
    return scaled.astype(amounts.dtype, copy=False)


@lru_cache(maxsize=16)
def split_sizes(workload: Workload) -> NDArray[np.int64]:
    """Return the size of the axis that each choice splits: ``(choices, nodes)``; 0 for none."""
    return workload.split_sizes.astype(np.int64)


def loads_of(workload: Workload, lacks: NDArray[np.bool_], nodes: Indices) -> SplitLoads | None:
    """Return the loads of nodes' tensors; None if all are even.

    Parameters
    ----------
    lacks : (choices, nodes)
        Whether a choice splits no axis of the tensor.
    """
    if not workload.loads:
        return None
    return SplitLoads(workload.loads, np.where(lacks, 0, workload.split_loads)[:, nodes])


@lru_cache(maxsize=16)
def sizes_at_ends(workload: Workload) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the axes of each boundary's tensor: as its source splits them, and as its target.

    Returns
    -------
    Two of ``(choices, boundaries)``.
    """
    return _at_ends(workload, split_sizes(workload))


@lru_cache(maxsize=16)
def loads_at_ends(workload: Workload) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the loads of the axes of `sizes_at_ends`."""
    return _at_ends(workload, workload.split_loads)


def _at_ends(
    workload: Workload, of_nodes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    layouts, (sources, targets) = workload.layouts, workload.ends.T
    written, read = layouts.output[:, sources], layouts.inputs[workload.operand, :, targets].T
    moved = ~workload.is_weight_boundary
    return (
        np.where((written >= FIRST_SPLIT) & moved, of_nodes[:, sources], 0),
        np.where((read >= FIRST_SPLIT) & moved, of_nodes[:, targets], 0),
    )


@lru_cache(maxsize=64)
def uneven_boundaries(workload: Workload, hierarchy: Hierarchy, rule: SplitRule | None) -> bool:
    """Return whether a rule allows uneven splits of any boundary's tensor, or a load is uneven."""
    sizes = {size for ends in sizes_at_ends(workload) for size in ends.reshape(-1).tolist()}
    return bool(workload.loads) or not all(divides_evenly(size, hierarchy, rule) for size in sizes)


def divides_evenly(size: int, hierarchy: Hierarchy, rule: SplitRule | None) -> bool:
    """Return whether all splits of an axis that a rule allows leave parts of equal size."""
    products = {math.prod(some) for some in _subsets(hierarchy.sizes)}
    return not any(
        size % parts and (rule is None or rule.allows(size, parts)) for parts in products
    )


@lru_cache(maxsize=64)
def _subsets(sizes: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return all choices of some of the sizes, each once."""
    subsets: set[tuple[int, ...]] = {()}
    for size in sizes:
        subsets |= {tuple(sorted((*some, size))) for some in subsets}
    return subsets


@lru_cache(maxsize=64)
def max_padding_factor(workload: Workload, hierarchy: Hierarchy) -> int:
    """Return how many times as large as the mean part of a tensor the largest may be, at most."""
    if workload.loads:
        return hierarchy.accelerators
    more = hierarchy.accelerators - 1
    longer = [
        math.prod(1 + Fraction(more, size) for size in column if size)
        for column in {*map(tuple, split_sizes(workload).T.tolist())}
    ]
    return min(hierarchy.accelerators, math.ceil(max(longer)))
