"""What ``make test`` installs: requirements/ has a file of versions for each Python."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from hypar_opt.studies.installation import _extras

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
OTHER_NAMES = {"plot": "figures", "report": "figures"}
"""Extras that are other names of one, which older commands and files have."""

EXTRAS = {
    extra: own
    for extra, own in PROJECT["optional-dependencies"].items()
    if extra not in OTHER_NAMES
}
PYTHONS = [
    python
    for classifier in PROJECT["classifiers"]
    if (python := classifier.removeprefix("Programming Language :: Python :: ")) != classifier
]


def requirements() -> list[Requirement]:
    """What ``make test`` needs: the package, each extra but torch, and the developers' tools."""
    extras = [own for extra, own in EXTRAS.items() if extra != "torch"]
    groups = [PROJECT["dependencies"], *extras, PYPROJECT["dependency-groups"]["dev"]]
    return [Requirement(line) for group in groups for line in group]


def locked(python: str) -> dict[NormalizedName, Version]:
    """Return the version of each package that a lock file names.

    A line is ``name==version`` and a comment; an option, an address or a path is no requirement.
    """
    versions: dict[NormalizedName, Version] = {}
    for line in (ROOT / f"requirements/dev-{python}.txt").read_text().splitlines():
        if not line.startswith("#"):
            requirement = Requirement(line.partition("#")[0].strip())
            (pin,) = requirement.specifier
            assert (requirement.url, requirement.marker, pin.operator) == (None, None, "=="), line
            versions[canonicalize_name(requirement.name)] = Version(pin.version)
    return versions


def test_versions_are_resolved_with_each_extra_but_torch() -> None:
    (resolved,) = re.findall(r"^EXTRAS = (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert {*resolved.split(), "torch"} == set(EXTRAS)


def test_the_other_names_of_an_extra_are_that_extra() -> None:
    stated = PROJECT["optional-dependencies"]
    assert {name: stated[name] for name in OTHER_NAMES} == {
        name: [f"{PROJECT['name']}[{extra}]"] for name, extra in OTHER_NAMES.items()
    }
    assert set(OTHER_NAMES.values()) <= set(EXTRAS)
    assert {*_extras()} == {*EXTRAS}  # doctor lists each once


def test_each_python_that_is_promised_has_a_lock_file() -> None:
    files = {path.name for path in (ROOT / "requirements").iterdir()}
    assert files == {f"dev-{python}.txt" for python in PYTHONS}
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert [f"3.{minor}" for minor in range(40) if f"3.{minor}" in allowed] == PYTHONS


@pytest.mark.parametrize("python", PYTHONS)
def test_a_lock_file_has_an_allowed_version_of_each_requirement(python: str) -> None:
    versions = locked(python)
    for requirement in requirements():
        if requirement.marker and not requirement.marker.evaluate({"python_version": python}):
            continue
        version = versions.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not locked: make lock"
        assert requirement.specifier.contains(version, prereleases=True), requirement
