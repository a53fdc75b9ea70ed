"""The paper's Figures 5 to 13, one picture each, from the rows of a reproduction."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import altair as alt

from hypar_opt.display.figures.bar_charts import bars, scaling
from hypar_opt.display.figures.maps import surface
from hypar_opt.display.figures.marks import CELL
from hypar_opt.display.figures.plans import cells_of, chain, names_of, words_of
from hypar_opt.display.figures.style import Rows, at, checked_format, figure, mark, save
from hypar_opt.display.labels import BASELINES
from hypar_opt.display.palette import INK
from hypar_opt.errors import InputError
from hypar_opt.models import load
from hypar_opt.models import names as zoo
from hypar_opt.workload.parallelism import PAPERS_CHOICES

if TYPE_CHECKING:
    from hypar_opt.display.figures.bar_charts import Numbers
    from hypar_opt.display.figures.style import Figure


# report and paper are siblings in the architecture and do not import each other.
class DrawnRow(Protocol):
    """The attributes of a `hypar_opt.paper.PaperRow` that pictures draw."""

    @property
    def label(self) -> str: ...
    @property
    def reading(self) -> str: ...
    @property
    def ours(self) -> float | str: ...
    @property
    def printed(self) -> float | str: ...


PaperRows = Sequence[DrawnRow]

Values = dict[str, dict[str, float]]
"""By series, then by group."""

_PRINTED_BYTES = "model, printed bytes"
"""Our series that is computed from printed bytes."""

_SERIES = {
    "model": BASELINES["model"],
    _PRINTED_BYTES: "Model Parallelism, if it moved what Figure 8 prints",
    "data": BASELINES["data"],
    "hypar": "HyPar",
    "htree": "H tree",
    "torus": "torus",
    "performance": "performance",
    "energy": "energy efficiency",
}
_TITLES = {
    "fig6": "Figure 6: performance over Data Parallelism",
    "fig7": "Figure 7: energy efficiency over Data Parallelism",
    "fig8": "Figure 8: communication of a training step",
    "fig9": "Figure 9: Lenet-c, every choice at H1 and H4; 0 data, 1 model parallelism",
    "fig10": "Figure 10: VGG-A, every choice of conv5_2 and fc1; 0 data, 1 model parallelism",
    "fig11": "Figure 11: {} on {} to {} accelerators",
    "fig12": "Figure 12: HyPar on two topologies, over Data Parallelism on the H tree",
    "fig13": "Figure 13: HyPar over OWT, parts of VGG-E",
}
_RATIO = "times Data Parallelism"
_BARS: dict[str, tuple[str, float | None]] = {
    "fig6": (_RATIO, 1.0),
    "fig7": (_RATIO, 1.0),
    "fig8": ("GB", None),
    "fig12": (_RATIO, 1.0),
    "fig13": ("times OWT", 1.0),
}
"""Bar charts: the axis' label, and the value at which bars begin."""

_SCALING_LABEL = re.compile(
    r"(?P<network>\S+) (?P<column>hypar|data) (?P<quantity>gain|GB) (?P<accelerators>\d+)"
)


def draw_paper(
    rows: Mapping[str, PaperRows], folder: Path, formats: Sequence[str] = ("png",)
) -> list[Path]:
    """Draw one picture per figure: our values, beside those that the paper prints.

    If a figure has rows in several readings, those of ``figures`` are drawn. Rows that no picture
    can show are left out, and so are figures without any row to draw.

    Parameters
    ----------
    rows
        By figure: ``fig5`` to ``fig13``.
    folder
        Created if it does not exist.
    formats
        ``png``, ``svg``, ``pdf``.

    Raises
    ------
    HyparError
        If a format is unknown, or a file cannot be written.
    """
    kinds = [checked_format(name, "formats") for name in formats]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", file=str(folder)) from None
    written = []
    for name, of_figure in rows.items():
        drawn = paper_figure(name, of_figure)
        if drawn is None:
            continue
        for kind in kinds:
            written.append(folder / f"figure{name.removeprefix('fig')}.{kind}")
            save(drawn, written[-1])
    return written


def paper_figure(name: str, rows: PaperRows) -> Figure | None:
    """Return a figure of the paper from its rows; None if there is none to draw."""
    if not rows:
        return None
    dataset = _rows_of_one_reading(rows)
    if name in _BARS:
        return _draw_bars(name, dataset)
    if name in _SURFACES:
        return _draw_surface(name, dataset)
    draw = {"fig5": _draw_plans, "fig11": _draw_scaling}
    return draw[name](dataset) if name in draw else None


