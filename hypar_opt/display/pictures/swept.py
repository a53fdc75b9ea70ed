"""A sweep's rows: lines over one varied key, a map over two, else time against memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.display.pictures.canvas import CYCLE, FAINT, MARK, add_legend, new_figure, style
from hypar_opt.display.pictures.heat import surface
from hypar_opt.errors import HyparError
from hypar_opt.units import (
    axis_byte_unit,
    axis_unit,
    format_bytes,
    format_joules,
    format_number,
    format_rate,
    format_seconds,
    format_si,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.studies.sweep import SweepResult

_OF_A_CASE = (
    *("network", "array", "batch", "element_bytes", "choices", "cost", "solver", "search"),
    *("reading", "overlap"),
)

_MARKERS = "os^Dv"

_UNITS: dict[str, Callable[[float], str]] = {
    "_bytes_per_second": format_rate,
    "_operations_per_second": lambda rate: format_si(rate, "op/s"),
    "_seconds": format_seconds,
    "_joules": format_joules,
    "_bytes": format_bytes,
}
"""How numbers of a column are shown, by the unit in its name."""

Row = dict[str, Any]


@style()
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
    own = [name for name in _OF_A_CASE if name not in axes and _several(rows, name)]
    if len(axes) == 1:
        return _lines(rows, axes[0], own, measure)
    if len(axes) == 2:
        return _map(rows, axes, own, measure)
    return _front(rows, own)


def _several(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _label(name: str) -> tuple[str, Callable[[Any], str]]:
    """Return a column's name without its unit, and what shows its values."""
    for ending, shown in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending), shown
    return name, lambda value: format_number(value) if _is_number(value) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _title(rows: Sequence[Row]) -> str:
    """Return what all rows have in common."""
    same = [str(rows[0][name]) for name in ("network", "array") if not _several(rows, name)]
    batch = [] if _several(rows, "batch") else [f"batch {rows[0]['batch']:,}"]
    return ", ".join([" on ".join(same), *batch] if same else batch)


def _grouped(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows by what some columns have, as text."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[", ".join(str(row[name]) for name in names)].append(row)
    return groups


def _lines(rows: Sequence[Row], axis: str, own: Sequence[str], measure: str) -> Figure:
    name, shown = _label(axis)
    values = list(dict.fromkeys(row[axis] for row in rows))
    numeric = all(map(_is_number, values))
    values = sorted(values) if numeric else values
    at: dict[Hashable, float] = {
        value: float(value if numeric else n) for n, value in enumerate(values)
    }
    most = max(row[measure] for row in rows)
    size, unit = axis_unit(most) if measure == "seconds" else axis_byte_unit(most)
    figure = new_figure(5.6, 3.6, layout="constrained")
    axes = figure.add_subplot()
    for n, (label, group) in enumerate(_grouped(rows, own).items()):
        points = sorted((at[row[axis]], row[measure] / size) for row in group)
        x, y = zip(*points, strict=True)
        color, marker = CYCLE[n % len(CYCLE)], _MARKERS[n // len(CYCLE) % len(_MARKERS)]
        axes.plot(x, y, color=color, marker=marker, markersize=3.5, label=label)
    if numeric and values[0] > 0 and values[-1] >= 8 * values[0]:
        axes.set_xscale("log")
    ticks = values if len(values) <= 8 else values[:: -(-len(values) // 8)]
    axes.set_xticks([at[value] for value in ticks], [shown(value) for value in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(name)
    axes.set_ylabel(f"{'time of a step' if measure == 'seconds' else 'moved in a step'} ({unit})")
    handles, labels = axes.get_legend_handles_labels()
    add_legend(figure, _title(rows), handles if any(labels) else [])
    return figure


def _map(rows: Sequence[Row], axes: Sequence[str], own: Sequence[str], measure: str) -> Figure:
    if own:
        raise HyparError(
            f"--picture: a map over {axes[0]} and {axes[1]} has one value in a cell, and the sweep"
            f" has several of {own[0]}"
        )
    (across, show_across), (up, show_up) = map(_label, axes)
    ticks = [sorted({row[name] for row in rows}, key=lambda v: (str(type(v)), v)) for name in axes]
    most = max(row[measure] for row in rows)
    size, unit = axis_unit(most) if measure == "seconds" else axis_byte_unit(most)
    values = np.full((len(ticks[1]), len(ticks[0])), np.nan)
    for row in rows:
        values[ticks[1].index(row[axes[1]]), ticks[0].index(row[axes[0]])] = row[measure] / size
    return surface(
        values,
        [show_across(value) for value in ticks[0]],
        [show_up(value) for value in ticks[1]],
        xlabel=across,
        ylabel=up,
        name=f"{'time of a step' if measure == 'seconds' else 'moved in a step'} ({unit})",
        title=_title(rows),
        star=False,
    )


def _front(rows: Sequence[Row], own: Sequence[str]) -> Figure:
    if any(row["seconds"] is None for row in rows):
        raise HyparError(
            "--picture: a front is of simulated steps; leave simulate = false out, or vary one or"
            " two keys"
        )
    points = sorted({(row["memory_bytes"], row["seconds"]) for row in rows})
    best: list[tuple[int, float]] = []
    for memory, seconds in points:
        if not best or seconds < best[-1][1]:
            best.append((memory, seconds))
    across, unit = axis_byte_unit(points[-1][0])
    up, symbol = axis_unit(max(seconds for _, seconds in points))
    figure = new_figure(5.6, 3.8, layout="constrained")
    axes = figure.add_subplot()
    names = [name for name in ("network", "array") if name in own]
    for n, (label, group) in enumerate(_grouped(rows, names).items()):
        x = [row["memory_bytes"] / across for row in group]
        y = [row["seconds"] / up for row in group]
        color = CYCLE[n % len(CYCLE)]
        axes.plot(x, y, linestyle="", marker="o", markersize=4, color=color, label=label or "plans")
    x, y = ([point[n] / scale for point in best] for n, scale in ((0, across), (1, up)))
    axes.step(x, y, where="post", color=MARK, linewidth=1.1, label="Pareto front")
    axes.grid(color=FAINT, linewidth=0.2)
    axes.set_xlabel(f"memory of an accelerator ({unit})")
    axes.set_ylabel(f"time of a step ({symbol})")
    add_legend(figure, _title(rows), axes.get_legend_handles_labels()[0])
    return figure
