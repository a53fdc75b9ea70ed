"""Programs, and the command line in processes forked from one that has imported it already."""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NamedTuple

from hypar_opt.__main__ import main

ROOT = Path(__file__).parents[1]


def ended(*args: str | Path, status: int = 0, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a program, which should end with a status; return what it wrote."""
    done = subprocess.run(args, capture_output=True, text=True, check=False, **settings)
    assert done.returncode == status, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


def marked(mark: str) -> list[str]:
    """Return the processes whose environment holds a mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # gone, or somebody else's
            continue
    return found


class Done(NamedTuple):
    """The exit status of a command, and what it wrote to its two streams."""

    status: int | None
    output: str
    errors: str = ""


def forked(args: list[str], folder: Path, piped: str = "", *, together: bool = False) -> Done:
    """Run ``hypar-opt`` in a folder from which it can also import.

    As in a shell it has a process of its own, which only needs no time for imports.

    Parameters
    ----------
    together
        Whether what it writes to either stream is output, in the order in which it comes.
    """
    return _done(_command, (args, folder), folder, piped, together=together)


def program(module: str, folder: Path, **environment: str) -> Done:
    """Run ``python -m module`` from the root, with a folder for its streams."""
    return _done(_program, (module, environment), folder)


def _done(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    folder: Path,
    piped: str = "",
    *,
    together: bool = False,
) -> Done:
    files = [folder / f".{name}" for name in ("stdin", "stdout", "stderr")]
    for file in files:
        file.write_text(piped if file is files[0] else "")
    process = _server().Process(target=_run, args=(work, arguments, files, together))
    process.start()
    process.join()
    done = Done(process.exitcode, *(file.read_text() for file in files[1:]))
    for file in files:
        file.unlink()
    return done


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    # Or pyarrow, which pandas imports, would start a thread.
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    return context


def _run(
    work: Callable[..., None], arguments: tuple[Any, ...], files: list[Path], together: bool
) -> None:
    os.environ.pop("COLUMNS", None)
    for stream, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR), stream)
    if together:
        os.dup2(1, 2)
    # As Python opens them at its start where they are no terminal.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
    gc.freeze()  # or objects of imports, which stay, would be looked at again and again
    work(*arguments)


def _command(args: list[str], folder: Path) -> None:
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = ["hypar-opt", *args]
    main()


def _program(module: str, environment: dict[str, str]) -> None:
    os.chdir(ROOT)
    os.environ.update(environment)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__")
