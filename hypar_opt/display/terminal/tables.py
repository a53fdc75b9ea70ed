"""Results that are a table on a terminal: plans and points, cases, exchanges, proofs."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.labels import BASELINES, OBJECTIVES, cell_text, ending
from hypar_opt.display.terminal.console import Column, new_table, texts, unbroken
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.plan.trained import trained
from hypar_opt.studies.comparison import REFERENCE, disagreements, geometric_means
from hypar_opt.units import (
    COUNT,
    JOULES,
    SECONDS,
    distinguishing_digits,
    format_bytes,
    format_cost,
    format_number,
    format_percent,
    format_ratio,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.execution.result import ExchangeRow, RunResult
    from hypar_opt.proofs.certificate import Certificate
    from hypar_opt.studies.comparison import Comparison
    from hypar_opt.studies.many import ManyPlans
    from hypar_opt.studies.pareto import ParetoFront, ParetoFronts
    from hypar_opt.studies.sweep import SweepResult

AMOUNTS: dict[str, Column] = {
    "bytes": ("communication", format_bytes),
    "executed_bytes": ("executed", format_bytes),
    "seconds": ("time", SECONDS),
    "closed_form_seconds": ("closed form", SECONDS),
    "joules": ("energy", JOULES),
    "speedup": ("speed-up", format_ratio),
    "executed_speedup": ("executed", format_ratio),
    "energy_efficiency": ("efficiency", format_ratio),
}
"""The column of each amount, by its name in a result's rows."""

MAX_CASES = 100
"""Sweeps of up to this many cases are shown in full."""

MAX_PLANS = 20
"""Plans shown of many, out of millions."""

_CASE = ("network", "batch", "array")
_SWEPT = (
    *("network", "batch", "element_bytes", "levels", "array"),
    *("cost", "solver", "search", "reading", "overlap"),
)
_LEAST = {"bytes": "fewest bytes", "time": "least time", "energy": "least energy"}
_PHASES = ("forward", "backward", "gradient", "-")
_KINDS = ("all-reduce", "reduce-scatter", "all-to-all", "all-gather", "halo")


def certificate_view(certificate: Certificate) -> RenderableType:
    """Show the plan and the claim that a certificate proves, and its size."""
    what = "at each level" if certificate.scope == "level" else "over all levels together"
    proves = f"that a plan is optimal {what}"
    if certificate.overlap is not None:
        proves = f"of a bound on the time with overlap ({certificate.overlap}) of plans"
    columns: list[Column] = [("table", COUNT), ("proof", str), ("numbers", COUNT)]
    return Group(
        Text(f"Certificate {proves}; to check with the plan."),
        Text(f"Plan {certificate.plan}", "dim"),
        new_table(columns, (row.values() for row in certificate.rows())),
    )


def many_view(many: ManyPlans) -> RenderableType:
    """Show the first plans of many problems, and the bytes that each moves."""
    columns: list[Column] = [
        *(("batch", COUNT), ("element bytes", COUNT), ("reading", str), ("levels", COUNT)),
        ("communication", format_bytes),
        (BASELINES["data"], format_bytes),
        (BASELINES["model"], format_bytes),
    ]
    shown = f"; the first {MAX_PLANS} of them" if many.totals.size > MAX_PLANS else ""
    return Group(
        Text(f"{many.network.name}, {many.search}: {many.totals.size:,} plans{shown}"),
        # The bytes of a run follow in a row, and are not shown.
        new_table(columns, (row.values() for row in many.rows(MAX_PLANS)), keys=4),
    )


def sweep_view(swept: SweepResult) -> RenderableType:
    """Show the cases, by the columns in which they differ, with the amounts of their steps.

    The reduction is what Data Parallelism's run moves over what the plan's does; the speed-up of a
    plan for time is over Data Parallelism, without overlap.
    """
    rows, amounts = swept.rows(), ["bytes", "executed_bytes", "seconds", "joules"]
    of_case = (*_SWEPT, *swept.keys)
    names = [name for name in of_case if len({row[name] for row in rows}) > 1] or ["network"]
    columns = texts(*(swept.keys.get(name, name.replace("_", " ")) for name in names))
    columns += [*(AMOUNTS[name] for name in amounts), ("reduction", format_ratio)]
    more = [name for name in ("speedup",) if name in rows[0]]
    columns += [AMOUNTS[name] for name in more]
    shown = f"; the first {MAX_CASES:,} of them" if len(rows) > MAX_CASES else ""
    lines = (
        [
            *(cell_text(name, row[name]) for name in names),
            *(row[name] for name in amounts),
            _reduction(row),
            *(row[name] for name in more),
        ]
        for row in rows[:MAX_CASES]
    )
    reasons = dict.fromkeys(row.reason for row in swept if row.reason is not None)
    return Group(
        Text(f"{len(rows):,} cases, {swept.refused:,} of them refused{shown}"),
        new_table(columns, lines),
        *(Text(f"Refused: {reason}") for reason in reasons),
    )


