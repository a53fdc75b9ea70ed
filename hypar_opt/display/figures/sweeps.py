"""A sweep's rows: lines over one varied key, a map over two, else time against memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from hypar_opt.display.figures.maps import surface
from hypar_opt.display.figures.style import (
    HEIGHT,
    POINT_SHAPES,
    SAYS,
    WIDTH,
    Figure,
    along,
    figure,
    label_expression,
    legend,
    mark,
    scale,
    short,
)
from hypar_opt.display.labels import COMMUNICATION, MEMORY, STEP, cell_text
from hypar_opt.display.palette import MARK, SERIES
from hypar_opt.errors import HyparError
from hypar_opt.units import (
    SECONDS,
    axis_byte_unit,
    axis_unit,
    format_bytes,
    format_si,
)

if TYPE_CHECKING:
    from hypar_opt.studies.sweep import SweepResult

_CASE_COLUMNS = (
    *("network", "array", "batch", "element_bytes", "choices", "cost", "solver", "search"),
    *("reading", "overlap"),
)

_TICKS = 8

Row = dict[str, Any]


def swept(result: SweepResult) -> Figure:
    """Draw a step's time, or the bytes where nothing is simulated, over what the sweep varies.

    Over one varied key, lines: one for each combination of what else differs. Over two a map of
    them. Where a sweep varies no key, its batches count as one; over none or more than two, every
    plan is drawn by time and memory, with the Pareto front.

    Raises
    ------
    HyparError
        If no row has a plan, or a map would have several values in a cell.
    """
    rows = [row for row in result.rows() if row["status"] != "refused"]
    if not rows:
        raise HyparError("--picture: every case is refused, and there is nothing to draw")
    axes = [name for name in result[0].varied if _several(rows, name)]
    axes = axes or ["batch"] * _several(rows, "batch")
    measure = "bytes" if any(row["seconds"] is None for row in rows) else "seconds"
    varied = [name for name in _CASE_COLUMNS if name not in axes and _several(rows, name)]
    if len(axes) == 1:
        return _lines(rows, axes[0], result.keys, varied, measure)
    if len(axes) == 2:
        return _map(rows, axes, result.keys, varied, measure)
    return _front(rows, varied)


def _several(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _title(rows: Sequence[Row]) -> str:
    """Return what all rows have in common."""
    same = [str(rows[0][name]) for name in ("network", "array") if not _several(rows, name)]
    batch = [] if _several(rows, "batch") else [f"batch {rows[0]['batch']:,}"]
    return ", ".join([" on ".join(same), *batch] if same else batch)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _grouped(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows by what some columns have, as text."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[", ".join(str(row[name]) for name in names)].append(row)
    return groups


def _measured(rows: Sequence[Row], measure: str) -> tuple[float, str, Callable[[float], str]]:
    """Return the scale and the title of the axis of what is drawn, and what shows its values."""
    highest = max(row[measure] for row in rows)
    if measure == "seconds":
        size, unit = axis_unit(highest)
        return size, f"{STEP} ({unit})", SECONDS
    size, unit = axis_byte_unit(highest)
    return size, f"{COMMUNICATION} ({unit})", format_bytes


def _lines(
    rows: Sequence[Row],
    axis: str,
    keys: Mapping[str, str],
    case_columns: Sequence[str],
    measure: str,
) -> Figure:
    name, shown = keys.get(axis, axis), partial(cell_text, axis)
    values = list(dict.fromkeys(row[axis] for row in rows))
    numeric = all(map(_is_number, values))
    values = sorted(values) if numeric else values
    size, heading, form = _measured(rows, measure)
    groups = _grouped(rows, case_columns)
    points = [
        {
            "x": row[axis] if numeric else shown(row[axis]),
            "case": label,
            "amount": short(row[measure] / size),
            "says": f"{label}{', ' * bool(label)}{name} {shown(row[axis])}: {form(row[measure])}",
        }
        for label, group in groups.items()
        for row in group
    ]
    if numeric:
        few = values if len(values) <= _TICKS else values[:: -(-len(values) // _TICKS)]
        labels = label_expression({value: shown(value) for value in few})
        log = values[0] > 0 and values[-1] >= 8 * values[0]
        look: dict[str, Any] = {"values": few, "labelExpr": labels, "labelOverlap": True}
        x = along(alt.X, "x", name, log=log, **look)
        x = x.scale(type="log" if log else "linear", zero=False, nice=False, padding=12)
    else:
        x = alt.X("x:N", title=name, sort=list(map(shown, values)), axis=alt.Axis(labelAngle=0))
    y = alt.Y("amount:Q", title=heading, scale=alt.Scale(zero=True))
    colours = {case: SERIES[n % len(SERIES)] for n, case in enumerate(groups)}
    shapes = {
        case: POINT_SHAPES[n // len(SERIES) % len(POINT_SHAPES)] for n, case in enumerate(groups)
    }
    entries = legend(groups) if any(groups) else None
    colour = alt.Color("case:N", scale=scale(colours), legend=entries)
    shape = alt.Shape("case:N", scale=scale(shapes), legend=entries)
    layers = [
        mark("points", "line", x, y, colour, strokeWidth=1.5),
        mark("points", "point", x, y, colour, shape, *SAYS, filled=True, size=38, opacity=1),
    ]
    return figure(alt.layer(*layers), {"points": points}, _title(rows), width=WIDTH, height=HEIGHT)


def _map(
    rows: Sequence[Row],
    axes: Sequence[str],
    keys_in_files: Mapping[str, str],
    case_columns: Sequence[str],
    measure: str,
) -> Figure:
    if case_columns:
        raise HyparError(
            f"--picture: a map over {axes[0]} and {axes[1]} has one value in a cell, and the sweep"
            f" has several of {case_columns[0]}"
        )
    across, up = axes
    keys = [sorted({row[name] for row in rows}, key=lambda v: (str(type(v)), v)) for name in axes]
    size, heading, _ = _measured(rows, measure)
    values = np.full((len(keys[1]), len(keys[0])), np.nan)
    for row in rows:
        values[keys[1].index(row[axes[1]]), keys[0].index(row[axes[0]])] = row[measure] / size
    return surface(
        values,
        [cell_text(across, value) for value in keys[0]],
        [cell_text(up, value) for value in keys[1]],
        xlabel=keys_in_files.get(across, across),
        ylabel=keys_in_files.get(up, up),
        name=heading,
        title=_title(rows),
        star=False,
        numbered=True,
    )


def _front(rows: Sequence[Row], case_columns: Sequence[str]) -> Figure:
    if any(row["seconds"] is None for row in rows):
        raise HyparError(
            "--picture: a front is of simulated steps; leave simulate = false out, or vary one or"
            " two keys"
        )
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["memory_bytes"], row["seconds"])):
        if not best or row["seconds"] < best[-1]["seconds"]:
            best.append(row)
    across, unit = axis_byte_unit(max(row["memory_bytes"] for row in rows))
    up, heading, _ = _measured(rows, "seconds")

    def placed(row: Row, case: str) -> Row:
        says = f"{case}: {format_bytes(row['memory_bytes'])}, {format_si(row['seconds'], 's')}"
        memory, seconds = short(row["memory_bytes"] / across), short(row["seconds"] / up)
        return {"memory": memory, "seconds": seconds, "case": case, "says": says}

    groups = _grouped(rows, [name for name in ("network", "array") if name in case_columns])
    cases = {label or "plans": group for label, group in groups.items()}
    colours = {name: SERIES[n % 5] for n, name in enumerate(cases)} | {"Pareto front": MARK}
    x = along(alt.X, "memory", f"{MEMORY} ({unit})")
    y = along(alt.Y, "seconds", heading)
    colour = alt.Color("case:N", scale=scale(colours), legend=legend(colours))
    data = {
        "points": [placed(row, case) for case, group in cases.items() for row in group],
        "front": [placed(row, "Pareto front") for row in best],
    }
    layers = [
        mark("points", "circle", x, y, colour, *SAYS, size=40, opacity=0.9),
        mark("front", "line", x, y, colour, interpolate="step-after", strokeWidth=1.5),
    ]
    return figure(alt.layer(*layers), data, _title(rows), width=WIDTH, height=HEIGHT)
