"""The tables of a search, solved one after the other."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.costs.state_classes import ClassTable
from hypar_opt.costs.state_table import FactoredTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.errors import (
    HyparError,
    InfeasibleError,
    NoAnswerError,
    RefusedError,
    WrongClaimError,
    argument,
)
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.plan.constraints import Constraints
from hypar_opt.search.check_result import check_claim, keeps_to
from hypar_opt.solvers import subprocess_solver
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status
from hypar_opt.solvers.brute_force import BruteForce
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.feasibility import trivially_infeasible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.row_names import RowNames
    from hypar_opt.costs.table import CostTable
    from hypar_opt.integers import Integers
    from hypar_opt.search.result import SearchRequest

_NOT_INFEASIBLE = "claims that there is no assignment, but there is one"


def least_cost(node: Integers, *pairs: Integers) -> int:
    """Return a lower bound on every assignment: the least charge of each layer and each pair."""
    parts = [part.reshape(len(part), -1) for part in (node, *pairs) if part.size]
    return max(0, sum(sum(part.min(axis=1).tolist()) for part in parts))


class TableSolver:
    """Solves a search's tables one after the other.

    Attributes
    ----------
    results
        The results, in order.
    charged
        What tables charge the rows that were taken of them, added up; see `take`.
    lower_bound
        A lower bound on the current table, computed without its solver; None if there is no table.

    Raises
    ------
    RefusedError
        If the solver does not support one of the options.
    """

    def __init__(self, search: SearchRequest, count: int) -> None:
        self._search = search
        self._count = count
        self.results: list[SolveResult] = []
        self.charged = 0
        self.lower_bound: int | None = None
        refused = search.options.given() - search.solver.supported_options
        if search.start is not None and "warm_start" not in search.solver.supported_options:
            refused.add("warm_start")
        if refused:
            named = sorted(map(argument, refused))
            raise RefusedError(f"takes no {', '.join(named)}")
        search.progress(0, count)

    def options(
        self,
        start: tuple[int, ...] | None = None,
        suffix: str = "",
        labels: RowNames | None = None,
    ) -> SolverOptions:
        """Return the solver's options for a table: the time that is left, and its export file."""
        options = self._search.options
        export = options.export
        if export is not None and self._count > 1:
            # A file for each table: a later one would overwrite it.
            export = export.with_stem(export.stem + suffix)
        # The time limit is that of all tables together.
        time_limit = self._search.deadline.left()
        settings: dict[str, Any]
        settings = {
            "time_limit": time_limit,
            "export": export,
            "warm_start": start,
            "labels": labels,
        }
        same = all(vars(options)[name] is value for name, value in settings.items())
        return options if same else replace(options, **settings)

    def solve_compact(
        self, table: ThresholdTable | FactoredTable | ClassTable | PrunedTable
    ) -> SolveResult:
        """Solve all levels together by a compact table that is never expanded.

        Raises
        ------
        RefusedError, InfeasibleError, NoAnswerError, WrongClaimError
        """
        refusal = self._search.solver.accepts(table)
        if refusal:
            raise RefusedError(refusal)
        if isinstance(table, FactoredTable):
            self.lower_bound = least_cost(table.node, *table.pairs)
        elif isinstance(table, ClassTable):
            self.lower_bound = table.bound
        result = subprocess_solver.solve(self._search.solver, table, self.options())
        if result.status is Status.INFEASIBLE and not self._is_infeasible(table):
            raise WrongClaimError(_NOT_INFEASIBLE)
        return self.checked(result)

    def _is_infeasible(
        self, table: ThresholdTable | FactoredTable | ClassTable | PrunedTable
    ) -> bool:
        """Return whether a claim that no assignment is allowed is our solver's, or confirmed by it.

        Thresholds allow some assignment by construction.
        """
        if isinstance(table, ThresholdTable | PrunedTable):
            return False
        if isinstance(self._search.solver, DynamicProgramming):
            return True
        limit = SolverOptions(time_limit=self._search.deadline.left())
        return DynamicProgramming().solve(table, limit).status is Status.INFEASIBLE

    def solve(
        self,
        table: CostTable,
        start: tuple[int, ...] | None = None,
        suffix: str = "",
        labels: RowNames | None = None,
        *,
        ways: Sequence[CostTable] = (),
    ) -> SolveResult:
        """Solve a table, and check the solver's claims against it.

        Parameters
        ----------
        ways
            Tables with constraints that one table cannot state: an assignment has to satisfy one of
            these, too.

        Raises
        ------
        RefusedError, InfeasibleError, NoAnswerError, WrongClaimError
        """
        refusal = self._search.solver.accepts(table)
        if refusal:
            raise RefusedError(refusal)
        options = self.options(start, suffix, labels)
        result = self._solved(table, options)
        assignment = result.assignment
        if ways and assignment is not None and not any(keeps_to(way, assignment) for way in ways):
            # The file that was asked for is of the table itself.
            result = _best(ways, [self._solved(way, self.options(start)) for way in ways])
        return self.checked(result)

    def _solved(self, table: CostTable, options: SolverOptions) -> SolveResult:
        """Return the solver's result, after checking its claims."""
        solver = self._search.solver
        # Known before the solver starts: a bound for a search that a limit ends without one.
        self.lower_bound = least_cost(table.node, table.edge)
        self._search.deadline.check()
        result = subprocess_solver.solve(solver, table, options)
        if result.assignment is not None:
            result = check_claim(table, result)
        elif result.status is Status.INFEASIBLE and solver.searches:
            self._check_infeasible(table)
        if result.bound is None and result.stopped_by is not None:
            result = replace(result, bound=self.lower_bound)
        return result

    def _check_infeasible(self, table: CostTable) -> None:
        """Check that no assignment satisfies the constraints of a table, as its solver claims.

        A solver that runs out of time has been seen to claim it (docs/decisions/0006-programs.md).

        Raises
        ------
        WrongClaimError
            If one does.
        NoAnswerError
            If neither is proved.
        """
        if trivially_infeasible(table):
            return
        # Of several limits each may be kept, but not all together: elimination tells.
        if len(table.limits) < 2:
            raise WrongClaimError(_NOT_INFEASIBLE)
        elimination, said = DynamicProgramming(), Status.NO_ANSWER
        if isinstance(self._search.solver, DynamicProgramming | BruteForce):
            return
        if elimination.accepts(table) is None:
            limit = SolverOptions(time_limit=self._search.deadline.left())
            with suppress(RefusedError):
                said = elimination.solve(table, limit).status
        if said is Status.INFEASIBLE:
            return
        if said is not Status.NO_ANSWER:
            raise WrongClaimError(_NOT_INFEASIBLE)
        raise NoAnswerError(
            f"found no assignment within several capacities; that there is none is not proved; try"
            f" {argument('solver', 'dp')}"
        )

    def take(self, result: SolveResult, row: tuple[int, ...], table: CostTable | None) -> None:
        """Add what a level's row is charged: of a solver's result, with weights as users have them.

        Parameters
        ----------
        table
            That of the level; None for a compact one.
        """
        is_solution = row == result.assignment or table is None
        charged = result.objective if is_solution else table and table.price(row)
        self.charged += charged or 0

    def checked(self, result: SolveResult) -> SolveResult:
        """Keep a result that has an assignment; end the search otherwise.

        Raises
        ------
        InfeasibleError, NoAnswerError
        """
        if result.status is Status.INFEASIBLE:
            if self._search.solver.searches:
                raise InfeasibleError("no assignment satisfies the constraints")
            raise InfeasibleError(f"it violates a constraint{self._violated()}")
        if result.assignment is None:
            stopped_by = result.stopped_by or "limits"
            self.lower_bound = result.bound or self.lower_bound
            raise NoAnswerError(f"no answer within the {stopped_by}", stopped_by)
        self.results.append(result)
        self.lower_bound = None
        self._search.progress(len(self.results), self._count)
        return result

    def _violated(self) -> str:
        """Return which constraint a baseline violates, after a colon, if that is known."""
        instance = self._search.instance
        row = instance.workload.baselines.get(getattr(self._search.solver, "baseline", ""))
        if row is None:
            return ""
        problem, layers = instance.problem, row[instance.workload.shared :]
        for name in ("fix", "even", "runnable", "memory"):
            alone = Constraints.model_validate({name: getattr(problem.constraints, name)})
            constrained = problem.model_copy(update={"constraints": alone})
            try:
                ConstraintSet(constrained, instance.workload).check([layers] * problem.levels)
            except HyparError as error:
                reason = error.message.removeprefix("constraints: ")
                return f": {argument(f'constraints.{name}')}: {reason}"
        return ""


def _best(tables: Sequence[CostTable], results: Sequence[SolveResult]) -> SolveResult:
    """Return the canonical one of the cheapest answers to several tables with the same costs."""
    answers = [
        (table.price(result.assignment), result.assignment[::-1], number)
        for number, (table, result) in enumerate(zip(tables, results, strict=True))
        if result.assignment is not None
    ]
    if not answers:
        return results[0]
    optimal = all(result.status is Status.OPTIMAL for result in results)
    bounds = [result.bound for result in results if result.bound is not None]
    return replace(
        results[min(answers)[-1]],
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        bound=min(bounds) if len(bounds) == len(results) else None,
        stopped_by=next((result.stopped_by for result in results if result.stopped_by), None),
    )
