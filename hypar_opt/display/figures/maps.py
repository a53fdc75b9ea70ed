"""Maps: every plan of two free dimensions, the paper's Figures 9 and 10; degrees and stages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from hypar_opt.display.exploration_labels import axis_label, compared, digits_legend
from hypar_opt.display.figures.marks import STAR
from hypar_opt.display.figures.style import CHARACTER, SAYS, Figure, Rows, figure, mark, short
from hypar_opt.display.palette import AMOUNTS, INK, MARK, UNFIT
from hypar_opt.errors import HyparError
from hypar_opt.search.degrees import Evaluated
from hypar_opt.studies.configurations import in_words
from hypar_opt.units import format_bytes, format_label, format_si

if TYPE_CHECKING:
    from hypar_opt.studies.configurations import Configurations
    from hypar_opt.studies.exploration import Exploration

_TIE = 1e-9
"""Relative: sums of the same seconds in another order differ by rounding."""

_RINGS = (("circle", 150), ("square", 260), ("diamond", 260), ("triangle-up", 260))
"""Shapes and areas in pixels of rings; of different sizes, so that several are seen on one cell."""

_WIDTH = 420
_NUMBER = 36
"""Pixels of a cell that has its value."""

_MAX_CELLS = 2**14
"""The maximum cells: more are illegible, and take minutes to draw."""

_OFFSETS = "xOffset", "yOffset"
_CORNER = 7, -6
"""Pixels from a cell's middle, which has stars and rings."""


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
    title: str | list[str] = "",
    star: bool = True,
    numbered: bool = False,
) -> Figure:
    """Draw a map of values, with the largest starred and others ringed.

    Parameters
    ----------
    values : (len(ylabels), len(xlabels)) float64
        Larger is better; all that tie for the largest are starred. Cells that are no number are
        left out.
    marks
        Other plans to show, by the x and the y label: HyPar's plan, the printed peak.
    front : (len(ylabels), len(xlabels)) bool
        Whether each plan is on a Pareto front; these have dots.
    name
        The name of the values.
    star
        False if the largest is no better than others.
    numbered
        Whether cells have their values, where there is room.

    Raises
    ------
    HyparError
        If there are too many.
    ValueError
        If the values have another shape.
    """
    # The labels would name other cells.
    if values.shape != (len(ylabels), len(xlabels)):
        raise ValueError(
            f"should have {len(ylabels)} rows of {len(xlabels)} values, got {values.shape}"
        )
    if values.size > _MAX_CELLS:
        raise HyparError(
            f"a map has at most {_MAX_CELLS:,} plans in a picture, got {values.size:,}"
        )
    cells = [
        {
            "x": xlabels[n],
            "y": ylabels[m],
            "value": float(f"{values[m, n]:.6g}"),
            **({"number": format_label(float(values[m, n]))} if numbered else {}),
            "says": f"{ylabels[m]} {xlabels[n]}: {format_label(float(values[m, n]))} {name}",
        }
        for m, n in np.argwhere(np.isfinite(values)).tolist()
    ]
    x, y = _axes(xlabels, ylabels, xlabel, ylabel)
    marked = [
        # A mark's shape depends on its position, so that two on one cell are both seen.
        _mark(_named(label, [at], cells), [at], *_RINGS[n % len(_RINGS)])
        for n, (label, at) in enumerate((marks or {}).items())
    ]
    if front is not None:
        at = _cells(front, xlabels, ylabels)
        plans = f"{len(at)} plan{'s' if len(at) > 1 else ''}"
        marked.append(_mark(f"Pareto front: {plans}", at, "circle", 20, "white", INK, _CORNER))
    if star:
        # Nothing where constraints allow no plan.
        largest = values >= np.nanmax(np.where(np.isfinite(values), values, np.nan)) * (1 - _TIE)
        at = _cells(largest, xlabels, ylabels)
        text = _named("largest", at, cells)
        marked.append(_mark(text, at, STAR, 190, MARK, "white"))
    colour = _coloured("value", name or None)
    # Cells are as large as there is room for.
    step = min(_WIDTH / max(len(xlabels), 1), _NUMBER if numbered else 26)
    layers = [
        mark("cells", "rect", x, y, colour, *SAYS, stroke="white", strokeWidth=0.3),
        *([_numbers(cells, x, y)] if numbered and step >= _NUMBER else []),
        *_marks(marked, x, y),
    ]
    data = {"cells": cells, "marks": [row for group in marked for row in group["rows"]]}
    width = len(xlabels) * step
    height = len(ylabels) * min(max(_WIDTH / max(len(ylabels), 1), 9), 22)
    return figure(alt.layer(*layers), data, title, width=round(width), height=round(height))


