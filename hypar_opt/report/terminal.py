"""Results as tables on a terminal. Every function returns something rich can print."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hypar_opt.costs.physical import PREFIXES
from hypar_opt.studies.advice import as_executed
from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan, SolverRecord
    from hypar_opt.simulator.result import LayerTime, StepResult
    from hypar_opt.studies.alternatives import Alternative, Regret

GLYPHS = {Parallelism.DATA: "○", Parallelism.MODEL: "●", Parallelism.OUTPUT: "◆"}
_ASCII_GLYPHS = {Parallelism.DATA: "-", Parallelism.MODEL: "M", Parallelism.OUTPUT: "O"}
_STYLE = {Parallelism.DATA: "cyan", Parallelism.MODEL: "yellow", Parallelism.OUTPUT: "magenta"}
_KINDS = {"time": "time", "energy": "energy"}
LOCAL = {"time": "compute", "energy": "compute, local memory"}
ENERGY = {
    "macs": "multiply-accumulates",
    "sram": "SRAM",
    "dram": "local DRAM",
    "remote": "words between accelerators",
    "hops": "links",
}
_PARTS = {prefix: parts for parts, prefix in PREFIXES.items()}
_NARROWEST, _PIPE_WIDTH = 60, 100
MOST_ROWS = 1000
"""Layers of a network that are shown as a table: more take minutes to lay out."""


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
    against = _table("", _heading(plan), "times this plan", right=(1, 2))
    for name, total, times in (
        ("Data Parallelism", cost.baselines.data, cost.ratios.data),
        ("Model Parallelism", cost.baselines.model, cost.ratios.model),
    ):
        against.add_row(name, amount(total, cost.unit), ratio(times))
    parts += [Text(legend, style="dim"), Text(), against]
    parts += [Text(each) for each in (as_executed(cost),) if each is not None]
    if joint is not None:
        parts.append(Text(_saving(plan, joint)))
    if regrets:
        what = "Extra cost of each other choice, all else re-optimised"
        parts += [Text(), Text(f"{what}{plan.constraints.within}:")]
        parts.append(_regret_table(regrets, cost.unit))
    if best:
        what = "Best plans over all levels together"
        parts += [Text(), Text(f"{what}{plan.constraints.within}:")]
        parts.append(_best_table(best, glyphs, plan))
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
    layers = description["layers"]
    for layer in layers[:MOST_ROWS]:
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
    part = f"The first {MOST_ROWS:,} of {len(layers):,} layers; --json has all. "
    note = Text(part if len(layers) > MOST_ROWS else "")
    note.append("Shapes of one image; feature map after pooling and MACs (one pass) of the batch.")
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


def step_view(
    plan: Plan, array: str, step: StepResult, collective: str, overlap: str
) -> RenderableType:
    """Show where a simulated step's time and energy go, and what the links carry."""
    title = (
        f"{plan.network.name} on {array}: {scaled(step.seconds, 's')} a step, batch {plan.batch}"
    )
    sums = "sums between pairs" if collective == "pairwise" else "sums around rings"
    beside = "nothing overlaps" if overlap == "none" else f"{overlap} exchanges overlap"
    how = [f"reading {plan.cost.reading}", sums, beside, *(["inference"] if plan.inference else [])]
    parts: list[RenderableType] = [Text(title), Text(", ".join(how), style="dim"), Text()]
    phases = _table("phase", "compute", "communication", right=(1, 2))
    for phase, (compute, moving) in step.phases.items():
        phases.add_row(phase, scaled(compute, "s"), scaled(moving, "s"))
    phases.add_section()
    phases.add_row("total", scaled(step.compute, "s"), scaled(step.communication, "s"))
    layers = _table("layer", "compute", "communication", right=(1, 2))
    for layer, rows in groupby(sorted(step.layers, key=_place(plan)), key=lambda each: each.layer):
        each = list(rows)
        layers.add_row(
            Text(layer),
            scaled(sum(row.compute for row in each), "s"),
            scaled(sum(row.communication for row in each), "s"),
        )
    levels = _table("level", "bytes", "time", right=(1, 2))
    for level in step.levels:
        levels.add_row(f"H{level.level}", gigabytes(level.bytes), scaled(level.seconds, "s"))
    energy = _table("energy", "", right=(1,))
    for name, joules in vars(step.energy).items():
        if joules:
            energy.add_row(ENERGY[name], scaled(joules, "J"))
    energy.add_section()
    energy.add_row("total", scaled(step.energy.total, "J"))
    tables = [phases, layers, *([levels] if step.levels else []), energy]
    parts += [part for table in tables for part in (table, Text())]
    said = (*_out_of_step(step), _busiest(step), *_memory(step), as_executed(plan.cost))
    parts += [Text(each) for each in said if each is not None]
    return Group(*parts)


