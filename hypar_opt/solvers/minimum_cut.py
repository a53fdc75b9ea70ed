"""Two choices a layer as minimum cuts: exact on any graph whose pairs are submodular."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.integers import Integers
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status, Table
from hypar_opt.solvers.feasibility import trivially_infeasible
from hypar_opt.solvers.pseudo_boolean import PseudoBoolean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hypar_opt.solvers.elimination.graph import PairGraph

_INT64 = 2**63 - 1


class MinimumCut(Solver):
    """Cut the layers of the second choice from those of the first, at the least capacity.

    Source: Picard and Ratliff, "Minimum cuts and related problems", Networks 5, 1975. The
    maximum flow is OR-Tools' push-relabel algorithm in int64.
    """

    summary: ClassVar[str] = (
        "minimum cuts, two choices; exact on any graph where unlike choices cost no less than"
        " like ones"
    )
    supported_options: ClassVar[frozenset[str]] = frozenset({"time_limit"})
    accepted_tables: ClassVar[frozenset[type[Table]]] = frozenset({CostTable, ThresholdTable})

    def accepts(self, table: CostTable | ThresholdTable) -> str | None:
        if isinstance(table, CostTable):
            if table.choices != 2:
                return (
                    f"solves two choices per layer, and this table has {table.choices} (over all"
                    " levels, states): try dp"
                )
            if table.limits:
                return "does not support a capacity, which couples all layers; try dp"
            if trivially_infeasible(table):
                return None
        try:
            networks_of(PseudoBoolean.of(table))
        except RefusedError as error:
            return error.message
        return None

    def solve(self, table: CostTable | ThresholdTable, options: SolverOptions) -> SolveResult:
        import ortools

        deadline = Deadline.after(options.time_limit)
        if isinstance(table, CostTable) and trivially_infeasible(table):
            return SolveResult(None, None, Status.INFEASIBLE)
        function = PseudoBoolean.of(table)
        networks = networks_of(function)
        layers, functions = function.linear.shape
        values = np.zeros((functions, layers + 2), bool)  # the last two: source and sink
        objective = sum(networks.constant)
        try:
            for n, flow in enumerate(networks.maximum_flows(deadline)):
                objective += networks.unit * int(flow.optimal_flow())
                # What residual arcs reach from the source is the smallest of all minimum cuts.
                values[n, flow.get_source_side_min_cut()] = True
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)
        statistics = {"nodes": networks.source + 2, "arcs": len(networks.tail)}
        return SolveResult(
            function.assignment(values[:, :layers].T),
            objective,
            Status.OPTIMAL,
            bound=objective,
            statistics=statistics,
            versions={"ortools": ortools.__version__},  # type: ignore[attr-defined]
        )


@dataclass(frozen=True, eq=False)
class FlowNetworks:
    """Networks on one graph, one per function, whose minimum cuts are the functions' minima.

    On the source's side of a cut are the layers of the second choice. An arc leads from the
    source to each layer, from each layer to the sink, and from the earlier layer of a pair to
    the later one, in this order.

    Parameters
    ----------
    constant
        One per function, whose minimum is this plus ``unit`` times the capacity of the cut.
    unit
        The common divisor of all capacities.
    tail, head : (arcs,) int32
        Layers by position, then the source and the sink.
    to_and_from : (functions, 2 * layers) int64
        Capacities of the arcs from the source and to the sink.
    between : (pairs,) int64
        Capacities of the pairs' arcs, the same in all networks.
    """

    constant: tuple[int, ...]
    unit: int
    tail: NDArray[np.int32]
    head: NDArray[np.int32]
    to_and_from: NDArray[np.int64]
    between: NDArray[np.int64]

    @property
    def source(self) -> int:
        return len(self.to_and_from[0]) // 2

    def maximum_flows(self, deadline: Deadline) -> Iterator[Any]:
        """Yield every network's maximum flow, as OR-Tools' solver after its solution.

        Raises
        ------
        NoAnswerError
            If the deadline passes before the last of them.
        """
        from ortools.graph.python.max_flow import SimpleMaxFlow  # type: ignore[import-untyped]

        flow = SimpleMaxFlow()
        capacity = np.concatenate([self.to_and_from[0], self.between])
        arcs = flow.add_arcs_with_capacity(self.tail, self.head, capacity)
        arcs = np.asarray(arcs)[: self.to_and_from.shape[1]]
        for n, to_and_from in enumerate(self.to_and_from):
            deadline.check()
            if n:
                flow.set_arcs_capacity(arcs, to_and_from)
            status = flow.solve(self.source, self.source + 1)
            if status != flow.OPTIMAL:
                raise RefusedError(f"OR-Tools found no maximum flow: {status}")
            yield flow


def networks_of(function: PseudoBoolean) -> FlowNetworks:
    """Return the networks of functions of 0-1 variables.

    Raises
    ------
    RefusedError
        If a pair charges unlike choices less than like ones, or if the capacities, without
        their common divisor, exceed int64.
    """
    graph = function.graph
    if not function.submodular:
        pair = int(np.argmax(function.quadratic > 0))
        raise RefusedError(
            f"layers {graph.low[pair]} and {graph.high[pair]} cost less with unlike choices than"
            " with like ones, so it is not a minimum cut; try dp, ilp or cpsat"
        )
    # -q x y = q x (1 - y) - q x: an arc from x to y, and a charge of x.
    of_low: Integers = np.zeros(graph.layers, function.quadratic.dtype)
    np.add.at(of_low, graph.low, function.quadratic)
    linear = function.linear + of_low[:, None]
    # A charge of 1 is cut from the sink, a charge of 0 from the source, that of 1 less.
    constant = np.minimum(linear, 0).sum(axis=0).tolist()
    capacities = [np.maximum(-linear, 0), np.maximum(linear, 0), -function.quadratic]
    unit, (to, off, between) = _in_largest_unit(capacities)
    tail, head = _arcs(graph)
    return FlowNetworks(
        tuple(map(sum, zip(function.constant, constant, strict=True))),
        unit,
        tail,
        head,
        np.concatenate([to, off]).T,
        between,
    )


@lru_cache(maxsize=8)
def _arcs(graph: PairGraph) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the arcs' tails and heads."""
    layers = np.arange(graph.layers)
    source, sink = np.full_like(layers, graph.layers), np.full_like(layers, graph.layers + 1)
    return (
        np.concatenate([source, layers, graph.low]).astype(np.int32),
        np.concatenate([layers, sink, graph.high]).astype(np.int32),
    )


def _in_largest_unit(
    capacities: Sequence[Integers],
) -> tuple[int, list[NDArray[np.int64]]]:
    """Return a unit of the capacities, 1 if they fit int64, and each of them in this unit.

    Raises
    ------
    RefusedError
        If one network's capacities may exceed int64 in total.
    """
    if all(part.dtype == np.int64 for part in capacities):
        return 1, list(capacities)  # which leaves room for sums
    # An upper bound for all networks: every layer's largest charge, and all pairs.
    highest = [*(part.max(axis=1) for part in capacities[:2]), capacities[2]]
    total, unit = sum(sum(part.tolist()) for part in highest), 1
    if total > _INT64:
        unit = gcd(*(entry for part in capacities for entry in part.reshape(-1).tolist()))
    if total // unit > _INT64:
        raise RefusedError(
            f"the charges of a network add up to {len(str(total))} digits, and a cut supports at"
            " most 18, which fit int64; try dp"
        )
    return unit, [(part // unit).astype(np.int64) for part in capacities]
