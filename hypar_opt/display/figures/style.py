"""Shared parts of figures: style, axes, legends, and writing to a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, log10
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import vl_convert

from hypar_opt.display.palette import FAINT, GRID, INK, PALE
from hypar_opt.documents.files import write_whole
from hypar_opt.errors import HyparError

Figure: TypeAlias = alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart

Rows = Sequence[Mapping[str, Any]]
"""The data of marks, a dictionary for each mark."""

FORMATS = ("png", "svg", "pdf")

WIDTH = 480
"""Pixels between the axes of a figure, for 600 with its labels."""

HEIGHT = 230
"""Pixels between the axes of a figure of points or lines."""

CHARACTER = 6.1
"""Pixels of a character of a label, on average."""

_SCALE = 2
"""Pixels of a PNG file for one of the figure."""

COMPUTES, COMMUNICATES = "computes", "communicates"

POINT_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down")
"""Vega's shapes of the points of series, in this order."""

CONFIG: dict[str, Any] = {
    "background": "white",
    "font": "DejaVu Sans, Verdana, system-ui, sans-serif",
    "lineBreak": "\n",
    "view": {"stroke": None},
    "axis": {
        "domainColor": FAINT,
        "gridColor": GRID,
        "labelColor": INK,
        "labelFontSize": 10,
        "labelLimit": 0,
        "tickColor": FAINT,
        "titleColor": INK,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "axisQuantitative": {"labelOverlap": "greedy", "labelSeparation": 6},
    "title": {
        "anchor": "start",
        "color": INK,
        "fontSize": 12,
        "fontWeight": "normal",
        "frame": "bounds",
        "offset": 8,
    },
    "legend": {
        "labelColor": INK,
        "labelFontSize": 10.5,
        "labelLimit": 0,
        "orient": "top",
        "symbolStrokeWidth": 1.4,
        "titleColor": INK,
        "titleFontSize": 10.5,
        "titleFontWeight": "normal",
        "titleLimit": 0,
    },
    "text": {"color": INK, "fontSize": 10},
    "rule": {"color": FAINT},
}
"""Vega-Lite's settings of all figures. A page replaces the ink by that of its text."""


def of(name: str, where: str = "") -> alt.Chart:
    """Return a chart of the rows of that name, which `figure` receives; or of some, by a test."""
    chart = alt.Chart(alt.NamedData(name))
    return chart.transform_filter(where) if where else chart


SAYS = (alt.Tooltip("says:N"), alt.Description("says:N"))
"""The text of a mark under the pointer, also read aloud: the field ``says`` of its row."""


def mark(name: str, kind: str, *channels: Any, where: str = "", **look: Any) -> alt.Chart:
    """Return marks of a kind, as ``rect`` or ``text``, of the rows of that name or some of them."""
    drawn: alt.Chart = getattr(of(name, where), f"mark_{kind}")(**look).encode(*channels)
    return drawn


def along(
    axis: type[alt.X | alt.Y],
    field: str,
    title: str | None = None,
    ends: Sequence[float] = (),
    *,
    log: bool = False,
    **look: Any,
) -> Any:
    """Return an encoding by an axis of numbers, between two ends if they are stated."""
    scale: dict[str, Any] = {"type": "log"} if log else {"zero": False}
    scale |= {"domain": [short(end) for end in ends], "nice": False} if ends else {}
    lines = {"grid": axis is alt.Y, **look}
    return axis(f"{field}:Q", title=title, scale=alt.Scale(**scale), axis=alt.Axis(**lines))


def figure(
    chart: Figure, data: Mapping[str, Rows], title: str | list[str] = "", **size: Any
) -> Figure:
    """Return a chart with its data, its title and our style.

    Parameters
    ----------
    data
        The rows of the chart's marks, by the names that `of` takes.
    **size
        ``width`` and ``height`` in pixels, where the chart is no concatenation.
    """
    heading: dict[str, Any] = {"title": title} if title else {}
    datasets = {name: list(rows) for name, rows in data.items()}
    untyped: Any = chart
    drawn: Figure = untyped.properties(datasets=datasets, **heading, **size).configure(**CONFIG)
    return drawn


def at(axis: type[alt.X | alt.Y], low: float, high: float, field: str = "") -> Any:
    """Return an encoding by positions between two ends, without an axis; Y runs downwards."""
    downwards = axis is alt.Y
    scale = alt.Scale(domain=[high, low] if downwards else [low, high], nice=False, zero=False)
    return axis(f"{field or axis.__name__.lower()}:Q", scale=scale, axis=None)


def scale(pairs: Mapping[str, Any]) -> alt.Scale:
    """Return the scale that shows each name as its value: a colour or a shape."""
    return alt.Scale(domain=list(pairs), range=list(pairs.values()))


def legend(words: Iterable[str], **options: Any) -> alt.Legend:
    """Return a legend without a title, in as many columns as fit into a figure."""
    entries = list(words)
    longest = max(map(len, entries), default=1)
    columns = max(int((WIDTH + 60) // (CHARACTER * longest + 34)), 1)
    fewest_rows = -(-len(entries) // columns)
    columns = -(-len(entries) // max(fewest_rows, 1))
    shown: dict[str, Any] = {"symbolOpacity": 1, **options}
    return alt.Legend(title=None, columns=max(columns, 1), **shown)


def coloured(pairs: Mapping[str, str], field: str, **options: Any) -> alt.Color:
    """Return the encoding of names by colours, with its legend."""
    shown = legend(pairs, **{"symbolType": "square", **options})
    return alt.Color(f"{field}:N", scale=scale(pairs), legend=shown)


def faded(field: str, names: Sequence[str]) -> alt.Opacity:
    """Return the encoding of two names by full and by pale colour, with its legend."""
    # Below, as both legends may be wider than a phone.
    style: dict[str, Any] = {"symbolType": "square", "symbolFillColor": FAINT}
    entries = alt.Legend(title=None, orient="bottom", direction="horizontal", **style)
    return alt.Opacity(
        f"{field}:O", scale=alt.Scale(domain=list(names), range=[1, PALE]), legend=entries
    )


def row_names(name: str, y: Any) -> list[alt.Chart]:
    """Return the labels of rows, left of a figure's marks, of `name_rows`."""
    look = {"align": "right", "baseline": "middle", "clip": False}
    left, first, second = alt.XValue(-6), alt.Text("first:N"), alt.Text("second:N")
    return [
        mark(name, "text", left, y, first, where="!datum.second", **look),
        mark(name, "text", left, y, first, where="datum.second", dy=-6, **look),
        mark(name, "text", left, y, second, where="datum.second", dy=6, **look),
    ]


def name_rows(labels: Sequence[str], step: int = 1) -> Rows:
    """Return the rows of `row_names`, of labels in up to two lines; of many, some of them."""
    split = [label.partition("\n") for label in labels]
    return [
        {"line": n, "first": first, "second": second}
        for n, (first, _, second) in enumerate(split)
        if n % step == 0
    ]


def si_labels(unit: str) -> str:
    """Return Vega's expression of an axis' labels: ``10 ms``."""
    prefixed = "replace(format(datum.value, '~s'), 'µ', 'u')"
    return f"replace({prefixed}, /([a-zA-Z]?)$/, ' $1{unit}')"


def ticks(low: float, high: float) -> list[float]:
    """Return a few plain numbers between two."""
    decades = log10(high / low)
    if decades < 0.8:
        steps: tuple[float, ...] = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    else:
        # On a span this short, at most one power of ten would have a tick.
        steps = (1, 2, 5) if decades < 2.5 else (1,)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    numbers = [float(f"{step * 10.0**power:.3g}") for power in powers for step in steps]
    return [value for value in numbers if low * 0.999 <= value <= high]


def label_expression(labels: Mapping[Any, str]) -> str:
    """Return Vega's expression of an axis' labels: those of some values, and none of others."""
    cases = [f"datum.value == {value!r} ? '{text}' : " for value, text in labels.items()]
    return "".join([*cases, "''"])


def short(value: float) -> float:
    """Return a coordinate to nine digits, finer than any screen."""
    return float(f"{value:.9g}")


def evenly(count: int, max_length: int) -> list[range]:
    """Return the fewest runs of about equal length, at most ``max_length`` positions each."""
    size = max(-(-count // max(-(-count // max_length), 1)), 1)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def positive(*series: Sequence[float | None]) -> list[float]:
    """Return the numbers that a logarithmic axis can show."""
    return [value for numbers in series for value in numbers if value is not None and value > 0]


def save(drawn: Figure, path: str | Path) -> None:
    """Write a whole figure, as PNG, SVG or PDF by the file's suffix.

    The same figure gives the same bytes, but for a PDF, whose objects are in any order.

    Raises
    ------
    HyparError
        If the suffix is unknown, or the file cannot be written.
    """
    kind = checked_format(Path(path).suffix, str(path))
    described = drawn.to_dict()
    if kind == "png":
        content: bytes = vl_convert.vegalite_to_png(described, scale=_SCALE)
    elif kind == "svg":
        content = _renumbered(vl_convert.vegalite_to_svg(described)).encode()
    else:
        content = vl_convert.vegalite_to_pdf(described)
    write_whole(path, content)


def _renumbered(svg: str) -> str:
    """Return a drawing whose clips and gradients, counted in the process, are counted in it."""
    numbers: dict[str, int] = {}

    def renumbered(match: re.Match[str]) -> str:
        return f"{match[1]}{numbers.setdefault(match[2], 1 + len(numbers))}"

    return re.sub(r'((?:id="|url\(#)(?:clip|gradient_))(\d+)', renumbered, svg)


def checked_format(suffix: str, source: str) -> str:
    """Return the format's name for a suffix with or without a dot.

    Parameters
    ----------
    source
        The path or the option that has the suffix, for the message.

    Raises
    ------
    HyparError
        If there is no such format.
    """
    kind = suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise HyparError(f"{source}: a picture is one of {', '.join(FORMATS)}, got {suffix!r}")
    return kind
