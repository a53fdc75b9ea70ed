"""Grouped bars on a logarithmic axis: our values beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import TYPE_CHECKING, Any

from hypar_opt.report.pictures.canvas import FAINT, INK, add_legend, new_figure, paler, style
from hypar_opt.report.pictures.series import HATCH, Numbers, Series, colors_of, positive
from hypar_opt.units import format_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUP_WIDTH = 0.84
"""Width of a group's bars, with groups 1 apart; the rest is the gap to the next."""


@dataclass(frozen=True)
class _BarSeries:
    """One series' bars, one in each group.

    Parameters
    ----------
    numbers
        The values; None for no bar.
    printed
        Whether they are the paper's, which are hatched.
    left, width
        Left end and width of the first group's bar; that group is centred on 0, the next on 1.
    """

    name: str
    numbers: Numbers
    color: str
    printed: bool
    left: float
    width: float

    @property
    def center(self) -> float:
        return self.left + self.width / 2


@style()
def bars(
    groups: Sequence[str],
    series: Series,
    printed: Series | None = None,
    *,
    ylabel: str = "",
    title: str = "",
    baseline: float | None = None,
) -> Figure:
    """Draw grouped bars on a logarithmic axis, each with its value.

    Parameters
    ----------
    groups
        One name per group, along the axis.
    series
        One number for each group, by the series' name; None for no bar.
    printed
        Hatched, beside the series of the same name.
    baseline
        Value at which bars begin, as 1 for ratios: bars of smaller values hang down. None for a
        power of ten below all values.
    """
    printed = printed or {}
    colors = colors_of(series)
    drawn = _side_by_side(series, printed, colors)
    values = positive(*series.values(), *printed.values())
    values += [baseline] if baseline else []
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    # The power of ten strictly below the lowest, so that its bar has some height.
    bottom = baseline or 10.0 ** (ceil(log10(low)) - 1)
    # A bar needs about 0.135 inches for its upright label.
    width = min(max(1.0 + 0.135 * (len(drawn) + 1.2) * len(groups), 4.2), 24)
    figure = new_figure(width, 3.4, layout="constrained")
    axes = figure.add_subplot()
    axes.set_yscale("log")
    for bar_series in drawn:
        _draw_series(axes, bar_series, bottom)
    axes.set_xticks(range(len(groups)), groups)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.55, len(groups) - 0.45)
    _scale_y_axis(axes, min(low, bottom), high, bottom)
    if baseline:
        axes.axhline(baseline, color=INK, linewidth=0.8)
    axes.set_ylabel(ylabel)
    add_legend(figure, title, _handles(colors, bool(printed)))
    return figure


def _side_by_side(series: Series, printed: Series, colors: Mapping[str, str]) -> list[_BarSeries]:
    """Return the series of each group from left to right, with printed ones beside ours."""
    pairs = [
        (name, numbers, is_printed)
        for name, ours in series.items()
        for numbers, is_printed in ((ours, False), (printed.get(name), True))
        if numbers is not None
    ]
    width = _GROUP_WIDTH / max(len(pairs), 1)
    return [
        _BarSeries(name, numbers, colors[name], is_printed, -_GROUP_WIDTH / 2 + n * width, width)
        for n, (name, numbers, is_printed) in enumerate(pairs)
    ]


def _draw_series(axes: Axes, series: _BarSeries, bottom: float) -> None:
    """Draw one series' bars, from the bottom to the values, and their labels."""
    # A logarithmic axis has no 0.
    points = [
        (n + series.center, value)
        for n, value in enumerate(series.numbers)
        if value is not None and value > 0
    ]
    face = (
        {"facecolor": paler(series.color), "hatch": HATCH}
        if series.printed
        else {"facecolor": series.color}
    )
    # Heights are from the bottom: matplotlib adds them to it before it takes logarithms.
    axes.bar(
        [x for x, _ in points],
        [value - bottom for _, value in points],
        series.width * 0.92,
        bottom=bottom,
        label=f"{series.name}, {'printed' if series.printed else 'ours'}",
        zorder=2,
        edgecolor=series.color,
        linewidth=0.5,
        **face,
    )
    for x, value in points:
        down = value < bottom
        axes.annotate(
            format_label(value),
            (x, value),
            textcoords="offset points",
            xytext=(0, -2 if down else 2),
            ha="center",
            va="top" if down else "bottom",
            rotation=90,
            fontsize=6,
            color="#555555" if series.printed else INK,
        )


def _scale_y_axis(axes: Axes, low: float, high: float, bottom: float) -> None:
    """Leave room for the labels, and put a few plain numbers beside the axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    # Equal bars would span 0 decades and leave no room.
    decades = max(log10(high / low), 0.2)
    # In decades: the room for the labels is the same share of any logarithmic axis.
    top = high * 10 ** (0.18 * decades)
    # Bars that hang down have their labels below them.
    under = low * 10 ** (-0.18 * decades) if low < bottom else low
    axes.set_ylim(under, top)
    if decades < 0.6:
        ticks: tuple[float, ...] = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    else:
        ticks = (1, 2, 5) if decades < 2 else (1,)
    # On a span this short, at most one power of ten would have a tick.
    axes.yaxis.set_major_locator(LogLocator(subs=ticks, numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.5)
    axes.set_axisbelow(True)


def _handles(colors: Mapping[str, str], printed: bool) -> list[Any]:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=color, label=name) for name, color in colors.items()]
    if printed:
        # One entry for all printed series, since hatching means the same in every colour.
        handles.append(
            Patch(
                facecolor=paler(FAINT),
                edgecolor=FAINT,
                linewidth=0.5,
                hatch=HATCH,
                label="as the paper prints it",
            )
        )
    return handles
