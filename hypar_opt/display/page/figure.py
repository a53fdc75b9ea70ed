"""Shared parts of the page's charts: Plotly's figure, colours and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

PHASES = {"forward": "#5a8fd6", "gradient": "#c9649b", "backward": "#7da83f"}
"""Colours of the passes."""

PALE = 0.42
"""Opacity of communication; compute is opaque."""

_LINE = "rgba(128,128,128,0.28)"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_LEGEND = {
    "orientation": "h",
    "x": 0,
    "xanchor": "left",
    "y": 1.02,
    "yanchor": "bottom",
    "traceorder": "normal",
}
_AXES = {
    "automargin": True,
    "fixedrange": True,
    "gridcolor": _LINE,
    "zerolinecolor": _LINE,
    "linecolor": _LINE,
    "title_standoff": 8,
}


@dataclass(frozen=True)
class Chart:
    """One figure, with its caption, and its numbers as a table.

    Parameters
    ----------
    id
        Identifier of the HTML element.
    figure
        Plotly's JSON, safe in a script element; ``height`` is in pixels.
    more
        A line below the table on what it leaves out.
    """

    id: str
    title: str
    caption: str
    figure: str
    height: int
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""


def bars(
    names: Iterable[str], amounts: Iterable[float], form: Callable[[Any], str], **options: Any
) -> dict[str, Any]:
    """Return a trace of bars for Plotly, each with its name and amount as text."""
    hover = [f"{name}: {form(amount)}" for name, amount in zip(names, amounts, strict=True)]
    return {"type": "bar", "hovertext": hover, "hoverinfo": "text", **options}


def points(
    places: Iterable[tuple[Any, Any]], hover: Iterable[str] = (), **options: Any
) -> dict[str, Any]:
    """Return a trace of markers for Plotly, with the text of each, if there are any."""
    at, texts = list(places), list(hover)
    shown = {"hovertext": texts, "hoverinfo": "text"} if texts else {"hoverinfo": "skip"}
    x, y = [x for x, _ in at], [y for _, y in at]
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, **shown, **options}


def figure_of(traces: Iterable[Any], height: int, **layout: Any) -> Any:
    """Return Plotly's figure of traces, in colours for light and dark pages."""
    # Imported late: plotly belongs to an optional extra.
    import plotly.graph_objects as go

    figure = go.Figure(list(traces))
    figure.update_layout(
        # Plotly's default template would add several kB to the JSON of each figure.
        template="none",
        height=height,
        autosize=True,
        # Transparent, so that the page's background shows, light or dark.
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 12},
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        legend=_LEGEND,
        hoverlabel={"align": "left", "font": {"family": _FONT, "size": 12}},
        dragmode="zoom",
        **layout,
    )
    figure.update_xaxes(**_AXES)
    figure.update_yaxes(**_AXES)
    return figure


def chart_of(
    figure: Any,
    name: str,
    title: str,
    caption: str,
    header: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    more: str = "",
) -> Chart:
    """Return a figure of `figure_of` with its caption and its table, as `Chart` has them."""
    json = escaped(figure.to_json(validate=False, engine="json"))
    return Chart(name, title, caption, json, figure.layout.height, header, tuple(rows), more)


def escaped(json: str) -> str:
    """Return JSON that is safe in a script element, whatever its strings are."""
    # A layer named </script> would end the element.
    # U+2028 and U+2029 end a line in older JavaScript, even within a string.
    for character in "<>&\u2028\u2029":
        json = json.replace(character, f"\\u{ord(character):04x}")
    return json


def short(value: float) -> float:
    """Return a coordinate to nine digits, finer than any screen."""
    return float(f"{value:.9g}")
