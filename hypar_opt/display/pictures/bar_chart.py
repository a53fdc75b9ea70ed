"""Bars and lines, our values beside the printed ones, in the form of the paper's Figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite, log10
from typing import TYPE_CHECKING, Any

from hypar_opt.display.pictures.canvas import (
    FAINT,
    HATCH,
    INK,
    Numbers,
    Series,
    add_legend,
    colors_of,
    new_figure,
    paler,
    positive,
    style,
    write_near,
)
from hypar_opt.units import format_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_GROUP_WIDTH, _BEHIND_WIDTH = 0.84, 0.72
"""Width of a group's bars, and of those behind lines, with groups 1 apart."""


@dataclass(frozen=True)
class _BarSeries:
    """One series' bars, one in each group; the paper's are ``printed``, and hatched."""

    name: str
    numbers: Numbers
    color: str
    printed: bool
    center: float
    """Of the first group's bar; that group is centred on 0, the next on 1."""
    width: float

    @property
    def label(self) -> str:
        return f"{self.name}, {'printed' if self.printed else 'ours'}"


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
    drawn = _side_by_side(series, printed, colors, _GROUP_WIDTH)
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


def _side_by_side(
    series: Series, printed: Series, colors: Mapping[str, str], group: float
) -> list[_BarSeries]:
    """Return the series of each group from left to right, with printed ones beside ours."""
    pairs = [
        (name, numbers, is_printed)
        for name, ours in series.items()
        for numbers, is_printed in ((ours, False), (printed.get(name), True))
        if numbers is not None
    ]
    width = group / max(len(pairs), 1)
    return [
        _BarSeries(name, numbers, colors[name], printed, -group / 2 + (n + 0.5) * width, width)
        for n, (name, numbers, printed) in enumerate(pairs)
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
        label=series.label,
        zorder=2,
        edgecolor=series.color,
        linewidth=0.5,
        **face,
    )
    for x, value in points:
        down = value < bottom
        write_near(
            axes,
            format_label(value),
            (x, value),
            (0, -2 if down else 2),
            color="#555555" if series.printed else INK,
            ha="center",
            va="top" if down else "bottom",
            rotation=90,
            fontsize=6,
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
        hatched: dict[str, Any] = {"fc": paler(FAINT), "ec": FAINT, "hatch": HATCH}
        handles.append(Patch(linewidth=0.5, label="as the paper prints it", **hatched))
    return handles


_MARKERS = "os^Dv<>"


@style()
def scaling(
    accelerators: Sequence[int],
    gains: Series,
    gigabytes: Series | None = None,
    *,
    printed_gains: Series | None = None,
    printed_gigabytes: Series | None = None,
    title: str = "",
) -> Figure:
    """Draw gains over one accelerator as lines, and a step's communication as bars behind.

    Parameters
    ----------
    accelerators
        The numbers of accelerators, powers of two.
    gains, printed_gains
        Speed over that of one accelerator, ours and the paper's: one number per array.
    gigabytes, printed_gigabytes
        Bytes of a step in units of 1e9, ours and the paper's; None for no bars.

    Source: Figure 11.
    """
    gigabytes, printed_gigabytes = gigabytes or {}, printed_gigabytes or {}
    colors = colors_of([*gains, *gigabytes])
    figure = new_figure(6.2, 3.8, layout="constrained")
    axes = figure.add_subplot()
    # Gains and gigabytes have no common scale.
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    axes.set_zorder(right.get_zorder() + 1)  # lines before bars
    axes.patch.set_visible(False)
    _draw_bars(right, gigabytes, printed_gigabytes, colors)
    _draw_lines(axes, gains, printed_gains or {}, colors)
    # Equally spaced, which for powers of two is a logarithmic axis.
    axes.set_xticks(range(len(accelerators)), [f"{count:,}" for count in accelerators])
    axes.set_xlim(-0.6, len(accelerators) - 0.4)
    axes.set_xlabel("accelerators")
    axes.set_ylabel("gain over one accelerator (lines)")
    axes.set_ylim(0, max(positive(*gains.values()), default=1.0) * 1.15)
    note = "; hatched: printed" if printed_gigabytes else ""
    right.set_ylabel(f"GB a step (bars{note})")
    right.set_ylim(bottom=0)  # lengths of bars compare only from 0
    # An axis without bars would still show a scale.
    if not gigabytes:
        right.set_visible(False)
    handles, _ = axes.get_legend_handles_labels()
    add_legend(figure, title, handles, ncols=2)
    return figure


def _draw_bars(axes: Axes, gigabytes: Series, printed: Series, colors: Mapping[str, str]) -> None:
    for bar_series in _side_by_side(gigabytes, printed, colors, _BEHIND_WIDTH):
        axes.bar(
            [n + bar_series.center for n in range(len(bar_series.numbers))],
            _with_gaps(bar_series.numbers),
            bar_series.width * 0.92,
            facecolor=paler(bar_series.color, 0.9 if bar_series.printed else 0.72),
            edgecolor=paler(bar_series.color, 0.45),
            hatch=HATCH if bar_series.printed else None,
            linewidth=0.4,
            label=bar_series.label,
        )


def _draw_lines(axes: Axes, gains: Series, printed: Series, colors: Mapping[str, str]) -> None:
    for n, (name, numbers) in enumerate(gains.items()):
        color, marker = colors[name], _MARKERS[n % len(_MARKERS)]
        ours = _with_gaps(numbers)
        axes.plot(ours, color=color, marker=marker, markersize=5, label=name)
        if name in printed:
            axes.plot(
                _with_gaps(printed[name]),
                color=color,
                marker=marker,
                # Larger and hollow, so that ours is visible inside.
                markersize=9,
                markerfacecolor="none",
                markeredgewidth=0.9,
                linestyle="",
                label=f"{name}, printed",
            )
        _label_ends(axes, ours, color)


def _label_ends(axes: Axes, gains: Sequence[float], color: str) -> None:
    """Write the last gain beside its point, and the highest if it is not the last."""
    highest = max(filter(isfinite, gains), default=None)
    for n, gain in enumerate(gains):
        if isfinite(gain) and (n == len(gains) - 1 or gain == highest):
            write_near(axes, format_label(gain), (n, gain), (0, 9), ha="center", color=color)


def _with_gaps(numbers: Numbers) -> list[float]:
    """Return numbers with nan, which matplotlib leaves out, in place of None."""
    return [float("nan") if value is None else value for value in numbers]
