"""Integer programming through PuLP, with any solver that PuLP supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hypar_opt.deadline import Deadline
from hypar_opt.documents.files import write_whole
from hypar_opt.solvers.backends.catalogue import CBC_OPTIONS, find_backend
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status, too_large
from hypar_opt.solvers.feasibility import allowed_choices, trivially_infeasible
from hypar_opt.solvers.ilp.coarse_units import in_coarse_units, solve_in_coarse_units
from hypar_opt.solvers.ilp.minimise import DIGITS, Session, minimise, minimise_canonically
from hypar_opt.solvers.ilp.model_file import export_program
from hypar_opt.solvers.tie_breaking import Choices, canonical

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable

MAX_UNIT = 10**6
"""The coarsest unit: the more digits are dropped, the more assignments tie, to be enumerated."""

MAX_COLUMNS = 500_000
"""PuLP, which reads the program for backends but CBC, needs 2 kB a column: a gigabyte in total."""


class IntegerProgram(Solver):
    """Minimise a table as a 0-1 program whose relaxation is as tight as the table allows.

    The backend's numbers are not trusted: its assignment is priced again in integers, its claim
    of an optimum must agree with that price, and an assignment that exceeds the capacity by less
    than a backend's tolerance is cut off.
    """

    summary: ClassVar[str] = "0-1 program through PuLP (CBC, HiGHS, ...); exact, on any graph"
    supported_options: ClassVar[frozenset[str]] = CBC_OPTIONS
    max_columns: ClassVar[int | None] = MAX_COLUMNS

    def accepts(self, table: CostTable) -> str | None:
        refusal = too_large(self.max_columns, table.layers, len(table.ends), table.choices)
        if refusal:
            return refusal
        _, unit = in_coarse_units(table)
        if unit > MAX_UNIT:
            # A unit of 10^k leaves 12 digits of 12 + k, and is itself k + 1 digits long.
            digits = DIGITS + len(str(unit)) - 1
            return (
                f"supports costs of at most 18 digits, this table's have {digits}; try dp or cpsat"
            )
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:
        deadline = Deadline.after(options.time_limit)
        session = Session(find_backend(options), options, deadline)
        try:
            # An infeasible table has no program: a layer without choices, or no capacity left.
            if options.export is not None and not trivially_infeasible(table):
                export_program(table, options.export, options.labels, deadline)
            coarse, unit = in_coarse_units(table)
            if unit > 1:
                return solve_in_coarse_units(session, table, coarse, unit)
            result = minimise_canonically(session, table)
            return result or _break_ties(session, table, minimise(session, table))
        finally:
            if options.log is not None:
                write_whole(options.log, "".join(session.logs))


def _break_ties(session: Session, table: CostTable, result: SolveResult) -> SolveResult:
    """Return the canonical optimum, if the result is an optimum.

    One more call usually suffices: the minimum over assignments with an earlier choice in at
    least one layer. If it is higher, there is no tie to break.
    """
    if result.status is not Status.OPTIMAL or result.assignment is None:
        return result
    # Ties are among optima, for any gap; and the warm start may violate the new constraint.
    session = session.with_options(gap=0.0, warm_start=None)
    allowed = allowed_choices(table)
    earlier_choices = [
        (layer, choice)
        for layer, chosen in enumerate(result.assignment)
        for choice in range(chosen)
        if allowed[layer, choice]
    ]
    if not earlier_choices:
        return result
    alternative = minimise(session, table, one_of=earlier_choices)
    is_dearer = (alternative.bound or 0) > (result.objective or 0)
    if alternative.status is Status.INFEASIBLE or is_dearer:
        return result

    def tied(limited: CostTable, one_of: Choices) -> SolveResult:
        return minimise(session, limited, one_of=one_of)

    return canonical(table, result, tied, session.deadline)
