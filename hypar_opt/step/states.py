"""States (the choices of a node at the topmost levels), and the copies of a tensor in each.

States come in blocks of levels, H1's first, each of an array with an axis of its levels in front.
Behind it blocks broadcast with one another and with the nodes that have the states. In all states
of a node, each level is a block whose choices have a separate axis: an amount that depends only on
the topmost levels is then computed once for all choices below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.integers import Integers, exact_dtype

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy

Indices = NDArray[np.intp]
States = Sequence[Indices]
"""Blocks of levels: ``(levels, ...)``, with one axis more than the nodes that have the states."""


def states_from_rows(rows: Sequence[Sequence[int]], nodes: int) -> list[Indices]:
    """Return the states of a plan's nodes, from its choices, ``(levels, nodes)``."""
    return [np.array(rows, np.intp).reshape(len(rows), nodes)] if rows else []


def shard_counts(
    rows: Sequence[Sequence[int]] | Indices, nodes: int, choices: int, hierarchy: Hierarchy
) -> Integers:
    """Return the number of parts into which each choice splits a node: ``(choices, nodes)``."""
    chosen = np.array(rows, np.intp).reshape(len(rows), nodes) == np.arange(choices)[:, None, None]
    sizes = np.array(hierarchy.sizes[: len(rows)], exact_dtype(hierarchy.accelerators))
    parts: Integers = np.where(chosen, sizes[:, None], 1).prod(axis=1)
    return parts


def state_grid(choices: Sequence[int], *, before: int = 0, behind: int = 0) -> list[Indices]:
    """Return all states, for nodes ``(nodes, 1, ...)``, each level's choices along an axis.

    Parameters
    ----------
    choices
        How many each level has.
    before, behind
        The numbers of axes between those of nodes and levels, and behind those of levels.
    """
    after = len(choices) - 1 + behind
    return [
        np.arange(count).reshape(*[1] * (2 + before + level), -1, *[1] * (after - level))
        for level, count in enumerate(choices)
    ]


def levels_of(states: States) -> int:
    """Return the number of levels of states."""
    return sum(map(len, states))


def level_choices(states: States) -> Iterator[Indices]:
    """Yield the choices at each level of states, H1 first, regardless of blocks."""
    for block in states:
        yield from block


def shape_of(nodes: Indices, states: States) -> tuple[int, ...]:
    """Return the shape of nodes and their states together."""
    return broadcast_shape(nodes.shape, *(block.shape[1:] for block in states))


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of arrays that broadcast, of more axes than `numpy.broadcast_shapes` takes.

    Two ends of 16 levels have 33 axes.
    """
    axes = itertools.zip_longest(*map(reversed, shapes), fillvalue=1)
    return tuple(0 if 0 in sizes else max(sizes) for sizes in axes)[::-1]


def runs_of(kinds: Sequence[Hashable]) -> list[int]:
    """Return the number of the run of equal levels that each level is in, by kinds of levels."""
    runs = itertools.groupby(kinds)
    return [number for number, (_, run) in enumerate(runs) for _ in run]


def replicas(copied: Iterable[NDArray[np.bool_]], parts: Sequence[int]) -> Integers:
    """Return the copies of a tensor in all parts of some levels together.

    Parameters
    ----------
    copied
        Whether each part of a level has a copy: the tensor lacks the axis that the level splits.
    parts
        Of each level, and of any below.
    """
    return replicas_above(copied, parts)[-1]


def replicas_above(
    copied: Iterable[NDArray[np.bool_]], parts: Sequence[int], *, each: Integers | None = None
) -> list[Integers]:
    """Return the copies of a tensor in all parts of the levels above each level; last, of all.

    Parameters
    ----------
    each
        How many copies each part has, 1 by default.
    """
    dtype, above = exact_dtype(math.prod(parts)), [np.ones(1, np.int64) if each is None else each]
    for flags, count in zip(copied, parts, strict=False):
        more = above[-1]
        if np.count_nonzero(flags):  # equal amounts have no axis; `any` takes ten times as long
            more = more * np.where(flags, count, 1).astype(dtype, copy=False)
        above.append(more)
    return above


def copies(lacks: NDArray[np.bool_], nodes: Indices, states: States, parts: Hierarchy) -> Integers:
    """Return the copies of a tensor of each node in all parts of its levels together.

    Parameters
    ----------
    lacks : (choices, nodes) or (levels, choices, nodes)
        Whether the tensor lacks the axis that a choice splits; the same at all levels, or by level.
    """
    by_level = lacks if lacks.ndim > 2 else itertools.repeat(lacks)
    flags = (
        lacking[choice, nodes]
        for lacking, choice in zip(by_level, level_choices(states), strict=False)
    )
    return replicas(flags, parts.sizes)


def exact_sum(charges: Sequence[Integers]) -> Integers:
    """Return the sum of charges that broadcast, in integers that hold it."""
    amounts = list(charges)
    dtype = exact_dtype(sum(int(charge.max(initial=0)) for charge in amounts))
    total: Integers = np.zeros(1, dtype)
    for charge in amounts:
        total = total + charge.astype(dtype, copy=False)
    return total
