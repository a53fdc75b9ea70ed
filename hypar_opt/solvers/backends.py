"""The programs behind PuLP: which are there, what each takes, and what it answers."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.errors import HyparError, RefusedError, UnknownNameError
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.child import SolverProcess
from hypar_opt.solvers.parameters import check_parameters

GRACE = 0.3
"""Seconds past its time limit after which a backend is killed."""

EVERY = frozenset(
    {
        "backend",
        "export",
        "gap",
        "log",
        "parameters",
        "seed",
        "threads",
        "time_limit",
        "warm_start",
    }
)
"""The `SolverOptions` that some backend takes: all of them are CBC's."""


class Way(NamedTuple):
    """How one of PuLP's solvers is told what its constructor has no argument for.

    Parameters
    ----------
    style
        How parameters are handed over: in ``options`` as strings of this pattern, as ``pairs``
        or as a ``mapping``; or as ``keywords``. Empty if they cannot be.
    seed, threads
        The parameters' names.
    gap
        The parameter that is 0 for an optimum, where PuLP would not pass on a 0.
    """

    style: str
    seed: str = ""
    threads: str = ""
    gap: str = ""


WAYS: Mapping[str, Way] = {
    "COIN_CMD": Way("{} {}", seed="randomSeed"),
    "HiGHS": Way("keywords", seed="random_seed"),
    "HiGHS_CMD": Way("{}={}", seed="random_seed"),
    "GUROBI": Way("keywords", seed="Seed", threads="Threads", gap="MIPGap"),
    "GUROBI_CMD": Way("pairs", seed="Seed"),
    "CPLEX_PY": Way(""),
    "CPLEX_CMD": Way("set {} {}", seed="randomseed"),
    "SCIP_PY": Way("{}={}", seed="randomization/randomseedshift"),
    "SCIP_CMD": Way("{}={}", seed="randomization/randomseedshift"),
    "XPRESS_PY": Way("{}={}"),
    "XPRESS_CMD": Way("{}={}"),
    "COPT": Way("keywords", threads="Threads", gap="RelGap"),
    "MOSEK": Way("mapping", gap="MSK_DPAR_MIO_TOL_REL_GAP"),
    "GLPK_CMD": Way(""),
}
"""Solvers whose word for an optimum is taken: each of them closes the gap if told to.

Any other that PuLP finds may be called too; its answers then are only feasible.
"""


class Backend(NamedTuple):
    """One of the programs.

    Parameters
    ----------
    name
        As PuLP has it; ``cbc`` for the program that comes with PuLP.
    takes
        The arguments of PuLP's constructor.
    heeds
        The names of the `SolverOptions` that it takes.
    """

    name: str
    version: str
    takes: frozenset[str]
    supported_options: frozenset[str]


@dataclass(frozen=True)
class Answer:
    """What a backend says of a problem; the objective and the bounds are PuLP's problem's.

    Parameters
    ----------
    values
        Of the columns; None without a solution.
    proven
        Whether nothing was left to search: no solution is better, to a gap of 0; or there is
        none at all.
    root
        The optimum of the relaxation.
    """

    values: Mapping[str, float] | None
    objective: float | None = None
    proven: bool = False
    bound: float | None = None
    root: float | None = None
    stopped_by: str | None = None
    version: str = ""


def load_pulp() -> Any:
    """Import PuLP, but not the library that it would load for HiGHS.

    Once highspy is loaded, the process can no longer load ortools.
    """
    hidden = "pulp" not in sys.modules and "highspy" not in sys.modules
    if hidden:
        sys.modules["highspy"] = None  # type: ignore[assignment]  # importing it fails
    try:
        import pulp  # type: ignore[import-untyped, unused-ignore]
    finally:
        if hidden:
            del sys.modules["highspy"]
    return pulp


def find(options: SolverOptions) -> Backend:
    """Return the backend that is asked for.

    Raises
    ------
    UnknownNameError
        If PuLP knows no such solver.
    RefusedError
        If it is not installed, or does not take an option or a parameter.
    """
    asked = (options.backend or "cbc").lower()
    if asked == "cbc":
        check_parameters("cbc", options.parameters)
        return Backend("cbc", "", frozenset(), EVERY)
    every = _backends()
    names = [name for name in every if asked in {name.lower(), _stem(name)}]
    there = ", ".join(name for name, backend in every.items() if backend)
    if not names:
        raise UnknownNameError("backend", asked, list(every))
    found = next((backend for name in names if (backend := every[name])), None)
    if found is None:
        raise RefusedError(f"finds no backend {names[0]} here; there are: {there}")
    refused = options.given() - found.supported_options
    if refused:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(refused))
        raise RefusedError(f"with the backend {found.name} takes no {named}")
    check_parameters(found.name, options.parameters)
    return found


