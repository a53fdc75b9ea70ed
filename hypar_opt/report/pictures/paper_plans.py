"""Figure 5: the networks' plans, one panel each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.models import load
from hypar_opt.models import names as zoo
from hypar_opt.report.pictures.canvas import add_legend, new_figure
from hypar_opt.report.pictures.dots import draw_choices
from hypar_opt.report.pictures.marks import choice_handles
from hypar_opt.report.pictures.paper_rows import PaperRows
from hypar_opt.workload.parallelism import PAPERS_CHOICES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def draw_plans(rows: PaperRows) -> Figure | None:
    """Draw the networks' plans in panels, wrapped to lines of about one width."""
    panels = _panels(rows)
    if not panels:
        return None
    lines = _lines(panels)
    # Every line is as high as the deepest hierarchy needs, so that their rows are aligned.
    panel_height = _CELL * max(len(panel.ours) for panel in panels) + _PANEL_MARGIN
    max_panels = max(map(len, lines))
    max_cells = max(sum(len(panel.layers) for panel in line) for line in lines)
    width = _GAP * (max_panels + 0.5) + _CELL * max_cells
    height = panel_height * len(lines) + _HEADER
    figure = new_figure(width, height)
    for n, line in enumerate(lines):
        x, top = _GAP, height - 0.7 - panel_height * n
        for panel in line:
            panel_width, rows_height = _CELL * len(panel.layers), _CELL * len(panel.ours)
            # In inches from the lower left corner; matplotlib wants fractions of the figure.
            box = (x, top - rows_height, panel_width, rows_height)
            axes = figure.add_axes(
                (box[0] / width, box[1] / height, box[2] / width, box[3] / height),
                label=panel.name,
            )
            draw_choices(axes, panel.layers, panel.ours, _CELL, panel.printed)
            axes.set_title(panel.name, pad=3, fontsize=8)
            x += panel_width + _GAP
    handles = choice_handles(PAPERS_CHOICES)
    add_legend(figure, _TITLE, handles, loc="upper left", handletextpad=0.2)
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
    return [
        _Panel(
            name,
            [layer.name for layer in load(name).layers],
            *(_choices(digits, n) for n in (0, 1)),
        )
        for name, digits in levels.items()
    ]


def _choices(digits: Mapping[str, tuple[str, str]], column: int) -> list[list[str]]:
    """Return the choices of the digits, H1 first: ours, or the printed ones."""
    rows = [digits[level][column] for level in sorted(digits)]
    return [[PAPERS_CHOICES[int(digit)] for digit in row] for row in rows]


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
