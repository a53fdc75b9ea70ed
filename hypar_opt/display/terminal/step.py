"""A simulated step on a terminal: its time and energy by phase, layer, level and part."""

from __future__ import annotations

from itertools import count

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hypar_opt.display.labels import ENERGY_PARTS
from hypar_opt.display.plan_grid import GridRow, layer_times
from hypar_opt.display.terminal.console import Column, new_table, table_of
from hypar_opt.display.terminal.plan import placed, reductions
from hypar_opt.plan.trained import trained
from hypar_opt.simulator.pipeline_result import STAGES, PipelineResult
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies.advice import executed_note
from hypar_opt.units import JOULES, SECONDS, format_bytes, format_percent, format_share, format_si

_OVERLAPPED = {
    "none": "no overlap",
    "gradient": "gradient exchanges overlap",
    "branches": "all exchanges overlap what does not wait for them",
    "prefetch": "weights are prefetched and gradients overlap",
}

_SECONDS: tuple[Column, ...] = (("compute", SECONDS), ("communication", SECONDS))

_LOCKSTEP = 1e-9
"""The relative difference of simulator and closed form, which sum the same seconds in different
orders."""


def step_view(step: StepResult) -> RenderableType:
    """Show the breakdown of a simulated step's time and energy, and the links' load."""
    plan = step.plan
    seconds = format_si(step.seconds, "s")
    tables = [
        _phases(step),
        _layers(step),
        *([_levels(step)] if step.levels else []),
        *([_energy(step)] if step.known_energy is not None else []),
    ]
    notes = (
        *_bounds(step),
        _bottleneck(step),
        *_experts(step),
        *_memory(step),
        executed_note(plan.cost),
    )
    all_reduce = f"{step.collective} all-reduce"
    options = [f"reading {plan.cost.reading}", all_reduce, _OVERLAPPED[step.overlap]]
    options += ["inference"] if plan.inference else []
    options += placed(plan) if plan.array and plan.array.name == step.array else []
    options += reductions(plan)
    options += [trained(step.stated_training, plan)] if step.stated_training else []
    return Group(
        Text(f"{plan.network.name} on {step.array}: {seconds} a step, batch {plan.batch}"),
        Text(", ".join(options), style="dim"),
        Text(),
        *(part for table in tables for part in (table, Text())),
        *(Text(note) for note in notes if note is not None),
    )


def pipeline_view(step: PipelineResult) -> RenderableType:
    """Show the times, waiting and memory of each stage of a simulated step."""
    plan, seconds = step.plan, format_si(step.seconds, "s")
    tied = max(stage.tied for stage in step.stages)
    batches = plan.training.micro_batches or 1
    options = [
        f"{batches:,} micro-batch{'es' if batches > 1 else ''}",
        plan.training.schedule,
        _OVERLAPPED[step.overlap],
    ]
    charged, bubble = format_si(step.closed_form, "s"), format_share(step.bubble)
    sums = format_si(tied, "s")
    return Group(
        Text(f"{plan.network.name} on {step.array}: {seconds} a step, batch {plan.batch}"),
        Text(", ".join(options), style="dim"),
        Text(),
        table_of(STAGES, step.stages, ("stage", str), map(str, count(1))),
        Text(),
        Text("Forward and backward: of a micro-batch. Once: the step's reductions and update."),
        *([Text(f"Summing gradients of shared weights takes {sums}.")] if tied else []),
        Text(f"Charged {charged} without overlap. Stages wait {bubble} on average."),
        *(Text(sentence) for sentence in _memory(step)),
        Text(executed_note(plan.cost) or ""),
    )


def _phases(step: StepResult) -> Table:
    rows = ((phase, *seconds) for phase, seconds in step.phases.items())
    # With overlap the two add up to more than the step.
    totals = [("total", step.compute, step.communication)]
    return new_table([("phase", str), *_SECONDS], rows, totals=totals)


def _layers(step: StepResult) -> Table:
    """Sum the passes of each group of equal layers."""

    def name(group: GridRow) -> str:
        count = len(group.positions)
        return f"{group.name} x{count}" if count > 1 else group.name

    rows = ((name(group), *seconds) for group, *seconds in layer_times(step.plan, step))
    return new_table([("layer", str), *_SECONDS], rows)


def _levels(step: StepResult) -> Table:
    rows = ((f"H{level.level}", level.bytes, level.seconds) for level in step.levels)
    return new_table([("level", str), ("bytes", format_bytes), ("time", SECONDS)], rows)


def _energy(step: StepResult) -> Table:
    # A part for which the array has no constant is left out, not shown as 0.
    parts = ((ENERGY_PARTS[part], joules) for part, joules in vars(step.energy).items() if joules)
    return new_table([("energy", str), ("", JOULES)], parts, totals=[("total", step.energy.total)])


def _bounds(step: StepResult) -> list[str]:
    """Return the bounds of the step, if its time is not that of the closed form."""
    if abs(step.closed_form - step.seconds) <= _LOCKSTEP * step.seconds:
        return []
    lower, in_sequence = format_si(step.lower_bound, "s"), format_si(step.closed_form, "s")
    if step.in_lockstep:
        return [f"Bounds: {lower} (critical path) to {in_sequence} (no overlap)."]
    return [f"At least {lower}; in lockstep without overlap {in_sequence}."]


def _bottleneck(step: StepResult) -> str:
    if step.bottleneck is None:
        return "Nothing is exchanged."
    # Symmetric topologies have many links of equal load; the first represents all.
    name, equally_loaded = step.bottleneck
    link = next(traffic for traffic in step.links if traffic.link == name)
    noun = "other" if equally_loaded == 1 else "others"
    tied_links = f" (and {equally_loaded} {noun} equally loaded)" if equally_loaded else ""
    # Full: the seconds that the link's bytes take at its bandwidth, even if it is shared.
    share = link.seconds_at_capacity / step.seconds
    percent = format_percent(share, 0)
    moved = format_bytes(link.bytes)
    return f"Bottleneck: link {name}{tied_links}: {moved}, saturated for {percent} of the step."


def _experts(step: StepResult) -> list[str]:
    if (load := step.experts) is None:
        return []
    received, mean = format_bytes(load.bytes), format_bytes(load.mean_bytes)
    return [
        f"Experts: of {load.parts} parts of {load.layer} the fullest has {load.tokens:.3g} times"
        f" the mean of tokens; an accelerator receives up to {received} a step, {mean} in the mean."
    ]


def _memory(step: StepResult) -> list[str]:
    if step.device_memory is not None:
        fit = step.device_memory.fit
    else:
        needed, capacity = format_bytes(step.memory), format_bytes(step.capacity)
        uncounted = {"recompute": "recomputation", "shard": "sharding"}
        missing = " or ".join(
            word for name, word in uncounted.items() if name in step.stated_training
        )
        without = f", not counting {missing}" if missing else ""
        fit = f"{needed} of {capacity} per accelerator{without}"
    sentences = [f"Memory: {fit}."]
    if step.vault_words:
        sentences.append(f"Remote-vault reads: {step.vault_words:,} words.")
    return sentences
