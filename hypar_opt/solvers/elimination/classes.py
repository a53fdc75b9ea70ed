"""A table of classes of states, solved by elimination: a bound first, then the states it leaves.

Classes are eliminated with each pair at its least charge: the optimum is a bound on all
assignments, and the min-marginal of a class one on those that have a state of it. States of
classes whose marginal is above a threshold are left out, and the others eliminated exactly. An
optimum that is at most the threshold is the optimum of all; else the threshold rises.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import Integers
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.solvers.base import MEMORY, SolveResult, Status
from hypar_opt.solvers.elimination.buckets import (
    Buckets,
    PairwiseCharges,
    eliminate,
    traced_back,
)
from hypar_opt.solvers.elimination.graph import graph_of
from hypar_opt.solvers.elimination.marginals import least_by_choice
from hypar_opt.solvers.elimination.optima import canonical_optimum
from hypar_opt.solvers.elimination.solve import order_of_size, pair_charges

if TYPE_CHECKING:
    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.deadline import Deadline

_FIRST_STEP = 2**12
"""The threshold first rises by this part of the bound, and then by twice as much each time."""

Columns = Sequence[NDArray[np.intp]]
"""By node: the columns that are left of a table, states or classes."""

PairsOf = Callable[[int, NDArray[np.intp], NDArray[np.intp]], Integers]
"""Returns what a kind of boundary is charged for columns of its source and of its target."""


def solve_classes(table: ClassTable, deadline: Deadline) -> SolveResult:
    """Return the canonical optimum of a table; or the best assignment found, with a bound."""
    if not table.allowed.any(axis=1).all():
        return SolveResult(None, None, Status.INFEASIBLE)
    found = _Found()
    try:
        _search(table, found, deadline)
    except RefusedError:
        return found.result(MEMORY)
    except NoAnswerError as error:
        return found.result(error.stopped_by)
    return found.result()


@dataclass
class _Found:
    """What is known of a table: a bound, and the best assignment so far."""

    bound: int | None = None
    objective: int | None = None
    assignment: tuple[int, ...] | None = None
    statistics: Mapping[str, float] = FrozenDict()

    def keep(self, left: _Restricted, threshold: int, deadline: Deadline) -> bool:
        """Keep the optimum of what is left, and return whether it is that of the table."""
        proved = left.objective <= threshold
        if proved or self.objective is None or left.objective < self.objective:
            self.objective = left.objective
            self.assignment = left.optimum(deadline, canonical=proved)
            order = left.buckets.order
            self.statistics = {"width": order.width, "entries": order.largest}
        # What was left out costs more than the threshold.
        self.bound = min(self.objective, threshold if proved else threshold + 1)
        return proved

    def result(self, stopped_by: str | None = None) -> SolveResult:
        status = Status.OPTIMAL if stopped_by is None else Status.FEASIBLE
        return SolveResult(
            self.assignment,
            self.objective,
            Status.NO_ANSWER if self.assignment is None else status,
            bound=self.bound,
            stopped_by=stopped_by,
            statistics=self.statistics,
        )


@dataclass(frozen=True, eq=False)
class _Restricted:
    """What is left of a table's columns, eliminated.

    Parameters
    ----------
    columns
        By node.
    free
        The nodes of several columns. The others are decided, and their charges part of the free
        ones' and of the constant.
    """

    columns: Columns
    free: Sequence[int]
    constant: int
    buckets: Buckets

    @property
    def objective(self) -> int:
        return self.constant + self.buckets.least(0)

    def optimum(self, deadline: Deadline, *, canonical: bool) -> tuple[int, ...]:
        """Return the column of each node in an optimum, if so asked the canonical one."""
        chosen, tied = traced_back(self.buckets, 0)
        if canonical and tied:
            sizes = [len(self.columns[node]) for node in self.free]
            chosen = canonical_optimum(self.buckets, sizes, 0, deadline)
        places = [0] * len(self.columns)
        for node, choice in zip(self.free, chosen, strict=True):
            places[node] = choice
        return tuple(int(own[n]) for own, n in zip(self.columns, places, strict=True))

    def least(self, deadline: Deadline) -> list[Integers]:
        """Return, for each node, the least cost of an assignment with each of its columns."""
        least: list[Integers] = [np.array([self.objective], object)] * len(self.columns)
        of_free = least_by_choice(self.buckets, deadline)
        for node, costs in zip(self.free, of_free, strict=True):
            least[node] = costs + self.constant
        return least


def _search(table: ClassTable, found: _Found, deadline: Deadline) -> None:
    """Raise the threshold until the optimum of what is left is at most that.

    Raises
    ------
    RefusedError
        If what is left is too large to be eliminated.
    NoAnswerError
        If the deadline passes.
    """
    node, allowed = _of_classes(table)
    of_kinds = [np.flatnonzero(row) for row in allowed]
    classes = _eliminated(
        table, node, [of_kinds[kind] for kind in table.node_kinds], _least_of(table), deadline
    )
    threshold = classes.objective
    if table.exact:
        found.keep(classes, threshold, deadline)
        return
    found.bound = threshold
    least = classes.least(deadline)
    step = threshold // _FIRST_STEP + 1
    while True:
        columns = _at_most(threshold, table, classes.columns, least)
        states = _eliminated(table, table.node, columns, table.pairs, deadline)
        if found.keep(states, threshold, deadline):
            return
        assert found.objective is not None
        threshold = min(threshold + step, found.objective)
        step *= 2


def _of_classes(table: ClassTable) -> tuple[Integers, NDArray[np.bool_]]:
    """Return each class's least charge of an allowed state, and which classes have any."""
    order = table.classes.argsort(kind="stable")
    starts = np.searchsorted(table.classes[order], np.arange(table.least.shape[-1]))
    charges = np.where(table.allowed, table.node, table.node.max())
    return (
        np.minimum.reduceat(charges[:, order], starts, axis=1),
        np.logical_or.reduceat(table.allowed[:, order], starts, axis=1),
    )


