"""Minimise one table with a backend, and check what the backend claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import NoAnswerError, WrongClaimError
from hypar_opt.solvers.backends.base import Backend, BackendAnswer, BackendCall, load_pulp
from hypar_opt.solvers.backends.cbc import run_cbc
from hypar_opt.solvers.backends.pulp_solvers import run_pulp_solver
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status
from hypar_opt.solvers.feasibility import trivially_infeasible
from hypar_opt.solvers.ilp.formulate import formulate
from hypar_opt.solvers.ilp.knapsack import violated_cover
from hypar_opt.solvers.ilp.model_file import CONSTANT, mps_lines
from hypar_opt.solvers.ilp.zero_one import LayerChoice, ZeroOneProgram
from hypar_opt.solvers.process import log_of, private_directory

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable

DIGITS = 12
MAX_COST = 10**DIGITS
"""Costs stay below this: doubles have more digits, but backends have tolerances."""

_INFINITE = 1e30
"""A bound of at least this size is a backend's infinity."""


@dataclass(frozen=True)
class Session:
    """The state that all backend calls for one table share.

    Parameters
    ----------
    logs
        The logs of the calls so far; a call adds one if the options have a log file.
    """

    backend: Backend
    options: SolverOptions
    deadline: Deadline
    logs: list[str] = field(default_factory=list)

    def with_options(self, **options: Any) -> Session:
        """Return the session with other options."""
        return replace(self, options=replace(self.options, **options))


def minimise(
    session: Session,
    table: CostTable,
    one_of: Sequence[LayerChoice] = (),
    excluded: Sequence[tuple[int, ...]] = (),
) -> SolveResult:
    """Return any optimum of a table.

    Parameters
    ----------
    one_of
        Choices, at least one of which the assignment must contain; empty for no constraint.
    excluded
        Assignments that must not be returned.

    Raises
    ------
    WrongClaimError
        If the backend claims that there is no assignment where there is one.
    """
    if trivially_infeasible(table):
        return SolveResult(None, None, Status.INFEASIBLE)
    try:
        program = formulate(table, session.deadline)
        if one_of:
            program = program.with_constraint("one_of", dict.fromkeys(one_of, 1), ">=", 1)
        for number, assignment in enumerate(excluded):
            # A no-good cut: not all of its choices together.
            choices = dict.fromkeys(enumerate(assignment), 1)
            name = f"seen_{number}"
            program = program.with_constraint(name, choices, "<=", table.layers - 1)
        has_answer = not one_of and not excluded  # as the table is not trivially infeasible
        return _minimise_with_cuts(session, table, program, has_answer=has_answer)
    except NoAnswerError:
        return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)


def minimise_canonically(session: Session, table: CostTable) -> SolveResult | None:
    """Return the canonical optimum of a table from one run; None if it needs more."""
    # A gap asks for no optimum; loads couple the layers.
    if session.options.gap or table.limits or trivially_infeasible(table):
        return None
    try:
        program = formulate(table, session.deadline).with_fewest_ones()
        if program is None or max(map(abs, program.backend_costs().values())) >= MAX_COST:
            return None
        return _minimise_with_cuts(session, table, program, has_answer=True)
    except NoAnswerError:
        return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)


def _minimise_with_cuts(
    session: Session, table: CostTable, program: ZeroOneProgram, *, has_answer: bool
) -> SolveResult:
    """Minimise a program, adding cover cuts until the assignment fits the capacity exactly."""
    while True:
        answer = _run(session, program)
        if answer.values is None:
            # Edges forbid no pair, so feasibility is known without the backend: see `feasibility`.
            if answer.proven and has_answer:
                name = session.backend.name
                raise WrongClaimError(f"{name} found no assignment, but there is one")
            status = Status.INFEASIBLE if answer.proven else Status.NO_ANSWER
            return SolveResult(None, None, status, stopped_by=answer.stopped_by)
        assignment = program.assignment(answer.values)
        cover = violated_cover(table, assignment)
        if cover is None:
            return _to_result(session, table, program, assignment, answer)
        # It fits to within the backend's tolerance, but not in integers.
        name = f"cover_{len(program.constraints)}"
        program = program.with_constraint(name, cover[0], "<=", cover[1])


