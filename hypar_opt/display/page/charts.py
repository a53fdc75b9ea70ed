"""The page's charts of a step: bars beside the baselines', the timeline and the links' loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypar_opt.display.figures.bar_charts import StackedPart, bars, stacked
from hypar_opt.display.figures.style import Figure
from hypar_opt.display.figures.timelines import draw_lines, lines_of
from hypar_opt.display.figures.topologies import link_loads
from hypar_opt.display.labels import BASELINES, ENERGY_PARTS, SHADES_OF_PASSES
from hypar_opt.display.page.figure import Chart, chart_of
from hypar_opt.display.palette import PASSES, WORK, colours_of
from hypar_opt.display.plan_grid import layer_times
from hypar_opt.display.trees import tree_places
from hypar_opt.hardware.array import Array
from hypar_opt.plan.plan import Plan
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.simulator.result import StepResult
from hypar_opt.units import (
    JOULES,
    SECONDS,
    axis_byte_unit,
    axis_unit,
    format_bytes,
    format_si,
)

_NAMES = {"plan": "This plan", **BASELINES}

_CUT_OFF_FROM = 4
"""If the longest bar over the next longest exceeds this, it is cut off."""

_CLOSER = "Hold Ctrl and turn the wheel to look closer, drag to move, double-click to see all."
_MAX_LINKS_LISTED = 24


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


def _level_figure(levels: Sequence[str], moved: dict[str, list[float]]) -> Figure:
    size, unit = axis_byte_unit(max(map(max, moved.values()), default=1.0))
    amounts = {_NAMES[name]: [n / size for n in counts] for name, counts in moved.items()}
    return bars(levels, amounts, ylabel=f"{unit}, log scale", form=lambda n: format_bytes(n * size))


def by_phase(steps: dict[str, StepResult]) -> Chart:
    """Draw the step's time by pass, compute and communication, and the baselines'."""
    parts = [
        # Inference has only a forward pass.
        StackedPart(
            phase,
            colour,
            [step.phases.get(phase, (0.0, 0.0))[n] for step in steps.values()],
            n == 1,
        )
        for phase, colour in PASSES.items()
        if any(phase in step.phases for step in steps.values())
        for n in range(2)
    ]
    # With overlap a step is shorter than the sum of its bars.
    totals = {name: step.seconds for name, step in steps.items()}
    rows = [
        (
            _NAMES[name],
            format_si(step.seconds, "s"),
            f"{steps['data'].seconds / step.seconds:.3g}",
            *(format_si(part, "s") for phase in step.phases.values() for part in phase),
        )
        for name, step in steps.items()
    ]
    phases = steps["plan"].phases
    return chart_of(
        _plan_figure(parts, totals, "s", SECONDS),
        "by-phase",
        "Time by pass",
        SHADES_OF_PASSES,
        ("plan", "step", "speed-up", *(f"{p}, {w}" for p in phases for w in ("compute", "comm."))),
        rows,
    )


def by_energy(steps: dict[str, StepResult]) -> Chart:
    """Draw the step's energy by part, and the baselines'."""
    joules = {
        part: [getattr(step.energy, part) for step in steps.values()] for part in ENERGY_PARTS
    }
    colours = colours_of(ENERGY_PARTS)
    # A part that is 0 in all plans has no legend entry.
    parts = [
        StackedPart(label, colours[part], joules[part])
        for part, label in ENERGY_PARTS.items()
        if any(joules[part])
    ]
    totals = {name: step.energy.total for name, step in steps.items()}
    rows = [
        (_NAMES[name], *map(JOULES, (totals[name], *(amounts[n] for amounts in joules.values()))))
        for n, name in enumerate(steps)
    ]
    return chart_of(
        _plan_figure(parts, totals, "J", JOULES),
        "by-energy",
        "Energy by part",
        "Joules of one step, over all accelerators.",
        ("plan", "total", *ENERGY_PARTS.values()),
        rows,
    )


def _plan_figure(
    parts: Sequence[StackedPart],
    totals: dict[str, float],
    symbol: str,
    form: Callable[[float], str],
) -> Figure:
    """Stack the parts of each plan's amount, a row per plan; one bar that dwarfs all is cut off."""
    size, unit = axis_unit(max(totals.values()), symbol)
    # At full length, one bar (mostly Model Parallelism's) would flatten all others.
    *_, second, longest = sorted(totals.values())
    dwarfs = second and longest > _CUT_OFF_FROM * second
    # Beyond the second longest, so that a bar that is cut off is still the longest.
    end = second * 1.15 if dwarfs else longest * 1.04
    # The label has the amount, since a bar that is cut off does not show it.
    labels = [
        f"{_NAMES[name]}\n{form(total)}" + (", cut off" if total > end else "")
        for name, total in totals.items()
    ]
    return stacked(labels, parts, size, unit, form, end=end)


