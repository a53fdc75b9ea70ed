"""Apply each mutant to a copy of the repository, and run the tests that must notice it.

Ends with status 1 where one that tests should notice survives, one that is equivalent is
noticed, or one does not apply any more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import AREAS
from tests.mutants.mutant import ROOT, Mutant

COPIED = ("hypar_opt", "tests", "pyproject.toml")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="of an area, or with these words in the name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = [
        (area, mutant)
        for area, mutants in AREAS.items()
        for mutant in mutants
        if asked.only in (area, "") or asked.only in mutant.name
    ]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(asked.jobs):
            copies.put(_copy(Path(folder, str(number))))
        verdicts = pool.map(lambda each: _verdict(each[1], copies), chosen)
        for (area, mutant), (verdict, right) in zip(chosen, verdicts, strict=True):
            wrong += not right
            print(f"{'' if right else 'WRONG '}{verdict}: {area}: {mutant.name}", flush=True)
    print(f"{len(chosen)} mutants, {wrong} wrong")
    return bool(wrong)


def _copy(folder: Path) -> Path:
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return folder


def _verdict(mutant: Mutant, copies: SimpleQueue[Path]) -> tuple[str, bool]:
    """Return what became of a mutant, and whether that is as its entry says."""
    copy = copies.get()
    try:
        with _applied(mutant, copy):
            noticed = _fails(copy, mutant.test_paths())
    except ValueError as error:
        return f"not run, {error}", False
    finally:
        copies.put(copy)
    if mutant.equivalent:
        return ("noticed", False) if noticed else ("equivalent", True)
    return ("noticed", True) if noticed else ("survives", False)


@contextmanager
def _applied(mutant: Mutant, copy: Path) -> Iterator[None]:
    file = copy / mutant.path
    source = file.read_text()
    _write(file, mutant.mutated(source))
    try:
        yield
    finally:
        _write(file, source)


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    # Two texts of one length in one second look alike to the interpreter.
    Path(cache_from_source(file)).unlink(missing_ok=True)


def _fails(copy: Path, tests: list[str]) -> bool:
    """Whether a test fails in a copy.

    Raises
    ------
    ValueError
        If the tests cannot be run at all, which would say nothing.
    """
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise ValueError(f"{' '.join(tests)}: {done.stdout[-400:]}{done.stderr[-400:]}")
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main())
