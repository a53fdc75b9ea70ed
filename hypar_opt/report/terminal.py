"""Results as tables on a terminal. Every function returns something rich can print."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hypar_opt.parallelism import Parallelism

if TYPE_CHECKING:
    from hypar_opt.alternatives import Alternative, Regret
    from hypar_opt.plan import Plan

_GLYPHS = {Parallelism.DATA: "○", Parallelism.MODEL: "●", Parallelism.OUTPUT: "◆"}
_ASCII_GLYPHS = {Parallelism.DATA: "-", Parallelism.MODEL: "M", Parallelism.OUTPUT: "O"}
_STYLE = {Parallelism.DATA: "cyan", Parallelism.MODEL: "yellow", Parallelism.OUTPUT: "magenta"}
_NARROWEST, _PIPE_WIDTH = 60, 100


def console() -> Console:
    """Standard output: the terminal's width, or a fixed one where there is no terminal."""
    found = Console(highlight=False, soft_wrap=False)
    if not found.is_terminal and not os.environ.get("COLUMNS"):
        found.width = _PIPE_WIDTH
    # A terminal too narrow for a table wraps its lines; columns are never dropped.
    found.width = max(found.width, _NARROWEST)
    return found


def plan_view(
    plan: Plan,
    joint: Plan | None = None,
    regrets: Sequence[Regret] = (),
    best: Sequence[Alternative] = (),
) -> RenderableType:
    """Show a plan as in the paper's Figure 5, a row a level, a glyph a layer; then its cost.

    Parameters
    ----------
    joint
        The optimum over all levels together, to say what it would save.
    regrets, best
        What was asked about other plans.
    """
    glyphs = _glyphs()
    cost = plan.cost
    parts: list[RenderableType] = [Text(_title(plan)), _grid(plan, glyphs)]
    legend = "   ".join(f"{glyphs[choice]} {choice} parallelism" for choice in plan.choices)
    against = _table("", "communication", "times this plan", right=(1, 2))
    against.add_row("Data Parallelism", gigabytes(cost.baselines.data), ratio(cost.ratios.data))
    against.add_row("Model Parallelism", gigabytes(cost.baselines.model), ratio(cost.ratios.model))
    parts += [Text(legend, style="dim"), Text(), against]
    if cost.executed_bytes is not None:
        executed, data = gigabytes(cost.executed_bytes), gigabytes(cost.data_parallel_bytes)
        parts.append(Text(f"As executed: {executed}; Data Parallelism {data}."))
    if joint is not None:
        parts.append(Text(_saving(plan, joint)))
    if regrets:
        parts += [Text(), Text("Extra cost of each other choice, all else chosen anew:")]
        parts.append(_regret_table(regrets))
    if best:
        parts += [Text(), Text("Best plans over all levels together:")]
        parts.append(_best_table(best, glyphs))
    return Group(*parts)


def network_view(description: dict[str, Any]) -> RenderableType:
    """Show a network's layers: shapes, weights, feature maps and multiply-accumulates."""
    source = description["source"]
    title = Text(f"{description['name']} ({source})" if source else description["name"])
    title.append(f", batch {description['batch']}")
    head = (
        "layer",
        "kind",
        "input",
        "weight",
        "output",
        "pooled",
        "weights",
        "feature map",
        "MACs",
    )
    table = _table(*head, right=(6, 7, 8))
    for column in table.columns[1:]:
        column.no_wrap = True
    for layer in description["layers"]:
        pooled = "" if layer["pooled"] == layer["output"] else dimensions(layer["pooled"][1:])
        table.add_row(
            Text(layer["name"]),
            layer["kind"],
            dimensions(layer["input"][1:]),
            dimensions(layer["weight"]),
            dimensions(layer["output"][1:]),
            pooled,
            *(f"{layer[key]:,}" for key in ("weights", "feature_map", "macs")),
        )
    table.add_section()
    total = description["total"]
    totals = (f"{total[key]:,}" for key in ("weights", "feature_map", "macs"))
    table.add_row("total", *[""] * 5, *totals)
    note = Text("Shapes of one image; feature map after pooling and MACs (one pass) of the batch.")
    note.stylize("dim")
    return Group(title, table, note)


def rows_view(
    head: Iterable[str], rows: Iterable[Iterable[str]], right: tuple[int, ...] = ()
) -> Table:
    """Show a plain table; the columns numbered in ``right`` hold numbers."""
    table = _table(*head, right=right)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def accelerators(levels: int) -> str:
    return "1 accelerator" if levels == 0 else f"2^{levels} = {2**levels:,} accelerators"