def by_layer(plan: Plan, step: StepResult) -> Chart:
    """Draw the plan's time by layer, over all passes, with equal repetitions together."""
    layers = {group.name: seconds for group, *seconds in layer_times(plan, step)}
    repetitions = "" if len(layers) == len(plan.layers) else " Repetitions of a block are added up."
    size, unit = axis_unit(max(map(sum, layers.values()), default=0.0))
    parts = [
        StackedPart("all passes", WORK, [seconds[n] for seconds in layers.values()], n == 1)
        for n in range(2)
    ]
    return chart_of(
        stacked(list(layers), parts, size, unit, SECONDS),
        "by-layer",
        "Time by layer",
        f"This plan's seconds, all passes together.{repetitions}",
        ("layer", "compute", "communication"),
        [(name, format_si(a, "s"), format_si(b, "s")) for name, (a, b) in layers.items()],
    )


def timeline(step: StepResult) -> Chart:
    """Draw the timeline of a few accelerators and the busiest links, or of all stages."""
    lines = lines_of(step)
    staged = isinstance(step, PipelineResult)
    caption = (
        "One row per stage; bars are numbered by micro-batch, and by chunk if a stage has several."
        " In the gaps a stage waits."
        if staged
        else SHADES_OF_PASSES
    )
    # Exchanges inside a stage are part of its passes.
    kinds = (False,) if staged else (False, True)
    header = (
        ("stage", "computing and exchanging") if staged else ("who", "computing", "communicating")
    )
    return chart_of(
        draw_lines(lines, step.seconds),
        "timeline",
        "The step in time",
        f"{caption} {_CLOSER}",
        header,
        [
            (
                line.label.replace("\n", ", "),
                *(line.share(step.seconds, exchange=kind) for kind in kinds),
            )
            for line in lines
        ],
    )


def links(array: Array, step: StepResult) -> Chart:
    """Draw every link, coloured by the share of the step that it is at capacity."""
    rows = _most_loaded(step)
    unlisted = len(step.links) - len(rows)
    carry = "more are full for no longer" if rows else "carry nothing"
    return chart_of(
        link_loads(array, step),
        "links",
        "What the links carry",
        "Wider links have more bandwidth. A link is full for as long as its bytes take at its"
        " full bandwidth, in its busier direction; it is busy while any byte crosses it.",
        ("link", "bytes", "busy", "full", "of the step"),
        rows,
        more=f"{unlisted:,} links {carry}" if unlisted else "",
        # Grids and circles keep their shape; a tree may be stretched to the page's width.
        stretched=tree_places(array.interconnect) is not None,
    )


def _most_loaded(step: StepResult) -> list[tuple[str, ...]]:
    """Return the rows of the links that are at capacity longest, without idle links."""
    busiest = sorted(step.links, key=lambda link: -link.seconds_at_capacity)
    return [
        (
            link.link,
            format_bytes(link.bytes),
            format_si(link.busy, "s"),
            format_si(link.seconds_at_capacity, "s"),
            f"{link.seconds_at_capacity / step.seconds if step.seconds else 0:.1%}",
        )
        for link in busiest[:_MAX_LINKS_LISTED]
        if link.bytes
    ]