def _draw_bars(figure: str, rows: PaperRows) -> Figure | None:
    ours, printed = _by_series(rows)
    if not ours:
        return None
    groups = dict.fromkeys(
        group for series in (ours, printed) for values in series.values() for group in values
    )
    # Networks of both: a printed series may have some that ours lacks, in another order.
    order = sorted(groups, key=lambda group: group == "geometric mean")  # the mean stays last
    # Figure 13's groups are all of VGG-E; one word per line keeps them narrow.
    labels = [group.removeprefix("VGG-E ").replace(" ", "\n") for group in order]
    ours_drawn, printed_drawn = (
        {_SERIES[name]: [values.get(group) for group in order] for name, values in series.items()}
        for series in (ours, printed)
    )
    ylabel, baseline = _BARS[figure]
    title = _TITLES[figure]
    return bars(labels, ours_drawn, printed_drawn, ylabel=ylabel, title=title, baseline=baseline)


def _by_series(rows: PaperRows) -> tuple[Values, Values]:
    """Return ours and the printed, by series and group: ``hypar`` and ``VGG-A`` of a label.

    A printed value is left out if it would be drawn twice, or if it is not a number.
    """
    values: dict[str, Values] = {"ours": {}, "printed": {}}
    for row in rows:
        # "VGG-A model, printed bytes": the group's name may have spaces, the series a note.
        label, comma, note = row.label.partition(",")
        group, _, column = label.rpartition(" ")
        name = f"{column}{comma}{note}"
        if name not in _SERIES:
            continue
        for kind, value in (("ours", row.ours), ("printed", row.printed)):
            # A bar that the paper cuts off, printed as >10, has no height to draw.
            # "Printed bytes" has the printed column of Model Parallelism, which is drawn there.
            if not isinstance(value, str) and (kind, name) != ("printed", _PRINTED_BYTES):
                values[kind].setdefault(name, {})[group] = value
    ours, printed = (
        {name: series[name] for name in _SERIES if name in series} for series in values.values()
    )
    return ours, {name: groups for name, groups in printed.items() if name in ours}


def _draw_scaling(rows: PaperRows) -> Figure | None:
    """Draw the first network; a second one may have a row or two for comparison."""
    matches = [(row, match) for row in rows if (match := _SCALING_LABEL.fullmatch(row.label))]
    if not matches:
        return None
    # VGG-E, whose numbers the figure shows; its text says VGG-A, listed after it.
    network = matches[0][1]["network"]
    values: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for row, match in matches:
        for kind, value in (("ours", row.ours), ("printed", row.printed)):
            if match["network"] == network and not isinstance(value, str):
                key = kind, match["quantity"], match["column"]
                values[key][int(match["accelerators"])] = value
    accelerators = sorted({count for series in values.values() for count in series})

    def series_of(kind: str, quantity: str) -> dict[str, Numbers]:
        return {
            _SERIES[name]: [values[kind, quantity, name].get(n) for n in accelerators]
            for name in ("hypar", "data")
            if (kind, quantity, name) in values
        }

    return scaling(
        accelerators,
        series_of("ours", "gain"),
        series_of("ours", "GB"),
        printed_gains=series_of("printed", "gain"),
        printed_gigabytes=series_of("printed", "GB"),
        title=_TITLES["fig11"].format(network, accelerators[0], accelerators[-1]),
    )


def _rows_of_one_reading(rows: PaperRows) -> PaperRows:
    """Return the rows of one reading, ``figures`` or else the first, and those of any reading."""
    readings = dict.fromkeys(row.reading for row in rows)
    chosen = "figures" if "figures" in readings else next(iter(readings), "any")
    return [row for row in rows if row.reading in (chosen, "any")]


_TITLE = "Figure 5: HyPar's parallelism for ten networks, batch 256, 16 accelerators"
_LINE_CELLS = 26
"""Layers per line of panels, with one cell between panels."""


@dataclass(frozen=True)
class _Panel:
    """A network's plan: ours and the printed, levels x layers."""

    name: str
    layers: list[str]
    ours: list[list[str]]
    printed: list[list[str]]


