"""Figures 9 and 10: every plan of a subspace, by its speed over Data Parallelism's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypar_opt.report.pictures.heat import surface
from hypar_opt.report.pictures.paper_rows import PaperRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LENET_TITLE = "Figure 9: Lenet-c, every choice at H1 and H4; 0 data, 1 model parallelism"
_VGG_A_TITLE = "Figure 10: VGG-A, every choice of conv5_2 and fc1; 0 data, 1 model parallelism"


def draw_lenet(rows: PaperRows) -> Figure:
    """Draw Figure 9: every choice of all layers at H1 and H4, with HyPar's at H2 and H3."""
    layers = "conv1, conv2, fc1, fc2"
    return _draw_surface(_LENET_TITLE, rows, "Lenet-c", {"H1": layers, "H4": layers})


def draw_vgg_a(rows: PaperRows) -> Figure:
    """Draw Figure 10: every choice of conv5_2 and fc1, with HyPar's for all other layers."""
    levels = "H1 to H4"
    return _draw_surface(_VGG_A_TITLE, rows, "VGG-A", {"conv5_2": levels, "fc1": levels})


def _draw_surface(title: str, rows: PaperRows, network: str, axes: Mapping[str, str]) -> Figure:
    """Draw each plan's speed over Data Parallelism's.

    Parameters
    ----------
    axes
        The free choices along x and y, and the meaning of their digits.
    """
    # Imported late, since no other picture solves anything.
    from hypar_opt.pipeline import solve
    from hypar_opt.studies.exploration import explore

    x, y = axes
    plan = solve(network, reading=rows[0].reading, array="hmc-htree-16")
    exploration = explore(plan, f"{x},{y}", objective="time")
    grid = exploration.grid(x, y)
    xlabel, ylabel = (f"{name}: {meaning}" for name, meaning in axes.items())
    return surface(
        # Transposed: a surface has y along its rows, the grid x.
        exploration.data_parallel_cost / grid.values.T,
        grid.rows,
        grid.columns,
        {"HyPar's plan": grid.plan, **_printed_peak(rows, network, x, y)},
        xlabel=xlabel,
        ylabel=ylabel,
        name="times Data Parallelism",
        title=title,
    )


def _printed_peak(rows: PaperRows, network: str, x: str, y: str) -> dict[str, tuple[str, str]]:
    """Return the mark of the printed peak, if its digits are among the rows."""
    printed = {row.label: row.printed for row in rows}
    peak, *digits = (printed.get(f"{network} peak{axis}") for axis in ("", f" {x}", f" {y}"))
    if not all(isinstance(text, str) and re.fullmatch("[01]{4}", text) for text in digits):
        return {}
    return {f"at the paper's peak, printed {peak}": (str(digits[0]), str(digits[1]))}
