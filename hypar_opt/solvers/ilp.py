"""Integer programming through PuLP, by any solver that PuLP finds."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from hypar_opt.deadline import NEVER, TIME_LIMIT, Deadline
from hypar_opt.documents import write_whole
from hypar_opt.errors import NoAnswerError, RefusedError, WrongClaimError
from hypar_opt.solvers.backends import EVERY, Answer, Backend, call, find, load_pulp
from hypar_opt.solvers.backends import backends as backends
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status, too_large
from hypar_opt.solvers.canonical import canonical
from hypar_opt.solvers.child import SolverProcess
from hypar_opt.solvers.zero_one import (
    Pick,
    Program,
    allowed_choices,
    cover,
    formulate,
    trivially_infeasible,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hypar_opt.costs.table import CostTable

LARGEST = 10**12
"""Coefficients end here: PuLP writes 12 digits to an LP file, and 13 to an MPS file."""

LARGEST_UNIT = 10**6
"""Digits that are left off end here: the more, the more assignments cost alike without them."""

MOST_COLUMNS = 500_000
"""PuLP takes some 2 kB for each, a gigabyte in all, and 30 microseconds to make and write it."""

_WRITING = 1.5
"""PuLP writes a program in so many times the time it takes to make it, and cannot be stopped."""

_EACH = 1000
"""Columns or rows that are made between two looks at the clock."""


def _problem(program: Program, factor: int, constant: int, deadline: Deadline = NEVER) -> Any:
    """Return PuLP's problem, with its costs divided by a factor and a constant added to them."""
    pulp = load_pulp()
    problem = pulp.LpProblem("hypar_opt", pulp.LpMinimize)
    binary = {column for layer in program.takes for column, _ in layer}
    columns, costs = {}, {}
    for done, (name, cost) in enumerate(program.costs.items()):
        if done % _EACH == 0:
            deadline.check()
        whole = name in binary or name.startswith("carry")
        low, high = 0, 1 if name in binary else len(program.takes) if whole else None
        if name in program.fixed:
            low = high = program.fixed[name]
        kind = pulp.LpInteger if whole else pulp.LpContinuous
        columns[name] = problem.add_variable(name, low, high, kind)
        costs[columns[name]] = cost // factor
    for place in range(0, len(str(constant)) if constant else 0, 12):
        # A column for every 12 digits, which are all that PuLP writes.
        digits = constant // 10**place % LARGEST
        costs[problem.add_variable(f"constant_{place}", 1, 1)] = digits * 10**place
    problem.setObjective(pulp.LpAffineExpression(costs))
    senses = {"<=": pulp.LpConstraintLE, "=": pulp.LpConstraintEQ, ">=": pulp.LpConstraintGE}
    for done, row in enumerate(program.rows):
        if done % _EACH == 0:
            deadline.check()
        terms = pulp.LpAffineExpression({columns[x]: term for x, term in row.terms.items()})
        problem.addConstraint(pulp.LpConstraint(terms, senses[row.sense], row.name, row.bound))
    return problem


def export(table: CostTable, path: Path, directory: Path, deadline: Deadline = NEVER) -> None:
    """Write a table's program with its constant; its optimum is the table's.

    Raises
    ------
    RefusedError
        If PuLP cannot write it, or not exactly.
    """
    if path.suffix not in {".lp", ".mps"}:
        raise RefusedError(f"exports a model as .lp or .mps, not as {path.suffix or path.name!r}")
    program = formulate(table, deadline)
    if program.largest_cost >= LARGEST:
        raise RefusedError(f"exports costs of at most 12 digits, not {program.largest_cost:,}")
    problem, written = (
        _problem(program, 1, program.constant, deadline),
        directory / f"model{path.suffix}",
    )
    (problem.writeLP if path.suffix == ".lp" else problem.writeMPS)(str(written))
    write_whole(path, written.read_text(encoding="utf-8"))


