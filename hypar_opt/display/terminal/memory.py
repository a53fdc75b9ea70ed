"""The memory of a device on a terminal: by layer and by category, and the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.plan_grid import layer_memory
from hypar_opt.display.terminal.console import Column, new_table, table_of
from hypar_opt.plan.trained import trained
from hypar_opt.simulator.device_memory import CATEGORIES, STAGES_HELD
from hypar_opt.units import format_bytes, format_nonzero_bytes

if TYPE_CHECKING:
    from hypar_opt.simulator.device_memory import DeviceMemory


def memory_view(memory: DeviceMemory) -> RenderableType:
    """Show what an accelerator holds, by layer and by category, and whether it fits."""
    plan, total = memory.plan, format_bytes(memory.total)
    columns: list[Column] = [
        ("layer", str),
        *((name, format_nonzero_bytes) for name in CATEGORIES.values()),
    ]
    lines = [
        (name, *(amounts[key] for key in CATEGORIES)) for name, amounts in layer_memory(memory)
    ]
    totals = [("total", *(memory.categories[name] for name in CATEGORIES))]
    how = trained(memory.options, plan)
    stages = [table_of(STAGES_HELD, memory.stages)] if memory.stages else []
    notes = [Text(how, style="dim")] if how else []
    return Group(
        Text(f"{plan.network.name}: {total} {memory.per_accelerator}, batch {plan.batch}"),
        *notes,
        Text(),
        new_table(columns, lines, totals=totals),
        Text(),
        *(part for table in stages for part in (table, Text())),
        Text(_moment(memory)),
        Text(f"Memory: {memory.fit}."),
    )


def training_phrase(memory: DeviceMemory) -> str:
    """Return a phrase on a plan's training settings, and the memory that a device then needs."""
    how = trained(memory.options, memory.plan) or "the whole batch at once"
    return f"{how}: {memory.fit}"


def _moment(memory: DeviceMemory) -> str:
    moment = memory.moment
    between = "feature maps between layers" if memory.plan.inference else "errors between layers"
    parts = {
        "recomputed tensors": moment.recomputed,
        "gathered weights and gradients": moment.gathered,
        "logits in single precision": moment.logits,
        between: moment.live,
    }
    named = " and ".join(f"{format_bytes(size)} of {name}" for name, size in parts.items() if size)
    return f"Peak at {moment.layer}{', with ' * bool(named)}{named}."
