"""Optimal plans of single batches as lines in the batch, and the lower envelope of all lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.errors import RefusedError, WrongClaimError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import total_cost
from hypar_opt.plan.problem import Problem
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.default_solver import default_solver
from hypar_opt.search.reductions import ByThresholds
from hypar_opt.search.result import Progress, SearchRequest, silent
from hypar_opt.search.searches import SEARCHES
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions, Status
from hypar_opt.studies.many.affine import AffineTable
from hypar_opt.workload.network import Network

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.solvers.base import Solver


class Line(NamedTuple):
    """Bytes of the first batch, and bytes that each further period adds."""

    first: Fraction
    per_step: Fraction

    def at(self, step: int) -> Fraction:
        return self.first + self.per_step * step


class Optimum(NamedTuple):
    """An optimal plan, ``(levels, layers)``, and its bytes as a line in the batch."""

    rows: tuple[tuple[int, ...], ...]
    line: Line


def envelope(
    optimum_at: Callable[[int], Optimum], last: int, progress: Progress = silent
) -> Iterator[tuple[int, int, Optimum]]:
    """Yield the optima of steps 0 to ``last``, each with its first and last step.

    Parameters
    ----------
    optimum_at
        Returns the canonical optimum of a step; those of all steps are of the same plans.
    """
    solved = {step: optimum_at(step) for step in {0, last}}
    unknown = [(0, last)]
    while unknown:
        low, high = unknown.pop()
        lower, upper = solved[low].line, solved[high].line
        if high - low < 2 or lower.at(high) == upper.at(high) or upper.at(low) == lower.at(low):
            continue
        crossing = (upper.first - lower.first) // (lower.per_step - upper.per_step)
        middle = max(crossing, low + 1)
        solved[middle] = optimum_at(middle)
        unknown += [(low, middle), (middle, high)]
        progress(len(solved), len(solved) + len(unknown))
    steps = sorted(solved)
    first = 0
    for low, high in pairwise(steps):
        optimum, after = solved[low], solved[high]
        if optimum == after:
            continue
        # A tie has its own canonical plan; between two solved batches it is that of the line
        # which is optimal at both.
        stop = high if optimum.line.at(high) == after.line.at(high) else low + 1
        yield first, stop - 1, optimum
        first = stop
    yield first, last, solved[last]


@dataclass(frozen=True, eq=False)
class ByThresholdTables:
    """Optima by thresholds, from tables that are functions of the batch."""

    table: AffineTable
    instance: Instance
    solver: Solver

    @classmethod
    def of(cls, table: AffineTable, instance: Instance, last: int) -> ByThresholdTables:
        """Return the solver of the tables of all steps up to the last.

        Raises
        ------
        RefusedError
            If no solver accepts the largest of them.
        """
        # Elimination takes charges of any size; cuts take graphs of any width.
        largest = table.at(table.start + last * table.period, instance.problem.levels)
        for name in ("dp", "cut"):
            solver = SOLVERS[name]()
            refusal = solver.accepts(largest)
            if refusal is None:
                return cls(table, instance, solver)
        raise RefusedError(f"solver {name!r} on {instance.network.name}: {refusal}")

    def optimum_at(self, step: int) -> Optimum:
        levels, affine = self.instance.problem.levels, self.table
        table = affine.at(affine.start + step * affine.period, levels)
        result = self.solver.solve(table, SolverOptions())
        assignment = assignment_of(result)
        first, more = affine.line(assignment, levels)
        if first + step * more != result.objective:
            raise WrongClaimError("claims another objective than its assignment costs")
        nodes = ByThresholds(self.instance, table).invert(assignment)
        rows = tuple(row[affine.shared :] for row in nodes)
        return Optimum(rows, Line(*(Fraction(part, table.resolution) for part in (first, more))))


def searched(network: Network, problem: Problem, start: int, period: int, step: int) -> Optimum:
    """Return the optimum of a batch by the ordinary search.

    Raises
    ------
    RefusedError
        If it is not proved.
    """
    batch = start + step * period
    instance = Instance(network, problem.model_copy(update={"batch": batch}))
    name = default_solver(instance, "joint")
    result = SEARCHES["joint"](SearchRequest(instance, SOLVERS[name]()))
    if result.status is not Status.OPTIMAL:
        raise RefusedError(
            f"solver {name!r} on {network.name}, batch {batch:,}: the plan found is not proved"
            " optimal, and says nothing about other batches"
        )
    rows = result.assignments
    return Optimum(
        rows, line_of(instances_of(network, problem, start, period), rows, result.tensors)
    )


def instances_of(
    network: Network, problem: Problem, start: int, period: int
) -> tuple[Instance, ...]:
    return tuple(
        Instance(network, problem.model_copy(update={"batch": batch}))
        for batch in (start, start + period)
    )


def line_of(instances: tuple[Instance, ...], rows: Rows, tensors: Any = None) -> Line:
    """Return a plan's bytes as a line, from those of the first two batches."""
    first, second = (total_cost(instance, rows, tensors) for instance in instances)
    return Line(first, second - first)
