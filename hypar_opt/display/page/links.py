"""The load of each link, drawn on the array's topology."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from html import escape
from typing import Any

from hypar_opt.display.page.figure import Chart, chart_of, figure_of, points, short
from hypar_opt.display.page.topology import Drawing, Point, draw
from hypar_opt.hardware.array import Array
from hypar_opt.simulator.result import LinkTraffic, StepResult
from hypar_opt.units import format_bytes, format_seconds

LOADS = [[0.0, "#8fa3b5"], [0.5, "#e0a12f"], [1.0, "#cf2436"]]
# A Plotly trace has one colour, so every shade costs a trace: few, and still told apart.
_SHADES = 16
_MAX_ROWS = 24
_MAX_LABELLED = 16
"""Accelerators are numbered in arrays of up to this many."""


def links(array: Array, step: StepResult) -> Chart:
    """Draw every link, coloured by the share of the step that it is at capacity."""
    drawing = draw(array)
    shares = [
        link.seconds_at_capacity / step.seconds if step.seconds else 0.0 for link in step.links
    ]
    highest = max(shares, default=0.0) or 1.0  # the colour scale is never empty
    traces = [
        *_lines(array, drawing, shares, highest),
        _middles(step, drawing, shares, highest),
        *_nodes(drawing.nodes),
    ]
    figure = figure_of(traces, 520 if drawing.even else 400, hovermode="closest")
    figure.update_layout(margin={"l": 8, "r": 8, "t": 8, "b": 70})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    # Grids and circles keep their shape; a tree may be stretched to the page's width.
    if drawing.even:
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    rows = _most_loaded(step, shares)
    others = len(step.links) - len(rows)
    carry = "more are full for no longer" if rows else "carry nothing"
    return chart_of(
        figure,
        "links",
        "What the links carry",
        "Wider links have more bandwidth. A link is full for as long as its bytes take at its"
        " full bandwidth, in its busier direction; it is busy while any byte crosses it.",
        ("link", "bytes", "busy", "full", "of the step"),
        rows,
        more=f"{others:,} links {carry}" if others else "",
    )


def _lines(array: Array, drawing: Drawing, loads: Sequence[float], highest: float) -> list[Any]:
    """Draw the links, with widths by bandwidth, one trace per shade and width."""
    # A Plotly trace has one colour and width: one trace for all links that share both.
    interconnect = array.interconnect
    slowest = min((link.bytes_per_second for link in interconnect.links), default=1)
    strokes: dict[tuple[int, float], list[tuple[Point, Point]]] = {}
    for link, link_strokes, share in zip(interconnect.links, drawing.strokes, loads, strict=True):
        # Bandwidths differ by orders of magnitude, so the width grows with their logarithm.
        doublings = int(link.bytes_per_second / slowest).bit_length() - 1
        width = 2.0 + 1.2 * min(doublings, 5)
        shade = min(int(share / highest * _SHADES), _SHADES - 1)
        strokes.setdefault((shade, width), []).extend(link_strokes)
    return [
        points(
            # None ends a stroke: Plotly would join it to the next.
            (at for start, end in shade_strokes for at in (start, end, (None, None))),
            mode="lines",
            line={"color": _colour(shade), "width": width},
            showlegend=False,
        )
        # The most loaded last: Plotly draws later traces over earlier ones.
        for (shade, width), shade_strokes in sorted(strokes.items())
    ]


def _colour(shade: int) -> str:
    from plotly.colors import sample_colorscale

    stops = [list(stop) for stop in LOADS]
    # The middle of the shade's range, as the scale of colours shows it.
    (colour,) = sample_colorscale(stops, [(shade + 0.5) / _SHADES])
    return str(colour)


def _middles(step: StepResult, drawing: Drawing, loads: Sequence[float], highest: float) -> Any:
    """Draw a point on each link whose text gives its load, and the colour scale."""
    # Plotly shows hover texts at points only, so each line needs one.
    middles, texts, shares = [], [], []
    for traffic, strokes, share in zip(step.links, drawing.strokes, loads, strict=True):
        for start, end in strokes:
            # A wrap-around link is drawn as two stubs: its points are near their tips.
            part = 0.5 if len(strokes) == 1 else 0.8
            middles.append(tuple(a + part * (b - a) for a, b in zip(start, end, strict=True)))
            texts.append(_hover_text(traffic, share))
            shares.append(share)
    return points(
        ((short(x), short(y)) for x, y in middles),
        texts,
        showlegend=False,
        marker={
            # Smaller if many would overlap.
            "size": 9 if len(middles) <= 200 else 5,
            "color": shares,
            "colorscale": LOADS,
            "cmin": 0.0,
            "cmax": highest,
            "colorbar": {
                "orientation": "h",
                "thickness": 9,
                "len": 0.6,
                "y": -0.04,
                "yanchor": "top",
                # In whole percents, the ticks of a small range would be equal.
                "tickformat": ".0%" if highest > 0.04 else ".2%",
                "nticks": 5,
                "outlinewidth": 0,
                "title": {"text": "share of the step that a link is full", "side": "bottom"},
            },
        },
    )


def _hover_text(traffic: LinkTraffic, share: float) -> str:
    return (
        f"{escape(traffic.link)}<br>{format_bytes(traffic.bytes)}"
        f"<br>busy {format_seconds(traffic.busy)}"
        f"<br>full {format_seconds(traffic.seconds_at_capacity)}, {share:.1%}"
    )


def _most_loaded(step: StepResult, loads: Sequence[float]) -> list[tuple[str, ...]]:
    """Return the rows of the links that are at capacity longest, without idle links."""
    by_share = sorted(zip(step.links, loads, strict=True), key=lambda link_share: -link_share[1])
    return [
        (
            link.link,
            format_bytes(link.bytes),
            format_seconds(link.busy),
            format_seconds(link.seconds_at_capacity),
            f"{share:.1%}",
        )
        for link, share in by_share[:_MAX_ROWS]
        if link.bytes
    ]


def _nodes(places: Mapping[Hashable, Point]) -> list[Any]:
    """Draw the accelerators, numbered if there is room, and the switches."""
    accelerators = [node for node in places if isinstance(node, int)]
    switches = [node for node in places if not isinstance(node, int)]
    numbered = len(accelerators) <= _MAX_LABELLED
    style = {"color": "#56616d", "line": {"width": 0}}
    shared = {"showlegend": False, "textfont": {"color": "#ffffff", "size": 11}}
    numbers = {"mode": "markers+text", "text": list(map(str, accelerators))} if numbered else {}
    return [
        points(
            (places[node] for node in accelerators),
            (f"accelerator {node}" for node in accelerators),
            marker={"symbol": "square", "size": 20 if numbered else 8, **style},
            **shared,
            **numbers,
        ),
        points(
            (places[node] for node in switches),
            (escape(str(node)) for node in switches),
            marker={"symbol": "circle", "size": 9 if numbered else 6, **style},
            **shared,
        ),
    ]
