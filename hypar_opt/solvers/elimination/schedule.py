"""The rounds in which layers of two choices are eliminated, and their coefficients' positions.

A round eliminates layers that have at most two neighbours each, none in the same round: about
half of a path. Equal blocks are thus eliminated side by side, and a network with eight times as
many takes three more rounds. The core is left: the last few variables, or all that have more
neighbours.

Source: Miller and Reif, "Parallel tree contraction and its application", 1985; Luby, "A simple
parallel algorithm for the maximal independent set problem", 1986.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.integers import Integers

Indices = NDArray[np.intp]

_HASH, _NEXT_HASH, _BITS = 0x9E3779B1, 0x85EBCA6B, 0xFFFFFFFF
"""Multipliers that scatter the order of a round's variables; the first is the golden ratio's."""

_MANY = 32
"""From this many functions on, a term's single row is copied: to add it up would be slow."""

MAX_ENUMERATED = 8
"""Up to this many variables, pricing all assignments takes as long as a round or two."""


@dataclass(frozen=True, eq=False)
class Round:
    """Variables that are eliminated together.

    Parameters
    ----------
    parts, starts
        The rows that add up to the variables' terms, and where each term's rows begin: all
        linear terms, then those with the first neighbour, then those with the second.
    neighbours : (2, count)
        Positions in the order of elimination.
    """

    parts: Indices
    starts: Indices
    neighbours: Indices

    @property
    def count(self) -> int:
        return len(self.neighbours[0])

    def summed(self, rows: Integers, out: Integers | None = None) -> Integers:
        """Return the terms of several functions, ``(terms, functions)``, each a sum of rows."""
        if rows.shape[1] < _MANY:
            few: Integers = rows.take(self.parts, axis=0)
            return np.add.reduceat(few, self.starts, axis=0, out=out)
        first, terms, further, starts = self._row_ranges
        # Clipped, though nothing is out of bounds: else `out` gets a copy.
        total: Integers = rows.take(first, axis=0, out=out, mode="clip")
        if len(terms):
            total[terms] += np.add.reduceat(rows.take(further, axis=0), starts, axis=0)
        return total

    @cached_property
    def _row_ranges(self) -> tuple[Indices, Indices, Indices, Indices]:
        """Each term's first row; the terms of several, their further rows, and their starts."""
        further = np.diff(self.starts, append=len(self.parts)) - 1
        terms = np.flatnonzero(further)
        starts = further[terms].cumsum() - further[terms]
        return self.parts[self.starts], terms, np.delete(self.parts, self.starts), starts


