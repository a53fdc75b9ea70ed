"""Plans side by side on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal.console import rows_view, unbroken
from hypar_opt.units import format_bytes, format_ratio, format_si

if TYPE_CHECKING:
    from hypar_opt.studies.comparison import ComparisonRow

_CASE = ("network", "batch", "array")

_AMOUNTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "bytes": ("communication", format_bytes),
    "executed_bytes": ("executed", format_bytes),
    "seconds": ("time", lambda seconds: format_si(seconds, "s")),
    "joules": ("energy", lambda joules: format_si(joules, "J")),
    "speedup": ("speed-up", format_ratio),
    "executed_speedup": ("when run", format_ratio),
    "energy_efficiency": ("efficiency", format_ratio),
}
"""The columns' heads and forms, by the rows' fields."""


def comparison_view(
    rows: Sequence[ComparisonRow],
    means: dict[str, dict[str, float | None]],
    notes: Sequence[str] = (),
) -> RenderableType:
    """Show the paper's plans side by side; speed-up and efficiency over Data Parallelism.

    Batches and arrays have a column if there are several.

    Parameters
    ----------
    means
        Each plan's geometric means over the networks, by amount; None if there is no mean.
    notes
        Sentences below the table.
    """
    # Values that all rows share are below the table, once.
    varying = {name for n, name in enumerate(_CASE) if len({row.case[n] for row in rows}) > 1}
    case_columns = [name for name in _CASE if name == "network" or name in varying]
    # In the reading `executed` both pairs of columns would be equal.
    executed = any(row.reading != "executed" for row in rows)
    # Arrays need not have energies.
    energy = any(row.joules is not None for row in rows)
    keys = [key for key in _AMOUNTS if _has_column(key, executed=executed, energy=energy)]
    amount_columns = [_AMOUNTS[key][0] for key in keys]
    lines, previous = [], None
    for row in rows:
        # A case is named in its first row only.
        new = row.case != previous
        case = dict(zip(_CASE, (row.network, f"{row.batch:,}", row.array), strict=True))
        names = [case[name] if new else "" for name in case_columns]
        lines.append([*names, row.plan, *_amounts(vars(row), keys)])
        previous = row.case
    # A mean over one case would only repeat its row.
    for n, (plan, mean) in enumerate(means.items() if varying else ()):
        names = ["geometric mean" if n == 0 else "", *[""] * (len(case_columns) - 1)]
        lines.append([*names, plan, *_amounts(mean, keys)])
    header = [*case_columns, "plan", *amount_columns]
    right = tuple(n for n, name in enumerate(header) if name == "batch" or name in amount_columns)
    return Group(
        # Folded names and numbers cannot be compared down a column.
        unbroken(rows_view(header, lines, right, keys=len(case_columns) + 1)),
        Text(_caption(rows, varying, executed=executed), style="dim"),
        *(Text(f"{note}.") for note in notes),
        *(Text(f"{row}: {row.reason}") for row in rows if row.reason is not None),
    )


def _has_column(key: str, *, executed: bool, energy: bool) -> bool:
    """Return whether the table has a column of an amount."""
    if key.startswith("executed"):
        return executed
    return energy or key not in ("joules", "energy_efficiency")


def _amounts(values: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Return a row's cells; ``-`` for unknown amounts."""
    return ["-" if values[key] is None else _AMOUNTS[key][1](values[key]) for key in keys]


def _caption(rows: Sequence[ComparisonRow], varying: set[str], *, executed: bool) -> str:
    """Return a note on the reading of the amounts, and the values that all rows share."""
    readings = {row.reading for row in rows if not row.is_of_three_choices}
    reading = f"the reading {rows[0].reading}" if len(readings) == 1 else "each array's reading"
    if executed and any(row.is_of_three_choices for row in rows):
        reading += " (executed, when run, and three choices: by the reading executed)"
    elif executed:
        reading += " (executed, when run: by the reading executed)"
    shared = [] if "batch" in varying else [f"batch {rows[0].batch:,}"]
    shared += [] if "array" in varying else [f"on {rows[0].array}"]
    return f"Plans and amounts by {', '.join([reading, *shared])}; ratios over Data Parallelism."
