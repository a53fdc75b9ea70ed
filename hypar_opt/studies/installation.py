"""What is installed here, and whether it works: dependencies, extras, solvers, plug-ins."""

from __future__ import annotations

import platform
import shutil
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from hypar_opt.checked import checked
from hypar_opt.errors import CheckFailedError, HyparError, UnknownNameError, printable
from hypar_opt.results import Column, Columns, Documented, Results
from hypar_opt.version import __version__

Status = Literal["ok", "not installed", "broken"]

PACKAGE = "hypar-opt"

_MODULES = {"pyarrow": "pyarrow.parquet", "vl-convert-python": "vl_convert"}
"""The module to import for a package, if it has another name."""

Requirements = dict[str, SpecifierSet]
"""The accepted versions, by package."""

_TINY: dict[str, Any] = {"network": "lenet-c", "levels": 1, "batch": 16}


@dataclass(frozen=True)
class Check:
    """One part of the installation.

    Parameters
    ----------
    name
        A package, an extra, a solver or another part.
    kind
        ``package``, ``extra``, ``solver``, ``plug-in`` or ``system``.
    status
        ``ok``, ``not installed`` (what is optional), or ``broken``.
    version
        The version, or where it is; empty if unknown.
    note
        What is wrong and what would help; empty where nothing is.
    """

    name: str
    kind: str
    status: Status
    version: str = ""
    note: str = ""


@dataclass(frozen=True, repr=False)
class Installation(Documented, Results[Check]):
    """What is installed.

    Parameters
    ----------
    asked
        Whether parts were requested, each of which has to be installed.
    """

    row_columns = Columns.of(Check)
    contents = Columns(
        Column("version", of=lambda _: __version__, type=str),
        "sound",
        Column("checks", of="entries", type=row_columns),
    )

    asked: bool = False

    def __repr__(self) -> str:
        return f"<Installation of {PACKAGE} {__version__}: {len(self)} parts>"

    @property
    def sound(self) -> bool:
        """Whether nothing is broken, and all requested parts are installed."""
        return self._wrong is None

    @property
    def _wrong(self) -> Check | None:
        wrong = ("broken", "not installed") if self.asked else ("broken",)
        return next((one for one in self if one.status in wrong), None)

    def check(self) -> None:
        """Raise if it is not sound.

        Raises
        ------
        CheckFailedError
            With the first part that is broken or missing.
        """
        if self._wrong is not None:
            wrong = self._wrong
            raise CheckFailedError(f"{wrong.name}: {wrong.status}; {wrong.note}")


@checked
def doctor(parts: Sequence[str] = ()) -> Installation:
    """Check what is installed: each part by importing it, each solver by solving a problem.

    Parameters
    ----------
    parts
        The parts to check, as ``jax``, ``figures`` or ``cpsat``; all by default.

    Raises
    ------
    UnknownNameError
        If there is no such part.
    """
    listed = dict(_all_checks())
    for name in parts:
        if name not in listed:
            raise UnknownNameError("part", name, list(listed))
    checks = (listed[name]() for name in listed if not parts or name in parts)
    return Installation(tuple(checks), asked=bool(parts))


def summary() -> str:
    """Return the version, and what is installed with it, as a line."""
    extras = [name for name, requirements in _extras().items() if all(map(_version, requirements))]
    python = f"Python {platform.python_version()}"
    return f"{PACKAGE} {__version__} ({python}; extras: {', '.join(extras) or 'none'})"


def _all_checks() -> Iterator[tuple[str, Callable[[], Check]]]:
    yield "python", _python
    yield "command", _command
    yield "browser", _browser
    for package, requirement in _requirements().get("", {}).items():
        yield package, partial(_package, package, package, "package", {package: requirement})
    for extra, requirements in _extras().items():
        yield extra, partial(_package, extra, next(iter(requirements)), "extra", requirements)
    from hypar_opt.solvers import SOLVERS

    exact = [name for name in SOLVERS if name not in ("data", "model", "trick")]
    for name in exact:
        yield name, partial(_solver, name)