def _numbers(cells: Rows, x: alt.X, y: alt.Y) -> alt.Chart:
    """Return the values of a map's cells, white on dark ones: colours are darker with less."""
    values = [row["value"] for row in cells]
    middle = (min(values) + max(values)) / 2
    ink = alt.condition(f"datum.value < {middle}", alt.value("white"), alt.value(INK))
    return mark("cells", "text", x, y, alt.Text("number:N"), fontSize=9).encode(color=ink)


def _coloured(field: str, title: str | None, ends: Sequence[float] = ()) -> alt.Color:
    """Return the encoding of amounts by colours, with the bar of these above."""
    bar = alt.Legend(title=title, direction="horizontal", gradientLength=200)
    between: dict[str, Any] = {"domain": list(ends)} if ends else {}
    return alt.Color(f"{field}:Q", scale=alt.Scale(scheme=AMOUNTS, **between), legend=bar)


def _axes(
    xlabels: Sequence[str], ylabels: Sequence[str], xlabel: str, ylabel: str
) -> tuple[alt.X, alt.Y]:
    """Return a map's columns and rows, by labels in a font of equally wide digits."""
    style: dict[str, Any] = {"labelFont": "DejaVu Sans Mono, monospace", "labelOverlap": "greedy"}
    style |= {"domain": False, "ticks": False}
    angle = -90 if max(map(len, xlabels), default=0) > 3 else 0
    across, up = alt.Scale(domain=list(xlabels)), alt.Scale(domain=list(reversed(ylabels)))
    x_axis, y_axis = alt.Axis(labelAngle=angle, **style), alt.Axis(**style)
    return (
        alt.X("x:N", title=xlabel or None, scale=across, axis=x_axis),
        alt.Y("y:N", title=ylabel or None, scale=up, axis=y_axis),
    )


