"""CBC, run as a program on files; parses its solution and log."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hypar_opt.deadline import TIME_LIMIT, with_grace
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.solvers.backends.base import BackendAnswer, BackendCall, load_pulp
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.process import log_of, run


def cbc_program() -> str | None:
    """Return the path of PuLP's bundled CBC, or of one on ``PATH``; None if there is neither."""
    # PuLP bundles CBC for common machines only.
    bundled: str = load_pulp().PULP_CBC_CMD.pulp_cbc_path
    return bundled if os.access(bundled, os.X_OK) else shutil.which("cbc")


def cbc_version(program: str, directory: Path) -> str:
    """Return the version that CBC prints; empty if it prints none, or does not start."""
    with suppress(HyparError):
        run([program, "-quit"], directory)
    return _search_log(r"Version: (\S+)", log_of(directory).read_text()) or ""


def run_cbc(call: BackendCall) -> BackendAnswer:
    """Minimise a problem with CBC.

    Raises
    ------
    RefusedError
        If there is no CBC, or it refuses a parameter.
    HyparError
        If it fails, or returns no answer although no limit stopped it.
    """
    program = cbc_program()
    if program is None:
        raise RefusedError("needs CBC, and PuLP bundles none for this machine")
    solution, start = (call.directory / name for name in ("solution", "start"))
    limit = call.deadline.left()
    command = [program, str(call.model)]
    if call.start:
        rows = [f"{n} {column} {value} 0" for n, (column, value) in enumerate(call.start.items())]
        start.write_text("\n".join(["Stopped on time - objective value 0", *rows, ""]))
        command += ["-mips", str(start)]
    command += _settings(call.options, limit)
    # The relaxation first, since CBC then logs its optimum in more digits than in a search.
    command += ["-initialSolve", "-solve", "-solution", str(solution)]
    status = None
    with suppress(subprocess.TimeoutExpired):
        status = run(command, call.directory, with_grace(limit))
    # With more than half of the time left, no limit can have ended it.
    in_time = limit is None or (call.deadline.left() or 0.0) > limit / 2
    log = log_of(call.directory).read_text(encoding="utf-8", errors="replace")
    # Before the status: CBC warns of a parameter in its log alone, and solves without it.
    _raise_if_parameter_refused(log)
    if status is None:
        return BackendAnswer(None, stopped_by=TIME_LIMIT)
    if status != 0 or not solution.exists():
        raise HyparError(f"cbc ended with status {status}: {log.strip().splitlines()[-1:]}")
    outcome, values = _read_solution(solution, call.costs)
    return _to_answer(outcome, values, log, gap=call.options.gap, limit=limit, in_time=in_time)


def _settings(options: SolverOptions, limit: float | None) -> list[str]:
    """Return CBC's arguments for the options; the user's parameters come last and override ours."""
    settings = {
        # Under a capacity, in one table of thousands, either of these cuts off the optimum.
        "preprocess": "off",
        "gomory": "off",
        # CBC counts processor time by default; a time limit is of elapsed time.
        "timeMode": "elapsed",
        "sec": limit,
        "ratio": options.gap,
        "threads": options.threads,
        # One seed for the simplex method, one for the tree search.
        "randomSeed": options.seed,
        "randomCbcSeed": options.seed,
        **options.parameters,
    }
    present = {name: value for name, value in settings.items() if value is not None}
    return [text for name, value in present.items() for text in (f"-{name}", str(value))]


def _raise_if_parameter_refused(log: str) -> None:
    """Raise a RefusedError if the log says that CBC does not know a parameter or its value."""
    # CBC itself ignores such a parameter and solves without it.
    refused = _search_log(
        r"No match for (\S+) - |(.* was provided for .*)|<Possible options for (\S+)"
        r"|is illegal for \w+ parameter (\S+)",
        log,
    )
    if refused:
        raise RefusedError(f"with the backend cbc takes no such parameter or value: {refused}")


def _read_solution(file: Path, columns: Iterable[str]) -> tuple[str, Mapping[str, float] | None]:
    """Return a solution file's first line, and the columns' values; None without a solution.

    Raises
    ------
    HyparError
        If it is incomplete, as on a full disk.
    """
    outcome, *lines = file.read_text(encoding="utf-8").splitlines() or [""]
    rows = [line.removeprefix("**").split() for line in lines]
    if not outcome.strip() or any(len(row) < 4 for row in rows):
        raise HyparError(
            f"{file.parent}: cbc could not write its solution there; set TMPDIR to a directory with"
            " room"
        )
    # At a limit too it may have one: an incumbent.
    if not re.match(r"Optimal|Stopped on \w+ - objective", outcome):
        return outcome, None
    # Columns that are 0 are left out.
    values = {name: float(value) for _, name, value, _ in rows}
    return outcome, dict.fromkeys(columns, 0.0) | values


def _to_answer(
    outcome: str,
    values: Mapping[str, float] | None,
    log: str,
    *,
    gap: float,
    limit: float | None,
    in_time: bool,
) -> BackendAnswer:
    """Return the claims of a solution and the log, without those known to be unreliable.

    Parameters
    ----------
    outcome
        As ``Stopped on time - objective value 42.00000000``; CBC says ``Optimal`` also if the
        solution is only within the gap.
    limit
        Seconds that CBC had; None without a limit.
    in_time
        Whether it ended well before the limit.
    """
    stopped = _search_log(r"^Stopped on (\w+)", outcome)
    # As its time runs out CBC may report "proven infeasible" of a problem it had no time for.
    infeasible = "nfeasible" in outcome and in_time
    # No solution, not infeasible, not stopped: a failure, unless the time had run out.
    if values is None and not infeasible and stopped is None:
        if limit is None:
            raise HyparError(f"CBC returned no solution: {outcome.strip()}")
        stopped = "time"
    # A simplex that runs out of time calls that a limit of iterations, which we never set.
    if stopped == "iterations" and limit is not None and not in_time:
        stopped = "time"
    return BackendAnswer(
        values=values,
        objective=None if values is None else float(outcome.split()[-1]),
        proven=(outcome.startswith("Optimal") and not gap) or infeasible,
        bound=_search_number(r"^Lower bound: +(\S+)", log),
        root_bound=_search_number(r"^Optimal objective (\S+) - ", log),
        stopped_by=TIME_LIMIT if stopped == "time" else stopped,
        version=_search_log(r"^Version: (\S+)", log) or "",
    )


def _search_log(pattern: str, log: str) -> str | None:
    """Return the text of the group that matches, in the first matching line; None without one."""
    match = re.search(pattern, log, re.MULTILINE)
    return next(filter(None, match.groups()), None) if match else None


def _search_number(pattern: str, log: str) -> float | None:
    """Return the number that a pattern's group matches in the log; None without one."""
    text = _search_log(pattern, log)
    return None if text is None else float(text)