def _out_of_step(step: StepResult) -> list[str]:
    if abs(step.closed_form - step.seconds) <= 1e-9 * step.seconds:
        return []
    total = scaled(step.closed_form, "s")
    if step.lower_bound == step.closed_form:
        return [f"Added up in closed form, as if in lockstep: {total}."]
    least = scaled(step.lower_bound, "s")
    return [f"In lockstep between {least}, the longest chain, and {total}, nothing overlapping."]


def _place(plan: Plan) -> Callable[[LayerTime], int]:
    return lambda each: plan.layers.index(each.layer)


def _busiest(step: StepResult) -> str:
    if step.bottleneck is None:
        return "Nothing is exchanged."
    name, alike = step.bottleneck
    link = next(each for each in step.links if each.link == name)
    others = f", and {alike} more alike" if alike else ""
    share = link.seconds_at_capacity / step.seconds
    often = f"{share:.0%}" if share >= 0.005 else "less than 1%"
    return f"Bottleneck: link {name}{others}: {gigabytes(link.bytes)}, full {often} of the step."


def _memory(step: StepResult) -> list[str]:
    needed = f"Memory: {gigabytes(step.memory)} of {gigabytes(step.capacity)} an accelerator."
    between = f"From other vaults' memory: {step.vault_words:,} words."
    return [needed, between] if step.vault_words else [needed]


def unbroken(table: Table) -> Table:
    """Return a table whose names, and numbers with their units, are not broken."""
    found = console()
    table.min_width = found.measure(table, options=found.options.update(width=10_000)).maximum
    return table


def accelerators(levels: int) -> str:
    return "1 accelerator" if levels == 0 else f"2^{levels} = {2**levels:,} accelerators"


def gigabytes(count: float) -> str:
    """Return decimal GB (1e9 bytes) to four digits."""
    value = count / 1e9
    return f"{value:,.4g} GB" if value < 9999.5 else f"{value:.3e} GB"


def amount(count: float, unit: str) -> str:
    """Return a cost in the unit that people read it in, to four digits."""
    if "bytes" in unit:
        return gigabytes(count)
    for name, symbol in (("seconds", "s"), ("joules", "J")):
        prefix = unit.removesuffix(name)
        if unit.endswith(name) and prefix in _PARTS:
            return scaled(count / _PARTS[prefix], symbol)
    return f"{count:,} {unit}"


