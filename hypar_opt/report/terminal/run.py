"""A run on a terminal: bytes by level and kind of step, modelled and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal.console import rows_view, unbroken

if TYPE_CHECKING:
    from hypar_opt.execution.result import ExchangeRow, RunResult

_ORDER = ("all-reduce", "reduce-scatter", "all-to-all", "all-gather")


def run_view(result: RunResult) -> RenderableType:
    """Show the bytes of a run, by level and by kind of step, and whether they agree."""
    devices = 2**result.levels
    head = (
        f"{result.network}: batch {result.batch:,} on 2^{result.levels} = {devices} devices,"
        f" {result.backend}, seed {result.seed}"
    )
    lines = [Text(head)]
    if result.reduced:
        lines.append(Text(f"scaled down: {', '.join(result.reduced)}"))
    lines += [Text(f"note: {note}") for note in result.notes]
    return Group(*lines, _table(result), *map(Text, _verdicts(result)))


def _table(result: RunResult) -> RenderableType:
    by_step: dict[tuple[int, str, str], list[ExchangeRow]] = {}
    for row in result.exchanges:
        by_step.setdefault((row.level, row.phase or "-", row.kind), []).append(row)
    phases = ("forward", "backward", "gradient", "-")
    lines = []
    ordered = sorted(by_step, key=lambda key: (key[0], phases.index(key[1]), _ORDER.index(key[2])))
    previous = None
    for key in ordered:
        level, phase, kind = key
        rows = by_step[key]
        modelled, counted = sum(r.modelled for r in rows), sum(r.counted for r in rows)
        # Only the first row of a level names it.
        name = f"H{level}" if level != previous else ""
        lines.append([name, phase, kind, *_amounts(len(rows), modelled, counted)])
        previous = level
    count, modelled, counted = len(result.exchanges), sum(result.modelled), sum(result.counted)
    lines.append(["total", "", "", *_amounts(count, modelled, counted)])
    header = ("level", "pass", "step", "exchanges", "modelled", "counted", "")
    return unbroken(rows_view(header, lines, (3, 4, 5), keys=3))


def _amounts(count: int, modelled: float, counted: float) -> list[str]:
    verdict = "agrees" if modelled == counted else "DIFFERS"
    return [f"{count:,}", f"{modelled:,}", f"{counted:,}", verdict]


def _verdicts(result: RunResult) -> list[str]:
    lines = ["Bytes received by all devices together."]
    compared = {"values": result.values, "gradients": result.gradients}
    close = [name for name, apart in compared.items() if apart is not None]
    if close and all((compared[name] or 0.0) <= result.tolerance for name in close):
        # The exact difference depends on the machine's arithmetic: it is in the JSON document.
        what = " and ".join(close).capitalize()
        end = f" agree with one device's to {result.tolerance:.0e}, relatively"
        if result.not_kept:
            what, end = f"{what} of this network", f"{end}; not kept of its model:"
            end = f"{end} {'; '.join(result.not_kept)}"
        lines.append(f"{what}{end}.")
    lines.append(f"Loss {result.loss:.6g}, on one device {result.reference_loss:.6g}.")
    return lines
