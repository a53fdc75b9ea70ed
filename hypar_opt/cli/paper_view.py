"""The paper's figures on a terminal: a row a figure, or all of a figure's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt import paper
from hypar_opt.paper.rows import VERDICTS, PaperRow, format_rows
from hypar_opt.report.terminal import console

_HEADS = (
    "\nfigure",
    "\nrows",
    "\nequal",
    "near,\nknown",
    "near,\nunknown",
    "off,\nknown",
    "off,\nunknown",
    "largest\ndeviation",
)
_CAPTION = (
    "equal: to the last digit printed, or as closely as the figure can be read; near: within"
    " 10 %; off: further; known, unknown: the cause. --rows shows every number."
)


def summary_view(summaries: Mapping[str, paper.FigureSummary]) -> RenderableType:
    """Show a row a figure: how many rows have each verdict, and the largest deviation."""
    lines = [
        [
            figure,
            str(own.rows),
            *(str(own.counts[verdict] or "-") for verdict in VERDICTS),
            "-" if own.deviation is None else f"{own.deviation:+.2%}",
        ]
        for figure, own in summaries.items()
    ]
    table = console.rows_view(_HEADS, lines, right=tuple(range(1, len(_HEADS))))
    words = [Text(f"{figure}: {own.verdict}") for figure, own in summaries.items()]
    return Group(console.unbroken(table), "", *words, "", Text(_CAPTION, "dim"))


def rows_view(rows: Mapping[str, Sequence[PaperRow]]) -> RenderableType:
    """Show every row of each figure, and how many have each verdict."""
    counts = paper.count_verdicts(rows).items()
    verdicts = "; ".join(f"{number} {verdict}" for verdict, number in counts if number)
    return Group(*(_figure(paper.TITLES[figure], own) for figure, own in rows.items()), verdicts)


def _figure(title: str, rows: Sequence[PaperRow]) -> RenderableType:
    """Show a figure's rows, and below them the reasons of those that are not equal."""
    cells, reasons = format_rows(rows)
    head = ("", "reading", "ours", "printed", "ratio", "verdict")
    notes = [Text(f"({number}) {reason}", "dim") for number, reason in enumerate(reasons, 1)]
    # A number that is folded cannot be compared with the one beside it.
    table = console.unbroken(console.rows_view(head, cells, right=(2, 3, 4), keys=2))
    return Group(Text(title, "bold"), table, *notes, "")
