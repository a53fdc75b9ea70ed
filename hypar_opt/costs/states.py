"""States, the choices of a node at the topmost levels, and the copies that they leave of a tensor.

States are given level by level, H1 first, as arrays that broadcast with one another and with the
nodes that have them. Of all states of a node, each level's choices have an axis of their own: what
depends on the topmost levels alone is then worked once, whatever the levels below.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
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


def copies_above(
    replicated: Sequence[NDArray[np.bool_]], parts: Sequence[int]
) -> Iterator[Integers]:
    """Yield a tensor's copies above each level, H1 first, and then those below the last.

    Parameters
    ----------
    replicated
        Of each level, where a tensor lacks the axis that the level splits: it then has a copy in
        each part.
    parts
        Of each level.
    """
    copies: Integers = np.ones((), np.int64)
    yield copies
    most = itertools.accumulate(parts, lambda product, n: product * n)
    for lacks, n, largest in zip(replicated, parts, most, strict=True):
        if lacks.any():  # else it keeps its shape: what is the same for all has no axis
            copies = copies.astype(exact_dtype(largest), copy=False) * np.where(lacks, n, 1)
        yield copies


def copies(lacks: NDArray[np.bool_], nodes: Indices, states: States, parts: Hierarchy) -> Integers:
    """Return the copies of a tensor of each node in all parts of its levels together.

    Parameters
    ----------
    lacks : (choices, nodes)
        Whether the tensor lacks the axis that a choice splits.
    """
    replicated = [lacks[choice, nodes] for choice in states]
    *_, below = copies_above(replicated, parts.sizes[: len(states)])
    return below


def added_up(rows: Sequence[Integers]) -> Integers:
    """Return the sum of charges that broadcast, in integers that hold it."""
    largest = sum(int(row.max(initial=0)) for row in rows)
    total: Integers = np.zeros(1, exact_dtype(largest))
    for row in rows:
        total = total + row.astype(total.dtype, copy=False)
    return total