def scaled(value: float, symbol: str) -> str:
    """Return seconds or joules to four digits: ``4.97 ms``."""
    for prefix, size in (("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9)):
        if abs(value) >= size:
            return f"{value / size:,.4g} {prefix}{symbol}"
    return f"{value / 1e-12:.4g} p{symbol}" if value else f"0 {symbol}"


def ratio(value: float | None) -> str:
    """Return a ratio to three digits; ``-`` for none."""
    if value is None:
        return "-"
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}" if value < 1e6 else f"{value:.2e}"


def dimensions(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _glyphs() -> dict[Parallelism, str]:
    return _ASCII_GLYPHS if console().options.ascii_only else GLYPHS


def _title(plan: Plan) -> str:
    found = {
        ("optimal", "joint"): "optimal over all levels",
        ("optimal", "level"): "each level optimal",
    }.get((plan.solver.status, plan.solver.scope))
    found = feasible(plan.solver) if found is None else found + plan.constraints.within
    options = [
        f"batch {plan.batch}",
        f"on {plan.array.name}" if plan.array else accelerators(plan.levels),
        *(["placed"] if plan.array and plan.placement != plan.array.description.placement else []),
        f"reading {plan.cost.reading}",
        *(["inference"] if plan.inference else []),
        f"{plan.solver.name} {plan.solver.search} ({found})",
    ]
    return f"{plan.network.name}: {', '.join(options)}"


def feasible(solver: SolverRecord) -> str:
    """Say what a plan without a proof is."""
    considered = solver.options.simulate
    if considered is None:
        return "feasible"
    return f"fastest simulated of the {considered:,} best and the search's own"


def _grid(plan: Plan, glyphs: dict[Parallelism, str]) -> Table:
    dash = "-" if glyphs is _ASCII_GLYPHS else "–"
    runs = _runs_of_a_kind(plan)
    grid = _table("level")
    grid.columns[0].no_wrap = True
    for first, last in runs:
        names = plan.layers[first], plan.layers[last - 1]
        grid.add_column(Text(dash.join(dict.fromkeys(names))), overflow="fold")
    cost, blanks = plan.cost, [""] * len(runs)
    grid.add_column(_heading(plan), justify="right", no_wrap=True)
    per_level = cost.per_level if cost.communication is None else cost.communication
    for level, (row, charge) in enumerate(zip(plan.parallelism, per_level, strict=True), 1):
        dots = [
            Text.assemble(*((glyphs[choice], _STYLE[choice]) for choice in row[first:last]))
            for first, last in runs
        ]
        grid.add_row(f"H{level}", *dots, amount(charge, cost.unit))
    grid.add_section()
    if cost.communication is not None:
        local = cost.total - sum(cost.communication)
        grid.add_row(LOCAL.get(cost.kind, "local"), *blanks, amount(local, cost.unit))
    grid.add_row("total", *blanks, amount(cost.total, cost.unit))
    return grid


def _heading(plan: Plan) -> str:
    """Name the column of a plan's cost."""
    unit = plan.cost.unit
    return "communication" if unit == "bytes" else _KINDS.get(plan.cost.kind, unit)


def _saving(plan: Plan, joint: Plan) -> str:
    total, best = plan.cost.total, joint.cost.total
    if best == total:
        return f"No plan{plan.constraints.within} over all levels together costs less."
    saved = (total - best) / total
    cheaper = amount(best, plan.cost.unit)
    jointly = f"Jointly over all levels{plan.constraints.within}"
    return f"{jointly}: {cheaper}, {saved:.2%} less (--search joint)."


def _regret_table(regrets: Sequence[Regret], unit: str) -> Table:
    levels = max(regret.level for regret in regrets)
    table = _table("layer", "other choice", *(f"H{n}" for n in range(1, levels + 1)))
    cells: dict[tuple[str, str], dict[int, str]] = {}
    for regret in regrets:
        if regret.extra is None:
            extra = "-"
        elif "bytes" in unit:
            extra = f"{regret.extra / 1e9:+.4g}"
        else:
            extra = ("-" if regret.extra < 0 else "+") + amount(abs(regret.extra), unit)
        cells.setdefault((regret.layer, regret.choice), {})[regret.level] = extra
    for (layer, choice), row in sorted(cells.items(), key=lambda item: _order(item[0], regrets)):
        table.add_row(Text(layer), choice, *(row.get(n, "") for n in range(1, levels + 1)))
    table.caption = ("GB; " if "bytes" in unit else "") + "- where no plan has it"
    table.caption_justify = "left"
    return table


def _order(cell: tuple[str, str], regrets: Sequence[Regret]) -> tuple[int, str]:
    return next(n for n, regret in enumerate(regrets) if regret.layer == cell[0]), cell[1]


def _best_table(best: Sequence[Alternative], glyphs: dict[Parallelism, str], plan: Plan) -> Table:
    order = "levels, in any order" if any(each.count > 1 for each in best) else "levels, H1 first"
    table = _table("", _heading(plan), "extra", "plans", order, right=(0, 1, 2, 3))
    for place, each in enumerate(best, 1):
        rows = ["".join(glyphs[choice] for choice in row) for row in each.parallelism]
        # Totals that look alike to four digits may differ; what is extra tells them apart.
        total, extra = (amount(n, plan.cost.unit) for n in (each.total, each.total - best[0].total))
        table.add_row(f"{place}", total, extra, f"{each.count:,}", " ".join(rows))
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
