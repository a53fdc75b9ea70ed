"""The paper's Figures 5 to 13, one picture each, from the rows of a reproduction."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hypar_opt.display.pictures.bar_chart import bars, scaling
from hypar_opt.display.pictures.canvas import (
    add_axes,
    add_legend,
    checked_format,
    new_figure,
    save,
    style,
)
from hypar_opt.display.pictures.dots import draw_choices
from hypar_opt.display.pictures.heat import surface
from hypar_opt.display.pictures.marks import SQUARE, choice_handles, handle
from hypar_opt.errors import InputError
from hypar_opt.models import load
from hypar_opt.models import names as zoo
from hypar_opt.workload.parallelism import PAPERS_CHOICES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.display.pictures.canvas import Numbers


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
    "model": "Model Parallelism",
    _PRINTED_BYTES: "Model Parallelism, if it moved what Figure 8 prints",
    "data": "Data Parallelism",
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
    "fig13": "Figure 13: HyPar over the Trick, parts of VGG-E",
}
_RATIO = "times Data Parallelism"
_BARS: dict[str, tuple[str, float | None]] = {
    "fig6": (_RATIO, 1.0),
    "fig7": (_RATIO, 1.0),
    "fig8": ("GB", None),
    "fig12": (_RATIO, 1.0),
    "fig13": ("times the Trick", 1.0),
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
        If matplotlib is not installed, a format is unknown, or a file cannot be written.
    """
    kinds = [checked_format(name, "formats") for name in formats]
    with style():
        pass  # refuses a missing matplotlib before the folder is created
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", file=str(folder)) from None
    written = []
    for figure, figure_rows in rows.items():
        picture = _draw(figure, _of_one_reading(figure_rows)) if figure_rows else None
        if picture is None:
            continue
        for kind in kinds:
            written.append(folder / f"figure{figure.removeprefix('fig')}.{kind}")
            save(picture, written[-1])
    return written


@style()
def _draw(figure: str, rows: PaperRows) -> Figure | None:
    if figure in _BARS:
        return _draw_bars(figure, rows)
    if figure in _SURFACES:
        return _draw_surface(figure, rows)
    draw = {"fig5": _draw_plans, "fig11": _draw_scaling}
    return draw[figure](rows) if figure in draw else None


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


def _of_one_reading(rows: PaperRows) -> PaperRows:
    """Return the rows of one reading, ``figures`` or else the first, and those of any reading."""
    readings = dict.fromkeys(row.reading for row in rows)
    chosen = "figures" if "figures" in readings else next(iter(readings), "any")
    return [row for row in rows if row.reading in (chosen, "any")]


_TITLE = "Figure 5: HyPar's parallelism for ten networks, batch 256, 16 accelerators"
_LINE_CELLS = 44
"""Layers per line of panels, with one cell between panels."""

_CELL, _GAP = 0.23, 0.45
"""Inches of a cell, and between two panels."""

_HEADER, _PANEL_MARGIN = 0.4, 0.88
"""Inches above the first line, and of a panel's title and layers' names."""


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
    lines = _lines(panels)
    # Every line is as high as the deepest hierarchy needs, so that their rows are aligned.
    panel_height = _CELL * max(len(panel.ours) for panel in panels) + _PANEL_MARGIN
    max_cells = max(sum(len(panel.layers) for panel in line) for line in lines)
    height = panel_height * len(lines) + _HEADER
    figure = new_figure(_GAP * (max(map(len, lines)) + 0.5) + _CELL * max_cells, height)
    for n, line in enumerate(lines):
        x, top = _GAP, height - 0.7 - panel_height * n
        for panel in line:
            panel_width, rows_height = _CELL * len(panel.layers), _CELL * len(panel.ours)
            bottom = top - rows_height
            axes = add_axes(figure, x, bottom, panel_width, rows_height, label=panel.name)
            draw_choices(axes, panel.layers, panel.ours, _CELL, panel.printed)
            axes.set_title(panel.name, pad=3, fontsize=8)
            x += panel_width + _GAP
    levels = [pair for panel in panels for pair in zip(panel.ours, panel.printed, strict=True)]
    equal = sum(ours == printed for ours, printed in levels)
    handles = choice_handles(PAPERS_CHOICES)
    handles += [handle(SQUARE, "not as printed")] if equal < len(levels) else []
    title = f"{_TITLE}; reading {rows[0].reading}: {equal} of {len(levels)} rows as printed"
    add_legend(figure, title, handles, loc="upper left", handletextpad=0.2)
    return figure


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
    from hypar_opt.pipeline import solve
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
