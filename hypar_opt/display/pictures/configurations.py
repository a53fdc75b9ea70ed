"""Configurations by memory and seconds: a dot for each that fits, the fastest ones named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.display.pictures.canvas import (
    FAINT,
    HYPAR,
    MARK,
    OTHER,
    add_legend,
    new_figure,
    style,
    write_near,
)
from hypar_opt.display.pictures.heat import degrees_map
from hypar_opt.studies.configurations import POINTS, in_words
from hypar_opt.units import axis_byte_unit, axis_unit, format_bytes, format_si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.studies.configurations import Configurations


def configured(configurations: Configurations) -> Figure:
    """Draw configurations by memory and seconds; where they are by degrees, as a map of these."""
    if configurations.by_degrees:
        return degrees_map(configurations)
    return time_and_memory(configurations)


@style()
def time_and_memory(configurations: Configurations) -> Figure:
    """Draw configurations that fit by their memory and their seconds, and name the fastest.

    Of those with stages only the fastest are points. Lines are the memory that configurations may
    take, and the bound over all plans.
    """
    from matplotlib.lines import Line2D

    points = configurations.points()
    size, unit = axis_byte_unit(configurations.capacity)
    second, symbol = axis_unit(configurations.best.seconds)
    figure = new_figure(6.4, 3.8 + 0.15 * len(configurations), layout="constrained")
    axes = figure.add_subplot(yscale="log")
    in_stages = [point for point in points if point.configuration.pp > 1]
    without = [point for point in points if point.configuration.pp == 1]
    which = "fastest in stages" if len(in_stages) >= POINTS else "in stages that fit"
    handles: list[object] = [
        axes.scatter(
            [point.memory / size for point in dots],
            [point.seconds / second for point in dots],
            s=5,
            color=color,
            linewidth=0,
            label=label,
        )
        for dots, color, label in (
            (without, FAINT, f"{len(without):,} configurations that fit"),
            (in_stages, OTHER, f"{len(in_stages):,} {which}"),
        )
        if dots
    ]
    for number, point in enumerate(configurations, start=1):
        at = point.memory / size, point.seconds / second
        axes.plot(*at, marker="o", markersize=4, color=HYPAR)
        # Those in turn above and below, as the fastest differ by little.
        write_near(axes, str(number), at, (0, 4 if number % 2 else -9), ha="center", color=HYPAR)
        words = in_words(point.configuration, configurations.blocks)
        label = f"{number}  {format_si(point.seconds, 's')}: {words}"
        handles.append(Line2D([], [], marker="o", linestyle="", color=HYPAR, label=label))
    room = (configurations.capacity - configurations.margin) / size
    handles.append(axes.axvline(room, color=MARK, linewidth=1.0, label="what may be taken"))
    if configurations.bound is not None:
        bound = f"no plan takes less: {format_si(configurations.bound, 's')}"
        line = axes.axhline(configurations.bound / second, color=OTHER, linewidth=1.0, label=bound)
        handles.append(line)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:,.4g}")
    axes.set_xlabel(f"memory of an accelerator ({unit})")
    axes.set_ylabel(f"a step ({symbol})")
    network, array = configurations.network.name, configurations.array.name
    title = f"{network} on {array}, batch {configurations.problem.batch:,}"
    add_legend(figure, f"{title}, {format_bytes(configurations.capacity)}", handles, ncols=1)
    return figure