def _run(session: Session, program: ZeroOneProgram) -> BackendAnswer:
    """Call the backend, and return its answer with the program's constant subtracted."""
    # A gap is relative to the total, constant included. Without a gap the constant stays out, so
    # that the numbers are short.
    constant = program.constant // program.factor if session.options.gap else 0
    costs = program.backend_costs()
    lines = mps_lines(replace(program, costs=costs, constant=constant), session.deadline)
    start = _start_values(program, session.options.warm_start or ())
    with private_directory() as directory:
        call = BackendCall(
            session.backend,
            directory,
            costs | {CONSTANT: constant},
            session.options,
            start,
            session.deadline,
        )
        with call.model.open("w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in lines)
        try:
            answer = run_cbc(call) if session.backend.name == "cbc" else run_pulp_solver(call)
        finally:
            if session.options.log is not None and log_of(directory).exists():
                log = log_of(directory).read_text(encoding="utf-8", errors="replace")
                session.logs.append(log)
    objective, bound, root_bound = (
        None if number is None else number - constant
        for number in (answer.objective, answer.bound, answer.root_bound)
    )
    return replace(answer, objective=objective, bound=bound, root_bound=root_bound)


def _start_values(program: ZeroOneProgram, assignment: Sequence[int]) -> dict[str, int]:
    """Return the binary columns' values for an assignment; empty for an empty one."""
    values: dict[str, int] = {}
    for layer, choice in enumerate(assignment):
        values |= dict.fromkeys((column for column, _ in program.literals[layer]), 0)
        # Where one column serves both choices, this overrides the line above.
        values |= dict([program.literals[layer][choice]])
    return values


def _to_result(
    session: Session,
    table: CostTable,
    program: ZeroOneProgram,
    assignment: tuple[int, ...],
    answer: BackendAnswer,
) -> SolveResult:
    """Return an answer in the table's integers, with the status that its claims prove."""
    objective = table.price(assignment)
    relative = program.backend_objective(assignment, objective)
    bound = _proven_bound(answer, relative)
    optimal = bound == relative
    stopped_by = answer.stopped_by or ("gap" if session.options.gap else None)
    statistics = program.statistics()
    if answer.root_bound is not None:
        root = answer.root_bound
        if program.tie_weight > 1:  # less what the ones add
            root //= program.tie_weight
        statistics["root_bound"] = program.constant + program.factor * root
    return SolveResult(
        assignment,
        objective,
        Status.OPTIMAL if optimal else Status.FEASIBLE,
        bound=None if bound is None else program.bound(bound),
        stopped_by=None if optimal else stopped_by,
        statistics=statistics,
        versions={"pulp": load_pulp().__version__, session.backend.name: answer.version},
    )


def _proven_bound(answer: BackendAnswer, objective: int) -> int | None:
    """Return the highest lower bound that a backend's claims prove, an integer.

    Parameters
    ----------
    objective
        The exact cost of its assignment; a claimed bound above it is wrong, and ignored.
    """
    # Costs are integers in these units, so half of one tells rounding from a wrong claim.
    agrees = answer.objective is not None and abs(answer.objective - objective) < 0.5
    if answer.proven and agrees:
        return objective
    claims = [answer.bound, answer.root_bound, answer.objective if answer.proven else None]
    numbers = [claim for claim in claims if claim is not None and abs(claim) < _INFINITE]
    # Rounded up, since costs are integers; but lowered first by what a log's few digits may
    # have rounded up.
    bounds = [math.ceil(number - 1e-9 * abs(number) - 1e-6) for number in numbers]
    return max((bound for bound in bounds if bound <= objective), default=None)
