"""Plans side by side on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal import gigabytes, ratio, rows_view, scaled, unbroken

if TYPE_CHECKING:
    from hypar_opt.studies.comparison import Row


def comparison_view(
    rows: Sequence[Row], means: dict[str, dict[str, float | None]], notes: Sequence[str] = ()
) -> RenderableType:
    """Show the paper's plans side by side; speed-up and efficiency over Data Parallelism.

    Batches and arrays have a column where there are several.
    """
    reading = rows[0].reading
    alike = len({row.reading for row in rows}) == 1
    several = [len({row.case[place] for row in rows}) > 1 for place in range(3)]
    shown = [True, *several[1:]]
    amounts = ["communication", "time", "energy", "speed-up", "efficiency"]
    executed = not alike or reading != "executed"
    if executed:
        amounts[1:1], amounts[5:5] = ["executed"], ["when run"]
    head = ["network", "batch", "array"]
    head = [*(name for name, kept in zip(head, shown, strict=True) if kept), "plan"]
    lines, before = [], None
    for row in rows:
        cells = [row.network, f"{row.batch:,}", row.array] if row.case != before else [""] * 3
        named = [cell for cell, kept in zip(cells, shown, strict=True) if kept]
        lines.append([*named, row.plan, *_amounts(vars(row), executed=executed)])
        before = row.case
    for place, (plan, mean) in enumerate(means.items() if any(several) else ()):
        named = ["geometric mean" if place == 0 else "", *[""] * (len(head) - 2)]
        lines.append([*named, plan, *_amounts(mean, executed=executed)])
    right = tuple(place for place, name in enumerate([*head, *amounts]) if name == "batch")
    right += tuple(range(len(head), len(head) + len(amounts)))
    table = unbroken(rows_view([*head, *amounts], lines, right))
    where = [f"batch {rows[0].batch:,}"] if not several[1] else []
    where += [f"on {rows[0].array}"] if not several[2] else []
    by = f"the reading {reading}" if alike else "each array's reading"
    by += " (executed, when run: by the reading executed)" if executed else ""
    said = f"Plans and amounts by {by}{''.join(f', {each}' for each in where)};"
    below = [Text(f"{said} ratios over Data Parallelism.", style="dim")]
    below += [Text(f"{each}.") for each in notes]
    below += [Text(f"{row}: {row.reason}") for row in rows if row.reason is not None]
    return Group(table, *below)


def _amounts(found: Mapping[str, Any], *, executed: bool) -> list[str]:
    """Return a row's cells; ``-`` for what is not known."""
    shown: dict[str, Callable[[float], str]] = {
        "bytes": gigabytes,
        **({"executed_bytes": gigabytes} if executed else {}),
        "seconds": lambda seconds: scaled(seconds, "s"),
        "joules": lambda joules: scaled(joules, "J"),
        "speedup": ratio,
        **({"executed_speedup": ratio} if executed else {}),
        "energy_efficiency": ratio,
    }
    return ["-" if found[key] is None else text(found[key]) for key, text in shown.items()]