class IntegerProgram(Solver):
    """Choose the cheapest assignment by a 0-1 program as tight as the table allows.

    The backend's numbers are not taken for the answer: the assignment that it picks is priced
    in whole numbers, an optimum must be claimed of that price, and what exceeds the capacity by
    less than a backend's tolerance is cut off and the search goes on.
    """

    summary: ClassVar[str] = "0-1 program through PuLP (CBC, HiGHS, ...); exact, on any graph"
    searches: ClassVar[bool] = True
    supported_options: ClassVar[frozenset[str]] = EVERY
    most_columns: ClassVar[int | None] = MOST_COLUMNS

    def accepts(self, table: CostTable) -> str | None:
        refusal = too_large(self.most_columns, table.layers, len(table.ends), table.choices)
        if refusal:
            return refusal
        _, unit = _coarser(table)
        if unit > LARGEST_UNIT:
            return (
                "takes costs of at most 18 digits, and this table's have"
                f" {len(str(unit)) + 11}; try dp or cpsat"
            )
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:
        deadline = Deadline.after(options.time_limit)
        backend = find(options)
        logs: list[str] = []
        with SolverProcess() as place:
            task = _Task(backend, place, options, logs, deadline)
            try:
                if options.export is not None and not trivially_infeasible(table):
                    export(table, options.export, place.directory, deadline)
                coarse, unit = _coarser(table)
                if unit > 1:
                    return _by_parts(task, table, coarse, unit)
                return _break_ties(task, table, _minimise(task, table))
            finally:
                if options.log is not None:
                    write_whole(options.log, "".join(logs))


@dataclass(frozen=True)
class _Task:
    """What a backend is called with for each of the tables that one table's search asks for."""

    backend: Backend
    place: SolverProcess
    options: SolverOptions
    logs: list[str]
    deadline: Deadline

    def asking(self, **options: Any) -> _Task:
        """Return the task with other options."""
        return replace(self, options=replace(self.options, **options))


def _coarser(table: CostTable) -> tuple[CostTable, int]:
    """Return the table in units that leave its costs 12 digits, rounded down, and the unit."""
    unit, coarse = 1, table
    if 2 * table.largest < LARGEST:  # no coefficient is larger, whichever form the program takes
        return coarse, unit
    while True:
        program = formulate(replace(coarse, allowed=None, load=None, capacity=None))
        if program.largest_cost // program.factor < LARGEST:
            return coarse, unit
        unit *= 10
        coarse = replace(table, node=table.node // unit, edge=table.edge // unit)


def _by_parts(task: _Task, table: CostTable, coarse: CostTable, unit: int) -> SolveResult:
    """Return the canonical optimum of a table whose costs have too many digits.

    Rounded down, the costs bound an assignment's from below. So assignments are asked for in
    the order of their rounded cost, each shut out once it is known, until no other can cost
    as little as the best so far: then the optimum and all its ties have been seen.
    """
    best: tuple[int, tuple[int, ...]] | None = None
    seen: list[tuple[int, ...]] = []
    first: SolveResult | None = None
    while True:
        found = _minimise(task, coarse, seen=seen)
        first = first or found
        task = task.asking(warm_start=None)
        if found.assignment is not None:
            seen.append(found.assignment)
            # From the last layer back, so that the least is the canonical one.
            priced = table.price(found.assignment), found.assignment[::-1]
            best = priced if best is None else min(best, priced)
        if best is None:
            return found
        cost, backwards = best
        size = {**first.statistics}
        if "root_bound" in size:
            size["root_bound"] *= unit
        answer = replace(first, assignment=backwards[::-1], objective=cost, statistics=size)
        least = None if found.bound is None else found.bound * unit
        if found.status is Status.INFEASIBLE or (least is not None and least > cost):
            return replace(answer, status=Status.OPTIMAL, bound=cost, stopped_by=None)
        if found.status is not Status.OPTIMAL:
            bound = None if least is None else min(least, cost)
            answer = replace(answer, status=Status.FEASIBLE, bound=bound)
            return replace(answer, stopped_by=found.stopped_by)


def _minimise(
    task: _Task,
    table: CostTable,
    one_of: Sequence[Pick] = (),
    seen: Sequence[tuple[int, ...]] = (),
) -> SolveResult:
    """Return any optimum of a table, of assignments not seen yet.

    With at least one of some choices taken, if there are any.
    """
    if trivially_infeasible(table):
        return SolveResult(None, None, Status.INFEASIBLE)
    try:
        return _asked(task, table, one_of, seen)
    except NoAnswerError:
        return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)


