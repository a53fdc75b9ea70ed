"""A search's tables, solved one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.errors import (
    InfeasibleError,
    NoAnswerError,
    RefusedError,
    WrongClaimError,
    argument,
)
from hypar_opt.search.claims import check_claim
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status
from hypar_opt.solvers.zero_one import trivially_infeasible

if TYPE_CHECKING:
    from hypar_opt.costs.product import FactoredTable
    from hypar_opt.costs.separable import SeparableTable
    from hypar_opt.costs.table import CostTable, Integers
    from hypar_opt.search.partition import Search


def least_cost(node: Integers, *pairs: Integers) -> int:
    """Return what no assignment costs less than: each layer and each pair at its cheapest."""
    parts = [part.reshape(len(part), -1) for part in (node, *pairs) if part.size]
    return max(0, sum(int(part.min(axis=1).sum()) for part in parts))


class TableSolver:
    """Solves a search's tables one after the other.

    Attributes
    ----------
    results
        The answers, in order.
    least
        A bound of the table at work, without its solver; None where none is known.
    """

    def __init__(self, search: Search, count: int) -> None:
        self._search = search
        self._count = count
        self.results: list[SolveResult] = []
        self.least: int | None = None
        refused = search.options.given() - search.solver.supported_options
        if search.start is not None and "warm_start" not in search.solver.supported_options:
            refused.add("warm_start")
        if refused:
            named = sorted(map(argument, refused))
            raise RefusedError(f"takes no {', '.join(named)}")
        search.progress(0, count)

    def options(self, start: tuple[int, ...] | None = None, suffix: str = "") -> SolverOptions:
        """Return the solver's options for one table: what is left of the time, its own files."""
        options = self._search.options
        options = replace(options, time_limit=self._search.deadline.left())
        if options.export is not None and self._count > 1:
            export = options.export.with_stem(options.export.stem + suffix)
            options = replace(options, export=export)
        return replace(options, warm_start=start)

    def solve_compact(
        self, table: SeparableTable | FactoredTable, start: tuple[int, ...] | None = None
    ) -> SolveResult:
        """Solve all levels together in a form that stands for its table without making it."""
        refusal = self._search.solver.accepts(table)
        if refusal:
            raise RefusedError(refusal)
        return self.checked(self._search.solver.solve(table, self.options(start)))

    def solve(
        self, table: CostTable, start: tuple[int, ...] | None = None, suffix: str = ""
    ) -> SolveResult:
        """Solve a table, and hold the solver's claims against it.

        Raises
        ------
        RefusedError, InfeasibleError, NoAnswerError, WrongClaimError
        """
        solver, deadline = self._search.solver, self._search.deadline
        refusal = solver.accepts(table)
        if refusal:
            raise RefusedError(refusal)
        self.least = least_cost(table.node, table.edge)
        deadline.check()
        result = solver.solve(table, self.options(start, suffix))
        if result.assignment is not None:
            check_claim(table, result)
        elif (
            result.status is Status.INFEASIBLE
            and solver.searches
            and not trivially_infeasible(table)
        ):
            raise WrongClaimError("claims that there is no assignment, and there is one")
        if result.bound is None and result.stopped_by is not None:
            result = replace(result, bound=self.least)
        return self.checked(result)

    def checked(self, result: SolveResult) -> SolveResult:
        """Keep an answer; end the search where there is none."""
        if result.status is Status.INFEASIBLE:
            which = "no assignment keeps" if self._search.solver.searches else "it does not keep"
            raise InfeasibleError(f"{which} to the constraints")
        if result.assignment is None:
            stopped_by = result.stopped_by or "limits"
            raise NoAnswerError(f"no answer within the {stopped_by}", stopped_by)
        self.results.append(result)
        self.least = None
        self._search.progress(len(self.results), self._count)
        return result
