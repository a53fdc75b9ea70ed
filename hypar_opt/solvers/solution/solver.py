"""A solution file as a solver's answer: its columns' values as an assignment of the table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.costs.table import CostTable
from hypar_opt.errors import RefusedError, WrongClaimError
from hypar_opt.solvers.base import (
    Solver,
    SolveResult,
    SolverOptions,
    Status,
    Table,
    too_large,
)
from hypar_opt.solvers.feasibility import trivially_infeasible
from hypar_opt.solvers.ilp.formulate import formulate
from hypar_opt.solvers.ilp.model_file import program_columns
from hypar_opt.solvers.ilp.solver import MAX_COLUMNS
from hypar_opt.solvers.model_names import column_namer, fields_of, plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.solvers.solution.formats import Solution

_TOLERANCE = 1e-4
"""How far from 0 or 1 a binary's value may be; solvers use tolerances of 1e-5 or less."""

_DIGITS = 1e-9
"""The relative error of an objective in a file: GLPK prints ten digits."""


@dataclass(frozen=True, eq=False)
class SolutionFile(Solver):
    """Answers with the assignment in a solution file of the table's model.

    Nothing in the file is trusted: each layer must have exactly one choice, and the objective that
    the file states must equal the table's price of these choices. A claim of optimality is ignored,
    since solvers also claim it at a gap of 0.01 %.
    """

    summary: ClassVar[str] = "the solution file of another solver, checked"
    accepted_tables: ClassVar[frozenset[type[Table]]] = frozenset({CostTable, PrunedTable})
    max_columns: ClassVar[int | None] = MAX_COLUMNS

    solution: Solution
    file: str
    """Its name, for messages."""

    def accepts(self, table: CostTable | PrunedTable) -> str | None:
        if isinstance(table, PrunedTable):  # small enough
            return None
        return too_large(self.max_columns, table.layers, len(table.ends), table.choices)

    def solve(self, table: CostTable | PrunedTable, options: SolverOptions) -> SolveResult:
        labels = table.labels if isinstance(table, PrunedTable) else options.labels
        if isinstance(table, CostTable) and trivially_infeasible(table):
            return SolveResult(None, None, Status.INFEASIBLE)
        program = formulate(table)
        columns = program_columns(program)
        named = column_namer(table, labels)
        names = {column: named(column) for column in columns}
        values = self._values(columns, names)
        assignment = tuple(
            _choice([_is_chosen(values[column], value, names[column]) for column, value in layer])
            for layer in program.literals
        )
        if None in assignment:
            row = assignment.index(None)
            columns = [names[column] for column, _ in program.literals[row]]
            raise RefusedError(f"should have the value 1 for one of {_listed(columns)}")
        chosen = tuple(choice for choice in assignment if choice is not None)
        self._check_objective(table.price(chosen))
        states = table.assignment(chosen) if isinstance(table, PrunedTable) else chosen
        return SolveResult(states, None, Status.FEASIBLE)

    def _values(self, columns: Sequence[str], names: Mapping[str, str]) -> dict[str, float]:
        """Return the columns' values, by the program's internal names.

        Raises
        ------
        RefusedError
            If a column has none, or the file names a choice that the model does not have.
        """
        solution = self.solution
        if solution.by_number:
            if len(solution.by_number) != len(columns):
                raise RefusedError(
                    f"should have the {len(columns):,} columns of this problem's model, got"
                    f" {len(solution.by_number):,}"
                )
            return dict(zip(columns, solution.by_number, strict=True))
        stated = {fields_of(name): value for name, value in solution.values.items()}
        column_of = {fields_of(names[column]): column for column in columns}
        if stated.keys().isdisjoint(column_of):
            raise RefusedError(
                "names no column of this problem's model; CBC numbers those of an .lp file that has"
                " names of more than 100 characters: give it the .mps file"
            )
        for fields in stated:
            if fields[0] == "x" and len(fields) > 1 and fields not in column_of:
                raise RefusedError(f"{plain_name(*fields)} is not a column of this problem's model")
        values = {}
        for fields, column in column_of.items():
            if fields not in stated and not solution.zeros_left_out:
                raise RefusedError(f"has no value of {names[column]}")
            values[column] = stated.get(fields, 0.0)
        return values

    def _check_objective(self, cost: int) -> None:
        """Refuse a solution whose objective is not the cost of its choices."""
        stated = self.solution.objective
        if stated is None:
            return
        if not math.isclose(stated, cost, rel_tol=_DIGITS, abs_tol=0.5):
            raise WrongClaimError(
                f"claims {stated:,.15g}, its choices cost {cost:,}; it may be of another problem"
            )


def _is_chosen(value: float, when: int, name: str) -> bool:
    """Return whether a binary column has the value that stands for a choice.

    Raises
    ------
    RefusedError
        If the value is neither 0 nor 1, as in a relaxation's solution.
    """
    if not min(abs(value), abs(value - 1)) <= _TOLERANCE:
        raise RefusedError(f"{name} should be 0 or 1, got {value:g}")
    return round(value) == when


def _choice(chosen: Sequence[bool]) -> int | None:
    """Return the only choice of a layer; None if it has none or several."""
    return chosen.index(True) if sum(chosen) == 1 else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
