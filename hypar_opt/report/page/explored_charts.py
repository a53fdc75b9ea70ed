"""Charts of all plans of an exploration: a map, cost against memory, and a histogram."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.report.page.figure import Chart, chart_of, figure_of
from hypar_opt.report.terminal.exploration import axis_label, compared
from hypar_opt.studies.exploration.subspace import cells_of
from hypar_opt.units import (
    axis_byte_unit,
    axis_unit,
    format_bytes,
    format_cost,
    format_ratio,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypar_opt.studies.exploration import Exploration, Grid
    from hypar_opt.studies.exploration.front import ExploredFront

MAX_ROWS = 100
"""Plans in a table."""

MAX_CELLS = 2**14
"""Plans in a map."""

_MAX_POINTS = 5000
"""Points in a chart, both for plans on the front and for others."""

_MAX_ROWS_HEIGHT = 40
"""A map's height grows up to this many rows."""

_PLAN, _FRONT, _OTHERS = "#d55e00", "#14937f", "rgba(128,128,128,0.45)"
_UNITS = {"time": "seconds", "energy": "joules"}


def labels_of(exploration: Exploration, plans: NDArray[np.intp]) -> list[str]:
    """Return plans' free choices as digits, grouped by the parts of the free choices."""
    parts = [cells_of(part, exploration.plan) for part in exploration.free.split(",")]
    return [
        " ".join("".join(str(own[level, layer]) for level, layer in part) for part in parts)
        for own in exploration.digits(plans)
    ]


def amounts_of(front: ExploredFront, plan: int) -> dict[str, str]:
    """Return a plan's amounts in the front, as text."""
    return {
        name: format_bytes(float(amounts.flat[plan]))
        if name == "memory"
        else format_cost(float(amounts.flat[plan]), _UNITS.get(name, name))
        for name, amounts in front.amounts.items()
    }


