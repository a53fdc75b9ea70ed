"""Every plan of two free dimensions, as a map: the paper's Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.display.pictures.canvas import INK, MARK, new_figure, style
from hypar_opt.display.terminal.exploration import axis_label, compared, digits_legend
from hypar_opt.errors import HyparError
from hypar_opt.units import format_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.studies.exploration import Exploration


_TIE = 1e-9
"""Relative: sums of the same seconds in another order differ by rounding."""

_RINGS: tuple[dict[str, Any], ...] = (
    {"marker": "o", "markersize": 13},
    {"marker": "s", "markersize": 17},
    {"marker": "D", "markersize": 15},
    {"marker": "^", "markersize": 15},
)
"""Of different sizes, so that several are visible on one cell."""

_RING_STYLE: dict[str, Any] = {"mfc": "none", "mec": MARK, "mew": 1.8}
_DOT: dict[str, Any] = {"marker": "o", "markersize": 4.5, "mfc": "white", "mec": INK, "mew": 0.8}
_STAR: dict[str, Any] = {"marker": "*", "markersize": 10, "mfc": MARK, "mec": "white", "mew": 0.6}
"""Matplotlib's names of a marker's face, of its edge, and of the edge's width."""

_CORNER = 0.84
"""Position in a cell, upwards and to the right: stars and rings are in its middle."""


@style()
def surface(
    values: NDArray[np.float64],
    xlabels: Sequence[str],
    ylabels: Sequence[str],
    marks: Mapping[str, tuple[str, str]] | None = None,
    *,
    front: NDArray[np.bool_] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    name: str = "",
    title: str = "",
    star: bool = True,
) -> Figure:
    """Draw a map of values, with the largest starred and others ringed.

    Parameters
    ----------
    values : (len(ylabels), len(xlabels)) float64
        Larger is better; all that tie for the largest are starred.
    marks
        Other plans to show, by the x and the y label: HyPar's plan, the printed peak.
    front : (len(ylabels), len(xlabels)) bool
        Whether each plan is on a Pareto front; these have dots.
    name
        The name of the values.
    star
        False if the largest is no better than others.

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
    # cividis looks the same with and without colour vision, and in print.
    mesh = axes.pcolormesh(values, cmap="cividis", edgecolors="white", linewidth=0.3)
    bar = figure.colorbar(mesh, ax=axes, label=name, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)
    marks = marks or {}
    for n, (label, (x, y)) in enumerate(marks.items()):
        # A mark's marker depends on its position, so that two on one cell are both seen.
        cells = [(xlabels.index(x), ylabels.index(y))]
        _mark(axes, label, cells, {**_RINGS[n % len(_RINGS)], **_RING_STYLE}, values)
    if front is not None:
        cells = _cells(front)
        plans = f"{len(cells)} plan{'s' if len(cells) > 1 else ''}"
        _mark(axes, f"Pareto front: {plans}", cells, _DOT, at=_CORNER)
    if star:
        # nan where constraints allow no plan.
        largest = _cells(values >= np.nanmax(values) * (1 - _TIE))
        # Last, so that the star is drawn over the rings.
        _mark(axes, "largest", largest, _STAR, values)
    # A cell lies between two integers, so its middle is at .5.
    axes.set_xticks(np.arange(len(xlabels)) + 0.5, xlabels, rotation=90, family="monospace")
    axes.set_yticks(np.arange(len(ylabels)) + 0.5, ylabels, family="monospace")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if columns := len(marks) + star + (front is not None):
        figure.legend(loc="outside lower left", ncols=columns, handletextpad=0.4, markerscale=0.8)
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=9)
    return figure


def _mark(
    axes: Axes,
    name: str,
    cells: Sequence[tuple[int, int]],
    marker: Mapping[str, Any],
    values: NDArray[np.float64] | None = None,
    at: float = 0.5,
) -> None:
    """Mark cells, by column and row; the legend has their value if ``values`` are passed."""
    label = name
    if values is not None:
        # All have the value of the first.
        x, y = cells[0]
        ties = f", {len(cells)} tie" if len(cells) > 1 else ""
        label = f"{name}: {format_label(float(values[y, x]))}{ties}"
    axes.plot(
        *zip(*((x + at, y + at) for x, y in cells), strict=True),
        linestyle="",
        label=label,
        gid=name,
        **marker,
    )


def _cells(where: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the true cells, by column and row."""
    return [(int(x), int(y)) for y, x in np.argwhere(where)]


def exploration_map(exploration: Exploration) -> Figure:
    """Draw the free choices on two axes, as in the paper's Figures 9 and 10.

    The best plans are starred, the solver's is ringed, and those on the Pareto front have dots.

    Raises
    ------
    HyparError
        If the free choices are not two levels, two layers or two other terms.
    """
    if exploration.two_parts is None:
        raise HyparError(
            f"--picture draws two levels or two layers, as H1,H4; got {exploration.free!r}"
        )
    rows, columns = exploration.two_parts
    grid = exploration.grid(rows, columns)
    front, on_front, of = exploration.front, None, ""
    if front is not None:
        on_front = exploration.grid(rows, columns, of=front.on_front.astype(float)).values == 1
        of = f"; the front is of {', '.join(front.amounts)}"
    plan = exploration.plan
    where = f" on {exploration.array}" if exploration.array else ""
    own_row, own_column = grid.plan
    with np.errstate(divide="ignore"):
        # Over Data Parallelism, so that larger is better, as in the paper.
        ratios = exploration.data_parallel_cost / grid.values
    return surface(
        ratios,
        grid.columns,
        grid.rows,
        {f"{plan.solver.name} {plan.solver.search}": (own_column, own_row)},
        front=on_front,
        xlabel=axis_label(exploration, columns),
        ylabel=axis_label(exploration, rows),
        name=compared(exploration),
        title=f"{plan.network.name}{where}, batch {plan.batch}: every plan by"
        f" {exploration.objective}, reading {plan.cost.reading}\n{digits_legend(plan)}{of}",
    )
