"""Maps: every plan of two free dimensions, the paper's Figures 9 and 10; degrees and stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.display.pictures.canvas import (
    FAINT,
    INK,
    MARK,
    add_legend,
    new_figure,
    paler,
    style,
)
from hypar_opt.display.terminal.exploration import axis_label, compared, digits_legend
from hypar_opt.errors import HyparError
from hypar_opt.search.degrees import Evaluated
from hypar_opt.studies.configurations import in_words
from hypar_opt.units import format_bytes, format_label, format_si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.studies.configurations import Configurations
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
    _colour(axes, values, name)
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
    _label(axes, xlabels, ylabels, xlabel, ylabel)
    if columns := len(marks) + star + (front is not None):
        figure.legend(loc="outside lower left", ncols=columns, handletextpad=0.4, markerscale=0.8)
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=9)
    return figure


def _colour(axes: Axes, values: NDArray[np.float64], name: str, **ends: Any) -> None:
    """Draw a map's cells, and the bar of their colours, of all values or between two ends."""
    # cividis looks the same with and without colour vision, and in print.
    mesh = axes.pcolormesh(values, cmap="cividis", edgecolors="white", linewidth=0.3, **ends)
    bar = axes.figure.colorbar(mesh, ax=axes, label=name, shrink=0.9, pad=0.02)
    bar.outline.set_visible(False)


def _label(
    axes: Axes, xlabels: Sequence[str], ylabels: Sequence[str], xlabel: str, ylabel: str
) -> None:
    """Name a map's columns and rows, in the middle of each: a cell lies between two integers."""
    axes.set_xticks(np.arange(len(xlabels)) + 0.5, xlabels, rotation=90, family="monospace")
    axes.set_yticks(np.arange(len(ylabels)) + 0.5, ylabels, family="monospace")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


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


@style()
def degrees_map(configurations: Configurations) -> Figure:
    """Draw the fastest configuration of each tensor parallelism in each number of stages.

    Each cell has the time of a step, which colours it, and its memory; where none fits it is grey,
    with the memory of what needs least. The fastest is starred.
    """
    cells = configurations.cells
    every, best = (*cells, *configurations.unknown), configurations.best
    degrees, stages = (sorted({cell[n] for cell in every}) for n in (0, 1))
    speeds = np.full((len(stages), len(degrees)), np.nan)
    for (tp, pp), entry in cells.items():
        if isinstance(entry, Evaluated):
            speeds[stages.index(pp), degrees.index(tp)] = best.seconds / entry.seconds
    from matplotlib.patches import Patch, Rectangle

    figure = new_figure(
        max(2.2 + 0.72 * len(degrees), 6.4), 1.7 + 0.42 * len(stages), layout="constrained"
    )
    axes = figure.add_subplot()
    least = min(float(np.nanmin(speeds)), 0.5)
    _colour(axes, speeds, "speed, over the fastest's", vmin=least, vmax=1.0)
    for tp, pp in every:
        x, y = degrees.index(tp), stages.index(pp)
        shown, ink = cells.get((tp, pp)), INK
        lines = ["not known"] if shown is None else [format_bytes(shown.memory)]
        if isinstance(shown, Evaluated):
            lines.insert(0, format_si(shown.seconds, "s"))
            ink = "white" if speeds[y, x] < (least + 1) / 2 else INK
        else:
            axes.add_patch(Rectangle((x, y), 1, 1, fc=paler(FAINT), ec="white", lw=0.3))
        at = x + 0.5, y + 0.5
        axes.text(*at, "\n".join(lines), fontsize=6.5, color=ink, ha="center", va="center")
    first = best.configuration
    star = [(degrees.index(first.tp), stages.index(first.pp))]
    words = f"{format_si(best.seconds, 's')}: {in_words(first, configurations.blocks)}"
    _mark(axes, words, star, _STAR, at=_CORNER)
    _label(axes, [*map(str, degrees)], [*map(str, stages)], "tensor parallelism", "stages")
    axes.tick_params(axis="x", labelrotation=0)
    handles, _ = axes.get_legend_handles_labels()
    none = f"none fits in {format_bytes(configurations.capacity - configurations.margin)}"
    if configurations.unfit:
        handles.append(Patch(color=paler(FAINT), label=f"{none}: the least that one takes"))
    title = f"{configurations.network.name} on {configurations.array.name}"
    add_legend(figure, f"{title}, batch {configurations.problem.batch:,}", handles, ncols=1)
    return figure


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
