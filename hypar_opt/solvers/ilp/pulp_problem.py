"""A 0-1 program as a problem of PuLP's, in memory and in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.documents import write_whole
from hypar_opt.errors import RefusedError
from hypar_opt.solvers.backends.base import load_pulp
from hypar_opt.solvers.ilp.formulate import formulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from hypar_opt.costs.table import CostTable
    from hypar_opt.solvers.ilp.zero_one import ZeroOneProgram

Item = TypeVar("Item")

DIGITS = 12
LARGEST = 10**DIGITS
"""Coefficients are below this: PuLP writes 12 digits to an LP file, and 13 to an MPS file."""

_CHECK_INTERVAL = 1000
"""Columns or constraints that are built between two checks of the deadline."""


def pulp_problem(
    program: ZeroOneProgram, factor: int, constant: int, deadline: Deadline = NEVER
) -> Any:
    """Return PuLP's problem, with its costs divided by a factor and a constant added to them.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    pulp = load_pulp()
    problem = pulp.LpProblem("hypar_opt", pulp.LpMinimize)
    binary = program.binary
    columns = {}
    for column in _watched(program.costs, deadline):
        low, high, is_integer = _domain(program, column, binary)
        kind = pulp.LpInteger if is_integer else pulp.LpContinuous
        columns[column] = problem.add_variable(column, low, high, kind)
    costs = {columns[column]: cost // factor for column, cost in program.costs.items()}
    for exponent in range(0, len(str(constant)) if constant else 0, DIGITS):
        # PuLP writes a number's first 12 digits: a column fixed to 1 for every 12 of them.
        digits = constant // 10**exponent % LARGEST
        costs[problem.add_variable(f"constant_{exponent}", 1, 1)] = digits * 10**exponent
    problem.setObjective(pulp.LpAffineExpression(costs))
    senses = {"<=": pulp.LpConstraintLE, "=": pulp.LpConstraintEQ, ">=": pulp.LpConstraintGE}
    for row in _watched(program.constraints, deadline):
        terms = pulp.LpAffineExpression({columns[x]: term for x, term in row.terms.items()})
        problem.addConstraint(pulp.LpConstraint(terms, senses[row.sense], row.name, row.bound))
    return problem


def _domain(
    program: ZeroOneProgram, column: str, binary: frozenset[str]
) -> tuple[int, int | None, bool]:
    """Return a column's lower and upper bound, and whether it is an integer."""
    if column in program.fixed:
        return program.fixed[column], program.fixed[column], True
    if column in binary:
        return 0, 1, True
    if column.startswith("carry"):
        # Every layer's digit is below the base, so the sum carries less than one per layer.
        return 0, len(program.literals), True
    # Thresholds and flows: integral by themselves once the binaries are.
    return 0, None, False


def _watched(items: Iterable[Item], deadline: Deadline) -> Iterator[Item]:
    """Yield the items, checking the deadline now and then.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    for number, item in enumerate(items):
        if number % _CHECK_INTERVAL == 0:
            deadline.check()
        yield item


def export_program(
    table: CostTable, path: Path, directory: Path, deadline: Deadline = NEVER
) -> None:
    """Write a table's program with its constant, so that its optimum is the table's.

    Parameters
    ----------
    path
        Ends in ``.lp`` or ``.mps``, which decides the format.
    directory
        For a draft, so that the file is written completely or not at all.

    Raises
    ------
    RefusedError
        If PuLP cannot write this format, or not exactly.
    """
    if path.suffix not in {".lp", ".mps"}:
        raise RefusedError(f"exports a model as .lp or .mps, not as {path.suffix or path.name!r}")
    program = formulate(table, deadline)
    if program.largest_cost >= LARGEST:
        raise RefusedError(f"exports costs of at most 12 digits, not {program.largest_cost:,}")
    problem = pulp_problem(program, 1, program.constant, deadline)
    draft = directory / f"model{path.suffix}"
    (problem.writeLP if path.suffix == ".lp" else problem.writeMPS)(str(draft))
    write_whole(path, draft.read_text(encoding="utf-8"))
