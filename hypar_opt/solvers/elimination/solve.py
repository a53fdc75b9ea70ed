"""A table on any graph, solved by elimination."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.table import CostTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.errors import RefusedError
from hypar_opt.integers import Integers
from hypar_opt.solvers.base import SolveResult, Status
from hypar_opt.solvers.elimination import buckets, rounds
from hypar_opt.solvers.elimination.buckets import Buckets, PairwiseCharges
from hypar_opt.solvers.elimination.graph import PairGraph, graph_of
from hypar_opt.solvers.elimination.optima import canonical_optimum
from hypar_opt.solvers.elimination.order import (
    Order,
    check_distinct,
    check_neighbours,
    elimination_order,
)
from hypar_opt.solvers.elimination.schedule import MAX_ENUMERATED, EliminationSchedule
from hypar_opt.solvers.feasibility import allowed_choices, trivially_infeasible
from hypar_opt.solvers.pseudo_boolean import PseudoBoolean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from hypar_opt.deadline import Deadline


def refusal(table: CostTable | ThresholdTable) -> str | None:
    """Return why a table is refused; None if it is not."""
    if isinstance(table, CostTable) and trivially_infeasible(table):
        return None
    try:
        _order_of(table)
    except RefusedError as error:
        return error.message
    return None


def solve(table: CostTable | ThresholdTable, deadline: Deadline) -> SolveResult:
    """Return the canonical optimum of a table without capacities.

    Raises
    ------
    RefusedError
        If there is a `refusal`.
    NoAnswerError
        If the deadline passes.
    """
    match table:
        case ThresholdTable():
            return _two_choices(PseudoBoolean.of(table), deadline)
        case CostTable() if trivially_infeasible(table):
            return SolveResult(None, None, Status.INFEASIBLE)
        case CostTable() if table.choices == 2:
            return _two_choices(PseudoBoolean.of(table), deadline)
        case CostTable():
            return _any_choices(table, deadline)


def _order_of(table: CostTable | ThresholdTable) -> Order:
    """Return a table's elimination order; with two choices, that of the core after all rounds.

    Raises
    ------
    RefusedError
        As `elimination_order`.
    """
    match table:
        case ThresholdTable():
            return _core_order(graph_of(len(table.data), table.ends))
        case CostTable() if table.choices == 2:
            return _core_order(graph_of(table.layers, table.ends))
        case CostTable():
            sizes = tuple(allowed_choices(table).sum(axis=1).tolist())
    return order_of_size(sizes, table.ends)


def order_of_size(sizes: tuple[int, ...], ends: NDArray[np.intp]) -> Order:
    """Return the elimination order of layers, given their choices, if all charges differ.

    Raises
    ------
    RefusedError
        As `elimination_order`; or if all its tables are too large together.
    """
    graph = graph_of(len(sizes), ends)
    order = order_of_graph(sizes, graph)
    check_distinct(order, sizes, graph.pairs)
    return order


def order_of_graph(sizes: tuple[int, ...], graph: PairGraph) -> Order:
    """Return the elimination order of a graph's layers, some of which may have equal charges.

    Raises
    ------
    RefusedError
        As `elimination_order`.
    """
    check_neighbours(sizes, graph.low, graph.high)
    return elimination_order(sizes, graph.pairs)


def _core_order(graph: PairGraph) -> Order:
    """Return the order of the core that rounds leave; empty if they could eliminate everything."""
    check_neighbours((2,) * graph.layers, graph.low, graph.high)
    schedule = graph.schedule
    core = schedule.core if schedule.width is None else ()
    if not len(core):
        return elimination_order((), ())
    return elimination_order((2,) * len(core), _tuples(graph.schedule.core_pairs))


def _two_choices(function: PseudoBoolean, deadline: Deadline) -> SolveResult:
    """Solve functions of 0-1 variables: in rounds, then the core layer by layer."""
    submodular, schedule = function.submodular, function.graph.schedule
    eliminated = rounds.eliminate(
        schedule,
        function.constant,
        function.linear,
        function.quadratic[:, None],
        deadline,
        ties=not submodular,
    )
    core, tied = _core_optimum(schedule, eliminated, deadline)
    objective = sum(eliminated.constant.tolist())
    values, tied_in_rounds = rounds.traced_back(schedule, eliminated, core)
    # The optima of a submodular function are a lattice: decided for 0, ties give its minimum.
    if not submodular and (tied or tied_in_rounds):
        values = _canonical_values(function, deadline)
    width = schedule.width or _core_order(function.graph).width
    return _optimal(function.assignment(values), objective, width, 2 ** (width + 1))


def _core_optimum(
    schedule: EliminationSchedule, left: rounds.Eliminated, deadline: Deadline
) -> tuple[NDArray[np.bool_], bool]:
    """Return an optimum of the core, and whether any tied; add its cost to the constant."""
    if len(schedule.core) <= MAX_ENUMERATED:
        return rounds.cheapest_few(schedule, left)
    charges = _charges_of_variables(left.linear, left.quadratic, _tuples(schedule.core_pairs))
    order = elimination_order(charges.sizes, charges.pairs)
    filled = buckets.eliminate(charges, order, deadline)
    functions = range(left.linear.shape[1])
    left.constant[...] += [filled.minimum(n) for n in functions]
    optima = [buckets.traced_back(filled, n) for n in functions]
    return np.array([values for values, _ in optima], bool).T, any(tied for _, tied in optima)


def _canonical_values(function: PseudoBoolean, deadline: Deadline) -> NDArray[np.bool_]:
    """Return the canonical optima of functions that need not be submodular."""
    quadratic = np.broadcast_to(
        function.quadratic[:, None], (len(function.quadratic), function.linear.shape[1])
    )
    charges = _charges_of_variables(function.linear, quadratic, function.graph.pairs)
    order = elimination_order(charges.sizes, function.graph.pairs)
    filled = buckets.eliminate(charges, order, deadline)
    functions = range(function.linear.shape[1])
    optima = [canonical_optimum(filled, charges.sizes, n, deadline) for n in functions]
    return np.array(optima, bool).T


def _charges_of_variables(
    linear: Integers, quadratic: Integers, pairs: Iterable[tuple[int, int]]
) -> PairwiseCharges:
    """Return the charges of 0-1 variables: for a 1, and for a pair that are both 1."""
    zero = np.zeros_like(linear)
    nodes = np.stack([zero, linear], axis=-1)

    def charge(pair: int) -> Integers:
        both: Integers = np.zeros((linear.shape[1], 2, 2), linear.dtype)
        both[:, 1, 1] = quadratic[pair]
        return both

    return PairwiseCharges(list(nodes), tuple(pairs), charge)


_MAX_AXES = 28
"""The most layers of a scope, each an axis of a table: numpy arrays have at most 32."""


def _any_choices(table: CostTable, deadline: Deadline) -> SolveResult:
    """Solve a table of any number of choices, without those that are not allowed."""
    allowed = [np.flatnonzero(row) for row in allowed_choices(table)]
    charges = allowed_charges(table, allowed)
    if elimination_order(charges.sizes, charges.pairs).width > _MAX_AXES:
        charges = _without_fixed(charges)
    columns, objective, order = _canonical(charges, deadline)
    assignment = tuple(int(a[column]) for a, column in zip(allowed, columns, strict=True))
    return _optimal(assignment, objective, order.width, order.largest)


def _without_fixed(charges: PairwiseCharges) -> PairwiseCharges:
    """Return charges without pairs of single-choice layers, whose charges the other layer has."""
    nodes, sizes, numbers = [*charges.nodes], charges.sizes, []
    for number, (first, second) in enumerate(charges.pairs):
        if sizes[first] == 1:
            nodes[second] = nodes[second] + charges.charge(number)[:, 0]
        elif sizes[second] == 1:
            nodes[first] = nodes[first] + charges.charge(number)[:, :, 0]
        else:
            numbers.append(number)
    pairs = tuple(charges.pairs[number] for number in numbers)
    return PairwiseCharges(nodes, pairs, lambda number: charges.charge(numbers[number]))


def allowed_charges(table: CostTable, allowed: Sequence[NDArray[np.intp]]) -> PairwiseCharges:
    """Return a table's charges, without those of choices that are not allowed."""

    def charge(edge: int) -> Integers:
        source, target = table.ends[edge]
        entries: Integers = table.edge[edge][np.ix_(allowed[source], allowed[target])]
        return entries

    nodes = [row[None, choices] for row, choices in zip(table.node, allowed, strict=True)]
    graph = graph_of(table.layers, table.ends)
    return PairwiseCharges(nodes, graph.pairs, of_pairs(graph, charge))


