"""Other plans on a terminal: the regret of each other choice, and the cheapest plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from hypar_opt.report.glyphs import glyph
from hypar_opt.report.terminal import ascii_only, new_table
from hypar_opt.units import format_cost

if TYPE_CHECKING:
    from rich.table import Table

    from hypar_opt.studies.alternatives import Alternative, Regret


def regret_table(regrets: Sequence[Regret], unit: str) -> Table:
    """Show the extra cost of each other choice: a row a layer and choice, a column a level.

    Parameters
    ----------
    unit
        The plan's cost unit; bytes are shown in GB, and the caption says so once.
    """
    levels = range(1, max(regret.level for regret in regrets) + 1)
    table = new_table("layer", "other choice", *(f"H{level}" for level in levels))
    cells: dict[tuple[str, str], dict[int, str]] = {}
    for regret in regrets:
        row = cells.setdefault((regret.layer, regret.choice), {})
        row[regret.level] = _extra(regret, unit)
    # By layer in the network's order, which is the regrets', then by the choice's name.
    order = {layer: n for n, layer in enumerate(dict.fromkeys(r.layer for r in regrets))}
    for layer, choice in sorted(cells, key=lambda cell: (order[cell[0]], cell[1])):
        row = cells[layer, choice]
        table.add_row(Text(layer), choice, *(row.get(level, "") for level in levels))
    table.caption = ("GB; " if "bytes" in unit else "") + "- where no plan has it"
    table.caption_justify = "left"
    return table


def _extra(regret: Regret, unit: str) -> str:
    if regret.extra is None:
        return "-"
    # The caption has the unit: a table of bytes has one for all cells.
    if "bytes" in unit:
        return f"{regret.extra / 1e9:+.4g}"
    return ("-" if regret.extra < 0 else "+") + format_cost(abs(regret.extra), unit)


def best_table(best: Sequence[Alternative], cost_name: str, unit: str) -> Table:
    """Show the best plans, a row a plan or a set of plans that differ in the levels' order.

    Parameters
    ----------
    best
        In order of cost; ``extra`` is over the first.
    cost_name, unit
        The heading of the costs' column, and the unit of ``total``.
    """
    permuted = any(plan.count > 1 for plan in best)
    order = "levels, in any order" if permuted else "levels, H1 first"
    table = new_table("", cost_name, "extra", "plans", order, right=(0, 1, 2, 3))
    plain = ascii_only()
    for rank, plan in enumerate(best, 1):
        rows = ["".join(glyph(c, ascii_only=plain) for c in row) for row in plan.parallelism]
        # Totals that look alike to four digits may differ; the extra cost tells them apart.
        total, extra = (
            format_cost(cost, unit) for cost in (plan.total, plan.total - best[0].total)
        )
        table.add_row(f"{rank}", total, extra, f"{plan.count:,}", " ".join(rows))
    return table
