"""An exploration on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal import amount, console, ratio, rows_view
from hypar_opt.studies.advice import as_executed
from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from hypar_opt.studies.exploration import Exploration

_BARS = 40


def exploration_view(
    found: Exploration, *, relative: bool = False, most: int = 12
) -> RenderableType:
    """Show the best, the plan's place among all, how they spread, and the best plans' digits.

    Parameters
    ----------
    relative
        Spread the ratios over Data Parallelism, in place of the values.
    most
        How many of the best plans to show.
    """
    plan, ties = found.plan, found.ties
    where = f" on {found.array}" if found.array else ""
    title = (
        f"{plan.network.name}{where}: batch {plan.batch}, reading {plan.cost.reading},"
        f" {found.values.size:,} plans{plan.constraints.within} by {found.objective},"
        f" free: {found.free}"
    )
    alike = f"{ties:,} plans alike" if ties > 1 else "1 plan"
    own = f"{plan.solver.name} {plan.solver.search}"
    rows = [
        [name, amount(value, found.unit), ratio(found.ratio(value)), run, place]
        for name, value, run, place in (
            ("best", found.best, ratio(found.first.executed_ratio), alike),
            (own, found.value, ratio(found.own.executed_ratio), f"{_nth(found.rank)} of all"),
            ("worst", found.worst, "", ""),
            ("Data Parallelism", found.data, "", ""),
        )
    ]
    head = ["", found.objective, "over Data", "when run", "plans"]
    if plan.cost.reading == "executed":
        head, rows = _without(head, 3), [_without(row, 3) for row in rows]
    said = [as_executed(found.own.cost)]
    if found.first != found.own:
        said.append(as_executed(found.first.cost, "the first of the best"))
    peaks = [
        ["".join(str(list(Parallelism).index(choice)) for choice in row) for row in peak]
        for peak in found.peaks(most)
    ]
    levels = [f"H{level}" for level in range(1, plan.levels + 1)]
    shown = f"the first {most} of {ties:,}" if ties > most else "all"
    digits = ", ".join(f"{list(Parallelism).index(choice)} {choice}" for choice in plan.choices)
    return Group(
        Text(title),
        rows_view(head, rows, right=tuple(range(1, len(head) - 1))),
        *(Text(each) for each in said if each is not None),
        Text(),
        rows_view(("from", "to", "plans", ""), _spread(found, relative), right=(0, 1, 2)),
        Text(),
        Text(f"Best plans ({shown}), a digit a layer: {digits}."),
        rows_view(levels, peaks),
    )


def _without(row: list[str], place: int) -> list[str]:
    return row[:place] + row[place + 1 :]


def _spread(found: Exploration, relative: bool) -> list[list[str]]:
    counts, edges = found.histogram(relative=relative)
    bar = "#" if console().options.ascii_only else "█"
    longest = max(counts.tolist(), default=0)

    def text(edge: float) -> str:
        return f"{edge:.4g}" if relative else amount(edge, found.unit)

    return [
        [text(low), text(high), f"{count:,}", bar * -(-count * _BARS // longest)]
        for low, high, count in zip(
            edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True
        )
    ]


def _nth(number: int) -> str:
    teen = 11 <= number % 100 <= 13
    return f"{number:,}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
