"""States, the choices of a node at the topmost levels, and the copies that they leave of a tensor.

States are given level by level, H1 first, as arrays that broadcast with one another and with the
nodes that have them. Of all states of a node, each level's choices have an axis of their own: what
depends on the topmost levels alone is then worked once, whatever the levels below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import Integers, exact_dtype

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy

Indices = NDArray[np.intp]
States = Sequence[Indices]
"""The choices at each level, H1 first, of arrays that broadcast with one another."""


def states_of_rows(rows: Sequence[Sequence[int]]) -> list[Indices]:
    """Return the states of a plan's nodes, from its choices, ``(levels, nodes)``."""
    return [np.asarray(row, np.intp) for row in rows]


def shape_of(nodes: Indices, states: States) -> tuple[int, ...]:
    """Return the shape of nodes and their states together."""
    return np.broadcast_shapes(nodes.shape, *(choice.shape for choice in states))


def every_state(choices: int, levels: int, *, behind: int = 0) -> States:
    """Return all states, the choices of each level along an axis of its own, H1's the first.

    Parameters
    ----------
    behind
        The number of axes behind those of the levels.
    """
    made = np.arange(choices)
    return [made.reshape(-1, *[1] * (levels - 1 - level + behind)) for level in range(levels)]


def runs(indices: Indices, *states: States) -> Iterator[tuple[slice, list[Indices]]]:
    """Yield consecutive levels whose choices have one shape, stacked, to be charged at once.

    Parameters
    ----------
    indices
        The nodes, or boundaries, that have the states.
    states
        Of each end.

    Yields
    ------
    levels, choices
        Of each end ``(levels, ...)``, with as many axes more as all of them broadcast to.
    """
    axes = max([indices.ndim, *(choice.ndim for end in states for choice in end)])
    first = 0
    shapes = zip(*([choice.shape for choice in end] for end in states), strict=True)
    for _, alike in itertools.groupby(shapes):
        levels = slice(first, first := first + len(list(alike)))
        stacked = [np.array(end[levels]) for end in states]
        yield levels, [s.reshape(len(s), *[1] * (axes + 1 - s.ndim), *s.shape[1:]) for s in stacked]


def copies_above(
    replicated: Iterable[NDArray[np.bool_]], parts: Sequence[int]
) -> Iterator[Integers]:
    """Yield a tensor's copies above each of a run of levels, H1 first, and then below the last.

    Parameters
    ----------
    replicated
        Of each run, where a tensor lacks the axis that a level splits: it then has a copy in each
        part: ``(levels of the run, ...)``.
    parts
        Of each level.
    """
    copies: Integers = np.ones(1, np.int64)
    first, most = 0, 1
    for lacks in replicated:
        sizes = parts[first : first + len(lacks)]
        first, most = first + len(lacks), most * math.prod(sizes)
        if not lacks.any():  # they keep their shape: what is the same for all has no axis
            yield copies
            continue
        each = np.array(sizes, exact_dtype(most)).reshape(-1, *[1] * (lacks.ndim - 1))
        product = np.where(lacks, each, 1).cumprod(axis=0, dtype=each.dtype)
        above = copies
        if len(lacks) > 1:
            above = copies * np.concatenate([np.ones_like(product[:1]), product[:-1]])
        yield above
        copies = copies * product[-1:]
    yield copies


def copies(lacks: NDArray[np.bool_], nodes: Indices, states: States, parts: Hierarchy) -> Integers:
    """Return the copies of a tensor of each node in all parts of its levels together.

    Parameters
    ----------
    lacks : (choices, nodes)
        Whether the tensor lacks the axis that a choice splits.
    """
    replicated = [lacks[choice, nodes] for _, (choice,) in runs(nodes, states)]
    *_, below = copies_above(replicated, parts.sizes)
    return below[0] if replicated else below


def added_up(rows: Sequence[Integers]) -> Integers:
    """Return the sum of charges that broadcast, in integers that hold it."""
    largest = sum(int(row.max(initial=0)) for row in rows)
    total: Integers = np.zeros(1, exact_dtype(largest))
    for row in rows:
        total = total + row.astype(total.dtype, copy=False)
    return total
