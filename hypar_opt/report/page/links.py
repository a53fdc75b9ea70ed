"""What the links carry, drawn where they are."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from hypar_opt.report.page.charts import Chart, chart_of, figure_of, seconds_of, short
from hypar_opt.report.page.topology import draw
from hypar_opt.studies.advice import readable_bytes

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.report.page.topology import Drawing
    from hypar_opt.simulator.result import StepResult

LOADS = [[0.0, "#8fa3b5"], [0.5, "#e0a12f"], [1.0, "#cf2436"]]
_SHADES = 16
_ROWS = 24


def links(array: Array, step: StepResult) -> Chart:
    """How much of the step each link is full, drawn where the link is."""
    drawing = draw(array)
    share = [
        each.seconds_at_capacity / step.seconds if step.seconds else 0.0 for each in step.links
    ]
    most = max(share, default=0.0) or 1.0
    traces = _lines(array, drawing, share, most)
    traces.append(_middles(step, drawing, share, most))
    traces += _nodes(drawing.nodes)
    height = 400 if not drawing.even else 520
    figure = figure_of(traces, height, hovermode="closest")
    figure.update_layout(margin={"l": 8, "r": 8, "t": 8, "b": 70})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    if drawing.even:
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    rows = _fullest(step, share)
    left = len(share) - len(rows)
    others = "are full no longer" if rows else "carry nothing"
    return chart_of(
        figure,
        "links",
        "What the links carry",
        "Wider links have more bandwidth. A link is full for as long as its bytes take at its"
        " whole rate, in its busier direction; it is busy while any byte crosses it.",
        ("link", "bytes", "busy", "full", "of the step"),
        rows,
        more=f"{left:,} links {'more ' if rows else ''}{others}" if left else "",
    )


def _lines(array: Array, drawing: Drawing, share: list[float], most: float) -> list[Any]:
    """Draw the links, as wide as their bandwidth, those of a shade together."""
    import plotly.graph_objects as go
    from plotly.colors import sample_colorscale

    interconnect = array.interconnect
    slowest = min((link.bytes_per_second for link in interconnect.links), default=1)
    strokes: dict[tuple[int, float], list[Any]] = {}
    for link, each, load in zip(interconnect.links, drawing.strokes, share, strict=True):
        times = link.bytes_per_second / slowest
        width = 2.0 + 1.2 * min(int(times).bit_length() - 1, 5)
        shade = min(int(load / most * _SHADES), _SHADES - 1)
        strokes.setdefault((shade, width), []).extend(each)
    return [
        go.Scatter(
            mode="lines",
            x=[x for start, end in found for x in (start[0], end[0], None)],
            y=[y for start, end in found for y in (start[1], end[1], None)],
            line={"color": _shade(sample_colorscale, shade), "width": width},
            hoverinfo="skip",
            showlegend=False,
        )
        for (shade, width), found in sorted(strokes.items())
    ]


def _middles(step: StepResult, drawing: Drawing, share: list[float], most: float) -> Any:
    """Draw a point on each link that tells what it carries, and the scale of colours."""
    import plotly.graph_objects as go

    middles, texts, loads = [], [], []
    for traffic, each, load in zip(step.links, drawing.strokes, share, strict=True):
        text = (
            f"{escape(traffic.link)}<br>{readable_bytes(traffic.bytes)}"
            f"<br>busy {seconds_of(traffic.busy)}"
            f"<br>full {seconds_of(traffic.seconds_at_capacity)}, {load:.1%}"
        )
        for start, end in each:
            part = 0.5 if len(each) == 1 else 0.8
            middles.append(tuple(a + part * (b - a) for a, b in zip(start, end, strict=True)))
            texts.append(text)
            loads.append(load)
    return go.Scatter(
        mode="markers",
        x=[short(x) for x, _ in middles],
        y=[short(y) for _, y in middles],
        hovertext=texts,
        hoverinfo="text",
        showlegend=False,
        marker={
            "size": 9 if len(middles) <= 200 else 5,
            "color": loads,
            "colorscale": LOADS,
            "cmin": 0.0,
            "cmax": most,
            "colorbar": {
                "orientation": "h",
                "thickness": 9,
                "len": 0.6,
                "y": -0.04,
                "yanchor": "top",
                "tickformat": ".0%" if most > 0.04 else ".2%",
                "nticks": 5,
                "outlinewidth": 0,
                "title": {"text": "share of the step that a link is full", "side": "bottom"},
            },
        },
    )


def _fullest(step: StepResult, share: list[float]) -> list[tuple[str, ...]]:
    """Return the links that are full longest, and what they carry."""
    order = sorted(range(len(share)), key=lambda place: (-share[place], place))
    return [
        (
            each.link,
            readable_bytes(each.bytes),
            seconds_of(each.busy),
            seconds_of(each.seconds_at_capacity),
            f"{share[place]:.1%}",
        )
        for place in order[:_ROWS]
        for each in (step.links[place],)
        if each.bytes
    ]


def _nodes(nodes: dict[Any, tuple[float, float]]) -> list[Any]:
    import plotly.graph_objects as go

    accelerators = [node for node in nodes if isinstance(node, int)]
    switches = [node for node in nodes if not isinstance(node, int)]
    large = len(accelerators) <= 16
    found = []
    for kind, symbol, size, some in (
        ("accelerator", "square", 20 if large else 8, accelerators),
        ("switch", "circle", 9 if large else 6, switches),
    ):
        labels = large and kind == "accelerator"
        found.append(
            go.Scatter(
                mode="markers+text" if labels else "markers",
                x=[nodes[node][0] for node in some],
                y=[nodes[node][1] for node in some],
                text=[str(node) for node in some] if labels else None,
                textfont={"color": "#ffffff", "size": 11},
                hovertext=[
                    f"{kind} {node}" if labels or kind == "accelerator" else escape(str(node))
                    for node in some
                ],
                hoverinfo="text",
                showlegend=False,
                marker={"symbol": symbol, "size": size, "color": "#56616d", "line": {"width": 0}},
            )
        )
    return found


def _shade(sample: Any, shade: int) -> str:
    (colour,) = sample([list(stop) for stop in LOADS], [(shade + 0.5) / _SHADES])
    return str(colour)
