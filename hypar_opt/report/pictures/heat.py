"""Every plan of two free dimensions, as a map: the paper's Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.report.pictures.canvas import MARK, new_figure, style
from hypar_opt.units import format_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TIE = 1e-9
"""Relative: the same seconds added in another order differ by rounding."""

_RINGS: tuple[dict[str, Any], ...] = (
    {"marker": "o", "markersize": 13},
    {"marker": "s", "markersize": 17},
    {"marker": "D", "markersize": 15},
    {"marker": "^", "markersize": 15},
)
"""Of different sizes, so that several are seen on one cell."""

_RING_STYLE: dict[str, Any] = {
    "markerfacecolor": "none",
    "markeredgecolor": MARK,
    "markeredgewidth": 1.8,
}
_STAR: dict[str, Any] = {
    "marker": "*",
    "markersize": 10,
    "markerfacecolor": MARK,
    "markeredgecolor": "white",
    "markeredgewidth": 0.6,
}


@style()
def surface(
    values: NDArray[np.float64],
    xlabels: Sequence[str],
    ylabels: Sequence[str],
    marks: Mapping[str, tuple[str, str]] | None = None,
    *,
    xlabel: str = "",
    ylabel: str = "",
    name: str = "",
    title: str = "",
    star: bool = True,
) -> Figure:
    """Draw a map of values, the largest starred, others ringed.

    Parameters
    ----------
    values : (len(ylabels), len(xlabels)) float64
        Larger is better; all that tie for the largest are starred.
    marks
        Other plans to show, by the x and the y label: HyPar's plan, the printed peak.
    name
        What the values are.
    star
        False where the largest is no better than others.

    Raises
    ------
    ValueError
        If the values have another shape.
    """
    # pcolormesh takes any shape; the labels would then name other cells.
    if values.shape != (len(ylabels), len(xlabels)):
        raise ValueError(
            f"should have {len(ylabels)} rows of {len(xlabels)} values, got {values.shape}"
        )
    width, height = 2.2 + 0.27 * max(len(xlabels), 8), 1.9 + 0.25 * max(len(ylabels), 8)
    figure = new_figure(width, height, layout="constrained")
    axes = figure.add_subplot()
    # cividis is read alike with and without colour vision, and in print.
    mesh = axes.pcolormesh(values, cmap="cividis", edgecolors="white", linewidth=0.3)
    bar = figure.colorbar(mesh, ax=axes, label=name, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    marks = marks or {}
    for n, (label, (x, y)) in enumerate(marks.items()):
        # A mark's marker depends on its position, so that two on one cell are both seen.
        cells = [(xlabels.index(x), ylabels.index(y))]
        _mark(axes, values, label, cells, {**_RINGS[n % len(_RINGS)], **_RING_STYLE})
    if star:
        largest = np.argwhere(values >= values.max() * (1 - _TIE))
        # Last, so that the star is drawn over the rings.
        _mark(axes, values, "largest", [(int(x), int(y)) for y, x in largest], _STAR)
    # A cell lies between two integers, so its middle is at .5.
    axes.set_xticks(np.arange(len(xlabels)) + 0.5, xlabels, rotation=90, family="monospace")
    axes.set_yticks(np.arange(len(ylabels)) + 0.5, ylabels, family="monospace")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if columns := len(marks) + star:
        figure.legend(loc="outside lower left", ncols=columns, handletextpad=0.4, markerscale=0.8)
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=9)
    return figure


def _mark(
    axes: Axes,
    values: NDArray[np.float64],
    label: str,
    cells: Sequence[tuple[int, int]],
    marker: Mapping[str, Any],
) -> None:
    """Mark cells, by column and row, with their value in the legend."""
    # The cells of a mark tie: the first one's value stands for all.
    x, y = cells[0]
    ties = f", {len(cells)} tie" if len(cells) > 1 else ""
    axes.plot(
        *zip(*((x + 0.5, y + 0.5) for x, y in cells), strict=True),
        linestyle="",
        label=f"{label}: {format_label(float(values[y, x]))}{ties}",
        gid=label,
        **marker,
    )
