"""The documentation site: built as ``make docs`` does, and held against the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import typer

import hypar_opt as ho
from hypar_opt import paper
from hypar_opt.cli.app import app
from tests.commands import ended

ROOT = Path(__file__).parent.parent
MADE = {"genindex.html", "py-modindex.html", "search.html"}
"""Pages that Sphinx adds, which stand in no table of contents."""


class Page(HTMLParser):
    """What a page is called by, where it leads, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.contents: set[Path] = set()
        self.headings: list[str] = []
        self._heading = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            if "reference internal" in given.get("class", ""):
                self.contents.add(self.leads_to(given["href"])[0])
        if tag in {"script", "img", "iframe"} and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in {"stylesheet", "icon", "preload"}:
            self.loads.append(given["href"])
        if tag in {"h1", "h2", "h3"}:
            self._heading = True
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"h1", "h2", "h3"}:
            self._heading = False

    def handle_data(self, data: str) -> None:
        if self._heading:
            self.headings[-1] += data

    def leads_to(self, link: str) -> tuple[Path, str]:
        """Return the file of a link inside the site, and the anchor in it."""
        file, anchor = urldefrag(unquote(link))
        return (self.path.parent / file if file else self.path).resolve(), anchor


def build(folder: Path) -> dict[Path, Page]:
    """Build the site as the Makefile does, which has no warning; return its pages."""
    recipe = ended("make", "--dry-run", "--no-print-directory", "docs", cwd=ROOT).stdout
    line = next(line for line in recipe.splitlines() if "-m sphinx" in line)
    options = line.partition("-m sphinx ")[2].split()
    assert {"-W", "-n", "-E"} <= set(options)
    folders = {"build/docs": str(folder / "site"), "build/doctrees": str(folder / "trees")}
    ended(sys.executable, "-m", "sphinx", *(folders.get(each, each) for each in options), cwd=ROOT)
    files = (folder / "site").resolve().rglob("*.html")
    return {path: Page(path) for path in files if "_static" not in path.parts}


def commands(command: object, name: str) -> Iterator[str]:
    """Name the commands of the app, those of groups too."""
    yield name
    for word, subcommand in getattr(command, "commands", {}).items():
        yield from commands(subcommand, f"{name} {word}")


def dead_links(pages: dict[Path, Page]) -> list[str]:
    dead = []
    for page in pages.values():
        for link in page.links:
            if re.match(r"https://|#$", link):
                continue
            file, anchor = page.leads_to(link)
            if not file.is_file() or (
                anchor and file in pages and anchor not in pages[file].anchors
            ):
                dead.append(f"{page.path.name}: {link}")
    return dead


@pytest.mark.slow
def test_the_site_is_whole(tmp_path: Path) -> None:
    """One build, and all that is asked of it."""
    pages = build(tmp_path)
    named = {
        path.relative_to(tmp_path.resolve() / "site").as_posix(): page
        for path, page in pages.items()
    }

    # Each page of docs/ is there, and can be reached from the first one.
    sources = {
        p.relative_to(ROOT / "docs").with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")
    }
    assert named.keys() - MADE == {source.as_posix() for source in sources}
    reached, left = set(), [named["index.html"].path]
    while left:
        reached.add(path := left.pop())
        left += [page for page in pages[path].contents if page in pages and page not in reached]
    assert {path.name for path in pages.keys() - reached} <= MADE

    # Links lead somewhere, and nothing is loaded from elsewhere.
    assert dead_links(pages) == []
    assert not [load for page in pages.values() for load in page.loads if "//" in load]

    # A section a command, and none of the terminal's markup.
    text = named["cli.html"].path.read_text(encoding="utf-8")
    sections = {heading.removesuffix("¶") for heading in named["cli.html"].headings}
    below = [*commands(typer.main.get_command(app), "hypar-opt")][1:]
    assert len(below) >= 12
    assert [name for name in below if name not in sections] == []
    assert "[bold]" not in text
    assert "&amp;#" not in text

    # Each public name is in the reference, and the names that others build on.
    reference = set.union(*(page.anchors for name, page in named.items() if name.startswith("api")))
    assert [name for name in ho.__all__ if f"hypar_opt.{name}" not in reference] == []
    for name in (
        "costs.base.CostModel",
        "costs.table.CostTable",
        "hardware.topologies.base.Topology",
        "simulator.simulation.simulate_step",
        "solvers.base.Solver",
        "workload.operators.OPERATORS",
        "workload.operators.base.Operator",
        "workload.operators.axes.Choice",
        "workload.operators.axes.Contraction",
        "sharding.layouts.Layout",
    ):
        assert f"hypar_opt.{name}" in reference

    # Each figure of the reproduction, with its rows.
    shown = named["reproduction.html"].path.read_text(encoding="utf-8")
    assert set(paper.FIGURES) <= named["reproduction.html"].anchors
    assert "23.48" in shown
    assert "near, cause known" in shown
