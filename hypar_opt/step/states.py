"""States (the choices of a node at the topmost levels), and the copies of a tensor in each.

States come in blocks of levels, H1's first, each of an array with an axis of its levels in front.
Behind it blocks broadcast with one another and with the nodes that have the states. In all states
of a node, each level is a block whose choices have a separate axis: an amount that depends only on
the topmost levels is then computed once for all choices below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.integers import Integers, exact_dtype

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy

Indices = NDArray[np.intp]
States = Sequence[Indices]
"""Blocks of levels: ``(levels, ...)``, with one axis more than the nodes that have the states."""


def of_rows(rows: Sequence[Sequence[int]], nodes: int) -> list[Indices]:
    """Return the states of a plan's nodes, from its choices, ``(levels, nodes)``."""
    return [np.array(rows, np.intp).reshape(len(rows), nodes)] if rows else []


def parts_of(
    rows: Sequence[Sequence[int]] | Indices, nodes: int, choices: int, hierarchy: Hierarchy
) -> Integers:
    """Return into how many parts each node's choices split it: ``(choices, nodes)``."""
    made = np.array(rows, np.intp).reshape(len(rows), nodes) == np.arange(choices)[:, None, None]
    sizes = np.array(hierarchy.sizes[: len(rows)], exact_dtype(hierarchy.accelerators))
    parts: Integers = np.where(made, sizes[:, None], 1).prod(axis=1)
    return parts


def every_state(choices: Sequence[int], *, before: int = 0, behind: int = 0) -> list[Indices]:
    """Return all states of nodes ``(nodes, 1, ...)``, each level's choices along an axis.

    Parameters
    ----------
    choices
        How many each level has.
    before, behind
        The numbers of axes between the nodes' and those of the levels, and behind these.
    """
    after = len(choices) - 1 + behind
    return [
        np.arange(own).reshape(*[1] * (2 + before + level), -1, *[1] * (after - level))
        for level, own in enumerate(choices)
    ]


def levels_of(states: States) -> int:
    """Return the number of levels of states."""
    return sum(map(len, states))


def level_choices(states: States) -> Iterator[Indices]:
    """Yield the choices at each level of states, H1's first, whatever blocks they are in."""
    for block in states:
        yield from block


def shape_of(nodes: Indices, states: States) -> tuple[int, ...]:
    """Return the shape of nodes and their states together."""
    return np.broadcast_shapes(nodes.shape, *(block.shape[1:] for block in states))


def runs_of(kinds: Sequence[Hashable]) -> list[int]:
    """Return the number of the run of equal levels that each level is in, by kinds of levels."""
    runs = itertools.groupby(kinds)
    return [number for number, (_, run) in enumerate(runs) for _ in run]


class Copies:
    """A tensor's copies at the levels of a block.

    Parameters
    ----------
    before : (1, ...)
        The copies above the block.
    lacked : (levels, ...)
        Where the tensor lacks the axis that a level splits: it then has a copy in each part.
    parts
        Of each level.
    largest
        An upper bound on the copies.
    """

    def __init__(
        self, before: Integers, lacked: NDArray[np.bool_], parts: Sequence[int], largest: int
    ) -> None:
        self._before, self._lacked, self._parts = before, lacked, parts
        self._dtype = exact_dtype(largest)

    @cached_property
    def _product(self) -> Integers:
        """The further copies below each level: ``(levels, ...)``."""
        axes = [1] * (self._lacked.ndim - 1)
        if not self._lacked.any():  # equal charges have no axis
            return np.ones((len(self._parts), *axes), np.int64)
        parts = np.array(self._parts, self._dtype).reshape(-1, *axes)
        product: Integers = np.where(self._lacked, parts, 1)
        for above, own in itertools.pairwise(product):  # ten times as fast as `cumprod`
            own *= above
        return product

    @property
    def above(self) -> Integers:
        """The copies above each level."""
        if len(self._parts) == 1:
            return self._before
        above = np.empty_like(self._product)
        above[0] = 1
        above[1:] = self._product[:-1]
        return above if self._before is _ONE else self._before * above

    @property
    def through(self) -> Integers:
        """The copies above and at each level."""
        return self._before * self._product

    @property
    def added(self) -> Integers:
        """The copies that each level adds to those above it."""
        added = self._product.copy()
        added[1:] -= self._product[:-1]
        added[0] -= 1
        return added if self._before is _ONE else self._before * added

    @property
    def below(self) -> Integers:
        """The copies below the last level."""
        return self._before * self._product[-1:]


_ONE: Integers = np.ones(1, np.int64)


def copies_of(lacked: Sequence[NDArray[np.bool_]], parts: Sequence[int]) -> list[Copies]:
    """Return a tensor's copies at each block of levels, given where it lacks their axes.

    Parameters
    ----------
    parts
        Of each level.
    """
    found: list[Copies] = []
    first, largest = 0, 1
    for block in lacked:
        sizes = parts[first : first + len(block)]
        first, largest = first + len(block), largest * math.prod(sizes)
        found.append(Copies(found[-1].below if found else _ONE, block, sizes, largest))
    return found


def copies(lacks: NDArray[np.bool_], nodes: Indices, states: States, parts: Hierarchy) -> Integers:
    """Return the copies of a tensor of each node in all parts of its levels together.

    Parameters
    ----------
    lacks : (choices, nodes) or (levels, choices, nodes)
        Whether the tensor lacks the axis that a choice splits, at any level or at each.
    """
    if not states:
        return _ONE
    if lacks.ndim > 2:
        lacked = []
        for number, block in enumerate(states):
            levels = levels_of(states[:number]) + np.arange(len(block))
            lacked.append(lacks[levels.reshape(-1, *[1] * (block.ndim - 1)), block, nodes])
    else:
        lacked = [lacks[block, nodes] for block in states]
    found = copies_of(lacked, parts.sizes)
    below: Integers = found[-1].below[0]
    return below


def added_up(charges: Sequence[Integers]) -> Integers:
    """Return the sum of charges that broadcast, in integers that hold it."""
    every = list(charges)
    dtype = exact_dtype(sum(int(charge.max(initial=0)) for charge in every))
    total: Integers = np.zeros(1, dtype)
    for charge in every:
        total = total + charge.astype(dtype, copy=False)
    return total
