"""A sweep's cases side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal.console import rows_view
from hypar_opt.units import format_bytes, format_si

if TYPE_CHECKING:
    from hypar_opt.studies.sweep import SweepResult
    from hypar_opt.studies.sweep.case import SweepRow

MAX_ROWS = 100
"""Sweeps of up to this many cases are shown in full."""

_CASE = (
    *("network", "batch", "element_bytes", "levels", "array"),
    *("cost", "solver", "search", "reading", "overlap"),
)
_AMOUNTS = ("communication", "executed", "time", "energy")


def sweep_view(swept: SweepResult) -> RenderableType:
    """Show the cases, by the columns in which they differ, with the amounts of their steps."""
    names = [name for name in _CASE if len({getattr(row, name) for row in swept}) > 1]
    names = names or ["network"]
    lines = [[*(str(getattr(row, name)) for name in names), *_amounts(row)] for row in swept]
    header = (*(name.replace("_", " ") for name in names), *_AMOUNTS)
    right = tuple(range(len(names), len(header)))
    shown = f"; the first {MAX_ROWS:,} of them" if len(lines) > MAX_ROWS else ""
    reasons = dict.fromkeys(row.reason for row in swept if row.reason is not None)
    return Group(
        Text(f"{len(lines):,} cases, {swept.refused:,} of them refused{shown}"),
        rows_view(header, lines[:MAX_ROWS], right),
        *(Text(f"Refused: {reason}") for reason in reasons),
    )


def _amounts(row: SweepRow) -> list[str]:
    """Return a row's amounts; ``-`` if they are not known."""
    moved = (row.bytes, row.executed_bytes)
    return [
        *("-" if amount is None else format_bytes(amount) for amount in moved),
        "-" if row.seconds is None else format_si(row.seconds, "s"),
        "-" if row.joules is None else format_si(row.joules, "J"),
    ]
