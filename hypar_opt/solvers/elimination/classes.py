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
        buckets, objective = left.buckets, left.buckets.least(0)
        columns, tied = traced_back(buckets, 0)
        proved = objective <= threshold
        if proved and tied:
            columns = canonical_optimum(buckets, left.sizes, 0, deadline)
        if proved or self.objective is None or objective < self.objective:
            self.objective = objective
            states = zip(left.columns, columns, strict=True)
            self.assignment = tuple(int(own[column]) for own, column in states)
            order = buckets.order
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
    """

    columns: Columns
    buckets: Buckets

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.columns))


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
    threshold = classes.buckets.least(0)
    if table.exact:
        found.keep(classes, threshold, deadline)
        return
    found.bound = threshold
    least = least_by_choice(classes.buckets, deadline)
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
    sizes = tuple(map(len, columns))
    order = order_of_size(sizes, table.ends)
    keys = [own.tobytes() for own in columns]
    known: dict[Hashable, Integers] = {}

    def charge(boundary: int) -> Integers:
        kind, (source, target) = int(table.boundary_kinds[boundary]), table.ends[boundary].tolist()
        key = kind, keys[source], keys[target]
        if key not in known:
            known[key] = pairs(kind, columns[source], columns[target])
        return known[key]

    nodes = [node[kind, own][None] for kind, own in zip(table.node_kinds, columns, strict=True)]
    of_pairs = pair_charges(graph_of(len(nodes), table.ends), table.ends, charge)
    return _Restricted(columns, eliminate(PairwiseCharges(nodes, of_pairs), order, deadline))
