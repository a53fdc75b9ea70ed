"""CBC, run on the files that PuLP writes and reads, and what its log says."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypar_opt.deadline import TIME_LIMIT, with_grace
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.solvers.backends.base import BackendAnswer, BackendCall, load_pulp
from hypar_opt.solvers.backends.process import SolverProcess
from hypar_opt.solvers.base import SolverOptions


def cbc_program() -> str | None:
    """Return the path of the CBC that comes with PuLP, or of one on the path; None without."""
    bundled: str = load_pulp().PULP_CBC_CMD.pulp_cbc_path
    return bundled if os.access(bundled, os.X_OK) else shutil.which("cbc")


def cbc_version(process: SolverProcess, program: str) -> str:
    process.run([program, "-quit"])
    return _search_log(r"Version: (\S+)", process.log.read_text()) or ""


def run_cbc(call: BackendCall) -> BackendAnswer:
    """Have CBC minimise a problem.

    Raises
    ------
    RefusedError
        If there is no CBC, or it refuses a parameter.
    HyparError
        If it fails, or leaves no answer without a limit that would excuse it.
    """
    program = cbc_program()
    if program is None:
        raise RefusedError("finds no cbc: PuLP comes with none for this machine")
    files = _write_files(program, call)
    limit = call.deadline.left()
    command = [program, str(files.model)]
    if call.start:
        command += ["-mips", str(files.start)]
    command += _settings(call.options, limit)
    # The relaxation first, for its optimum in more digits than a search would tell.
    command += ["-initialSolve", "-solve", "-solution", str(files.solution)]
    status = call.process.run(command, with_grace(limit))
    # With half of the time left it ended of its own accord.
    in_time = limit is None or (call.deadline.left() or 0.0) > limit / 2
    log = call.process.log.read_text(encoding="utf-8", errors="replace")
    _raise_if_parameter_refused(log)
    if status is None:
        return BackendAnswer(None, stopped_by=TIME_LIMIT)
    if status != 0 or not files.solution.exists():
        raise HyparError(f"cbc ended with status {status}: {log.strip().splitlines()[-1:]}")
    solution = _read_solution(call.problem, files)
    return _to_answer(solution, log, gap=call.options.gap, limit=limit, in_time=in_time)


@dataclass(frozen=True)
class _Files:
    """CBC's files, and what PuLP needs to read its solution: columns and both kinds of names."""

    solver: Any
    model: Path
    start: Path
    solution: Path
    columns: Any
    column_names: Mapping[str, str]
    row_names: Mapping[str, str]


@dataclass(frozen=True)
class _Solution:
    """CBC's solution file.

    Parameters
    ----------
    outcome
        Its first line, ``Stopped on time - objective value 42.00000000``.
    values
        Of the columns; None without a solution.
    optimal
        As CBC says; also of one that is optimal to within a gap.
    """

    outcome: str
    values: Mapping[str, float] | None
    optimal: bool


def _write_files(program: str, call: BackendCall) -> _Files:
    solver = load_pulp().COIN_CMD(path=program)
    directory = call.process.directory
    model, start, solution = (directory / name for name in ("model.mps", "start", "solution"))
    # Renamed, since names in fixed MPS have no more than eight characters.
    columns, column_names, row_names, _ = call.problem.writeMPS(model, rename=1)
    if call.start:
        names = {column: column_names[column] for column in call.start}
        solver.writesol(start, call.problem, columns, names, row_names)
    solution.unlink(missing_ok=True)  # of the problem before
    return _Files(solver, model, start, solution, columns, column_names, row_names)


def _settings(options: SolverOptions, limit: float | None) -> list[str]:
    """Return CBC's arguments for the options; the user's own parameters last, so that they win."""
    settings = {
        # Under a capacity, in one table of thousands, either of them cuts off the optimum.
        "preprocess": "off",
        "gomory": "off",
        # CBC's default is processor time.
        "timeMode": "elapsed",
        "sec": limit,
        "ratio": options.gap,
        "threads": options.threads,
        # One seed for the simplex method, one for the tree search.
        "randomSeed": options.seed,
        "randomCbcSeed": options.seed,
        **options.parameters,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    return [text for name, value in given.items() for text in (f"-{name}", str(value))]


def _raise_if_parameter_refused(log: str) -> None:
    # CBC goes on with the rest after a parameter that it does not take.
    refused = _search_log(
        r"No match for (\S+) - |(.* was provided for .*)|<Possible options for (\S+)", log
    )
    if refused:
        raise RefusedError(f"with the backend cbc takes no such parameter: {refused}")


def _read_solution(problem: Any, files: _Files) -> _Solution:
    """Read CBC's solution.

    Raises
    ------
    HyparError
        If its last lines are missing.
    """
    pulp = load_pulp()
    try:
        _, values, *_, state = files.solver.readsol_MPS(
            files.solution, problem, files.columns, files.column_names, files.row_names
        )
        with files.solution.open() as lines:
            outcome = next(lines)
        if not outcome.split():
            raise ValueError("the first line is empty")
    except (IndexError, StopIteration, ValueError):
        raise HyparError(
            f"{files.solution.parent}: cbc could not write its solution there; set TMPDIR to a"
            " directory with room"
        ) from None
    # PuLP's status has "Optimal" for a solution that a time limit left; its solution's has not.
    optimal = state == pulp.LpSolutionOptimal
    has_solution = optimal or state == pulp.LpSolutionIntegerFeasible
    return _Solution(outcome, values if has_solution else None, optimal)


def _to_answer(
    solution: _Solution, log: str, *, gap: float, limit: float | None, in_time: bool
) -> BackendAnswer:
    """Say what a solution and the log are worth.

    Parameters
    ----------
    limit
        Seconds that CBC had; None for any number.
    in_time
        Whether it ended well before them.
    """
    outcome = solution.outcome
    stopped = _search_log(r"^Stopped on (\w+)", outcome)
    # As its time runs out CBC may call "proven infeasible" what it had no time to look at.
    infeasible = "nfeasible" in outcome and in_time
    # Without a limit nothing but a failure explains an answer that is none of these.
    if solution.values is None and not infeasible and stopped is None:
        if limit is None:
            raise HyparError(f"cbc leaves no answer: {outcome.strip()}")
        stopped = "time"
    return BackendAnswer(
        values=solution.values,
        objective=None if solution.values is None else float(outcome.split()[-1]),
        proven=(solution.optimal and not gap) or infeasible,
        bound=_search_number(r"^Lower bound: +(\S+)", log),
        root_bound=_search_number(r"^Optimal objective (\S+) - ", log),
        stopped_by=TIME_LIMIT if stopped == "time" else stopped,
        version=_search_log(r"^Version: (\S+)", log) or "",
    )


def _search_log(pattern: str, log: str) -> str | None:
    """Return the text of the group that matches, in the first line that does; None without."""
    match = re.search(pattern, log, re.MULTILINE)
    return next(filter(None, match.groups()), None) if match else None


def _search_number(pattern: str, log: str) -> float | None:
    text = _search_log(pattern, log)
    return None if text is None else float(text)
