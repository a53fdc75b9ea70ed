"""A cost table as a 0-1 program in whole numbers, as tight as the table allows."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.deadline import NEVER, Deadline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable

ROOM = 10**6
BASE = 10**5
"""A capacity above `ROOM` is written in digits of `BASE`, one row each.

CBC rounds. Of capacities of 10^8 it calls 3 in 100 infeasible that are not.
"""

Pick = tuple[int, int]
"""A layer and a choice."""


@dataclass(frozen=True)
class Row:
    """``sum(terms[column] * column)`` and ``bound``, compared by ``<=``, ``=`` or ``>=``."""

    name: str
    terms: Mapping[str, int]
    sense: str
    bound: int


@dataclass(frozen=True)
class Program:
    """A 0-1 program in whole numbers: least is ``constant + sum(costs[column] * column)``.

    Parameters
    ----------
    takes : layers x choices
        The binary column and the value of it by which a layer takes a choice.
    costs
        Of every column. Those not in `takes` are not negative; those named ``carry`` are whole.
    """

    takes: Sequence[Sequence[tuple[str, int]]]
    costs: Mapping[str, int]
    constant: int
    rows: tuple[Row, ...]
    fixed: Mapping[str, int] = field(default_factory=dict)

    @property
    def factor(self) -> int:
        """The costs' greatest common divisor."""
        return math.gcd(*self.costs.values()) or 1

    @property
    def largest_cost(self) -> int:
        return max(map(abs, self.costs.values()))

    def with_row(
        self,
        name: str,
        weights: Mapping[Pick, int],
        sense: str,
        bound: int,
        others: Mapping[str, int] = MappingProxyType({}),
    ) -> Program:
        """Return the program with one more row, of choices' weights and other columns' terms."""
        terms: defaultdict[str, int] = defaultdict(int, others)
        for (layer, choice), weight in weights.items():
            column, value = self.takes[layer][choice]
            terms[column] += weight if value else -weight
            bound -= 0 if value else weight
        row = Row(name, {x: term for x, term in terms.items() if term}, sense, bound)
        return replace(self, rows=(*self.rows, row))

    def assignment(self, values: Mapping[str, float]) -> tuple[int, ...]:
        """Return the choices that the columns' values stand for."""
        near = [[1 - abs(values[x] - value) for x, value in layer] for layer in self.takes]
        return tuple(layer.index(max(layer)) for layer in near)


def formulate(table: CostTable, deadline: Deadline = NEVER) -> Program:
    """Return the tightest program there is for a table that is not `trivially_infeasible`.

    On two choices, wherever all edges can be made to charge equal choices less than unequal
    ones: difference constraints, whose relaxation is integral on any graph. Else the path form,
    whose relaxation is integral on a chain.
    """
    means = _meanings(table)
    program = _paths(table, deadline) if means is None else _thresholds(table, means)
    if table.allowed is not None:
        forbidden = zip(*(~table.allowed).nonzero(), strict=True)
        literals = [program.takes[layer][choice] for layer, choice in forbidden]
        program = replace(program, fixed={x: 1 - value for x, value in literals})
    if table.capacity is not None:
        program = _within_capacity(program, *_weights(table))
    return program


def trivially_infeasible(table: CostTable) -> bool:
    """Whether a layer has no choice at all, or the lightest choices exceed the capacity."""
    may = allowed_choices(table)
    if not may.any(axis=1).all():
        return True
    if table.load is None or table.capacity is None:
        return False
    return sum(int(row[ok].min()) for row, ok in zip(table.load, may, strict=True)) > table.capacity


def allowed_choices(table: CostTable) -> NDArray[np.bool_]:
    return np.ones(table.node.shape, bool) if table.allowed is None else table.allowed


def _meanings(table: CostTable) -> list[int] | None:
    """Return the choice that each layer's one column stands for, where one will do.

    What an edge charges beyond its two ends' own charges, ``dd + mm - dm - md``, must not be
    positive. Where it is, one end's column stands for the other choice. On a forest this always
    works out; None where a cycle forbids it, or there are not two choices.
    """
    if table.choices != 2:
        return None
    unequal: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
    for (u, v), ((dd, dm), (md, mm)) in zip(table.ends.tolist(), table.edge.tolist(), strict=True):
        together = dd + mm - dm - md
        if together:
            unequal[u].append((v, together > 0))
            unequal[v].append((u, together > 0))
    means: dict[int, int] = {}
    for first in range(table.layers):
        reached = [] if first in means else [first]
        means.setdefault(first, 1)
        while reached:
            layer = reached.pop()
            for other, differs in unequal[layer]:
                wanted = means[layer] ^ differs
                if other not in means:
                    means[other] = wanted
                    reached.append(other)
                elif means[other] != wanted:
                    return None
    return [means[layer] for layer in range(table.layers)]


