"""An array as a roofline: operations per second over operations per byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.display.pictures.canvas import (
    CYCLE,
    FAINT,
    INK,
    MARK,
    add_legend,
    new_figure,
    style,
    write_near,
)
from hypar_opt.hardware.roofline import DRAM, roofline
from hypar_opt.units import format_number, format_rate, format_si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.hardware.array import Array

_BEYOND = 30.0
"""The factor by which the axis goes beyond the first and the last ridge."""


@style()
def array_roofline(array: Array) -> Figure:
    """Draw what bounds an accelerator: its peak, its DRAM, and the levels' bandwidths.

    Under each roof, up to its ridge, bytes bound what is computed: those of DRAM, or those that an
    accelerator exchanges at the levels. The bottleneck is the lowest one of levels, with the link
    that is full.

    Raises
    ------
    HyparError
        If matplotlib is not installed.

    Source: see `hypar_opt.hardware.roofline`.
    """
    from matplotlib.ticker import FuncFormatter

    roofs = roofline(array)
    peak, ridges = roofs.operations_per_second, [roofs.ridge(roof) for roof in roofs.roofs]
    low, high = min(ridges) / _BEYOND, max(ridges) * _BEYOND
    figure = new_figure(6.4, 3.6, layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log")
    axes.set_xlabel("operations per byte of that roof")
    axes.set_ylabel("operations per second of an accelerator")
    axes.plot([low, high], [peak, peak], color=INK, linewidth=1.2, label="peak")
    handles = []
    for number, (roof, ridge) in enumerate(zip(roofs.roofs, ridges, strict=True)):
        slowest = roof is roofs.bottleneck
        colour = MARK if slowest else CYCLE[number % len(CYCLE)]
        (line,) = axes.plot(
            [low, ridge],
            [low * roof.bytes_per_second, peak],
            color=colour,
            linewidth=1.8 if slowest else 1.0,
            linestyle="--" if roof.name == DRAM else "-",
            label=f"{roof.name}, {format_rate(roof.bytes_per_second)}"
            + (f": bottleneck, link {roof.link.name}" if slowest and roof.link else ""),
        )
        axes.plot([ridge], [peak], marker="o", markersize=4, color=colour)
        axes.axvline(ridge, color=FAINT, linewidth=0.4, linestyle=":")
        write_near(axes, format_number(ridge), (ridge, peak), (2, 4), color=colour)
        handles.append(line)
    write_near(axes, format_si(peak, "OP/s"), (high, peak), (-2, 4), ha="right")
    axes.set_xlim(low, high)
    axes.set_ylim(top=peak * 4)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda own, _: f"{own:,.6g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda own, _: format_si(own, "OP/s")))
    axes.minorticks_off()
    add_legend(figure, f"{array.name}: an accelerator under its roofs", handles)
    return figure
