"""Solvers outside our process: in a session of their own, with files that end with us.

Run as a program, this file is what a `SolverProcess` starts. ``keep`` holds the other end of a
pipe: whatever ends us, be it Ctrl-C, SIGTERM or SIGKILL, also ends the pipe, and then the
program at work and all its files. ``pulp`` calls a solver through PuLP, so that the solver's
library is loaded there and not here: those of highspy and ortools cannot share a process.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType


class SolverProcess:
    """A private directory and one program at a time in it; both end when we do.

    The program gets a session of its own: a Ctrl-C in the terminal reaches us alone.
    """

    def __init__(self) -> None:
        import tempfile

        from hypar_opt.errors import HyparError  # which the keeper does not find, nor needs

        try:
            self.directory = Path(tempfile.mkdtemp(prefix="hypar-opt-"))
        except OSError as error:
            raise HyparError(f"no temporary directory: {error.strerror}; set TMPDIR") from None
        self.log = self.directory / "log"
        """What the last program wrote to its standard output and error."""
        # Without site packages it is there in a few hundredths of a second; we go on meanwhile.
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, "keep", str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def run(self, command: list[str], seconds: float | None = None) -> int | None:
        """Run a program and return its exit status; None if it had to be killed.

        Parameters
        ----------
        command
            The program and its arguments.
        seconds
            When to kill it.

        Raises
        ------
        HyparError
            If the keeper itself was killed.
        """
        from hypar_opt.errors import HyparError

        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        answer = ""
        with contextlib.suppress(OSError):
            self._keeper.stdin.write(json.dumps([command, str(self.log), seconds]) + "\n")
            self._keeper.stdin.flush()
            answer = self._keeper.stdout.readline()
        if not answer:
            raise HyparError("the process that keeps the solver's program was killed; run it again")
        status: int | None = json.loads(answer)
        return status

    def ask_pulp(
        self, question: dict[str, Any], seconds: float | None = None
    ) -> dict[str, Any] | None:
        """Put a question to PuLP in a process of its own; None if it had to be killed.

        Parameters
        ----------
        question
            What `_solved` is to solve; empty to have PuLP's solvers `_listed`.

        Returns
        -------
        dict
            What these return, or ``{"error": ...}``.
        """
        asked, answered = self.directory / "question", self.directory / "answer"
        asked.write_text(json.dumps(question), encoding="utf-8")
        answered.unlink(missing_ok=True)
        command = [sys.executable, "-P", __file__, "pulp", str(asked), str(answered)]
        status = self.run(command, seconds)
        if status is None:
            return None
        if not answered.exists():
            return {"error": f"it ended with status {status}"}
        answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
        return answer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        with contextlib.suppress(OSError):
            # Said, and not only shown by closing the pipe: a fork of ours may hold it open.
            self._keeper.stdin.write("null\n")
            self._keeper.stdin.flush()
        with contextlib.suppress(OSError):
            self._keeper.stdin.close()
        self._keeper.stdout.close()
        self._keeper.wait()


def _keep(directory: str) -> None:
    """Run what the pipe asks for; once that ends, end the program and remove the directory."""
    import shutil
    import threading

    program: subprocess.Popen[bytes] | None = None
    for line in sys.stdin:
        job = json.loads(line)
        if job is None:
            break
        command, log, seconds = job
        with Path(log).open("wb") as output:
            try:
                program = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                output.write(f"{command[0]}: {error.strerror}\n".encode())
                _tell(127)
                continue
        # A thread waits for it: we have to see the end of the pipe meanwhile.
        threading.Thread(target=_report, args=(program, seconds), daemon=True).start()
    if program is not None:
        _kill(program)
    shutil.rmtree(directory, ignore_errors=True)


def _report(program: subprocess.Popen[bytes], seconds: float | None) -> None:
    try:
        status: int | None = program.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill(program)
        status = None
    _tell(status)


def _tell(status: int | None) -> None:
    """Answer, if anybody is left to read it; nothing stays buffered for the interpreter's end."""
    import os

    with contextlib.suppress(OSError):
        os.write(1, f"{json.dumps(status)}\n".encode())


