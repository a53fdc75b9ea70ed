"""Build the sdist and the wheel, install each into empty environments, and try it there.

Every supported Python that is found takes both files, with the lowest and with the newest versions
that they allow, extras included. Ends with status 1 if anything fails, and says what was not tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# PyTorch takes about 1 GB: make torch tries it.
EXTRAS = ",".join(extra for extra in PROJECT["optional-dependencies"] if extra != "torch")
RESOLUTIONS = ("lowest-direct", "highest")
CORE = (
    *("costs/test_communication.py", "paper/test_paper.py", "plan", "solvers/test_contract.py"),
    *("onnx/test_counts.py", "display/test_display.py", "test_python.py"),
)
"""Tests of what is installed, of a minute or so."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where the files go")
    parser.add_argument("--uv", default="uv", help="the program that resolves and installs")
    parser.add_argument("--only", default="", help="such as 3.12, wheel or highest")
    asked = parser.parse_args()
    # Installs run in another folder; a name alone is one of the search path.
    uv = str(Path(asked.uv).resolve()) if os.sep in asked.uv else asked.uv
    wheel, sdist = build(asked.dist)
    print(f"{wheel}\n{sdist}", flush=True)
    failed = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        tests = tests_of(sdist, Path(folder, "tests"))
        for version in supported():
            python = interpreter(version)
            if python is None:
                print(f"{version}: not tried, no such Python here", flush=True)
                continue
            for resolution in RESOLUTIONS:
                for file in (wheel, sdist):
                    name = f"{version} {resolution} {'wheel' if file is wheel else 'sdist'}"
                    if asked.only not in name.split() and asked.only:
                        continue
                    env = Path(folder, name.replace(" ", "-"))
                    problem = "".join(attempt(uv, python, env, file, resolution, tests))
                    shutil.rmtree(env, ignore_errors=True)
                    print(f"{name}: {problem or 'ok'}", flush=True)
                    failed, tried = failed + bool(problem), tried + 1
    print(f"{tried - failed} passed, {failed} failed")
    return int(failed > 0 or not tried)


def build(folder: Path) -> tuple[Path, Path]:
    """Build both files, the wheel from the sdist, and return them."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def supported() -> list[str]:
    """Return the Pythons that the package promises, such as ``3.12``."""
    allowed = SpecifierSet(PROJECT["requires-python"])
    return [f"3.{minor}" for minor in range(40) if f"3.{minor}" in allowed]


def interpreter(version: str) -> str | None:
    """Return a Python of a version: of the search path, or one that pyenv built."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    built = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    for candidate in (shutil.which(f"python{version}"), *map(str, reversed(built))):
        # A shim of pyenv may stand for no Python.
        if candidate and not run(candidate, "-c", "import venv"):
            return candidate
    return None


def tests_of(sdist: Path, folder: Path) -> Path:
    """Unpack the sdist's tests, without the package: they are to test what is installed."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    shutil.rmtree(unpacked / "hypar_opt")
    return unpacked


def attempt(
    uv: str, python: str, env: Path, file: Path, resolution: str, tests: Path
) -> Iterator[str]:
    """Install a file into a new environment, and yield the first thing that does not work."""
    bin_, no_cache = env / "bin", ["-p", "no:cacheprovider"]
    # Old versions may use features that have since been deprecated.
    old = ["-W", "ignore::DeprecationWarning"] if resolution == RESOLUTIONS[0] else []
    core = [f"tests/{name}" for name in CORE]
    steps: list[list[str | Path]] = [
        [uv, "venv", "--quiet", "--python", python, env],
        [
            *(uv, "pip", "install", "--quiet", "--python", bin_ / "python"),
            *("--resolution", resolution, f"{file}[{EXTRAS}]"),
        ],
        # The tests' own tools, whose versions are no promise of the package.
        [uv, "pip", "install", "--quiet", "--python", bin_ / "python", "pytest", "hypothesis"],
        [uv, "pip", "check", "--quiet", "--python", bin_ / "python"],
        [bin_ / "hypar-opt", "--version"],
        [bin_ / "hypar-opt", "doctor"],
        [bin_ / "hypar-opt", "solve", "vgg-a", "--solver", "dp"],
        [bin_ / "python", "-m", "pytest", "--quiet", *no_cache, *old, *core],
    ]
    for step in steps:
        if said := run(*step, folder=tests):
            yield f"{' '.join(map(str, step[:4]))} ...\n{said}"
            return


def run(*step: str | Path, folder: Path | None = None) -> str:
    """Run a program; return the end of what it says if it fails, else nothing."""
    done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()[-3000:]
    return f"{said or 'status'} ({done.returncode})" if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