def _asked(
    task: _Task, table: CostTable, one_of: Sequence[Pick], seen: Sequence[tuple[int, ...]]
) -> SolveResult:
    program = formulate(table, task.deadline)
    if one_of:
        program = program.with_row("one_of", dict.fromkeys(one_of, 1), ">=", 1)
    for place, known in enumerate(seen):
        picks = dict.fromkeys(enumerate(known), 1)
        program = program.with_row(f"seen_{place}", picks, "<=", table.layers - 1)
    while True:
        answer = _answer(task, program)
        if answer.values is None:
            if answer.proven and not one_of and not seen:
                raise WrongClaimError(f"{task.backend.name} finds no assignment, but there is one")
            status = Status.INFEASIBLE if answer.proven else Status.NO_ANSWER
            return SolveResult(None, None, status, stopped_by=answer.stopped_by)
        assignment = program.assignment(answer.values)
        heavy = cover(table, assignment)
        if heavy is None:
            return _to_result(task, table, program, assignment, answer)
        # It fits within the backend's tolerance, but not in whole numbers.
        program = program.with_row(f"cover_{len(program.rows)}", heavy[0], "<=", heavy[1])


def _answer(task: _Task, program: Program) -> Answer:
    """Call the backend, and take from its numbers what was added to them."""
    options = task.options
    # A gap is relative to all of the cost. Without one, numbers are kept small.
    added = program.constant // program.factor if options.gap else 0
    start: dict[str, int] = {}
    for layer, choice in enumerate(options.warm_start or ()):
        start |= dict.fromkeys((x for x, _ in program.takes[layer]), 0)
        start |= dict([program.takes[layer][choice]])
    try:
        started = time.monotonic()
        problem = _problem(program, program.factor, added, task.deadline)
        task.deadline.check(_WRITING * (time.monotonic() - started))
        answer = call(task.backend, task.place, problem, options, start, task.deadline)
    finally:
        if options.log is not None and task.place.log.exists():
            task.logs.append(task.place.log.read_text(encoding="utf-8", errors="replace"))
    objective, bound, root = (
        None if number is None else number - added
        for number in (answer.objective, answer.bound, answer.root)
    )
    return replace(answer, objective=objective, bound=bound, root=root)


def _to_result(
    task: _Task, table: CostTable, program: Program, assignment: tuple[int, ...], answer: Answer
) -> SolveResult:
    """Say what an answer is worth, in the table's whole numbers."""
    objective = table.price(assignment)
    relative = (objective - program.constant) // program.factor
    told = [number for number in (answer.bound, answer.root) if number is not None]
    if answer.proven and answer.objective is not None:
        told.append(answer.objective)
    # Rounded up, since costs are whole; but first down, for the digits that a log leaves off.
    whole = [math.ceil(number - 1e-9 * abs(number) - 1e-6) for number in told if abs(number) < 1e30]
    bound = max((number for number in whole if number <= relative), default=None)
    agrees = answer.objective is not None and abs(answer.objective - relative) < 0.5
    if answer.proven and agrees:
        bound = relative
    optimal = bound == relative
    stopped_by = answer.stopped_by or ("gap" if task.options.gap else None)
    statistics: dict[str, float] = {
        "rows": len(program.rows),
        "columns": len(program.costs),
        "nonzeros": sum(len(row.terms) for row in program.rows),
    }
    if answer.root is not None:
        statistics["root_bound"] = program.constant + program.factor * answer.root
    return SolveResult(
        assignment,
        objective,
        Status.OPTIMAL if optimal else Status.FEASIBLE,
        bound=None if bound is None else program.constant + program.factor * bound,
        stopped_by=None if optimal else stopped_by,
        statistics=statistics,
        versions={"pulp": load_pulp().__version__, task.backend.name: answer.version},
    )


def _break_ties(task: _Task, table: CostTable, found: SolveResult) -> SolveResult:
    """Return the canonical optimum, if an optimum was found.

    One question settles most tables: what costs an assignment at the least that takes an
    earlier choice somewhere? If it costs more, there is no tie to settle.
    """
    if found.status is not Status.OPTIMAL or found.assignment is None:
        return found
    # What settles ties is asked for an optimum, and starts from nowhere.
    task = task.asking(gap=0.0, warm_start=None)
    may = allowed_choices(table)
    earlier = [(at, c) for at, taken in enumerate(found.assignment) for c in range(taken)]
    earlier = [pick for pick in earlier if may[pick]]
    if not earlier:
        return found
    other = _minimise(task, table, earlier)
    if other.status is Status.INFEASIBLE or (other.bound or 0) > (found.objective or 0):
        return found
    return canonical(table, found, lambda asked: _minimise(task, asked), task.deadline)