def _python() -> Check:
    version = platform.python_version()
    try:
        needed = metadata.metadata(PACKAGE)["Requires-Python"]
    except metadata.PackageNotFoundError:  # the sources alone
        needed = ""
    if SpecifierSet(needed).contains(version, prereleases=True):
        return Check("python", "system", "ok", version)
    return Check("python", "system", "broken", version, f"hypar-opt needs Python {needed}")


def _command() -> Check:
    place = shutil.which(PACKAGE)
    if place is not None:
        return Check("command", "system", "ok", "", place)
    note = f"not on the PATH: {sys.executable} -m hypar_opt runs it too"
    return Check("command", "system", "not installed", "", note)


def _browser() -> Check:
    try:
        name = webbrowser.get().name
    except (webbrowser.Error, AttributeError):
        note = "none that Python can open; a report is a page, which any browser shows"
        return Check("browser", "system", "not installed", "", note)
    return Check("browser", "system", "ok", str(name))


def _package(name: str, package: str, kind: str, needed: Requirements) -> Check:
    """Check that packages are installed in an accepted version, by importing them."""
    remedy = f"pip install '{PACKAGE}[{name}]'" if kind == "extra" else f"pip install {name}"
    for requirement, specifier in needed.items():
        version = _version(requirement)
        if version is None:
            status: Status = "not installed" if kind == "extra" else "broken"
            return Check(name, kind, status, "", remedy)
        if not specifier.contains(version, prereleases=True):
            return Check(name, kind, "broken", version, f"needs {requirement}{specifier}: {remedy}")
        try:
            import_module(_MODULES.get(requirement, requirement.replace("-", "_")))
        except Exception as error:  # whatever a broken installation raises
            problem = f"import {requirement}: {type(error).__name__}: {error}"
            return Check(name, kind, "broken", version, printable(problem)[:200])
    return Check(name, kind, "ok", _version(package) or "")


def _solver(name: str) -> Check:
    """Check a solver on a small problem, against the optimum of dp."""
    from hypar_opt.planning.solve import solve

    try:
        plan = solve(solver=name, **_TINY)
        best = solve(solver="dp", **_TINY)
    except HyparError as error:
        return Check(name, "solver", "broken", "", error.for_shell)
    except Exception as error:  # a plug-in's
        return Check(name, "solver", "broken", "", printable(f"{type(error).__name__}: {error}"))
    programs = {name: number for name, number in plan.solver.versions.items() if name != PACKAGE}
    version = ", ".join(f"{program} {number}" for program, number in programs.items())
    if plan.solver.status == "optimal" and plan.cost.total != best.cost.total:
        note = f"finds {plan.cost.total:,} bytes, dp {best.cost.total:,}"
        return Check(name, "solver", "broken", version, note)
    return Check(name, "solver", "ok", version)


def _extras() -> dict[str, Requirements]:
    """Return the requirements of each extra, by the first of its names."""
    extras: dict[str, Requirements] = {}
    for name, requirements in _requirements().items():
        if name and requirements not in extras.values():
            extras[name] = requirements
    return extras


def _requirements() -> dict[str, Requirements]:
    """Return this installation's requirements by extra; ``""`` for those of every one."""
    try:
        stated = [Requirement(line) for line in metadata.requires(PACKAGE) or ()]
        extras = metadata.metadata(PACKAGE).get_all("Provides-Extra") or ()
    except metadata.PackageNotFoundError:  # the sources alone
        return {}
    requirements: dict[str, Requirements] = {}
    for extra in ("", *extras):
        specifiers = {one.name: one.specifier for one in stated if _is_of(one, extra)}
        requirements[extra] = {
            name: specifiers[name]
            for name in specifiers
            if not extra or name not in requirements[""]
        }
    return requirements


def _is_of(requirement: Requirement, extra: str) -> bool:
    """Return whether a requirement holds on this Python with an extra; ``""`` for none."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