def _reduction(row: Mapping[str, Any]) -> float | None:
    executed = row["executed_bytes"]
    return row["data_parallel_bytes"] / executed if executed else None


def comparison_view(compared: Comparison) -> RenderableType:
    """Show the paper's plans side by side; speed-up and efficiency over Data Parallelism.

    Batches and arrays have a column if there are several.
    """
    # Values that all rows share are below the table, once.
    varying = {name for n, name in enumerate(_CASE) if len({row.case[n] for row in compared}) > 1}
    names = [name for name in _CASE if name == "network" or name in varying]
    # In the reading `executed` both pairs of columns would be equal; arrays may have no energies.
    executed = any(row.reading not in RUN_READINGS for row in compared)
    energy = any(row.joules is not None for row in compared)
    simulated = any(row.seconds is not None for row in compared)
    in_closed_form = all(row.is_in_closed_form for row in compared)
    amounts = [
        name
        for name in AMOUNTS
        if (executed or not name.startswith("executed"))
        and (name != "closed_form_seconds" or not in_closed_form)
        and (energy or name not in ("joules", "energy_efficiency"))
        and (simulated or name.endswith("bytes"))
    ]
    columns: list[Column] = [(name, COUNT if name == "batch" else str) for name in names]
    columns += [("plan", str), *(AMOUNTS[name] for name in amounts)]
    # Without an array there is no speed-up, but fewer bytes.
    amounts += [] if simulated else ["reduction"]
    columns += [] if simulated else [("reduction", format_ratio)]
    lines: list[list[Any]] = []
    for _, case in groupby(compared, key=attrgetter(*_CASE)):
        for n, row in enumerate(case):
            # A case is named in its first row only.
            cells = [getattr(row, name) for name in names] if n == 0 else [""] * len(names)
            lines.append([*cells, row.plan, *(getattr(row, name) for name in amounts)])
    # A mean over one case would only repeat its row.
    means = geometric_means(compared, amounts) if varying else {}
    if not simulated:
        means.pop("time", None)
    for n, (plan, mean) in enumerate(means.items()):
        cells = ["geometric mean" if n == 0 else "", *[""] * (len(names) - 1)]
        lines.append([*cells, plan, *(mean[name] for name in amounts)])
    return Group(
        # Folded names and numbers cannot be compared down a column.
        unbroken(new_table(columns, lines, keys=len(names) + 1)),
        Text(_caption(compared, varying, executed=executed), style="dim"),
        *(Text(f"{note}.") for note in disagreements(compared)),
        *(Text(f"{row}: {_reason(row.reason)}") for row in compared if row.reason is not None),
    )


def _reason(reason: str) -> str:
    """Return why a plan has no amounts, or why a baseline is shown for reference alone."""
    return reason.replace(REFERENCE, "not runnable, shown for reference: ")


def _caption(rows: Comparison, varying: set[str], *, executed: bool) -> str:
    """Return a note on the reading of the amounts, and the values that all rows share."""
    readings = {row.reading for row in rows if not row.has_output_parallelism}
    reading = f"the reading {rows[0].reading}" if len(readings) == 1 else "each array's reading"
    if executed and any(row.has_output_parallelism for row in rows):
        reading += " (columns executed, and plans of three choices: by the reading executed)"
    elif executed:
        reading += " (columns executed: by the reading executed)"
    shared = [] if "batch" in varying else [f"batch {rows[0].batch:,}"]
    shared += [] if "array" in varying else [f"on {rows[0].array}"]
    return f"Plans and amounts by {', '.join([reading, *shared])}; ratios over Data Parallelism."


def pareto_view(fronts: ParetoFronts) -> RenderableType:
    """Show each objective's front against memory as a table."""
    problem = fronts.problem
    # If a front ends early, its last point may not be the optimum within its memory.
    exactness = "incomplete" if any(front.reason for front in fronts) else "exact"
    if exactness == "exact" and any(_has_gaps(front) for front in fronts):
        exactness = "with gaps"
    array = f" on {problem.array.name}" if problem.array else ""
    title = (
        f"{fronts.network.name}{array}: batch {problem.batch:,},"
        f" {problem.hierarchy.shown} accelerators, reading {problem.reading}, {exactness}"
        f"{problem.constraints.within}"
    )
    return Group(Text(title), *(part for front in fronts for part in (Text(), front_view(front))))