def backends() -> list[dict[str, Any]]:
    """Return a row for each backend that PuLP knows.

    Returns
    -------
    list of dict
        ``name``; ``available``; ``version``, where known; ``supported_options``, the names of the
        `SolverOptions` that it takes.
    """
    return [
        {
            "name": name,
            "available": backend is not None,
            "version": backend.version if backend else "",
            "heeds": sorted(backend.supported_options) if backend else [],
        }
        for name, backend in _backends().items()
    ]


@functools.cache
def _backends() -> dict[str, Backend | None]:
    with SolverProcess() as place:
        listed = place.ask_pulp({})
        ours = _cbc_program()
        if ours:
            place.run([ours, "-quit"])
            version = _search_log(r"Version: (\S+)", place.log.read_text())
    if listed is None or "error" in listed:
        raise HyparError(f"PuLP cannot list its solvers: {(listed or {}).get('error')}")
    every: dict[str, Backend | None] = {
        "cbc": Backend("cbc", version or "", frozenset(), EVERY) if ours else None
    }
    for name, found in listed.items():
        every[name] = None
        if found:
            takes = frozenset(found["takes"])
            every[name] = Backend(name, found["version"], takes, _heeds(name, takes))
    return every


def _heeds(name: str, takes: frozenset[str]) -> frozenset[str]:
    way = WAYS.get(name, Way(""))
    heeded = {
        "gap": "gapRel" in takes or way.gap,
        "parameters": way.style,
        "seed": way.seed,
        "threads": "threads" in takes or way.threads,
        "time_limit": "timeLimit" in takes,
        "warm_start": "warmStart" in takes,
    }
    return frozenset({"backend", "export", "log", *(key for key, is_ in heeded.items() if is_)})


def _stem(name: str) -> str:
    return re.sub("_(cmd|py|dll)$", "", name.lower())


def call(
    backend: Backend,
    place: SolverProcess,
    problem: Any,
    options: SolverOptions,
    start: Mapping[str, int],
    deadline: Deadline,
) -> Answer:
    """Have a backend minimise a problem of PuLP's.

    Parameters
    ----------
    start
        Values of some columns to start from.
    deadline
        Which counts, and not the time limit among the options.

    Raises
    ------
    RefusedError
        If the backend refuses a parameter.
    HyparError
        If it fails, or finds no room for its files.
    """
    for column in problem.variables():
        if column.name in start:
            column.setInitialValue(start[column.name], check=False)
    try:
        if backend.name == "cbc":
            return _ask_cbc(place, problem, options, start, deadline)
        return _ask_pulp(backend, place, problem, options, start, deadline)
    except OSError as error:
        raise HyparError(
            f"{place.directory}: {error.strerror}; a backend's files are written there: set TMPDIR"
            " to a directory with room"
        ) from None


def _cbc_program() -> str | None:
    ours: str = load_pulp().PULP_CBC_CMD.pulp_cbc_path
    return ours if os.access(ours, os.X_OK) else shutil.which("cbc")


