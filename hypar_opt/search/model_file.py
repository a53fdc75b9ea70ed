"""The model of a problem as a file for other solvers, and the solutions that they write."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.documents.files import file_name, read_text
from hypar_opt.errors import HyparError, InfeasibleError, InputError, RefusedError, argument
from hypar_opt.search.infeasible_model import write_infeasible
from hypar_opt.search.reductions import reduction_of
from hypar_opt.search.shares import share_left_open
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.feasibility import trivially_infeasible

if TYPE_CHECKING:
    from hypar_opt.costs.row_names import RowNames
    from hypar_opt.costs.table import CostTable
    from hypar_opt.instance.instance import Instance
    from hypar_opt.solvers.solution.solver import SolutionFile

SOLUTION = "solution"
"""The solver of a plan that was read from a solution file; not one of `SOLVERS`."""

_SOLVERS = {".lp": "ilp", ".mps": "ilp", ".pb": "cpsat", ".pbtxt": "cpsat"}
"""The solver whose model a file with each suffix contains."""


class ModelSize(NamedTuple):
    """The size of a model that was written.

    Parameters
    ----------
    cutoff
        If a model of all plans would be too large, it contains the plans up to this cost, in
        ``unit``, and some others. None if it contains all.
    unit
        The unit of plans' costs.
    """

    columns: int
    rows: int
    cutoff: int | None
    unit: str


def check_model_file(path: Path) -> None:
    """Refuse a file whose suffix is not that of a model's format.

    Raises
    ------
    InputError
        Naming the formats.
    """
    if path.suffix not in _SOLVERS:
        raise InputError(f"should end in one of {', '.join(_SOLVERS)}", file=str(path))


def write_instance(instance: Instance, path: Path) -> ModelSize:
    """Write a model whose optimum is the joint search's, in the cost's integers.

    Raises
    ------
    InputError
        If the suffix is not that of a format, or the file cannot be written.
    RefusedError
        If the model would be too large, or the format cannot hold its costs or names.
    InfeasibleError
        If no plan satisfies the constraints. A ``.lp`` or ``.mps`` file is written all the same,
        with rows named after the constraints: see `hypar_opt.search.infeasible_model`.
    HyparError
        If there is nothing to choose, or the shares of groups are left open.
    """
    try:
        table, labels = table_to_state(instance, _SOLVERS[path.suffix])
    except InfeasibleError as error:
        is_written = False
        # Even if a model would be too large, the reason why there is no plan is reported.
        with suppress(RefusedError):
            is_written = path.suffix in (".lp", ".mps") and write_infeasible(instance, path)
        if not is_written:
            raise
        named = "is infeasible, with rows named after the constraints"
        raise InfeasibleError(f"{error.message}; the model {path} {named}") from None
    if path.suffix in (".lp", ".mps"):
        from hypar_opt.solvers.ilp.model_file import export_program, program_columns

        program = export_program(table, path, labels)
        size = len(program_columns(program)), len(program.constraints)
        return ModelSize(*size, cutoff_of(table), table.unit)
    from hypar_opt.solvers.cp_sat.clauses import clause_model
    from hypar_opt.solvers.cp_sat.proto import export_model, to_cp_model

    clauses = clause_model(table)
    scope = table.scope if isinstance(table, PrunedTable) else ""
    try:
        export_model(clauses, to_cp_model(clauses), labels, path, scope)
    except ImportError as error:  # as beside highspy: see `hypar_opt.solvers.subprocess_solver`
        raise HyparError(f"OR-Tools, which writes the model, cannot be loaded: {error}") from None
    size = len(clauses.weights), len(clauses.program.constraints)
    return ModelSize(*size, cutoff_of(table), table.unit)


def cutoff_of(table: CostTable | PrunedTable) -> int | None:
    """Return the cost up to which a table contains all plans, in its unit; None without limit."""
    return table.cutoff // table.resolution if isinstance(table, PrunedTable) else None


def table_to_state(instance: Instance, solver: str) -> tuple[CostTable | PrunedTable, RowNames]:
    """Return the table of all levels that a model states, and the names of its rows.

    If it would be too large, it has only the states of plans up to a cost.

    Parameters
    ----------
    solver
        The solver whose model it is.

    Raises
    ------
    HyparError
        As `write_instance`.
    """
    if instance.problem.levels == 0:
        raise HyparError(
            f"{argument('levels')} should be 1 or more: with 0 levels there is nothing to choose"
        )
    if share_left_open(instance.problem):
        raise HyparError(
            f"a model needs stated shares of the groups of accelerators: {argument('share')}"
        )
    if instance.problem.device_memory is not None and instance.problem.constraints.memory:
        raise RefusedError(
            f"a model covers plans in any memory: leave {argument('constraints.memory')} out, and"
            " state how layers train"
        )
    reduction, stating = reduction_of(instance), SOLVERS[solver]()
    if (pruned := reduction.pruned(stating)) is not None:
        return pruned, pruned.labels
    reduction.check_size(stating, instead="take fewer levels")
    table, labels = reduction.apply()
    if trivially_infeasible(table):
        raise InfeasibleError("no assignment satisfies the constraints")
    return table, labels


def read_solution(path: str | Path | SolutionFile) -> SolutionFile:
    """Read a solution file of HiGHS, CBC, GLPK or Gurobi; the search checks it.

    Raises
    ------
    InputError
        Naming the file and what is wrong.
    """
    from hypar_opt.solvers.solution.formats import parse_solution
    from hypar_opt.solvers.solution.solver import SolutionFile

    if isinstance(path, SolutionFile):  # loaded in this process
        return path
    return SolutionFile(parse_solution(read_text(path), file=file_name(path)), file_name(path))