def front_view(front: ParetoFront) -> RenderableType:
    """Show a front: the least cost within each memory, and the plan's other costs."""
    cost = front[0].plan.cost
    # Without an array a plan has bytes alone.
    objectives = [name for name in OBJECTIVES if any(one.amount(name) is not None for one in front)]
    further = [name for name in objectives if name != front.objective]
    best_name = _LEAST.get(front.objective, f"least {front.objective}")
    columns: list[Column | None] = [
        (
            "memory",
            partial(format_bytes, digits=distinguishing_digits([one.memory for one in front])),
        ),
        (best_name, "{}".format),
        # Four digits: neighbours on a front differ by little.
        ("ratio", format_number),
        *((name, OBJECTIVES[name]) for name in further),
        # In the reading `executed` it would be the column of bytes.
        None if cost.reading in RUN_READINGS else ("run", format_bytes),
        ("gap", format_percent) if _has_gaps(front) else None,
        ("trains by", str) if any(point.plan.training.non_default for point in front) else None,
    ]
    lines = (
        (
            *(point.memory, format_cost(point.total, point.plan.cost.unit), front.ratio(point)),
            *map(point.amount, further),
            point.plan.cost.executed_bytes,
            point.plan.solver.gap or 0,
            trained(point.plan.training.non_default, point.plan),
        )
        for point in front
    )
    return Group(new_table(columns, lines), Text(ending(front)))


def _has_gaps(front: ParetoFront) -> bool:
    return any(point.plan.solver.gap for point in front)


def run_view(result: RunResult) -> RenderableType:
    """Show the bytes of a run, by level and by kind of step, and whether they agree."""
    head = (
        f"{result.network}: batch {result.batch:,} on {result.hierarchy.shown} devices,"
        f" {result.backend}, seed {result.seed}"
    )
    scaled = [f"scaled down: {', '.join(result.reduced)}"] if result.reduced else []
    lines = [head, *scaled, *(f"note: {note}" for note in result.notes)]
    return Group(*map(Text, lines), _exchanges(result), *map(Text, _verdicts(result)))


def _exchanges(result: RunResult) -> RenderableType:
    columns: list[Column] = [
        *texts("level", "pass", "step"),
        *(("exchanges", COUNT), ("modelled", COUNT), ("counted", COUNT), ("", str)),
    ]

    def order(row: ExchangeRow) -> tuple[int, int, int]:
        return row.level, _PHASES.index(row.phase or "-"), _KINDS.index(row.kind)

    lines: list[list[Any]] = []
    for _, level in groupby(sorted(result.exchanges, key=order), key=attrgetter("level")):
        for n, (_, grouped) in enumerate(groupby(level, key=order)):
            first, *_ = rows = list(grouped)
            # Only the first row of a level names it.
            name = "" if n else f"H{first.level}"
            lines.append([name, first.phase or "-", first.kind, *_amounts(rows)])
    lines.append(["total", "", "", *_amounts(result.exchanges)])
    return unbroken(new_table(columns, lines, keys=3))


def _amounts(rows: Sequence[ExchangeRow]) -> list[Any]:
    modelled, counted = sum(row.modelled for row in rows), sum(row.counted for row in rows)
    return [len(rows), modelled, counted, "agrees" if modelled == counted else "DIFFERS"]


def _verdicts(result: RunResult) -> list[str]:
    lines = ["Bytes received, summed over all devices."]
    if result.bias_bytes:
        more = format_bytes(sum(result.bias_bytes))
        lines.append(f"Besides, gradients of biases moved {more}, which no plan counts.")
    compared = {"values": result.values, "gradients": result.gradients}
    close = [name for name, ratio in compared.items() if ratio is not None]
    if close and all((compared[name] or 0.0) <= result.tolerance for name in close):
        # The exact difference depends on the machine's arithmetic: it is in the JSON document.
        what = " and ".join(close).capitalize()
        end = f" match a single device within {result.tolerance:.0e} (relative)"
        if result.not_kept:
            what, end = f"{what} of this network", f"{end}; not kept of its model:"
            end = f"{end} {'; '.join(result.not_kept)}"
        lines.append(f"{what}{end}.")
    if result.model is not None and result.model <= result.model_tolerance:
        lines.append(
            "Output agrees with the ONNX model's, by onnx's reference evaluator, to"
            f" {result.model_tolerance:.0e}, relatively."
        )
    lines.append(f"Loss {result.loss:.6g}, on one device {result.reference_loss:.6g}.")
    return lines