def _ask_cbc(
    place: SolverProcess,
    problem: Any,
    options: SolverOptions,
    start: Mapping[str, int],
    deadline: Deadline,
) -> Answer:
    """Run CBC on the files that PuLP writes and reads."""
    pulp = load_pulp()
    program = _cbc_program()
    if program is None:
        raise RefusedError("finds no cbc: PuLP comes with none for this machine")
    caller = pulp.COIN_CMD(path=program)
    model, solution, first = (place.directory / name for name in ("model.mps", "solution", "start"))
    columns, names, rows, _ = problem.writeMPS(model, rename=1)
    command = [program, str(model)]
    if start:
        caller.writesol(first, problem, columns, {x: names[x] for x in start}, rows)
        command += ["-mips", str(first)]
    limit = deadline.left()
    settings = {
        # Under a capacity, in one table of thousands, either of them cuts off the optimum.
        "preprocess": "off",
        "gomory": "off",
        "timeMode": "elapsed",
        "sec": limit,
        "ratio": options.gap,
        "threads": options.threads,
        "randomSeed": options.seed,
        "randomCbcSeed": options.seed,
        **options.parameters,
    }
    for key, value in settings.items():
        command += [] if value is None else [f"-{key}", str(value)]
    # The relaxation first, for its optimum in more digits than a search would tell.
    command += ["-initialSolve", "-solve", "-solution", str(solution)]
    solution.unlink(missing_ok=True)
    status = place.run(command, _patience(limit))
    in_time = limit is None or (deadline.left() or 0.0) > limit / 2
    log = place.log.read_text(encoding="utf-8", errors="replace")
    refused = _search_log(
        r"No match for (\S+) - |(.* was provided for .*)|<Possible options for (\S+)", log
    )
    if refused:
        raise RefusedError(f"with the backend cbc takes no such parameter: {refused}")
    if status is None:
        return Answer(None, stopped_by=TIME_LIMIT)
    if status != 0 or not solution.exists():
        raise HyparError(f"cbc ended with status {status}: {log.strip().splitlines()[-1:]}")
    try:
        _, values, *_, state = caller.readsol_MPS(solution, problem, columns, names, rows)
        with solution.open() as lines:
            first_line = next(lines)  # Stopped on time - objective value 42.00000000
        last_word = first_line.split()[-1]
    except (IndexError, StopIteration, ValueError):  # its last lines are missing
        raise HyparError(
            f"{place.directory}: cbc could not write its solution there; set TMPDIR to a directory"
            " with room"
        ) from None
    # PuLP's status has "Optimal" for a solution that a time limit left.
    optimal = state == pulp.LpSolutionOptimal and not options.gap
    found = optimal or state in {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}
    stopped = _search_log(r"^Stopped on (\w+)", first_line)
    # As its time runs out CBC may call "proven infeasible" what it had no time to look at.
    infeasible = "nfeasible" in first_line and in_time
    if not found and not infeasible and stopped is None:
        if limit is None:
            raise HyparError(f"cbc leaves no answer: {first_line.strip()}")
        stopped = "time"
    return Answer(
        values=values if found else None,
        objective=float(last_word) if found else None,
        proven=optimal or infeasible,
        bound=_number(_search_log(r"^Lower bound: +(\S+)", log)),
        root=_number(_search_log(r"^Optimal objective (\S+) - ", log)),
        stopped_by=TIME_LIMIT if stopped == "time" else stopped,
        version=_search_log(r"^Version: (\S+)", log) or "",
    )


def _ask_pulp(
    backend: Backend,
    place: SolverProcess,
    problem: Any,
    options: SolverOptions,
    start: Mapping[str, int],
    deadline: Deadline,
) -> Answer:
    """Have PuLP call a solver, in a process of its own."""
    model = place.directory / "model.mps"
    problem.writeMPS(model)
    limit = deadline.left()
    question = {
        "solver": backend.name,
        "model": str(model),
        "arguments": _arguments(backend, options, limit),
        "parameters": dict(options.parameters),
        "start": start,
    }
    answer = place.ask_pulp(question, _patience(limit))
    if answer is None:
        return Answer(None, stopped_by=TIME_LIMIT)
    if "error" in answer:
        raise HyparError(f"the backend {backend.name} fails: {answer['error']}")
    values = answer["values"]
    late = limit is not None and answer["seconds"] >= limit
    # Some report an optimum when a limit stops them, so a late one is not believed.
    believed = backend.name in WAYS and not late
    optimal = answer["solution"] == "Optimal Solution Found" and not options.gap
    objective = None
    if values is not None:
        objective = sum(cost * values[x.name] for x, cost in problem.objective.items())
    return Answer(
        values=values,
        objective=objective,
        proven=believed and (optimal or answer["status"] == "Infeasible"),
        bound=answer["bound"],
        stopped_by=TIME_LIMIT if late else None,
        version=backend.version,
    )


def _arguments(backend: Backend, options: SolverOptions, limit: float | None) -> dict[str, Any]:
    """Return the arguments for PuLP's constructor of a solver."""
    way = WAYS.get(backend.name, Way(""))
    threads = options.threads or 1
    parameters = {key: _as_number(value) for key, value in options.parameters.items()}
    if options.seed is not None:
        parameters[way.seed] = options.seed
    if way.threads:
        parameters[way.threads] = threads
    if way.gap and not options.gap:
        parameters[way.gap] = 0
    arguments: dict[str, Any] = {
        "msg": True,
        "timeLimit": limit,
        "gapRel": options.gap,
        "threads": threads,
        "warmStart": options.warm_start is not None,
    }
    arguments = {key: value for key, value in arguments.items() if key in backend.takes}
    if way.style == "keywords":
        return arguments | parameters
    if way.style == "pairs":
        return arguments | {"options": list(parameters.items())}
    if way.style == "mapping":
        return arguments | {"options": parameters}
    if way.style:
        return arguments | {"options": [way.style.format(*pair) for pair in parameters.items()]}
    return arguments


def _patience(limit: float | None) -> float | None:
    return None if limit is None else limit + GRACE


def _search_log(pattern: str, log: str) -> str | None:
    """Return what a log says in the group that matches."""
    found = re.search(pattern, log, re.MULTILINE)
    return next(filter(None, found.groups()), None) if found else None


def _as_number(text: str) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)