def _kill(program: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it started."""
    if sys.platform == "win32":
        program.kill()
    else:
        import os
        import signal

        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def _answer(asked: str, answered: str) -> None:
    import warnings

    warnings.simplefilter("ignore")
    question = json.loads(Path(asked).read_text(encoding="utf-8"))
    try:
        answer = _solved(**question) if question else _listed()
    except Exception as error:  # whatever a solver's library raises is its answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    Path(answered).write_text(json.dumps(answer), encoding="utf-8")


def _solved(
    solver: str,
    model: str,
    arguments: dict[str, Any],
    parameters: dict[str, str],
    start: dict[str, float],
) -> dict[str, Any]:
    """Solve an MPS file with one of PuLP's solvers.

    Parameters
    ----------
    arguments
        Of PuLP's constructor of the solver.
    parameters
        Those of the `arguments` that the user chose, as they are.

    Returns
    -------
    dict
        PuLP's word on it, the seconds it took, reading included, the columns' values and the
        bound, if known.
    """
    import os
    import time

    began = time.monotonic()

    import pulp  # type: ignore[import-untyped, unused-ignore]

    for key, value in parameters.items():
        if solver == "HiGHS" and not _highs_takes(key, value):
            return {"error": f"it takes no parameter {key}={value}"}
    columns, problem = pulp.LpProblem.fromMPS(model)
    os.chdir(Path(model).parent)  # for what solvers leave behind
    for column, first in start.items():
        columns[column].setInitialValue(first, check=False)
    if arguments.get("timeLimit") is not None:
        arguments["timeLimit"] = max(arguments["timeLimit"] - (time.monotonic() - began), 0.01)
    caller = pulp.getSolver(solver, **arguments)
    status = problem.solve(caller)
    seconds = time.monotonic() - began
    values = {column: variable.varValue for column, variable in columns.items()}
    found = None not in values.values() and pulp.LpStatus[status] != "Infeasible"
    bound = None
    if solver == "HiGHS":
        bound = problem.solverModel.getInfo().mip_dual_bound
    elif solver == "GUROBI":
        bound = problem.solverModel.ObjBound
    return {
        "status": pulp.LpStatus[status],
        "solution": pulp.LpSolution[problem.sol_status],
        "seconds": seconds,
        "values": values if found else None,
        "bound": bound,
    }


def _highs_takes(key: str, value: str) -> bool:
    """Whether a parameter is one; HiGHS says so, but PuLP does not ask."""
    import highspy  # type: ignore[import-not-found, unused-ignore]

    highs = highspy.Highs()  # type: ignore[no-untyped-call, unused-ignore]
    taken: bool = highs.setOptionValue(key, value) == highspy.HighsStatus.kOk
    return taken


def _listed() -> dict[str, Any]:
    """Return, for each of PuLP's solvers that is available, its arguments and version."""
    import inspect

    import pulp  # type: ignore[import-untyped, unused-ignore]

    there = set(pulp.listSolvers(onlyAvailable=True))
    listed: dict[str, Any] = {}
    for name in pulp.listSolvers():
        # PULP_CBC_CMD is deprecated; its program we call ourselves.
        if name != "PULP_CBC_CMD":
            caller = type(pulp.getSolver(name, msg=False))
            takes = list(inspect.signature(caller.__init__).parameters)
            listed[name] = {"takes": takes, "version": _version(name)} if name in there else None
    return listed


def _version(solver: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    package = {
        "HiGHS": "highspy",
        "GUROBI": "gurobipy",
        "CPLEX_PY": "cplex",
        "SCIP_PY": "pyscipopt",
    }
    try:
        return version(package.get(solver, solver.lower()))
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    (_keep if kind == "keep" else _answer)(*arguments)
