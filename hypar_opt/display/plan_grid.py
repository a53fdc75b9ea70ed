"""A plan as a grid, as every report shows it: equal layers as one row, with their choices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.display.folding import fold
from hypar_opt.display.glyphs import Symbol, symbol
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hypar_opt.plan.plan import Plan
    from hypar_opt.sharding.layouts import Layout
    from hypar_opt.simulator.device_memory import DeviceMemory
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.workload.network import Network


MAX_CHAIN = 60
"""Chains of up to this many layers are shown as in the paper's Figure 5, one glyph per layer."""


def is_short_chain(plan: Plan) -> bool:
    """Return whether a plan is of a chain short enough to be shown without folding."""
    network = plan.network.description
    return network.is_chain and not network.repeats and len(plan.layers) <= MAX_CHAIN


def drawn_choices(plan: Plan) -> list[tuple[Symbol, ...]]:
    """Return the symbols of each layer's choices at all levels, H1 first."""
    columns = [tuple(map(symbol, column)) for column in zip(*plan.parallelism, strict=True)]
    # One accelerator has no levels: all layers are equal.
    return columns or [()] * len(plan.layers)


class Stored(StrEnum):
    """The tensors whose layouts a view shows."""

    NONE = "none"
    SHARED = "shared"
    """Tensors with several readers, which have separate layouts."""
    ALL = "all"


def stored_outputs(plan: Plan, which: Stored) -> list[tuple[Layout, ...] | None]:
    """Return the layouts of each layer's output, H1 first; None if they are not shown."""
    stored, sources = plan.layouts or {}, plan.network.description.sources
    readers = Counter(source for reads in sources for source in set(reads))
    return [
        # One accelerator has no levels, and nothing to show.
        (stored[name] or None)
        if which is Stored.ALL or (which is Stored.SHARED and readers[n] > 1)
        else None
        for n, name in enumerate(plan.layers)
    ]


def drawn_keys(plan: Plan, stored: Stored) -> list[Hashable]:
    """Return the key of each layer: its choices, and the layouts shown near it.

    A layer without layouts gets those of the same layer in the previous repetition, whose output
    may have one more reader, or else of the next layer in its repetition. So layers between two
    shared tensors do not separate equal groups.
    """
    shown, repeats = stored_outputs(plan, stored), plan.network.description.repeats
    ends = {0, len(shown)}
    for block in repeats:
        after = block.first + block.length * block.count
        for n in range(block.first + block.length, after):
            shown[n] = shown[n] or shown[n - block.length]
        ends.update(range(block.first, after + 1, block.length))
    for first, stop in pairwise(sorted(ends)):
        for n in reversed(range(first, stop - 1)):
            shown[n] = shown[n] or shown[n + 1]
        # After the last layouts shown, those of the previous layer.
        for n in range(first + 1, stop):
            shown[n] = shown[n] or shown[n - 1]
    return list(zip(drawn_choices(plan), shown, strict=True))


class LayerShape(NamedTuple):
    """The shapes of a layer; layers with the same shapes are equal."""

    kind: str
    input: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    """After pooling, for one image."""
    weights: int


def layer_shapes(network: Network) -> list[LayerShape]:
    """Return each layer's shapes for one image."""
    workload = workload_of(network, 1)
    return [
        LayerShape(layer.kind, layer.input[1:], layer.weight, layer.pooled[1:], weights)
        for layer, weights in zip(workload.layers, workload.weights[workload.shared :], strict=True)
    ]


class GridRow(NamedTuple):
    """Equal layers, shown as one; choices and layouts are H1 first."""

    name: str
    """With the name of the block, unlike ``label``."""
    label: str
    positions: tuple[int, ...]
    choices: tuple[str, ...]
    stored: tuple[Layout, ...]
    """The layouts of their outputs, if these are shown."""


@dataclass(frozen=True)
class PlanGrid:
    """The rows of a plan."""

    sections: tuple[tuple[str, tuple[GridRow, ...]], ...]
    """The heading and the rows of each block; no heading for layers outside blocks."""

    @property
    def rows(self) -> tuple[GridRow, ...]:
        """All rows, in order."""
        return tuple(row for _, rows in self.sections for row in rows)

    @property
    def layouts(self) -> set[Layout]:
        """The layouts that are shown."""
        return {layout for row in self.rows for layout in row.stored}

    def lines(self, indent: str) -> list[tuple[str, GridRow | None]]:
        """Return the headings and the rows, with what names each, from top to bottom.

        A block's rows are indented below its heading; if all of its layers are equal, the heading
        names its only row.
        """
        lines: list[tuple[str, GridRow | None]] = []
        for heading, rows in self.sections:
            if heading and len(rows) == 1:
                lines.append((heading, rows[0]))
                continue
            lines += [(heading, None)] if heading else []
            lines += [(indent * bool(heading) + row.label, row) for row in rows]
        return lines


def plan_grid(
    plan: Plan, *, stored: Stored = Stored.NONE, runs: bool = True, ascii_only: bool = False
) -> PlanGrid:
    """Return a plan's layers, with those of the same choices at all levels folded into one.

    Parameters
    ----------
    stored
        The tensors whose layouts must be equal too.
    runs
        Whether to fold neighbours too, or only repetitions of blocks.
    ascii_only
        Whether labels are limited to ASCII.
    """
    dash, times = "-x" if ascii_only else "–×"
    layouts = stored_outputs(plan, stored)
    sections = []
    repeats = plan.network.description.repeats
    for section in fold(plan.layers, repeats, drawn_keys(plan, stored), runs=runs):
        prefix = f"{section.label}." if section.block else ""
        rows = tuple(
            GridRow(
                prefix + row.label(dash),
                row.label(dash),
                row.positions,
                tuple(level[row.positions[0]] for level in plan.parallelism),
                next((layout for n in row.positions if (layout := layouts[n])), ()),
            )
            for row in section.rows
        )
        sections.append((section.heading(times), rows))
    return PlanGrid(tuple(sections))


def layer_times(plan: Plan, step: StepResult) -> list[tuple[GridRow, float, float]]:
    """Return each group of layers with its seconds of compute and of communication.

    Layers of a short chain are shown separately, repetitions in a graph that make the same choices
    together. A step has an entry for each pass of a layer; the host's launches are no layer's.
    """
    compute = dict.fromkeys(plan.layers, 0.0)
    communication = dict.fromkeys(plan.layers, 0.0)
    for time in step.layers:
        if time.layer not in compute:
            continue
        compute[time.layer] += time.compute
        communication[time.layer] += time.communication
    times: list[tuple[GridRow, float, float]] = []
    for group in plan_grid(plan, runs=False).rows:
        names = [plan.layers[n] for n in group.positions]
        spent, moved = (
            sum(amounts[name] for name in names) for amounts in (compute, communication)
        )
        times.append((group, spent, moved))
    return times


def layer_memory(memory: DeviceMemory) -> list[tuple[str, dict[str, int]]]:
    """Return the name of each group of equal layers, and its bytes by category.

    What is held all the time adds up; of moments there is only one at a time.
    """
    groups = []
    for row in plan_grid(memory.plan, runs=False).rows:
        layers = [memory.layers[n] for n in row.positions]
        name = f"{row.name} x{len(layers)}" if len(layers) > 1 else row.name
        of_layer = {
            key: (max if key == "moment" else sum)(getattr(layer, key, 0) for layer in layers)
            for key in memory.categories
        }
        groups.append((name, of_layer))
    return groups