def eliminated(table: CostTable, deadline: Deadline) -> Buckets:
    """Return all messages of a table's elimination, for any number of choices.

    Raises
    ------
    RefusedError
        If a table is larger than memory allows.
    NoAnswerError
        If the deadline passes.
    """
    charges = allowed_charges(table, [np.flatnonzero(row) for row in allowed_choices(table)])
    order = elimination_order(charges.sizes, charges.pairs)
    return buckets.eliminate(charges, order, deadline)


def _canonical(charges: PairwiseCharges, deadline: Deadline) -> tuple[list[int], int, Order]:
    """Return the canonical optimum of one function, its cost, and the elimination order."""
    order = elimination_order(charges.sizes, charges.pairs)
    filled = buckets.eliminate(charges, order, deadline)
    columns, tied = buckets.traced_back(filled, 0)
    if tied:
        columns = canonical_optimum(filled, charges.sizes, 0, deadline)
    return columns, filled.minimum(0), order


def of_pairs(graph: PairGraph, charge: Callable[[int], Integers]) -> Callable[[int], Integers]:
    """Return a function that adds up the charges of a pair's edges, by the pair's number."""
    edges = graph.pair_of.argsort(kind="stable")
    starts = np.searchsorted(graph.pair_of[edges], np.arange(len(graph.low) + 1))

    def total(pair: int) -> Integers:
        numbers = edges[starts[pair] : starts[pair + 1]].tolist()
        low = graph.low[pair]
        charges = [charge(n) if graph.ends[n, 0] == low else charge(n).T for n in numbers]
        return np.asarray(sum(charges[1:], charges[0]))[None]

    return total


def _optimal(assignment: tuple[int, ...], objective: int, width: int, entries: int) -> SolveResult:
    statistics = {"width": width, "entries": entries}
    return SolveResult(
        assignment, objective, Status.OPTIMAL, bound=objective, statistics=statistics
    )


def _tuples(pairs: NDArray[np.intp]) -> tuple[tuple[int, int], ...]:
    return tuple((u, v) for u, v in pairs.tolist())
