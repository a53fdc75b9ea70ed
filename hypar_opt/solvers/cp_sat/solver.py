"""Constraint programming with OR-Tools' CP-SAT: exact in integers, on any graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.documents.files import check_writable, write_whole
from hypar_opt.errors import NoAnswerError
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status, too_large
from hypar_opt.solvers.cp_sat.clauses import MAX_SUM, clause_model
from hypar_opt.solvers.cp_sat.search import CpSatSearch
from hypar_opt.solvers.feasibility import trivially_infeasible

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable

MAX_COLUMNS = 250_000
"""A larger model takes long just to build, with any time limit."""


class ConstraintProgram(Solver):
    """Solve a table with CP-SAT as clauses; break ties with further objectives."""

    summary: ClassVar[str] = "constraint programming (OR-Tools CP-SAT); exact on any graph"
    supported_options: ClassVar[frozenset[str]] = frozenset(
        {"time_limit", "gap", "threads", "seed", "parameters"}
        | {"warm_start", "hint", "log", "export"}
    )
    max_columns: ClassVar[int | None] = MAX_COLUMNS

    def accepts(self, table: CostTable) -> str | None:
        refusal = too_large(self.max_columns, table.layers, len(table.ends), table.choices)
        if refusal:
            return refusal
        if trivially_infeasible(table):
            return None
        # Checked on the model, whose weights are smaller: common charges and factors are removed.
        clauses = clause_model(table)
        # At least one layer's choices have to fit as a digit below the costs, to break ties.
        if (sum(map(abs, clauses.weights)) + table.choices) * table.choices > MAX_SUM:
            return "counts in 64 bits, and these costs could add up to more; try dp"
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:
        import ortools

        if trivially_infeasible(table):
            return SolveResult(None, None, Status.INFEASIBLE)
        try:
            search = CpSatSearch(table, options)
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)
        log: list[str] = []
        if options.log is not None:
            check_writable(options.log)
            search.solver.log_callback = log.append
        try:
            result = search.optimum()
            if result.status is Status.OPTIMAL:
                result = search.break_ties(result)
        finally:  # also after Ctrl-C, so that the log shows how far the search was
            if options.log is not None:
                write_whole(options.log, "".join(f"{line}\n" for line in log))
        versions = {"ortools": ortools.__version__}  # type: ignore[attr-defined]
        return replace(result, statistics=search.clauses.program.statistics(), versions=versions)
