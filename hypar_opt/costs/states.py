"""States, the choices of a node at the topmost levels, and the copies that they leave of a tensor.

States are given level by level, H1 first, as arrays that broadcast with one another and with the
nodes that have them. Of all states of a node, each level's choices have an axis of their own: what
depends on the topmost levels alone is then worked once, whatever the levels below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, overload

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


class Run(NamedTuple):
    """Consecutive levels whose choices have one shape, to be charged at once.

    Parameters
    ----------
    levels
        Which they are.
    choices
        Of each end that has states ``(levels, ...)``, with the axes that all of them broadcast to.
    """

    levels: slice
    choices: tuple[Indices, ...]


def runs(indices: Indices, *states: States) -> list[Run]:
    """Return the runs of all levels, H1's first.

    Parameters
    ----------
    indices
        The nodes, or boundaries, that have the states.
    states
        Of each end.
    """
    axes = max([indices.ndim, *(choice.ndim for end in states for choice in end)])
    found, first = [], 0
    shapes = zip(*([choice.shape for choice in end] for end in states), strict=True)
    for _, alike in itertools.groupby(shapes):
        levels = slice(first, first := first + len(list(alike)))
        stacked = [np.array(end[levels]) for end in states]
        found.append(
            Run(
                levels,
                tuple(
                    choices.reshape(len(choices), *[1] * (axes + 1 - choices.ndim), *shape)
                    for choices, shape in ((array, array.shape[1:]) for array in stacked)
                ),
            )
        )
    return found


class ByLevel(Sequence[Integers]):
    """Charges of each level, those of a run worked together when one of them is asked for."""

    def __init__(self, split: Sequence[Run], charge: Callable[[int], Integers]) -> None:
        self._place = [(n, level) for n, run in enumerate(split) for level in range(_length(run))]
        self._charge = cache(charge)

    def __len__(self) -> int:
        return len(self._place)

    @overload
    def __getitem__(self, level: int) -> Integers: ...

    @overload
    def __getitem__(self, level: slice) -> list[Integers]: ...

    def __getitem__(self, level: int | slice) -> Integers | list[Integers]:
        if isinstance(level, slice):
            return [self[n] for n in range(len(self))[level]]
        run, place = self._place[level]
        charges: Integers = np.asarray(self._charge(run)[place])
        return charges


def _length(run: Run) -> int:
    return int(run.levels.stop - run.levels.start)


class Copies(NamedTuple):
    """A tensor's copies at a run of levels: above all of them, and in the parts of each too.

    Parameters
    ----------
    before : (1, ...)
        The copies above the run.
    product : (levels, ...)
        How many more there are below each of its levels.
    """

    before: Integers
    product: Integers

    @property
    def above(self) -> Integers:
        """The copies above each level."""
        if len(self.product) == 1:
            return self.before
        ones = np.ones_like(self.product[:1])
        return self.before * np.concatenate([ones, self.product[:-1]])

    @property
    def below(self) -> Integers:
        """The copies below the last level."""
        return self.before * self.product[-1:]


def copies_of_runs(replicated: Iterable[NDArray[np.bool_]], parts: Sequence[int]) -> list[Copies]:
    """Return a tensor's copies at each run of levels.

    Parameters
    ----------
    replicated
        Of each run, where a tensor lacks the axis that a level splits: it then has a copy in each
        part: ``(levels of the run, ...)``.
    parts
        Of each level.
    """
    found = []
    before: Integers = np.ones(1, np.int64)
    first, most = 0, 1
    for lacks in replicated:
        sizes = parts[first : first + len(lacks)]
        first, most = first + len(lacks), most * math.prod(sizes)
        axes = [1] * (lacks.ndim - 1)
        if lacks.any():
            each = np.array(sizes, exact_dtype(most)).reshape(-1, *axes)
            product = np.where(lacks, each, 1).cumprod(axis=0, dtype=each.dtype)
        else:  # what is the same for all has no axis
            product = np.ones((len(lacks), *axes), np.int64)
        found.append(Copies(before, product))
        before = found[-1].below
    return found


def copies(lacks: NDArray[np.bool_], nodes: Indices, states: States, parts: Hierarchy) -> Integers:
    """Return the copies of a tensor of each node in all parts of its levels together.

    Parameters
    ----------
    lacks : (choices, nodes)
        Whether the tensor lacks the axis that a choice splits.
    """
    replicated = [lacks[choice, nodes] for _, (choice,) in runs(nodes, states)]
    if not replicated:
        return np.ones(1, np.int64)
    below: Integers = copies_of_runs(replicated, parts.sizes)[-1].below[0]
    return below


def added_up(rows: Sequence[Integers]) -> Integers:
    """Return the sum of charges that broadcast, in integers that hold it."""
    largest = sum(int(row.max(initial=0)) for row in rows)
    total: Integers = np.zeros(1, exact_dtype(largest))
    for row in rows:
        total = total + row.astype(total.dtype, copy=False)
    return total