def _draw_plans(rows: PaperRows) -> Figure | None:
    """Draw the networks' plans in panels, wrapped to lines of about one width."""
    panels = _panels(rows)
    if not panels:
        return None
    words = words_of(PAPERS_CHOICES, PAPERS_CHOICES)
    deepest = max(len(panel.ours) for panel in panels)
    levels = [pair for panel in panels for pair in zip(panel.ours, panel.printed, strict=True)]
    equal = sum(ours == printed for ours, printed in levels)
    data: dict[str, Rows] = {
        "levels": [{"line": n, "level": f"H{n + 1}"} for n in range(deepest)],
    }
    for panel in panels:
        data[panel.name] = cells_of(panel.layers, panel.ours, words, panel.printed)
        data[f"{panel.name} names"] = names_of(panel.layers)
    lines = [
        alt.hconcat(*(_panel(panel, deepest) for panel in line), spacing=34)
        for line in _lines(panels)
    ]
    squares = "; squares: not as printed" if equal < len(levels) else ""
    counted = f"reading {rows[0].reading}: {equal} of {len(levels)} rows as printed{squares}"
    return figure(alt.vconcat(*lines, spacing=10), data, [_TITLE, counted])


def _panel(panel: _Panel, levels: int) -> Figure:
    """Draw a network's plan, with squares around what is not as printed."""
    columns = len(panel.layers)
    x, y = at(alt.X, -0.5, columns - 0.5, "column"), at(alt.Y, -0.5, levels - 0.5, "line")
    look = {"shape": "square", "size": (0.85 * CELL) ** 2, "opacity": 1, "stroke": INK}
    squares = mark(panel.name, "point", x, y, where="datum.differs", **look)
    drawn: Figure = chain(
        panel.name, columns, levels, words_of(PAPERS_CHOICES, PAPERS_CHOICES), squares
    )
    return drawn.properties(title=alt.Title(panel.name, fontSize=11, offset=2))


def _panels(rows: PaperRows) -> list[_Panel]:
    """Return the plans of the zoo's networks; a row is a level, as ``VGG-A H1``."""
    levels: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for row in rows:
        name, _, level = row.label.rpartition(" ")
        # The panels take their layers' names from the zoo.
        if name.lower() in zoo() and isinstance(row.ours, str):
            # Without printed digits, nothing can be marked as different.
            printed = row.printed if isinstance(row.printed, str) else row.ours
            levels[name][level] = (row.ours, printed)
    panels = []
    for name, digits in levels.items():
        ours, printed_choices = (
            [[PAPERS_CHOICES[int(digit)] for digit in row] for row in column]
            for column in zip(*(digits[level] for level in sorted(digits)), strict=True)
        )
        layers = [layer.name for layer in load(name).layers]
        panels.append(_Panel(name, layers, ours, printed_choices))
    return panels


def _lines(panels: Iterable[_Panel]) -> list[list[_Panel]]:
    """Return the panels of each line, in order, as many as fit."""
    lines: list[list[_Panel]] = [[]]
    for panel in panels:
        cells = sum(len(other.layers) + 1 for other in (*lines[-1], panel))
        # Greedy: the networks keep the paper's order.
        if lines[-1] and cells > _LINE_CELLS:
            lines.append([])
        lines[-1].append(panel)
    return lines


_SURFACES = {
    "fig9": ("Lenet-c", ("H1", "H4"), "conv1, conv2, fc1, fc2"),
    "fig10": ("VGG-A", ("conv5_2", "fc1"), "H1 to H4"),
}
"""Networks, the free choices along x and y, and the meaning of their digits."""


def _draw_surface(figure: str, rows: PaperRows) -> Figure:
    """Draw each plan's speed over Data Parallelism's; all other choices are HyPar's."""
    # Imported late, since no other picture solves anything.
    from hypar_opt.planning.solve import solve
    from hypar_opt.studies.exploration import explore

    network, (x, y), digits = _SURFACES[figure]
    plan = solve(network, reading=rows[0].reading, array="hmc-htree-16")
    exploration = explore(plan, f"{x},{y}", objective="time")
    grid = exploration.grid(x, y)
    return surface(
        # Transposed: a surface has y along its rows, the grid x.
        exploration.data_parallel_cost / grid.values.T,
        grid.rows,
        grid.columns,
        {"HyPar's plan": grid.plan, **_printed_peak(rows, network, x, y)},
        xlabel=f"{x}: {digits}",
        ylabel=f"{y}: {digits}",
        name=_RATIO,
        title=_TITLES[figure],
    )


def _printed_peak(rows: PaperRows, network: str, x: str, y: str) -> dict[str, tuple[str, str]]:
    """Return the mark of the printed peak, if its digits are among the rows."""
    printed = {row.label: row.printed for row in rows}
    peak, *digits = (printed.get(f"{network} peak{axis}") for axis in ("", f" {x}", f" {y}"))
    if not all(isinstance(text, str) and re.fullmatch("[01]{4}", text) for text in digits):
        return {}
    return {f"at the paper's peak, printed {peak}": (str(digits[0]), str(digits[1]))}
