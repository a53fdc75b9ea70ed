"""The memory of a device: a bar for each group of equal layers, stacked by category."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.display.pictures.canvas import MARK, add_legend, colors_of, new_figure, style
from hypar_opt.display.plan_grid import layer_memory
from hypar_opt.units import axis_byte_unit, format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.simulator.device_memory import DeviceMemory


@style()
def device_memory(held: DeviceMemory) -> Figure:
    """Draw the bytes of all layers and of each group, from top to bottom."""
    groups = [("total", dict(held.categories)), *layer_memory(held)]
    size, unit = axis_byte_unit(held.total)
    figure = new_figure(6.4, min(1.3 + 0.17 * len(groups), 24), layout="constrained")
    axes = figure.add_subplot()
    left = [0.0] * len(groups)
    handles = []
    for name, color in colors_of(held.categories).items():
        widths = [own[name] / size for _, own in groups]
        handles.append(axes.barh(range(len(groups)), widths, left=left, color=color, label=name))
        left = [sum(pair) for pair in zip(left, widths, strict=True)]
    if held.capacity is not None and held.capacity < 2 * held.total:
        axes.axvline(held.capacity / size, color=MARK, linewidth=1.0)
    axes.set_yticks(range(len(groups)), [name for name, _ in groups])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel(f"memory of an accelerator ({unit})")
    title = f"{held.plan.network.name}, batch {held.plan.batch}: {format_bytes(held.total)}"
    if held.capacity is not None:
        title += f" of {format_bytes(held.capacity)}"
    add_legend(figure, title, handles)
    return figure
