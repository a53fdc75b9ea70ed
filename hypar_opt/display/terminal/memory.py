"""The memory of a device on a terminal: by layer and by category, and the largest moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.plan_grid import layer_memory
from hypar_opt.display.terminal.console import Column, new_table
from hypar_opt.plan.trained import trained
from hypar_opt.units import format_bytes

if TYPE_CHECKING:
    from hypar_opt.simulator.device_memory import DeviceMemory

CATEGORIES = {
    "weights": "weights",
    "gradients": "gradients",
    "state": "optimizer",
    "saved": "saved",
    "moment": "moment",
}
"""The heading of each category."""


def memory_view(held: DeviceMemory) -> RenderableType:
    """Show what an accelerator holds, by layer and by category, and whether it fits."""
    plan, total = held.plan, format_bytes(held.total)
    columns: list[Column] = [("layer", str), *((name, _amount) for name in CATEGORIES.values())]
    lines = [(name, *(own[key] for key in CATEGORIES)) for name, own in layer_memory(held)]
    totals = [("total", *(held.categories[name] for name in CATEGORIES))]
    how = trained(held.options, plan)
    notes = [Text(how, style="dim")] if how else []
    return Group(
        Text(f"{plan.network.name}: {total} {held.per_accelerator}, batch {plan.batch}"),
        *notes,
        Text(),
        new_table(columns, lines, totals=totals),
        Text(),
        Text(_moment(held)),
        Text(_capacity(held)),
    )


def trains(held: DeviceMemory) -> str:
    """Return, as part of a sentence, how a plan trains, and what a device then holds."""
    how = trained(held.options, held.plan) or "the whole batch at once"
    capacity = f" of {format_bytes(held.capacity)}" if held.capacity is not None else ""
    return f"{how}: {format_bytes(held.total)}{capacity} {held.per_accelerator}"


def _amount(count: int) -> str:
    return format_bytes(count) if count else "-"


def _moment(held: DeviceMemory) -> str:
    moment = held.moment
    between = "feature maps between layers" if held.plan.inference else "errors between layers"
    parts = {
        "recomputed tensors": moment.recomputed,
        "gathered weights and gradients": moment.gathered,
        "logits in single precision": moment.logits,
        between: moment.live,
    }
    named = " and ".join(f"{format_bytes(size)} of {name}" for name, size in parts.items() if size)
    return f"Peak: while {moment.layer} runs, with {named or 'nothing else'}."


def _capacity(held: DeviceMemory) -> str:
    total = format_bytes(held.total)
    reserved = f", {format_bytes(held.reserve)} of it reserved" if held.reserve else ""
    if held.capacity is None:
        return f"Memory: {total} {held.per_accelerator}{reserved}."
    capacity = format_bytes(held.capacity)
    left = abs(held.capacity - held.total)
    fits = f"{format_bytes(left)} {'are left' if held.fits else 'too much'}"
    return f"Memory: {total} of {capacity} {held.per_accelerator}{reserved}: {fits}."