def _least_of(table: ClassTable) -> PairsOf:
    """Return the function of what kinds of boundaries are charged at least for classes."""

    def least(kind: int, sources: NDArray[np.intp], targets: NDArray[np.intp]) -> Integers:
        charges: Integers = table.least[kind][np.ix_(sources, targets)]
        return charges

    return least


def _at_most(
    threshold: int, table: ClassTable, classes: Columns, least: Sequence[Integers]
) -> Columns:
    """Return each node's states of classes whose least cost is at most a threshold."""
    known: dict[Hashable, NDArray[np.intp]] = {}
    columns = []
    for kind, own, costs in zip(table.node_kinds.tolist(), classes, least, strict=True):
        left = own[costs <= threshold]
        key = kind, left.tobytes()
        if key not in known:
            known[key] = np.flatnonzero(table.allowed[kind] & np.isin(table.classes, left))
        columns.append(known[key])
    return columns


def _eliminated(
    table: ClassTable, node: Integers, columns: Columns, pairs: PairsOf, deadline: Deadline
) -> _Restricted:
    """Eliminate what is left of a table's columns.

    Raises
    ------
    RefusedError, NoAnswerError
    """
    sizes = np.array(list(map(len, columns)))
    keys = [own.tobytes() for own in columns]
    known: dict[Hashable, Integers] = {}

    def charge(boundary: int) -> Integers:
        kind, (source, target) = int(table.boundary_kinds[boundary]), table.ends[boundary].tolist()
        key = kind, keys[source], keys[target]
        if key not in known:
            known[key] = pairs(kind, columns[source], columns[target])
        return known[key]

    free = np.flatnonzero(sizes > 1)
    between = np.flatnonzero((sizes[table.ends] > 1).all(axis=1))
    ends = np.searchsorted(free, table.ends[between])
    order = order_of_size(tuple(sizes[free].tolist()), ends)
    nodes = [node[kind, own] for kind, own in zip(table.node_kinds, columns, strict=True)]
    kinds: dict[int | tuple[int, int], Hashable] = {
        number: (int(table.node_kinds[n]), keys[n]) for number, n in enumerate(free.tolist())
    }
    for boundary in np.setdiff1d(np.arange(len(table.ends)), between).tolist():
        source, target = table.ends[boundary].tolist()
        if sizes[source] > 1:
            beside, charges = source, charge(boundary)[:, 0]
        else:
            beside, charges = target, charge(boundary)[0]
        nodes[beside] = nodes[beside] + charges
        if sizes[beside] > 1:  # it is one of its kind no more
            kinds.pop(int(np.searchsorted(free, beside)), None)
    constant = sum(int(nodes[n][0]) for n in np.flatnonzero(sizes == 1))
    graph = graph_of(len(free), ends)
    for edge, pair in enumerate(graph.pair_of.tolist()):
        source, target = table.ends[between[edge]].tolist()
        own = int(table.boundary_kinds[between[edge]]), keys[source], keys[target], source < target
        kinds[graph.pairs[pair]] = *kinds.get(graph.pairs[pair], ()), own
    of_pairs = pair_charges(graph, ends, lambda edge: charge(between[edge]))
    every = PairwiseCharges([nodes[n][None] for n in free], of_pairs, kinds)
    return _Restricted(columns, free.tolist(), constant, eliminate(every, order, deadline))
