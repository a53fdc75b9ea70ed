"""The page's bar charts: bytes, time and energy of a step, compared with the baselines'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from hypar_opt.display.glyphs import DATA_SYMBOL, MODEL_SYMBOL
from hypar_opt.display.labels import ENERGY_PARTS
from hypar_opt.display.page.contents import BASELINES
from hypar_opt.display.page.figure import PALE, PHASES, Chart, bars, chart_of, figure_of
from hypar_opt.display.plan_grid import layer_times
from hypar_opt.plan.plan import Plan
from hypar_opt.simulator.result import StepResult
from hypar_opt.units import (
    axis_byte_unit,
    axis_unit,
    format_bytes,
    format_joules,
    format_seconds,
)

_NAMES = {"plan": "This plan", **BASELINES}
_PLAN_COLOURS = {
    "plan": "#14937f",
    "trick": "#8b8f99",
    "data": DATA_SYMBOL.colour,
    "model": MODEL_SYMBOL.colour,
}
_ENERGY_COLOURS = {
    "macs": "#5a8fd6",
    "sram": "#2aa198",
    "dram": "#7da83f",
    "remote": "#c9649b",
    "hops": "#df8a20",
}
_COMPUTE, _COMMUNICATION = "#4f7fb8", "#d0783c"

_LOG_SCALE_FROM = 40
"""If the largest bar over the smallest exceeds this, the axis is logarithmic."""

_CUT_OFF_FROM = 4
"""If the longest bar over the next longest exceeds this, it is cut off."""

_MAX_TICKS = 40


def by_level(steps: dict[str, StepResult]) -> Chart:
    """Draw the bytes that each level exchanges in a step, and the baselines'."""
    levels = [f"H{traffic.level}" for traffic in steps["plan"].levels]
    moved = {name: [traffic.bytes for traffic in step.levels] for name, step in steps.items()}
    rows = [
        (level, *(format_bytes(moved[name][n]) for name in steps)) for n, level in enumerate(levels)
    ]
    # The bars are by level: only the table has their sum.
    rows.append(("total", *(format_bytes(sum(moved[name])) for name in steps)))
    return chart_of(
        _level_figure(levels, moved),
        "by-level",
        "Communication by level",
        "Bytes that all groups of a level exchange in one step, by the reading; H1 is the topmost.",
        ("level", *(_NAMES[name] for name in steps)),
        rows,
    )


def _level_figure(levels: Sequence[str], moved: dict[str, list[float]]) -> Any:
    positive = [count for counts in moved.values() for count in counts if count]
    log_scale = bool(positive) and max(positive) > _LOG_SCALE_FROM * min(positive)
    size, unit = axis_byte_unit(max(positive, default=1.0))
    traces = [
        bars(
            (f"{_NAMES[name]}, {level}" for level in levels),
            counts,
            format_bytes,
            name=_NAMES[name],
            x=levels,
            # A logarithmic axis has no zero.
            y=[count / size if count or not log_scale else None for count in counts],
            marker_color=_PLAN_COLOURS[name],
        )
        for name, counts in moved.items()
    ]
    # On a linear axis bars start at 0, so that their lengths can be compared.
    figure = figure_of(traces, 320, barmode="group", bargap=0.28, bargroupgap=0.06)
    figure.update_xaxes(showgrid=False)
    axis = {"type": "log", "dtick": 1} if log_scale else {"rangemode": "tozero"}
    figure.update_yaxes(title=unit + (", log scale" if log_scale else ""), **axis)
    return figure


def by_phase(steps: dict[str, StepResult]) -> Chart:
    """Draw the step's time by pass, compute and communication, and the baselines'."""
    parts = []
    for phase, colour in PHASES.items():
        options = {"name": phase, "marker_color": colour, "legendgroup": phase}
        for n, kind in enumerate(("compute", "communication")):
            # Inference has only a forward pass.
            seconds = [step.phases.get(phase, (0.0, 0.0))[n] for step in steps.values()]
            # One legend entry, that of compute, stands for both.
            entry = n == 0 and any(phase in step.phases for step in steps.values())
            shown = {"showlegend": entry, "marker_opacity": PALE if n else 1.0}
            parts.append((f"{phase}, {kind}", seconds, options | shown))
    # With overlap a step is shorter than the sum of its bars.
    totals = {name: step.seconds for name, step in steps.items()}
    rows = [
        (
            _NAMES[name],
            format_seconds(step.seconds),
            f"{steps['data'].seconds / step.seconds:.3g}",
            *(format_seconds(part) for phase in step.phases.values() for part in phase),
        )
        for name, step in steps.items()
    ]
    phases = steps["plan"].phases
    return chart_of(
        _plan_figure(parts, totals, "s", format_seconds),
        "by-phase",
        "Time by pass",
        "Full colour computes, pale colour communicates.",
        ("plan", "step", "speed-up", *(f"{p}, {w}" for p in phases for w in ("compute", "comm."))),
        rows,
    )


