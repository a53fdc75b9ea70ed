"""Results as tables on a terminal. Every function returns something rich can print."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hypar_opt.network import Network
from hypar_opt.parallelism import Parallelism
from hypar_opt.plan import Plan
from hypar_opt.shapes import Shape, Shapes

_GLYPHS = {Parallelism.DATA: "○", Parallelism.MODEL: "●"}
_ASCII_GLYPHS = {Parallelism.DATA: "-", Parallelism.MODEL: "M"}
_STYLE = {Parallelism.DATA: "cyan", Parallelism.MODEL: "yellow"}
PIPE_WIDTH = 100


def console() -> Console:
    """Standard output: the terminal's width, or a fixed one where there is no terminal."""
    found = Console(highlight=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = PIPE_WIDTH
    return found


def plan_view(plan: Plan, *, ascii_only: bool = False) -> RenderableType:
    """A plan as in the paper's Figure 5: a row a level, a glyph a layer; then its cost."""
    glyphs = _ASCII_GLYPHS if ascii_only else _GLYPHS
    dash = "-" if ascii_only else "–"
    cost = plan.cost
    title = Text(
        f"{plan.network.name}: batch {plan.batch}, {accelerators(plan.levels)},"
        f" {plan.solver.name} {plan.solver.search}, reading {cost.reading}"
    )
    title.append(", inference" if plan.inference else "")

    runs = _runs_of_a_kind(plan)
    grid = _table("level")
    for first, last in runs:
        names = plan.layers[first], plan.layers[last - 1]
        grid.add_column(Text(dash.join(dict.fromkeys(names))), overflow="fold")
    grid.add_column("communication", justify="right", no_wrap=True)
    for level, (row, bytes_) in enumerate(zip(plan.parallelism, cost.per_level, strict=True), 1):
        dots = [
            Text.assemble(*((glyphs[choice], _STYLE[choice]) for choice in row[first:last]))
            for first, last in runs
        ]
        grid.add_row(f"H{level}", *dots, gigabytes(bytes_))
    grid.add_section()
    grid.add_row("total", *[""] * len(runs), gigabytes(cost.total))
    data, model = (glyphs[choice] for choice in Parallelism)
    legend = Text(f"{data} data parallelism   {model} model parallelism", style="dim")

    against = _table("", "communication", "times this plan", right=(1, 2))
    against.add_row("Data Parallelism", gigabytes(cost.baselines.data), ratio(cost.ratios.data))
    against.add_row("Model Parallelism", gigabytes(cost.baselines.model), ratio(cost.ratios.model))
    executed = Text(
        f"As executed: {gigabytes(cost.executed_bytes)};"
        f" Data Parallelism {gigabytes(cost.data_parallel_bytes)}."
    )
    return Group(title, grid, legend, Text(), against, executed)


def network_view(network: Network, shapes: Shapes) -> RenderableType:
    """A network's layers: shapes, weights, feature maps and multiply-accumulates."""
    title = Text(f"{network.name} ({network.source})" if network.source else network.name)
    title.append(f", batch {shapes.batch}")
    table = _table(
        *("layer", "kind", "input", "weight", "output", "pooled", "weights", "feature map", "MACs"),
        right=(6, 7, 8),
    )
    for layer, weights, elements in zip(shapes.layers, shapes.weights, shapes.pooled, strict=True):
        pooled = "" if layer.pooled == layer.output else by(layer.pooled[1:])
        table.add_row(
            Text(layer.name),
            layer.kind,
            by(layer.input[1:]),
            by(layer.weight),
            by(layer.output[1:]),
            pooled,
            f"{weights:,}",
            f"{elements:,}",
            f"{layer.macs:,}",
        )
    table.add_section()
    macs = sum(layer.macs for layer in shapes.layers)
    totals = (f"{sum(shapes.weights):,}", f"{sum(shapes.pooled):,}", f"{macs:,}")
    table.add_row("total", *[""] * 5, *totals)
    note = Text("Shapes of one image; feature map after pooling and MACs (one pass) of the batch.")
    note.stylize("dim")
    return Group(title, table, note)


def rows_view(
    head: Iterable[str], rows: Iterable[Iterable[str]], right: tuple[int, ...] = ()
) -> Table:
    """A plain table; the columns numbered in ``right`` hold numbers."""
    table = _table(*head, right=right)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def accelerators(levels: int) -> str:
    return "1 accelerator" if levels == 0 else f"2^{levels} = {2**levels:,} accelerators"


def gigabytes(count: float) -> str:
    """Decimal GB (1e9 bytes) to four digits."""
    return f"{count / 1e9:,.4g} GB" if count < 1e13 else f"{count / 1e9:.3e} GB"


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def by(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _table(*head: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place in right else "left", overflow="fold")
    return table


def _runs_of_a_kind(plan: Plan) -> list[tuple[int, int]]:
    """First and one past last layer of each run of layers of one kind."""
    runs, start = [], 0
    for _, run in groupby(layer.kind for layer in plan.network.description.layers):
        length = len(list(run))
        runs.append((start, start + length))
        start += length
    return runs
