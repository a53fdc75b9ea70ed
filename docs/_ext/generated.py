"""What a page gets from the code when the site is built.

A page asks for it in a comment, which is replaced before Markdown is read:
``<!-- commands -->`` by the reference of the command line, ``<!-- reproduction -->`` by the
paper's figures, ``<!-- notebook -->`` by the notebook's cells and outputs. A file that an example
saves is named above it.
"""

# ruff: noqa: ARG001  (Sphinx tells a handler more than it asks for)

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notebooks import page_of
from sphinx.util.logging import getLogger

from hypar_opt import paper
from hypar_opt.paper.rows import format_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sphinx.application import Sphinx

LOG = getLogger(__name__)
SAVED = re.compile(r"^<!-- file: (\S+) -->\n```(\w+)$", re.M)


def commands() -> str:
    """Return a section a command, from the program's own options."""
    made = subprocess.run(
        [
            sys.executable,
            "-m",
            "typer",
            "hypar_opt.cli.app",
            "utils",
            "docs",
            "--name",
            "hypar-opt",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    text = unescape(made).partition("\n")[2]
    # The examples that end a command.
    text = re.sub(r"\n\n((?:(?:hypar-opt|highs) .+\n)+)", _examples, text)
    # The list of commands has the start of each one's help; here it is whole.
    helps = dict(re.findall(r"^#+ `hypar-opt ([\w ]+)`\n\n(.*?)\n\n", text, re.M | re.S))
    within = ""
    lines = []
    for line in text.splitlines():
        if heading := re.match(r"^#+ `hypar-opt ([\w ]+)`$", line):
            within = heading[1] + " "
        if entry := re.match(r"^\* `(\w+)`: ", line):
            name = within + entry[1]
            if name in helps:
                line = f"* [`{name}`](#hypar-opt-{name.replace(' ', '-')}): {helps[name]}"
        lines.append(line)
    return "\n".join(lines)


def _examples(commands: re.Match[str]) -> str:
    return (
        "\n\n**Examples**:\n\n```console\n"
        + re.sub("^", "$ ", commands[1], flags=re.M)[:-2]
        + "```\n"
    )


def reproduction() -> str:
    """Return a section a figure: every printed number, ours, and the verdict."""
    rows = paper.reproduce()
    for figure, row in paper.unexpected_rows(rows):
        LOG.warning("%s, %s: %s", figure, row.label, row.reason)
    summaries = paper.summary(rows)
    lines = [
        (f"[{paper.TITLES[figure].partition(':')[0]}](#{figure})", own.rows, *own.counts.values())
        for figure, own in summaries.items()
    ]
    counts = paper.count_verdicts(rows)
    total = ("**all**", sum(counts.values()), *counts.values())
    parts = [_table(("", "rows", *counts), [*lines, total], right=tuple(range(1, 2 + len(counts))))]
    parts.append("\n".join(f"- {figure}: {own.verdict}" for figure, own in summaries.items()))
    for figure, each in rows.items():
        cells, reasons = format_rows(each)
        head = ("row", "reading", "ours", "printed", "ratio", "verdict")
        notes = [f"{place}. {reason}" for place, reason in enumerate(reasons, 1)]
        title, table = paper.TITLES[figure], _table(head, cells, right=(2, 3, 4))
        parts.append(f"({figure})=\n## {title}\n\n{table}\n\n" + "\n".join(notes))
    return "\n\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int]) -> str:
    rule = ["---:" if place in right else "---" for place in range(len(head))]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, rule, *rows))


def notebook() -> str:
    """Return the notebook's cells and outputs, which a test compares with those of a run."""
    file = Path(__file__).parent.parent / "notebook.ipynb"
    return page_of(json.loads(file.read_text(encoding="utf-8")))


GENERATED: dict[str, Callable[[], str]] = {
    "<!-- commands -->": commands,
    "<!-- notebook -->": notebook,
    "<!-- reproduction -->": reproduction,
}


def fill(text: str) -> str:
    """Return a page's text with what it asks for."""
    for comment, made in GENERATED.items():
        if comment in text:
            text = text.replace(comment, made())
    return SAVED.sub(r"```{code-block} \2\n:caption: \1\n", text)


def _page(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def _included(app: Sphinx, path: object, page: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace comments before a page is read."""
    app.connect("source-read", _page)
    app.connect("include-read", _included)
    return {"parallel_read_safe": True}
