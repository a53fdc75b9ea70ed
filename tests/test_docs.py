"""The README and docs: every command in them is run, and prints what stands there."""

from __future__ import annotations

import io
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.execution.settings import FRAMEWORKS
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.hardware.topologies import TOPOLOGIES
from hypar_opt.simulator.streams import OVERLAPS
from hypar_opt.solvers import SOLVERS
from hypar_opt.step.readings import READINGS
from hypar_opt.units import format_bytes
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.parallelism import SCHEDULES
from tests.cli.shell import command, written
from tests.commands import ended, forked

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

ENTRY_POINTS = {"hypar_opt.topologies", "hypar_opt.operators", "hypar_opt.formats"}
"""Groups of entry points that are called after no module."""

# A fenced block, with the file it is to be saved under where the line before names one.
BLOCK = re.compile(r"(?:^<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    return BLOCK.findall(page.read_text())


def install_page(page: Path, folder: Path) -> None:
    """Save the files of a page, whose package is then installed."""
    for name, _, text in blocks(page):
        if name:
            (folder / name).write_text(text)
    install(folder)


def install(folder: Path) -> None:
    """Do what ``pip install .`` does: say where the entry points of its modules are.

    Of several modules it takes those that are listed.
    """
    document = tomllib.loads((folder / "pyproject.toml").read_text())
    groups = document["project"]["entry-points"].items()
    modules = {entry.partition(":")[0] for _, at in groups for entry in at.values()}
    if len(modules) > 1:
        assert {*document["tool"]["setuptools"]["py-modules"]} == modules
    written(
        folder,
        {},
        [line for group, at in groups for line in (f"[{group}]", *map(" = ".join, at.items()))],
    )


@pytest.mark.parametrize("page", PAGES, ids=[p.relative_to(ROOT).as_posix() for p in PAGES])
def test_what_a_page_shows_is_what_happens(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are saved, commands and Python are run in order, and outputs compared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # An exported module that a page imports asks here for its devices; later tests have others.
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    # Each process of a sweep would import all again.
    monkeypatch.setattr("hypar_opt.studies.sweep.run._cores", lambda: 1)
    run = command
    printed: str | None = None
    for name, language, text in blocks(page):
        if name:
            (tmp_path / name).write_text(text)
        if language == "console":
            for call in re.split(r"^\$ ", text, flags=re.M)[1:]:
                line, _, expected = call.partition("\n")
                if line.startswith("make "):
                    target = line.removeprefix("make ")
                    assert f"\n{target}:" in (ROOT / "Makefile").read_text()
                    continue
                if line == "pip install .":
                    if (tmp_path / "pyproject.toml").exists():  # else it is this one
                        install(tmp_path)
                        run = forked  # this process has looked for entry points before
                    continue
                status: int | None = None
                piped = ""
                for part in line.split(" | "):
                    program, *args = shlex.split(part)
                    assert program in ("hypar-opt", "python")
                    if program == "hypar-opt":
                        status, piped, _ = run(args, tmp_path, piped, together=True)
                    else:
                        done = subprocess.run(
                            [sys.executable, *args],
                            stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT,
                            text=True,
                            check=False,
                        )
                        status, piped = done.returncode, done.stdout
                # A page shows a refusal, its output's only line, on purpose.
                refused = re.fullmatch("hypar-opt: (?!warning).*\n", expected)
                assert (status != 0) == bool(refused), piped
                assert expected != "...\n", "something of the output should be shown"
                if expected.endswith("...\n"):  # the rest is not shown
                    assert piped.startswith(expected.removesuffix("...\n"))
                else:
                    assert piped == expected
        elif language == "python":
            stream = io.StringIO()
            with redirect_stdout(stream):
                exec(compile(text, str(page), "exec"), {})
            printed = stream.getvalue()
        elif language == "text" and printed is not None:
            assert printed == text
            printed = None


@pytest.mark.parametrize("page", PAGES, ids=[p.relative_to(ROOT).as_posix() for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


PRESENT = [page for page in PAGES if page.parent.name != "decisions"]


@pytest.mark.parametrize("page", PRESENT, ids=[p.relative_to(ROOT).as_posix() for p in PRESENT])
def test_modules_and_files_that_a_page_names_exist(page: Path) -> None:
    """``hypar_opt.room.module.name`` can be imported; ``room/module.py`` is a file.

    So can what pages of the interface show. A decision names what there was when it was taken.
    """
    text = page.read_text()
    names = re.findall(r"`(hypar_opt(?:\.\w+)+)(?:\(.*?\))?`", text)
    for name in [*names, *re.findall(r"^\.\. auto\w+:: (hypar_opt[\w.]+)", text, re.M)]:
        assert name in ENTRY_POINTS or pkgutil.resolve_name(name) is not None
    for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|toml))`", text):
        assert (ROOT / path).exists() or (ROOT / "hypar_opt" / path).exists(), path


def test_pages_that_the_code_names_exist() -> None:
    """A page of another repository has its commit behind it."""
    files = [
        ROOT / "pyproject.toml",
        *(ROOT / "hypar_opt").rglob("*.py"),
        *ROOT.glob("tests/**/*.py"),
    ]
    named = {
        (file, name)
        for file in files
        for name in re.findall(r"docs/[\w/-]+\.md(?!@)", file.read_text())
    }
    assert len(named) > 50
    assert [(file, name) for file, name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("array-format", TOPOLOGIES.built_in_names()),
        ("collectives", COLLECTIVES),
        ("collectives", OVERLAPS),
        ("frameworks", FRAMEWORKS),
        ("model", READINGS),
        ("network-format", OPERATORS.built_in_names()),
        ("solvers", SOLVERS.built_in_names()),
        ("stages", SCHEDULES),
        ("torch", SCHEDULES),
    ],
)
def test_a_page_has_a_row_for_each_name(page: str, names: Iterable[str]) -> None:
    """In the first cell of a table, or as an entry of a list."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    firsts = re.findall(r"^(?:\| |- )([^|\n]*)", text, re.M)
    assert {*names} <= {name for first in firsts for name in re.findall(r"`([^`]+)`", first)}


def test_the_architecture_has_every_floor_and_every_room() -> None:
    """The floors are the import contract's, in its order; the rooms those of the package."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    floors = next(text for _, language, text in BLOCK.findall(page) if language == "text")
    # Brackets mark a layer that import-linter does not demand to exist.
    assert floors.splitlines() == [re.sub(r"[()]", "", layer) for layer in layers]
    rooms = {module.name for module in pkgutil.iter_modules(ho.__path__)}
    assert set(re.findall(r"^- `(\w+)`: ", page, re.M)) == rooms


def test_the_readmes_first_screen_has_the_two_commands_and_the_demos_output() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:36])
    assert "$ make demo\n$ hypar-opt solve vgg-a --solver dp\n" in first_screen
    assert "$ make test\n" in first_screen
    assert "1.408 GB" in first_screen
    recipe = ended("make", "--dry-run", "--no-print-directory", "demo", cwd=ROOT).stdout
    assert "hypar-opt solve vgg-a --solver dp\n" in recipe
    assert "activate the shell finds hypar-opt" in recipe


def test_the_picture_is_of_the_present_plan() -> None:
    picture = (ROOT / "docs" / "images" / "vgg-a.svg").read_text().replace("&#160;", " ")
    plan = ho.solve("vgg-a")
    for bytes_ in (*plan.cost.per_level, plan.cost.total):
        assert format_bytes(bytes_) in picture
    flat = [choice for row in plan.parallelism for choice in row]
    assert picture.count("●") == flat.count("model") + 1  # and the legend's
    assert picture.count("○") == flat.count("data") + 1
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_the_gallery_has_each_picture_with_the_command_that_draws_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    gallery = runpy.run_path(str(ROOT / "docs/pictures.py"))["GALLERY"]
    page = (ROOT / "docs/gallery.md").read_text()
    shown = re.findall(r"^```sh\n(.*)\n```\n\n!\[[^]]+\]\(images/([\w-]+)\.svg\)$", page, re.M)
    assert {name: line for line, name in shown} == gallery
    assert page.count("![") == len(gallery)
    assert all((ROOT / f"docs/images/{name}.svg").exists() for name in gallery)
