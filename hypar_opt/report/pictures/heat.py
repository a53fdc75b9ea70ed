"""Every plan of two free dimensions, as a map: the paper's Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.report.pictures.canvas import new_figure, number, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TIE = 1e-9
"""Relative: sums of the same seconds in another order differ by rounding."""

_SHAPES: tuple[dict[str, Any], ...] = (
    {"marker": "o", "markersize": 13},
    {"marker": "s", "markersize": 17},
    {"marker": "D", "markersize": 15},
    {"marker": "^", "markersize": 15},
)
_PEAK: dict[str, Any] = {"marker": "*", "markersize": 10}


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
) -> Figure:
    """Draw a map of values, the largest starred, others ringed.

    Parameters
    ----------
    values : (len(ylabels), len(xlabels)) float64
        Larger is better; all that tie for the largest are starred.
    marks
        Other places to show, by the x and the y label: HyPar's plan, the printed peak.
    name
        What the values are.

    Raises
    ------
    ValueError
        If the values have another shape.
    """
    if values.shape != (len(ylabels), len(xlabels)):
        raise ValueError(
            f"should have {len(ylabels)} rows of {len(xlabels)} values, got {values.shape}"
        )
    figure = new_figure(
        2.2 + 0.27 * max(len(xlabels), 8), 1.9 + 0.25 * max(len(ylabels), 8), layout="constrained"
    )
    axes = figure.add_subplot()
    mesh = axes.pcolormesh(values, cmap="cividis", edgecolors="white", linewidth=0.3)
    bar = figure.colorbar(mesh, ax=axes, label=name, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    rings = [
        (label, [(xlabels.index(x), ylabels.index(y))], _SHAPES[n % len(_SHAPES)])
        for n, (label, (x, y)) in enumerate((marks or {}).items())
    ]
    best = np.argwhere(values >= values.max() * (1 - _TIE))
    rings.append(("largest", [(int(x), int(y)) for y, x in best], _PEAK))
    for label, places, shape in rings:
        x, y = places[0]
        ties = f", {len(places)} tie" if len(places) > 1 else ""
        star = shape is _PEAK
        axes.plot(
            *zip(*((x + 0.5, y + 0.5) for x, y in places), strict=True),
            linestyle="",
            markerfacecolor="#d55e00" if star else "none",
            markeredgecolor="white" if star else "#d55e00",
            markeredgewidth=0.6 if star else 1.8,
            label=f"{label}: {number(float(values[y, x]))}{ties}",
            gid=label,
            **shape,
        )
    axes.set_xticks(np.arange(len(xlabels)) + 0.5, xlabels, rotation=90, family="monospace")
    axes.set_yticks(np.arange(len(ylabels)) + 0.5, ylabels, family="monospace")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    figure.legend(loc="outside lower left", ncols=len(rings), handletextpad=0.4, markerscale=0.8)
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=9)
    return figure