def map_of(exploration: Exploration, front: ExploredFront | None) -> Chart:
    """Draw one cell per plan: rows by the first part of the free choices, columns by the second."""
    assert exploration.two_parts is not None
    rows, columns = exploration.two_parts
    grid = exploration.grid(rows, columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = exploration.data_parallel_cost / grid.values
    # JSON knows neither nan nor infinity; six digits are finer than any colour.
    cells = [
        [float(f"{ratio:.6g}") if np.isfinite(ratio) else None for ratio in row]
        for row in ratios.tolist()
    ]
    traces = [_heat(exploration, grid, cells)]
    best = exploration.grid(rows, columns, of=exploration.is_best().astype(float)).values == 1
    traces += [
        _marks("best", _places(grid, best), "star", _PLAN, 14),
        _marks("the solver's plan", [grid.plan[::-1]], "circle-open", _PLAN, 21),
    ]
    if front is not None:
        on_front = exploration.grid(rows, columns, of=front.on_front.astype(float)).values == 1
        # Last and small: many are among the best, too.
        traces.append(_marks("on the Pareto front", _places(grid, on_front), "circle", "#fff", 5))
    figure = figure_of(traces, 120 + max(18 * min(len(grid.rows), _MAX_ROWS_HEIGHT), 260))
    for update, part, labels in (
        (figure.update_xaxes, columns, grid.columns),
        (figure.update_yaxes, rows, grid.rows),
    ):
        # Labels are digits, not numbers.
        update(type="category", range=[-0.5, len(labels) - 0.5], showgrid=False)
        update(title={"text": axis_label(exploration, part), "standoff": 20})
    return chart_of(
        figure,
        "map",
        "Every plan",
        f"{compared(exploration)}: larger is better.",
        (f"{rows} \\ {columns}", *grid.columns),
        [
            (row, *("" if cell is None else format_ratio(cell) for cell in own))
            for row, own in zip(grid.rows, cells, strict=True)
        ],
    )


def _heat(exploration: Exploration, grid: Grid, cells: list[list[float | None]]) -> Any:
    import plotly.graph_objects as go

    return go.Heatmap(
        z=cells,
        x=list(grid.columns),
        y=list(grid.rows),
        colorscale="Cividis",
        colorbar={"title": {"text": compared(exploration), "side": "right"}, "thickness": 12},
        hovertemplate="%{y} %{x}: %{z:.3g}<extra></extra>",
    )


def _places(grid: Grid, where: NDArray[np.bool_]) -> list[tuple[str, str]]:
    """Return the true cells, by the labels of their column and row."""
    return [(grid.columns[x], grid.rows[y]) for y, x in np.argwhere(where)]


def _marks(
    name: str, places: Iterable[tuple[Any, Any]], symbol: str, colour: str, size: int
) -> Any:
    import plotly.graph_objects as go

    x, y = zip(*places, strict=True)
    line = {"color": colour if symbol.endswith("open") else "#333", "width": 1}
    marker = {"symbol": symbol, "size": size, "color": colour, "line": line}
    return go.Scatter(name=name, mode="markers", x=x, y=y, hoverinfo="skip", marker=marker)


def trade_off(exploration: Exploration, front: ExploredFront) -> Chart:
    """Draw each plan by its memory and the first amount of the front."""
    import plotly.graph_objects as go

    names = list(front.amounts)
    cost = names[0]
    x_size, x_title = _axis(exploration, front, "memory")
    y_size, y_title = _axis(exploration, front, cost)
    x, y = front.amounts["memory"].reshape(-1), front.amounts[cost].reshape(-1)
    shown = np.flatnonzero(front.on_front)[:_MAX_POINTS]
    # Plans that are equal in both amounts are one point.
    _, distinct = np.unique(np.stack([x, y]), axis=1, return_index=True)
    others = distinct[:: -(-len(distinct) // _MAX_POINTS)]
    own = np.array([exploration.plan_number])

    def points(name: str, plans: NDArray[np.intp], **options: Any) -> Any:
        places = {"x": (x[plans] / x_size).tolist(), "y": (y[plans] / y_size).tolist()}
        return go.Scatter(name=name, mode="markers", **places, **options)

    labels = labels_of(exploration, shown)
    amounts = [tuple(amounts_of(front, plan).values()) for plan in shown.tolist()]
    hover = [f"{label}<br>{', '.join(own)}" for label, own in zip(labels, amounts, strict=True)]
    on_front = {"size": 9, "color": _FRONT}
    ring = {"symbol": "circle-open", "size": 17, "color": _PLAN, "line": {"width": 2}}
    traces = [
        points("plans", others, marker={"size": 4, "color": _OTHERS}, hoverinfo="skip"),
        points("on the Pareto front", shown, marker=on_front, hovertext=hover, hoverinfo="text"),
        points("the solver's plan", own, marker=ring, hoverinfo="skip"),
    ]
    figure = figure_of(traces, 360)
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    return chart_of(
        figure,
        "trade-off",
        f"{cost.capitalize()} against memory",
        "The plans explored. On the front are those that no other beats in"
        f" {', '.join(names[:-1])} and {names[-1]} together.",
        ("on the front", *names),
        [(label, *own) for label, own in zip(labels, amounts, strict=True)][:MAX_ROWS],
        f"The first {MAX_ROWS} of {front.plans:,}." if front.plans > MAX_ROWS else "",
    )


def _axis(exploration: Exploration, front: ExploredFront, name: str) -> tuple[float, str]:
    """Return the scale and the title of an axis of amounts."""
    largest = float(front.amounts[name].max())
    size, unit = 1.0, exploration.unit
    if name in ("memory", "bytes"):
        size, unit = axis_byte_unit(largest)
    elif name in _UNITS:
        size, unit = axis_unit(largest, "s" if name == "time" else "J")
    return size, f"{'memory of an accelerator' if name == 'memory' else name} ({unit})"


def distribution(exploration: Exploration) -> Chart:
    """Draw the histogram of costs."""
    import plotly.graph_objects as go

    counts, edges = exploration.histogram()
    ends = [format_cost(edge, exploration.unit) for edge in edges.tolist()]
    ranges = [
        (low, high, f"{count:,}")
        for low, high, count in zip(ends[:-1], ends[1:], counts.tolist(), strict=True)
    ]
    bars = go.Bar(
        x=list(range(len(ranges))),
        y=counts.tolist(),
        marker_color=_FRONT,
        hovertext=[f"{low} to {high}: {count}" for low, high, count in ranges],
        hoverinfo="text",
    )
    figure = figure_of([bars], 280, bargap=0.08, showlegend=False)
    every = -(-len(ranges) // 8)
    ticks = {"tickvals": list(range(0, len(ranges), every)), "ticktext": ends[:-1][::every]}
    figure.update_xaxes(**ticks, title=f"{exploration.objective}, from", showgrid=False)
    figure.update_yaxes(title="plans", rangemode="tozero")
    return chart_of(
        figure,
        "distribution",
        "All costs",
        f"How many plans have which {exploration.objective}.",
        ("from", "to", "plans"),
        ranges,
    )
