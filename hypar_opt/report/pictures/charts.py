"""Bars, and gains against accelerators: ours beside what the paper prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from math import ceil, isfinite, log10
from typing import TYPE_CHECKING, Any

from hypar_opt.report.pictures.canvas import (
    CYCLE,
    DATA,
    FAINT,
    HYPAR,
    INK,
    MODEL,
    head,
    new_figure,
    number,
    paler,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = Sequence[float | None]

_COLORS = {
    "HyPar": HYPAR,
    "Model Parallelism": MODEL,
    "Data Parallelism": DATA,
    "H tree": HYPAR,
    "performance": HYPAR,
}
_HATCH = "//////"


@style()
def bars(
    groups: Sequence[str],
    series: Mapping[str, Numbers],
    printed: Mapping[str, Numbers] | None = None,
    *,
    ylabel: str = "",
    title: str = "",
    baseline: float | None = None,
) -> Figure:
    """Draw grouped bars on a logarithmic axis, each with its value.

    Parameters
    ----------
    groups
        A name a group, along the axis.
    series
        A number a group; None where there is none.
    printed
        Hatched, beside the series of the same name.
    baseline
        Where bars begin, as 1 for ratios: what is below it hangs down. None for a power of ten
        below all.
    """
    printed = printed or {}
    shown = [*_positive(*series.values(), *printed.values()), *([baseline] if baseline else [])]
    low, high = (min(shown), max(shown)) if shown else (1.0, 10.0)
    bottom = baseline or 10.0 ** (ceil(log10(low)) - 1)
    count = sum(1 + (name in printed) for name in series)
    thin = 0.84 / max(count, 1)
    figure = new_figure(
        min(max(1.0 + 0.135 * (count + 1.2) * len(groups), 4.2), 24), 3.4, layout="constrained"
    )
    axes = figure.add_subplot()
    axes.set_yscale("log")
    colors = _colors(series)
    at = -0.42
    for name, values in series.items():
        for kind, numbers in (("ours", values), ("printed", printed.get(name))):
            if numbers is not None:
                color = colors[name]
                _bars(axes, at + thin / 2, thin * 0.92, bottom, numbers, color, kind, name)
                at += thin
    axes.set_xticks(range(len(groups)), groups)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.55, len(groups) - 0.45)
    _log_axis(axes, min(low, bottom), high, bottom)
    if baseline:
        axes.axhline(baseline, color=INK, linewidth=0.8)
    axes.set_ylabel(ylabel)
    head(figure, title, _handles(colors, bool(printed)))
    return figure


def _bars(
    axes: Axes,
    at: float,
    width: float,
    bottom: float,
    numbers: Numbers,
    color: str,
    kind: str,
    name: str,
) -> None:
    """Draw one series' bars, from the bottom to the values, and their labels."""
    places = [n for n, value in enumerate(numbers) if value is not None and value > 0]
    heights = [value for value in numbers if value is not None and value > 0]
    hatched: dict[str, Any] = (
        {"facecolor": paler(color), "edgecolor": color, "hatch": _HATCH, "linewidth": 0.5}
        if kind == "printed"
        else {"facecolor": color, "edgecolor": color, "linewidth": 0.5}
    )
    axes.bar(
        [n + at for n in places],
        [value - bottom for value in heights],
        width,
        bottom=bottom,
        label=f"{name}, {kind}",
        zorder=2,
        **hatched,
    )
    for n, value in zip(places, heights, strict=True):
        down = value < bottom
        axes.annotate(
            number(value),
            (n + at, value),
            textcoords="offset points",
            xytext=(0, -2 if down else 2),
            ha="center",
            va="top" if down else "bottom",
            rotation=90,
            fontsize=6,
            color=INK if kind == "ours" else "#555555",
        )


