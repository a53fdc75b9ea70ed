"""A 0-1 program as a PuLP problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.solvers.backends.base import load_pulp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hypar_opt.solvers.ilp.zero_one import ZeroOneProgram

Item = TypeVar("Item")

DIGITS = 12
MAX_COEFFICIENT = 10**DIGITS
"""Coefficients are below this: PuLP writes 12 digits to an LP file, and 13 to an MPS file."""

_CHECK_INTERVAL = 1000
"""Columns or constraints that are built between two checks of the deadline."""


def pulp_problem(program: ZeroOneProgram, constant: int, deadline: Deadline = NEVER) -> Any:
    """Return PuLP's problem, with the program's `backend_costs` and a constant added to them.

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
        low, high, is_integer = program.domain(column, binary)
        kind = pulp.LpInteger if is_integer else pulp.LpContinuous
        columns[column] = problem.add_variable(column, low, high, kind)
    costs = {columns[column]: cost for column, cost in program.backend_costs().items()}
    for exponent in range(0, len(str(constant)) if constant else 0, DIGITS):
        # PuLP writes a number's first 12 digits: a column fixed to 1 for every 12 of them.
        digits = constant // 10**exponent % MAX_COEFFICIENT
        costs[problem.add_variable(f"constant_{exponent}", 1, 1)] = digits * 10**exponent
    problem.setObjective(pulp.LpAffineExpression(costs))
    senses = {"<=": pulp.LpConstraintLE, "=": pulp.LpConstraintEQ, ">=": pulp.LpConstraintGE}
    for row in _watched(program.constraints, deadline):
        terms = pulp.LpAffineExpression({columns[x]: term for x, term in row.terms.items()})
        problem.addConstraint(pulp.LpConstraint(terms, senses[row.sense], row.name, row.bound))
    return problem


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
