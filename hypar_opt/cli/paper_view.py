"""The paper's figures on a terminal: one row per figure, or every row of each."""

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
    """Return one row per figure: the number of rows of each verdict, and the largest deviation."""
    lines = [
        [
            figure,
            str(summary.rows),
            *(str(summary.counts[verdict] or "-") for verdict in VERDICTS),
            "-" if summary.deviation is None else f"{summary.deviation:+.2%}",
        ]
        for figure, summary in summaries.items()
    ]
    table = console.rows_view(_HEADS, lines, right=tuple(range(1, len(_HEADS))))
    words = [Text(f"{figure}: {summary.verdict}") for figure, summary in summaries.items()]
    return Group(console.unbroken(table), "", *words, "", Text(_CAPTION, "dim"))


def rows_view(rows: Mapping[str, Sequence[PaperRow]]) -> RenderableType:
    """Return every row of each figure, and the number of rows of each verdict."""
    counts = paper.count_verdicts(rows).items()
    verdicts = "; ".join(f"{number} {verdict}" for verdict, number in counts if number)
    return Group(
        *(_figure(paper.TITLES[figure], rows_of) for figure, rows_of in rows.items()), verdicts
    )


def _figure(title: str, rows: Sequence[PaperRow]) -> RenderableType:
    """Return the rows of a figure, and the reasons why some are not equal."""
    cells, reasons = format_rows(rows)
    head = ("", "reading", "ours", "printed", "ratio", "verdict")
    notes = [Text(f"({number}) {reason}", "dim") for number, reason in enumerate(reasons, 1)]
    # A folded number could not be compared with the one next to it.
    table = console.unbroken(console.rows_view(head, cells, right=(2, 3, 4), keys=2))
    return Group(Text(title, "bold"), table, *notes, "")