def _log_axis(axes: Axes, low: float, high: float, bottom: float) -> None:
    """Leave room for the labels, and put a few plain numbers beside the axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    span = max(log10(high / low), 0.2)
    top = high * 10 ** (0.18 * span)
    under = low * 10 ** (-0.18 * span) if low < bottom else low
    axes.set_ylim(under, top)
    if span < 0.6:
        subs: tuple[float, ...] = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    else:
        subs = (1, 2, 5) if span < 2 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.5)
    axes.set_axisbelow(True)


def _colors(names: Iterable[str]) -> dict[str, str]:
    """Return a colour a name: its own, or the next that none of them has."""
    found = {name: _COLORS.get(name, "") for name in names}
    free = cycle([color for color in CYCLE if color not in found.values()] or CYCLE)
    return {name: color or next(free) for name, color in found.items()}


def _handles(colors: Mapping[str, str], printed: bool) -> list[Any]:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=color, label=name) for name, color in colors.items()]
    if printed:
        handles.append(
            Patch(
                facecolor=paler(FAINT),
                edgecolor=FAINT,
                linewidth=0.5,
                hatch=_HATCH,
                label="as the paper prints it",
            )
        )
    return handles


def _positive(*series: Numbers) -> list[float]:
    return [value for each in series for value in each if value is not None and value > 0]


@style()
def scaling(
    accelerators: Sequence[int],
    gains: Mapping[str, Numbers],
    gigabytes: Mapping[str, Numbers] | None = None,
    *,
    printed_gains: Mapping[str, Numbers] | None = None,
    printed_gigabytes: Mapping[str, Numbers] | None = None,
    title: str = "",
) -> Figure:
    """Draw gains over one accelerator as lines, and a step's communication as bars behind.

    Source: Figure 11.
    """
    figure = new_figure(6.2, 3.8, layout="constrained")
    axes = figure.add_subplot()
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    axes.set_zorder(right.get_zorder() + 1)  # lines before bars
    axes.patch.set_visible(False)
    gigabytes, printed_gigabytes = gigabytes or {}, printed_gigabytes or {}
    count = len(gigabytes) + len(printed_gigabytes)
    at, thin = -0.36, 0.72 / max(count, 1)
    colors = _colors([*gains, *gigabytes])
    for name, values in gigabytes.items():
        color = colors[name]
        for kind, numbers in (("ours", values), ("printed", printed_gigabytes.get(name))):
            if numbers is None:
                continue
            right.bar(
                [n + at + thin / 2 for n in range(len(numbers))],
                [_or_nan(value) for value in numbers],
                thin * 0.92,
                facecolor=paler(color, 0.72 if kind == "ours" else 0.9),
                edgecolor=paler(color, 0.45),
                hatch=_HATCH if kind == "printed" else None,
                linewidth=0.4,
                label=f"{name}, {kind}",
            )
            at += thin
    for place, (name, values) in enumerate(gains.items()):
        color = colors[name]
        shape = "os^Dv<>"[place % 7]
        ours = [_or_nan(value) for value in values]
        axes.plot(ours, color=color, marker=shape, markersize=5, label=name)
        if printed_gains and name in printed_gains:
            axes.plot(
                [_or_nan(value) for value in printed_gains[name]],
                color=color,
                marker=shape,
                markersize=9,
                markerfacecolor="none",
                markeredgewidth=0.9,
                linestyle="",
                label=f"{name}, printed",
            )
        for n, value in enumerate(ours):
            if isfinite(value) and (n == len(ours) - 1 or value == max(filter(isfinite, ours))):
                axes.annotate(
                    number(value),
                    (n, value),
                    textcoords="offset points",
                    xytext=(0, 9),
                    ha="center",
                    fontsize=7,
                    color=color if color != DATA else "#1f78ad",
                )
    axes.set_xticks(range(len(accelerators)), [f"{n:,}" for n in accelerators])
    axes.set_xlim(-0.6, len(accelerators) - 0.4)
    axes.set_xlabel("accelerators")
    axes.set_ylabel("gain over one accelerator (lines)")
    highest = max(_positive(*gains.values()), default=1.0)
    axes.set_ylim(0, highest * 1.15)
    note = "; hatched: printed" if printed_gigabytes else ""
    right.set_ylabel(f"GB a step (bars{note})")
    right.set_ylim(bottom=0)
    if not gigabytes:
        right.set_visible(False)
    handles, _ = axes.get_legend_handles_labels()
    head(figure, title, handles, ncols=2)
    return figure


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
