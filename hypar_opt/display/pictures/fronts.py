"""Pareto fronts: the least cost within each memory, as steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hypar_opt.display.pictures.canvas import add_legend, colors_of, new_figure, style
from hypar_opt.units import axis_byte_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "os^Dv"
_BEYOND = 0.06
"""Share of the range of memory by which lines extend beyond their ends."""


@style()
def fronts(points: Mapping[str, Sequence[tuple[int, float]]], *, title: str = "") -> Figure:
    """Draw costs, relative to the least of each objective, against memory.

    Parameters
    ----------
    points
        By objective: bytes of memory and the least cost within them, as a ratio, from the most
        memory down.
    """
    memories = [memory for series in points.values() for memory, _ in series]
    size, unit = axis_byte_unit(max(memories, default=1))
    least, most = (at(memories, default=0) / size for at in (min, max))
    # A front of one point has no range, but is drawn.
    margin = (most - least or most or 1.0) * _BEYOND
    figure = new_figure(5.2, 3.6, layout="constrained")
    axes = figure.add_subplot()
    for n, (name, color) in enumerate(colors_of(points).items()):
        ascending = [(memory / size, ratio) for memory, ratio in reversed(points[name])]
        # A plan that fits less memory fits more: a cost holds until a cheaper plan fits.
        x = [*(memory for memory, _ in ascending), most + margin]
        y = [*(ratio for _, ratio in ascending), ascending[-1][1]]
        axes.step(x, y, where="post", color=color, linewidth=1.1)
        axes.plot(
            x[:-1],
            y[:-1],
            color=color,
            marker=_MARKERS[n % len(_MARKERS)],
            # Each smaller than the last, since fronts may share points.
            markersize=max(7 - 1.5 * n, 3),
            linestyle="",
            label=name,
        )
    axes.set_xlim(least - margin, most + margin)
    axes.set_xlabel(f"memory of an accelerator ({unit})")
    axes.set_ylabel("times the least without the limit")
    handles, _ = axes.get_legend_handles_labels()
    add_legend(figure, title, handles)
    return figure
