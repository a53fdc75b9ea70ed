"""The plans of many problems on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal.console import rows_view
from hypar_opt.units import format_bytes

if TYPE_CHECKING:
    from hypar_opt.studies.many import ManyPlans

MAX_ROWS = 20
"""Plans shown, out of millions."""

_HEADER = (
    *("batch", "element bytes", "reading", "levels"),
    *("communication", "Data Parallelism", "Model Parallelism"),
)


def many_view(many: ManyPlans) -> RenderableType:
    """Show the first plans of many problems, and the bytes that each moves."""
    rows = [
        [
            *(f"{row[name]:,}" for name in ("batch", "element_bytes")),
            *(row["reading"], f"{row['levels']}"),
            *(format_bytes(row[name]) for name in ("totals", "data_parallel", "model_parallel")),
        ]
        for row in many.rows(MAX_ROWS)
    ]
    shown = f"; the first {MAX_ROWS} of them" if many.totals.size > MAX_ROWS else ""
    return Group(
        Text(f"{many.network.name}, {many.search}: {many.totals.size:,} plans{shown}"),
        rows_view(_HEADER, rows, right=(0, 1, 3, 4, 5, 6), keys=4),
    )