@dataclass(frozen=True, eq=False)
class EliminationSchedule:
    """The rounds that eliminate a graph's variables, and the core that they leave.

    Coefficients are rows of one array: the variables' linear terms, a row of zeros, the pairs'
    terms, the constant, and then four rows for each variable that is eliminated: what its
    minimum adds to the constant, to each neighbour and to their product. A coefficient is read
    once, when its variable is eliminated, as the sum of all rows that belong to it.

    Parameters
    ----------
    variables, pairs
        How many there are of each.
    rounds
        In the order in which they run.
    position : (variables,)
        Every variable's position in the order of elimination; the core comes last.
    core : (core variables,)
        The variables left: at most `MAX_ENUMERATED`, or more with over two neighbours each.
    core_pairs : (core pairs, 2)
        As indices of ``core``.
    rest
        The sums of rows for the core: its linear terms, its pairs' terms and the constant.
    width
        1 if the graph has no cycle, 2 if rounds could eliminate every variable, else None.
    """

    variables: int
    pairs: int
    rounds: tuple[Round, ...]
    position: Indices
    core: Indices
    core_pairs: Indices
    rest: Round
    width: int | None

    @property
    def rows(self) -> int:
        """The number of rows of all coefficients."""
        return self.original_rows + 4 * (self.variables - len(self.core))

    @property
    def original_rows(self) -> int:
        """The number of rows of a function's original coefficients."""
        return self.variables + 1 + self.pairs + 1

    @cached_property
    def few(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All assignments of a small core, and the linear and quadratic terms that each counts."""
        core = len(self.core)
        values = np.arange(2**core)[:, None] >> np.arange(core) & 1
        first, second = self.core_pairs.T
        return values, np.concatenate([values, values[:, first] * values[:, second]], axis=1)


@dataclass(frozen=True, eq=False)
class _DraftRound:
    """A round in terms of coefficients: variables, then a row of zeros, then pairs.

    Parameters
    ----------
    variables : (count,)
    neighbours, pairs : (2, count)
    product : (count,)
        The pair of both neighbours.
    """

    variables: Indices
    neighbours: Indices
    pairs: Indices
    product: Indices


@dataclass(frozen=True, eq=False)
class _Remainder:
    """The variables that some rounds leave, and the pairs with their coefficients."""

    rounds: int
    alive: NDArray[np.bool_]
    low: Indices
    high: Indices
    slots: Indices


def schedule_of(variables: int, low: Indices, high: Indices) -> EliminationSchedule:
    """Return the rounds that eliminate all variables of at most two neighbours.

    Parameters
    ----------
    low, high : (pairs,)
        Distinct pairs, the lower variable first.
    """
    pairs = len(low)
    none = variables
    slots = variables + 1 + np.arange(pairs)
    next_slot = variables + 1 + pairs
    alive = np.ones(variables, bool)
    drafts: list[_DraftRound] = []
    components, multiplier = 0, _HASH
    core = _Remainder(0, alive.copy(), low, high, slots)
    while True:
        if np.count_nonzero(core.alive) > MAX_ENUMERATED:
            core = _Remainder(len(drafts), alive.copy(), low, high, slots)
        degree = np.bincount(np.concatenate([low, high]), minlength=variables)
        light = alive & (degree <= 2)
        if not light.any():
            break
        priority = np.arange(variables) * multiplier & _BITS
        multiplier = multiplier * _NEXT_HASH & _BITS | 1
        chosen = _independent(light, low, high, priority)
        v = np.flatnonzero(chosen)
        alive[v] = False
        components += int((degree[v] == 0).sum())
        neighbours, incident = _incident(v, variables, low, high, slots)
        keep = ~(chosen[low] | chosen[high])
        both = neighbours[1] != none
        joined = np.sort(neighbours[:, both], axis=0)
        added = np.arange(next_slot, next_slot + joined.shape[1])
        next_slot += len(added)
        low, high, slots, target = _merged(
            np.concatenate([low[keep], joined[0]]),
            np.concatenate([high[keep], joined[1]]),
            np.concatenate([slots[keep], added]),
            variables,
        )
        product = np.full(len(v), none)
        product[both] = target[len(target) - len(added) :]
        drafts.append(_DraftRound(v, neighbours, incident, product))
    width = None
    if not alive.any():
        # Each tree ends with a variable without neighbours: one pair fewer than variables.
        width = 1 if pairs == variables - components else 2
    return _laid_out(variables, pairs, drafts[: core.rounds], core, next_slot, width)


def _independent(
    light: NDArray[np.bool_], low: Indices, high: Indices, priority: Indices
) -> NDArray[np.bool_]:
    """Return an independent set of light variables.

    Two passes of Luby's algorithm: those before all their neighbours in the order of priority.
    """
    between = light[low] & light[high]
    low, high = low[between], high[between]
    later = np.where(priority[low] < priority[high], high, low)
    chosen = light.copy()
    chosen[later] = False
    free = light & ~chosen
    free[low[chosen[high]]] = False
    free[high[chosen[low]]] = False
    free[later[free[low] & free[high]]] = False
    return chosen | free


def _incident(
    v: Indices, variables: int, low: Indices, high: Indices, slots: Indices
) -> tuple[Indices, Indices]:
    """Return the neighbours and the pairs of variables that have at most two, ``(2, count)``.

    A variable's half-edges are found without sorting: the last one that writes its index at
    the variable, and, written in reverse order, the first one.
    """
    ends = np.concatenate([low, high])
    half = np.arange(len(ends))
    first, last = np.full((2, variables), len(ends))
    last[ends] = half
    first[ends[::-1]] = half[::-1]
    incident = np.stack([first[v], last[v]])
    incident[1, incident[0] == incident[1]] = len(ends)
    far_ends = np.concatenate([high, low, [variables]])
    return far_ends[incident], np.concatenate([slots, slots, [variables]])[incident]


def _merged(
    low: Indices, high: Indices, slots: Indices, variables: int
) -> tuple[Indices, Indices, Indices, Indices]:
    """Return the distinct pairs with the first slot of each, and the slot of every given pair."""
    code = low * variables + high
    order = code.argsort(kind="stable")
    code = code[order]
    new = np.ones(len(code), bool)
    np.not_equal(code[1:], code[:-1], out=new[1:])
    distinct = slots[order[new]]
    target = np.empty_like(slots)
    target[order] = distinct[new.cumsum() - 1]
    code = code[new]
    return code // variables, code % variables, distinct, target


def _laid_out(
    variables: int,
    pairs: int,
    drafts: Sequence[_DraftRound],
    left: _Remainder,
    constant: int,
    width: int | None,
) -> EliminationSchedule:
    """Return a schedule with the rows that add up to every coefficient."""
    none, core = variables, np.flatnonzero(left.alive)
    original = np.append(np.arange(variables + 1 + pairs), constant)
    added = [
        np.concatenate([np.full(len(draft.variables), constant), *draft.neighbours, draft.product])
        for draft in drafts
    ]
    belongs = np.concatenate([original, *added])
    # A variable adds zero for a missing neighbour: left out.
    rows = np.flatnonzero((belongs != none) | (np.arange(len(belongs)) == none))
    rows = rows[belongs[rows].argsort(kind="stable")]
    count = np.bincount(belongs[rows], minlength=constant + 1)
    begin = count.cumsum() - count

    def read(coefficients: Indices, neighbours: Indices) -> Round:
        length = count[coefficients]
        starts = length.cumsum() - length
        within = np.arange(length.sum()) - np.repeat(starts, length)
        return Round(rows[np.repeat(begin[coefficients], length) + within], starts, neighbours)

    position = np.empty(variables + 1, np.intp)
    position[none] = variables
    order = np.concatenate([*(draft.variables for draft in drafts), core])
    position[order] = np.arange(variables)
    rounds = tuple(
        read(np.concatenate([d.variables, *d.pairs]), position[d.neighbours]) for d in drafts
    )
    rest = read(np.concatenate([core, left.slots, [constant]]), np.zeros((2, 0), np.intp))
    core_pairs = np.searchsorted(core, np.stack([left.low, left.high], axis=1))
    return EliminationSchedule(
        variables, pairs, rounds, position[:-1], core, core_pairs, rest, width
    )