def _thresholds(table: CostTable, means: list[int]) -> Program:
    """Return one binary a layer, and for each edge a column above those of its two ends."""
    x = [f"x_{layer}_{choice}" for layer, choice in enumerate(means)]
    takes = [[(x[at], int(c == means[at])) for c in range(2)] for at in range(table.layers)]
    costs: dict[str, int] = {}
    constant = 0
    rows: list[Row] = []
    for column, one, charges in zip(x, means, table.node.tolist(), strict=True):
        constant += charges[1 - one]
        costs[column] = charges[one] - charges[1 - one]
    edges = zip(table.ends.tolist(), table.edge.tolist(), strict=True)
    for place, ((u, v), charges) in enumerate(edges):
        charged = charges if means[u] else charges[::-1]
        (a, b), (c, d) = charged if means[v] else (pair[::-1] for pair in charged)
        # a + (d-b) x_u + (d-c) x_v + (b+c-a-d) max(x_u, x_v), at all four corners
        constant += a
        costs[x[u]] += d - b
        costs[x[v]] += d - c
        if b + c > a + d:
            z = f"z_{place}"
            costs[z] = b + c - a - d
            rows += [Row(f"over_{place}_{at}", {z: 1, x[at]: -1}, ">=", 0) for at in (u, v)]
    return Program(takes, costs, constant, tuple(rows))


def _paths(table: CostTable, deadline: Deadline) -> Program:
    """Return a binary a choice, a flow a pair of choices, and rows by which they match."""
    choices = range(table.choices)
    takes = [[(f"x_{at}_{c}", 1) for c in choices] for at in range(table.layers)]
    costs: dict[str, int] = {}
    constant = 0
    rows: list[Row] = []
    for at, charges in enumerate(table.node.tolist()):
        least = min(charges)
        constant += least
        costs |= {f"x_{at}_{c}": charge - least for c, charge in enumerate(charges)}
        rows.append(Row(f"one_{at}", {f"x_{at}_{c}": 1 for c in choices}, "=", 1))
    edges = zip(table.ends.tolist(), table.edge.tolist(), strict=True)
    for place, ((u, v), charges) in enumerate(edges):
        deadline.check()
        least = min(map(min, charges))
        constant += least
        y = [[f"y_{place}_{c}_{d}" for d in choices] for c in choices]
        for c in choices:
            costs |= {y[c][d]: charges[c][d] - least for d in choices}
            out = {y[c][d]: 1 for d in choices}
            into = {y[d][c]: 1 for d in choices}
            rows.append(Row(f"out_{place}_{c}", {**out, f"x_{u}_{c}": -1}, "=", 0))
            rows.append(Row(f"into_{place}_{c}", {**into, f"x_{v}_{c}": -1}, "=", 0))
    return Program(takes, costs, constant, tuple(rows))


def _weights(table: CostTable) -> tuple[list[list[int]], int]:
    """Return what the choices weigh, and the room for them, in the smallest whole numbers.

    A choice weighs what it loads beyond its layer's lightest, and these leave the room. All
    choices that do not fit into it weigh the same.
    """
    assert table.load is not None
    assert table.capacity is not None
    weights: list[list[int]] = []
    room = table.capacity
    for loads, may in zip(table.load.tolist(), allowed_choices(table).tolist(), strict=True):
        lightest = min(load for load, ok in zip(loads, may, strict=True) if ok)
        weights.append([load - lightest if ok else 0 for load, ok in zip(loads, may, strict=True)])
        room -= lightest
    unit = math.gcd(*(w for row in weights for w in row if w <= room)) or room + 1
    weights = [[(w if w <= room else room + unit) // unit for w in row] for row in weights]
    return weights, room // unit


def _within_capacity(program: Program, weights: list[list[int]], room: int) -> Program:
    """Return the program with rows that keep the weights within the room.

    One row, if its numbers are small. Else a row a digit, with an integer column that carries
    to the next, as in adding by hand: the same choices fit, and the relaxation is the same.
    """
    if sum(map(max, weights)) <= room:
        return program
    carried: dict[str, int] = {}
    for place in itertools.count():
        last = room <= ROOM
        picks = {
            (layer, choice): weight if last else weight % BASE
            for layer, row in enumerate(weights)
            for choice, weight in enumerate(row)
        }
        if last:
            return program.with_row(f"capacity_{place}", picks, "<=", room, carried)
        carry = f"carry_{place}"
        carried[carry] = -BASE
        program = program.with_row(f"capacity_{place}", picks, "<=", room % BASE, carried)
        program = replace(program, costs={**program.costs, carry: 0})
        carried = {carry: 1}
        weights, room = [[w // BASE for w in row] for row in weights], room // BASE
    raise AssertionError


def cover(table: CostTable, assignment: Sequence[int]) -> tuple[dict[Pick, int], int] | None:
    """Return choices of which only so many fit together, if an assignment takes more of them."""
    if table.capacity is None:
        return None
    weights, room = _weights(table)
    taken = [row[choice] for row, choice in zip(weights, assignment, strict=True)]
    together: list[int] = []
    for layer in sorted(range(table.layers), key=lambda at: -taken[at]):
        if room < 0:
            break
        room -= taken[layer]
        together.append(layer)
    if room >= 0:
        return None
    heavy = {(at, c): 1 for at in together for c, w in enumerate(weights[at]) if w >= taken[at]}
    return heavy, len(together) - 1