def gigabytes(count: float) -> str:
    """Return decimal GB (1e9 bytes) to four digits."""
    value = count / 1e9
    return f"{value:,.4g} GB" if value < 9999.5 else f"{value:.3e} GB"


def ratio(value: float | None) -> str:
    """Return a ratio to three digits; ``-`` for none."""
    if value is None:
        return "-"
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}" if value < 1e6 else f"{value:.2e}"


def dimensions(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _glyphs() -> dict[Parallelism, str]:
    return _ASCII_GLYPHS if console().options.ascii_only else _GLYPHS


def _title(plan: Plan) -> str:
    found = {
        ("optimal", "joint"): "optimal over all levels",
        ("optimal", "level"): "each level optimal",
    }.get((plan.solver.status, plan.solver.scope), "feasible")
    options = [
        f"batch {plan.batch}",
        accelerators(plan.levels),
        f"reading {plan.cost.reading}",
        *(["inference"] if plan.inference else []),
        f"{plan.solver.name} {plan.solver.search} ({found})",
    ]
    return f"{plan.network.name}: {', '.join(options)}"


def _grid(plan: Plan, glyphs: dict[Parallelism, str]) -> Table:
    dash = "-" if glyphs is _ASCII_GLYPHS else "–"
    runs = _runs_of_a_kind(plan)
    grid = _table("level")
    grid.columns[0].no_wrap = True
    for first, last in runs:
        names = plan.layers[first], plan.layers[last - 1]
        grid.add_column(Text(dash.join(dict.fromkeys(names))), overflow="fold")
    unit = "communication" if plan.cost.unit == "bytes" else plan.cost.unit
    grid.add_column(unit, justify="right", no_wrap=True)
    for level, (row, cost) in enumerate(zip(plan.parallelism, plan.cost.per_level, strict=True), 1):
        dots = [
            Text.assemble(*((glyphs[choice], _STYLE[choice]) for choice in row[first:last]))
            for first, last in runs
        ]
        grid.add_row(f"H{level}", *dots, gigabytes(cost))
    grid.add_section()
    grid.add_row("total", *[""] * len(runs), gigabytes(plan.cost.total))
    return grid


def _saving(plan: Plan, joint: Plan) -> str:
    total, best = plan.cost.total, joint.cost.total
    if best == total:
        return "No plan over all levels together costs less."
    saved = (total - best) / total
    return f"Jointly over all levels: {gigabytes(best)}, {saved:.2%} less (--search joint)."


def _regret_table(regrets: Sequence[Regret]) -> Table:
    levels = max(regret.level for regret in regrets)
    table = _table("layer", "other choice", *(f"H{n}" for n in range(1, levels + 1)))
    cells: dict[tuple[str, str], dict[int, str]] = {}
    for regret in regrets:
        extra = "-" if regret.extra is None else f"{regret.extra / 1e9:+.4g}"
        cells.setdefault((regret.layer, regret.choice), {})[regret.level] = extra
    for (layer, choice), row in sorted(cells.items(), key=lambda item: _order(item[0], regrets)):
        table.add_row(Text(layer), choice, *(row.get(n, "") for n in range(1, levels + 1)))
    table.caption = "GB; - where no plan has it"
    table.caption_justify = "left"
    return table


def _order(cell: tuple[str, str], regrets: Sequence[Regret]) -> tuple[int, str]:
    return next(n for n, regret in enumerate(regrets) if regret.layer == cell[0]), cell[1]


def _best_table(best: Sequence[Alternative], glyphs: dict[Parallelism, str]) -> Table:
    table = _table("", "communication", "plans", "levels, in any order", right=(0, 1, 2))
    for place, each in enumerate(best, 1):
        rows = ["".join(glyphs[choice] for choice in row) for row in each.parallelism]
        table.add_row(str(place), gigabytes(each.total), f"{each.count:,}", " ".join(rows))
    return table


def _table(*head: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for place, name in enumerate(head):
        numeric = place in right
        justify = "right" if numeric else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=numeric)  # type: ignore[arg-type]
    return table


def _runs_of_a_kind(plan: Plan) -> list[tuple[int, int]]:
    """Return the first and one past the last layer of each run of layers of one kind."""
    runs, start = [], 0
    for _, run in groupby(layer.kind for layer in plan.network.description.layers):
        length = len(list(run))
        runs.append((start, start + length))
        start += length
    return runs
