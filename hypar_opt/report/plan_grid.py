"""A plan as a grid, as every report shows it: equal layers as one row, with their choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.report.layer_groups import Stored, folded, stored_outputs

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.sharding.layouts import Layout


class GridRow(NamedTuple):
    """Equal layers, shown as one.

    Parameters
    ----------
    name, label
        The name of the layers with that of their block, and without it.
    positions
        The positions of the layers.
    choices, stored
        Their choices, and the layouts of their outputs, H1 first; no layouts if none are shown.
    """

    name: str
    label: str
    positions: tuple[int, ...]
    choices: tuple[str, ...]
    stored: tuple[Layout, ...]


@dataclass(frozen=True)
class PlanGrid:
    """The rows of a plan.

    Parameters
    ----------
    sections
        The heading and the rows of each block; no heading for layers outside blocks.
    """

    sections: tuple[tuple[str, tuple[GridRow, ...]], ...]

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
    """Return a plan's grid.

    Parameters
    ----------
    stored, runs
        As for `folded`.
    ascii_only
        Whether labels are limited to ASCII.
    """
    dash, times = "-x" if ascii_only else "–×"
    layouts = stored_outputs(plan, stored)
    sections = []
    for section in folded(plan, runs=runs, stored=stored):
        prefix = f"{section.label}." if section.block else ""
        rows = tuple(
            GridRow(
                prefix + row.label(dash),
                row.label(dash),
                row.positions,
                tuple(level[row.positions[0]] for level in plan.parallelism),
                next((own for n in row.positions if (own := layouts[n])), ()),
            )
            for row in section.rows
        )
        sections.append((section.heading(times), rows))
    return PlanGrid(tuple(sections))