def _mark(
    name: str,
    at: Sequence[tuple[str, str]],
    shape: str,
    size: int,
    fill: str = "transparent",
    stroke: str = MARK,
    offset: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """Return what `_marks` draws of cells; the offset is in pixels, to the right and down."""
    rows = [{"x": x, "y": y, "mark": name, "says": f"{y} {x}: {name}"} for x, y in at]
    look = {"shape": shape, "size": size, "fill": fill, "ink": stroke}
    return {"name": name, "rows": rows, **look, "offset": dict(zip(_OFFSETS, offset, strict=True))}


def _marks(marked: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return the marks of a map, the last ones on top, with one legend below it."""
    names = [group["name"] for group in marked]
    lines = "split(datum.label, '\\n')"
    entries = alt.Legend(title=None, orient="bottom", columns=1, symbolSize=120, labelExpr=lines)
    looks = [
        channel("mark:N", legend=entries, scale=alt.Scale(domain=names, range=values))
        for channel, key in ((alt.Shape, "shape"), (alt.Fill, "fill"), (alt.Stroke, "ink"))
        for values in [[group[key] for group in marked]]
    ]
    return [
        mark(
            "marks",
            "point",
            x,
            y,
            *looks,
            *SAYS,
            where=f"datum.mark == {json.dumps(group['name'])}",
            opacity=1,
            strokeWidth=1.5,
            size=group["size"],
            **group["offset"],
        )
        for group in marked
    ]


def _named(name: str, at: Sequence[tuple[str, str]], cells: Rows) -> str:
    """Return a mark's entry in the legend, with the value of its first cell, which all have."""
    amounts = {(row["x"], row["y"]): row["value"] for row in cells}
    ties = f", {len(at)} tie" if len(at) > 1 else ""
    return f"{name}: {format_label(amounts[at[0]])}{ties}"


def _cells(
    where: NDArray[np.bool_], xlabels: Sequence[str], ylabels: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the true cells, by the labels of their column and row."""
    return [(xlabels[x], ylabels[y]) for y, x in np.argwhere(where).tolist()]


def degrees_map(configurations: Configurations) -> Figure:
    """Draw the fastest configuration of each tensor parallelism in each number of stages.

    Each cell has the time of a step, which colours it, and its memory; where none fits it is grey,
    with the memory of what needs least. The fastest is starred.
    """
    cells, best = configurations.cells, configurations.best
    pairs = (*cells, *configurations.unknown)
    degrees, stages = ([*map(str, sorted({cell[n] for cell in pairs}))] for n in (0, 1))
    rows: list[dict[str, Any]] = []
    for tp, pp in pairs:
        shown = cells.get((tp, pp))
        row: dict[str, Any] = {"x": f"{tp}", "y": f"{pp}"}
        row["text"] = "not known" if shown is None else format_bytes(shown.memory)
        if isinstance(shown, Evaluated):
            row["speed"] = short(best.seconds / shown.seconds)
            row["text"] = f"{format_si(shown.seconds, 's')}\n{row['text']}"
        rows.append({**row, "says": row["text"].replace("\n", ", ")})
    slowest = min((row["speed"] for row in rows if "speed" in row), default=1.0)
    x, y = _axes(degrees, stages, "tensor parallelism", "stages")
    first = best.configuration
    words = f"{format_si(best.seconds, 's')}: {in_words(first, configurations.blocks)}"
    words = fill(words, int(_WIDTH / CHARACTER))
    at = [(f"{first.tp}", f"{first.pp}")]
    marked = [_mark(words, at, STAR, 130, MARK, "white", (27, -12))]
    if configurations.unfit:
        room = format_bytes(configurations.capacity - configurations.margin)
        text = f"grey: none fits in {room}; the least memory that one takes"
        marked.append(_mark(text, [], "square", 1, UNFIT, UNFIT))
    low = min(slowest, 0.5)
    dark = f"datum.speed < {(low + 1) / 2}"
    ink = alt.condition(dark, alt.value("white"), alt.value(INK))
    speed = _coloured("speed", "speed relative to the fastest", (low, 1.0))
    layers = [
        mark("cells", "rect", x, y, *SAYS, fill=UNFIT, stroke="white"),
        mark("cells", "rect", x, y, speed, *SAYS, where="isValid(datum.speed)", stroke="white"),
        mark("cells", "text", x, y, alt.Text("text:N"), fontSize=9, dy=-5).encode(color=ink),
        *_marks(marked, x, y),
    ]
    data = {"cells": rows, "marks": [row for group in marked for row in group["rows"]]}
    title = f"{configurations.network.name} on {configurations.array.name}"
    title += f", batch {configurations.problem.batch:,}"
    size = {"width": 72 * len(degrees), "height": 40 * len(stages)}
    return figure(alt.layer(*layers), data, title, **size)


def exploration_map(exploration: Exploration, title: bool = True) -> Figure:
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
    front, on_front, of_amounts = exploration.front, None, ""
    if front is not None:
        on_front = exploration.grid(rows, columns, of=front.on_front.astype(float)).values == 1
        of_amounts = f"; the front is of {', '.join(front.amounts)}"
    plan = exploration.plan
    where = f" on {exploration.array}" if exploration.array else ""
    own_row, own_column = grid.plan
    with np.errstate(divide="ignore", invalid="ignore"):
        # Over Data Parallelism, so that larger is better, as in the paper.
        ratios = exploration.data_parallel_cost / grid.values
    heading = [
        f"{plan.network.name}{where}, batch {plan.batch}: every plan by {exploration.objective},"
        f" reading {plan.cost.reading}",
        f"{digits_legend(plan)}{of_amounts}",
    ]
    return surface(
        ratios,
        grid.columns,
        grid.rows,
        {f"{plan.solver.name} {plan.solver.search}": (own_column, own_row)},
        front=on_front,
        xlabel=axis_label(exploration, columns),
        ylabel=axis_label(exploration, rows),
        name=compared(exploration),
        title=heading if title else "",
    )
