"""Gains against the number of accelerators, in the form of the paper's Figure 11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from hypar_opt.report.pictures.canvas import add_legend, new_figure, paler, style
from hypar_opt.report.pictures.series import HATCH, Numbers, Series, colors_of, positive
from hypar_opt.units import format_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "os^Dv<>"
_GROUP_WIDTH = 0.72


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
    width = _GROUP_WIDTH / max(len(gigabytes) + len(printed), 1)
    left = -_GROUP_WIDTH / 2
    for name, ours in gigabytes.items():
        for numbers, is_printed in ((ours, False), (printed.get(name), True)):
            if numbers is None:
                continue
            axes.bar(
                [n + left + width / 2 for n in range(len(numbers))],
                _with_gaps(numbers),
                width * 0.92,
                facecolor=paler(colors[name], 0.9 if is_printed else 0.72),
                edgecolor=paler(colors[name], 0.45),
                hatch=HATCH if is_printed else None,
                linewidth=0.4,
                label=f"{name}, {'printed' if is_printed else 'ours'}",
            )
            left += width


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
            axes.annotate(
                format_label(gain),
                (n, gain),
                textcoords="offset points",
                xytext=(0, 9),
                ha="center",
                fontsize=7,
                color=color,
            )


def _with_gaps(numbers: Numbers) -> list[float]:
    """Return numbers with nan, which matplotlib leaves out, in place of None."""
    return [float("nan") if value is None else value for value in numbers]
