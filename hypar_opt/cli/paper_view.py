"""The paper's figures on a terminal: one row per figure, or every row of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt import paper
from hypar_opt.display.terminal import console
from hypar_opt.paper.rows import VERDICTS, PaperRow, format_rows, format_value
from hypar_opt.units import COUNT

_COLUMNS: list[console.Column] = [
    ("\nfigure", str),
    *((heading, COUNT) for heading in ("\nrows", "\nequal")),
    *((f"{how},\n{cause}", COUNT) for how in ("near", "off") for cause in ("known", "unknown")),
    ("largest\ndeviation", "{:+.2%}".format),
]
_CAPTION = (
    "equal: to the last digit printed, or as closely as the figure can be read; near: within"
    " 10 %; off: further; known, unknown: the cause. --rows shows every number."
)


def summary_view(summaries: Mapping[str, paper.FigureSummary]) -> RenderableType:
    """Return one row per figure: the number of rows of each verdict, and the largest deviation."""
    lines = (
        (
            figure,
            summary.rows,
            *(summary.counts[verdict] or None for verdict in VERDICTS),
            summary.deviation,
        )
        for figure, summary in summaries.items()
    )
    table = console.new_table(_COLUMNS, lines)
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
    columns: list[console.Column] = [
        *console.texts("", "reading"),
        *((heading, format_value) for heading in ("ours", "printed", "ratio")),
        ("verdict", str),
    ]
    notes = [Text(f"({number}) {reason}", "dim") for number, reason in enumerate(reasons, 1)]
    # A folded number could not be compared with the one next to it.
    table = console.unbroken(console.new_table(columns, cells, keys=2))
    return Group(Text(title, "bold"), table, *notes, "")