def by_energy(steps: dict[str, StepResult]) -> Chart:
    """Draw the step's energy by part, and the baselines'."""
    joules = {
        part: [getattr(step.energy, part) for step in steps.values()] for part in ENERGY_PARTS
    }
    # A part that is 0 in all plans has no legend entry.
    parts = [
        (label, joules[part], {"name": label, "marker_color": _ENERGY_COLOURS[part]})
        for part, label in ENERGY_PARTS.items()
        if any(joules[part])
    ]
    totals = {name: step.energy.total for name, step in steps.items()}
    rows = [
        (_NAMES[name], *map(format_joules, (totals[name], *(own[n] for own in joules.values()))))
        for n, name in enumerate(steps)
    ]
    return chart_of(
        _plan_figure(parts, totals, "J", format_joules),
        "by-energy",
        "Energy by part",
        "Joules of one step, over all accelerators.",
        ("plan", "total", *ENERGY_PARTS.values()),
        rows,
    )


def _plan_figure(
    parts: Sequence[tuple[str, Sequence[float], dict[str, Any]]],
    totals: dict[str, float],
    symbol: str,
    form: Callable[[float], str],
) -> Any:
    """Stack the parts of each plan's amount, a row per plan; one bar that dwarfs all is cut off.

    Parameters
    ----------
    parts
        What a part is, its amount in each plan, and Plotly's options of its bars.
    """
    size, unit = axis_unit(max(totals.values()), symbol)
    rows = list(range(len(totals)))
    traces = [
        bars(
            (f"{_NAMES[plan]}, {what}" for plan in totals),
            amounts,
            form,
            orientation="h",
            x=[amount / size for amount in amounts],
            y=rows,
            **options,
        )
        for what, amounts, options in parts
    ]
    figure = figure_of(traces, 300, barmode="stack", bargap=0.35)
    # In full, one bar (mostly Model Parallelism's) would flatten all others.
    *_, second, longest = sorted(total / size for total in totals.values())
    dwarfs = second and longest > _CUT_OFF_FROM * second
    # Beyond the second longest, so that a bar that is cut off is still the longest.
    end = second * 1.15 if dwarfs else longest * 1.04
    # The label has the amount, since a bar that is cut off does not show it.
    labels = [
        f"{_NAMES[name]}<br>{form(total)}" + (", cut off" if total / size > end else "")
        for name, total in totals.items()
    ]
    # From top to bottom, this plan first: Plotly's axis runs upwards.
    figure.update_yaxes(
        tickvals=rows, ticktext=labels, range=[len(rows) - 0.5, -0.5], showgrid=False
    )
    figure.update_xaxes(title=unit, range=[0, end or 1.0])
    return figure


def by_layer(plan: Plan, step: StepResult) -> Chart:
    """Draw the plan's time by layer, over all passes, with equal repetitions together."""
    layers = {group.name: seconds for group, *seconds in layer_times(plan, step)}
    alike = "" if len(layers) == len(plan.layers) else " Repetitions of a block are added up."
    return chart_of(
        _layer_figure(layers),
        "by-layer",
        "Time by layer",
        f"This plan's seconds, all passes together.{alike}",
        ("layer", "compute", "communication"),
        [(name, format_seconds(a), format_seconds(b)) for name, (a, b) in layers.items()],
    )


def _layer_figure(layers: Mapping[str, Sequence[float]]) -> Any:
    size, unit = axis_unit(max(map(sum, layers.values()), default=0.0))
    parts = (("compute", _COMPUTE), ("communication", _COMMUNICATION))
    traces = [
        bars(
            (f"{escape(name)}, {kind}" for name in layers),
            (seconds[n] for seconds in layers.values()),
            format_seconds,
            name=kind,
            x=list(range(len(layers))),  # Plotly would read a name like 1e3 as a number
            y=[seconds[n] / size for seconds in layers.values()],
            marker_color=colour,
        )
        for n, (kind, colour) in enumerate(parts)
    ]
    figure = figure_of(traces, 340, barmode="stack", bargap=0.25)
    step = -(-len(layers) // _MAX_TICKS)  # rounded up: never more ticks than that
    figure.update_xaxes(
        tickvals=list(range(0, len(layers), step)),
        # Plotly reads some HTML in its labels.
        ticktext=[escape(name) for name in layers][::step],
        tickangle=-60 if len(layers) > 6 else 0,
        showgrid=False,
    )
    figure.update_yaxes(title=unit, rangemode="tozero")
    return figure
