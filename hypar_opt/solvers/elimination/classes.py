"""A table of classes of states, solved by elimination: first of classes, then of states.

Classes are eliminated with each pair at its least charge: the optimum is a bound on all
assignments. States of classes that occur in no assignment up to a threshold are excluded, and the
others eliminated exactly. An optimum up to the threshold is the optimum of all; otherwise the
threshold rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.solvers.base import FIRST_STEP, MEMORY, SolveResult, Status
from hypar_opt.solvers.elimination.columns import Columns, Restricted, eliminated

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from hypar_opt.costs.state_classes import ClassTable, Partition
    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers

_EASY = 2**21
"""Up to this many entries of a table, states are eliminated without finer classes."""


def solve_classes(table: ClassTable, deadline: Deadline, *, canonical: bool = True) -> SolveResult:
    """Return an optimum of a table, or the canonical one; else the best known, with a bound."""
    if not table.allowed.any(axis=1).all():
        return SolveResult(None, None, Status.INFEASIBLE)
    best = _ClassSearch(canonical)
    try:
        _search(table, best, deadline)
    except RefusedError:
        return best.result(MEMORY)
    except NoAnswerError as error:
        return best.result(error.stopped_by)
    return best.result()


def optimum_of_columns(
    table: ClassTable, states: Columns, deadline: Deadline
) -> tuple[int, tuple[int, ...]]:
    """Return the least cost of assignments of some states to each node, and one of them.

    Raises
    ------
    RefusedError
        If it needs more memory than is allowed.
    NoAnswerError
        If the deadline passes.
    """
    restricted = eliminated(table, table.node, states, table.pairs, deadline)
    return restricted.objective, restricted.optimum(deadline, canonical=False)


def bound_by_classes(table: ClassTable, deadline: Deadline) -> tuple[int, list[int]]:
    """Return a bound on all assignments, and a state of each node of the class that attains it.

    Raises
    ------
    RefusedError, NoAnswerError
    """
    classes, partition = _by_coarsest(table, deadline), table.partitions[0]
    chosen = classes.optimum(deadline, canonical=False)
    cheapest: dict[tuple[int, int], int] = {}
    for kind, number in {*zip(table.node_kinds.tolist(), chosen, strict=True)}:
        states = np.flatnonzero(table.allowed[kind] & (partition.classes == number))
        cheapest[kind, number] = int(states[table.node[kind, states].argmin()])
    pairs = zip(table.node_kinds.tolist(), chosen, strict=True)
    return classes.objective, [cheapest[pair] for pair in pairs]


@dataclass
class _ClassSearch:
    """The state of a search: a bound, and the best assignment so far."""

    canonical: bool
    bound: int | None = None
    objective: int | None = None
    assignment: tuple[int, ...] | None = None
    statistics: Mapping[str, float] = FrozenDict()

    def keep(self, left: Restricted, threshold: int, deadline: Deadline) -> bool:
        """Keep the optimum of the remaining states, and return whether it is that of the table."""
        proved = left.objective <= threshold
        if proved or self.objective is None or left.objective < self.objective:
            self.objective = left.objective
            self.assignment = left.optimum(deadline, canonical=proved and self.canonical)
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


def _search(table: ClassTable, state: _ClassSearch, deadline: Deadline) -> None:
    """Raise the threshold until the optimum of the remaining states is within it.

    Raises
    ------
    RefusedError
        If what is left is too large to be eliminated.
    NoAnswerError
        If the deadline passes.
    """
    coarsest = table.partitions[0]
    classes = _by_coarsest(table, deadline)
    state.bound = threshold = classes.objective
    if coarsest.exact:
        state.keep(classes, threshold, deadline)
        return
    step = threshold // FIRST_STEP + 1
    while True:
        restricted = _left(table, threshold, classes, deadline)
        if isinstance(restricted, int):
            # Excluded states cost more than the threshold, but perhaps less than the remaining
            # ones.
            state.bound, threshold = threshold + 1, restricted
            continue
        if state.keep(restricted, threshold, deadline):
            return
        assert state.objective is not None
        threshold = min(threshold + step, state.objective)
        step *= 2


def _by_coarsest(table: ClassTable, deadline: Deadline) -> Restricted:
    """Eliminate the classes of the coarsest partition, once."""
    if "_coarsest" not in vars(table):
        allowed = [np.flatnonzero(row) for row in table.allowed]
        states = [allowed[kind] for kind in table.node_kinds]
        vars(table)["_coarsest"] = _by_classes(table, table.partitions[0], states, deadline)
    restricted: Restricted = vars(table)["_coarsest"]
    return restricted


def classes_within(table: ClassTable, threshold: int, deadline: Deadline) -> NDArray[np.bool_]:
    """Return the states, ``(nodes, states)``, whose classes occur in assignments up to a cost.

    All states if that is hard to compute. Raises NoAnswerError if the deadline passes.
    """
    allowed = np.zeros((len(table.node_kinds), len(table.states.T)), bool)
    classes = _by_coarsest(table, deadline)
    if classes.objective <= threshold:
        try:
            columns = [column for column, _ in classes.costed(threshold, deadline, _EASY)]
        except RefusedError:
            return table.allowed[table.node_kinds]
        for row, states in zip(
            allowed, _states_of(table, table.partitions[0], columns), strict=True
        ):
            row[states] = True
    return allowed


def _left(
    table: ClassTable,
    threshold: int,
    classes: Restricted,
    deadline: Deadline,
    most_rows: int | None = None,
) -> Restricted | int:
    """Eliminate the states that may be in an assignment up to a threshold.

    If they are many, finer classes exclude more of them.

    Parameters
    ----------
    classes
        The coarsest classes.
    most_rows
        As in `rows_within`.

    Returns
    -------
    Restricted or int
        A bound on those assignments, if finer classes prove one above the threshold.

    Raises
    ------
    RefusedError, NoAnswerError
    """
    partition, *rest = table.partitions
    finer = [other for other in rest if not other.exact]
    while True:
        columns = [column for column, _ in classes.costed(threshold, deadline, most_rows)]
        states = _states_of(table, partition, columns)
        try:
            largest = _EASY if finer else None
            _check_pairs(table, states)
            return eliminated(table, table.node, states, table.pairs, deadline, largest)
        except RefusedError:
            if not finer:
                raise
        partition = finer.pop(0)
        classes = _by_classes(table, partition, states, deadline)
        if classes.objective > threshold:
            return classes.objective


def _check_pairs(table: ClassTable, states: Columns) -> None:
    """Refuse more pairs of states than are charged exactly.

    Raises
    ------
    RefusedError
    """
    if table.max_exact_pairs is None:
        return
    pairs = {
        (kind, states[source].tobytes(), states[target].tobytes()): (source, target)
        for kind, (source, target) in zip(
            table.boundary_kinds.tolist(), table.ends.tolist(), strict=True
        )
    }
    if (
        sum(len(states[one]) * len(states[other]) for one, other in pairs.values())
        > table.max_exact_pairs
    ):
        raise RefusedError("more pairs of states than are charged exactly")


def _by_classes(
    table: ClassTable, partition: Partition, states: Columns, deadline: Deadline
) -> Restricted:
    """Eliminate the classes of the remaining states: a bound.

    Raises
    ------
    RefusedError, NoAnswerError
    """
    order = partition.classes.argsort(kind="stable")
    starts = np.searchsorted(partition.classes[order], np.arange(partition.lower_bounds.shape[-1]))
    charges = np.where(table.allowed, table.node, table.node.max())
    node: Integers = np.minimum.reduceat(charges[:, order], starts, axis=1)
    classes_of: dict[Hashable, NDArray[np.intp]] = {}
    for of_node in states:
        if of_node.tobytes() not in classes_of:
            classes_of[of_node.tobytes()] = np.unique(partition.classes[of_node])

    def lower_bounds(kind: int, sources: NDArray[np.intp], targets: NDArray[np.intp]) -> Integers:
        pairs: Integers = partition.lower_bounds[kind][np.ix_(sources, targets)]
        return pairs

    columns = [classes_of[of_node.tobytes()] for of_node in states]
    return eliminated(table, node, columns, lower_bounds, deadline)


def _states_of(table: ClassTable, partition: Partition, classes: Columns) -> Columns:
    """Return each node's states of some classes."""
    states_of: dict[Hashable, NDArray[np.intp]] = {}
    columns = []
    for kind, of_node in zip(table.node_kinds.tolist(), classes, strict=True):
        key = kind, of_node.tobytes()
        if key not in states_of:
            states_of[key] = np.flatnonzero(
                table.allowed[kind] & np.isin(partition.classes, of_node)
            )
        columns.append(states_of[key])
    return columns


def columns_within(
    table: ClassTable, threshold: int, deadline: Deadline, most_rows: int | None = None
) -> list[tuple[NDArray[np.intp], Integers]]:
    """Return each node's states that may be in an assignment of at most a threshold.

    Beside each is a lower bound on the cost of an assignment that has it. `most_rows` as
    `rows_within`.

    Raises
    ------
    RefusedError
        If the remaining states are too large to be eliminated, or have more rows.
    NoAnswerError
        If the deadline passes.
    """
    classes = _by_coarsest(table, deadline)
    restricted: Restricted | int = classes.objective
    if classes.objective <= threshold:
        restricted = _left(table, threshold, classes, deadline, most_rows)
    if isinstance(restricted, int) or restricted.objective > threshold:
        none = np.zeros(0, np.intp), np.zeros(0, object)
        return [none] * len(table.node_kinds)
    return restricted.costed(threshold, deadline, most_rows)
