"""The page's charts: figures of Plotly's, each with the same numbers as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from hypar_opt.report import terminal
from hypar_opt.report.page.contents import BASELINES
from hypar_opt.studies.advice import readable_bytes

if TYPE_CHECKING:
    from hypar_opt.simulator.result import StepResult

NAMES = {"plan": "This plan", **BASELINES}
PLANS = {"plan": "#14937f", "trick": "#8b8f99", "data": "#3d85c6", "model": "#df8a20"}
PHASES = {"forward": "#5a8fd6", "gradient": "#c9649b", "backward": "#7da83f"}
PARTS = {
    "macs": "#5a8fd6",
    "sram": "#2aa198",
    "dram": "#7da83f",
    "remote": "#c9649b",
    "hops": "#df8a20",
}
_COMPUTE, _COMMUNICATION = "#4f7fb8", "#d0783c"
PALE = 0.42
"""Opacity of what communicates, beside what computes."""
_LINE = "rgba(128,128,128,0.28)"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_DWARFS = 4
"""Times the next longest from which a bar is cut off."""


@dataclass(frozen=True)
class Chart:
    """One figure as JSON, what it shows in words, and its numbers as a table."""

    id: str
    title: str
    caption: str
    figure: str
    height: int
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""


def by_level(steps: dict[str, StepResult]) -> Chart:
    """Bytes that each level exchanges when the step runs, beside the baselines'."""
    import plotly.graph_objects as go

    levels = [f"H{each.level}" for each in steps["plan"].levels]
    moved = {name: [each.bytes for each in step.levels] for name, step in steps.items()}
    seen = [each for row in moved.values() for each in row if each]
    far = bool(seen) and max(seen) > 40 * min(seen)
    unit, size = _byte_unit(max(seen, default=1.0))
    traces = [
        go.Bar(
            name=NAMES[name],
            x=levels,
            y=[each / size if each or not far else None for each in row],
            marker_color=PLANS[name],
            hovertext=[
                f"{NAMES[name]}, {h}: {readable_bytes(n)}" for h, n in zip(levels, row, strict=True)
            ],
            hoverinfo="text",
        )
        for name, row in moved.items()
    ]
    axis = {"type": "log", "dtick": 1} if far else {"rangemode": "tozero"}
    figure = figure_of(traces, 320, barmode="group", bargap=0.28, bargroupgap=0.06)
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(title=unit + (", log scale" if far else ""), **axis)
    rows = [
        (h, *(readable_bytes(moved[name][place]) for name in steps))
        for place, h in enumerate(levels)
    ]
    rows.append(("total", *(readable_bytes(sum(moved[name])) for name in steps)))
    return chart_of(
        figure,
        "by-level",
        "Communication by level",
        "Bytes that all groups of a level exchange in one step, by the reading; H1 is the topmost.",
        ("level", *(NAMES[name] for name in steps)),
        rows,
    )


def by_phase(steps: dict[str, StepResult]) -> Chart:
    """Where the step's time goes, pass by pass, beside the baselines."""
    import plotly.graph_objects as go

    size, unit = parts_of(max(step.seconds for step in steps.values()))
    traces = []
    for phase, colour in PHASES.items():
        for place, what in enumerate(("compute", "communication")):
            seconds = [step.phases.get(phase, (0.0, 0.0))[place] for step in steps.values()]
            traces.append(
                go.Bar(
                    name=phase,
                    legendgroup=phase,
                    showlegend=not place and any(phase in step.phases for step in steps.values()),
                    orientation="h",
                    x=[each / size for each in seconds],
                    y=list(range(len(steps))),
                    marker={"color": colour, "opacity": PALE if place else 1.0},
                    hovertext=[
                        f"{NAMES[name]}, {phase}, {what}: {seconds_of(each)}"
                        for name, each in zip(steps, seconds, strict=True)
                    ],
                    hoverinfo="text",
                )
            )
    figure = figure_of(traces, 300, barmode="stack", bargap=0.35)
    _plan_axes(
        figure, unit, {name: step.seconds / size for name, step in steps.items()}, seconds_of, size
    )
    rows = [
        (
            NAMES[name],
            seconds_of(step.seconds),
            f"{steps['data'].seconds / step.seconds:.3g}",
            *(seconds_of(each) for phase in step.phases.values() for each in phase),
        )
        for name, step in steps.items()
    ]
    phases = steps["plan"].phases
    return chart_of(
        figure,
        "by-phase",
        "Time by pass",
        "Full colour computes, pale colour communicates.",
        ("plan", "step", "speed-up", *(f"{p}, {w}" for p in phases for w in ("compute", "comm."))),
        rows,
    )


def by_layer(step: StepResult) -> Chart:
    """Where the plan's time goes, layer by layer."""
    import plotly.graph_objects as go

    layers: dict[str, list[float]] = {}
    for each in step.layers:
        times = layers.setdefault(each.layer, [0.0, 0.0])
        times[0] += each.compute
        times[1] += each.communication
    size, unit = parts_of(max(map(sum, layers.values()), default=0.0))
    traces = [
        go.Bar(
            name=what,
            x=list(range(len(layers))),
            y=[times[place] / size for times in layers.values()],
            marker_color=colour,
            hovertext=[
                f"{escape(name)}, {what}: {seconds_of(times[place])}"
                for name, times in layers.items()
            ],
            hoverinfo="text",
        )
        for place, (what, colour) in enumerate(
            (("compute", _COMPUTE), ("communication", _COMMUNICATION))
        )
    ]
    figure = figure_of(traces, 340, barmode="stack", bargap=0.25)
    every = -(-len(layers) // 40)
    figure.update_xaxes(
        tickvals=list(range(0, len(layers), every)),
        ticktext=[escape(name) for name in layers][::every],
        tickangle=-60 if len(layers) > 6 else 0,
        showgrid=False,
    )
    figure.update_yaxes(title=unit, rangemode="tozero")
    return chart_of(
        figure,
        "by-layer",
        "Time by layer",
        "This plan's seconds, all passes together.",
        ("layer", "compute", "communication"),
        [(name, seconds_of(a), seconds_of(b)) for name, (a, b) in layers.items()],
    )


def by_energy(steps: dict[str, StepResult]) -> Chart:
    """Where the step's energy goes, part by part, beside the baselines."""
    import plotly.graph_objects as go

    size, unit = parts_of(max(step.energy.total for step in steps.values()), "J")
    traces = []
    for part, colour in PARTS.items():
        what = terminal.ENERGY[part]
        joules = [getattr(step.energy, part) for step in steps.values()]
        if not any(joules):
            continue
        traces.append(
            go.Bar(
                name=what,
                orientation="h",
                x=[each / size for each in joules],
                y=list(range(len(steps))),
                marker_color=colour,
                hovertext=[
                    f"{NAMES[name]}, {what}: {joules_of(each)}"
                    for name, each in zip(steps, joules, strict=True)
                ],
                hoverinfo="text",
            )
        )
    figure = figure_of(traces, 300, barmode="stack", bargap=0.35)
    totals = {name: step.energy.total / size for name, step in steps.items()}
    _plan_axes(figure, unit, totals, joules_of, size)
    rows = [
        (
            NAMES[name],
            joules_of(step.energy.total),
            *(joules_of(getattr(step.energy, part)) for part in PARTS),
        )
        for name, step in steps.items()
    ]
    return chart_of(
        figure,
        "by-energy",
        "Energy by part",
        "Joules of one step, over all accelerators.",
        ("plan", "total", *(terminal.ENERGY[part] for part in PARTS)),
        rows,
    )


def figure_of(traces: Iterable[Any], height: int, **layout: Any) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure(list(traces))
    figure.update_layout(
        template="none",
        height=height,
        autosize=True,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 12},
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        hoverlabel={"align": "left", "font": {"family": _FONT, "size": 12}},
        dragmode="zoom",
        **layout,
    )
    axes = {
        "automargin": True,
        "fixedrange": True,
        "gridcolor": _LINE,
        "zerolinecolor": _LINE,
        "linecolor": _LINE,
        "title_standoff": 8,
    }
    figure.update_xaxes(**axes)
    figure.update_yaxes(**axes)
    return figure


def chart_of(
    figure: Any,
    name: str,
    title: str,
    caption: str,
    head: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    more: str = "",
) -> Chart:
    text = figure.to_json(validate=False, engine="json")
    height = figure.layout.height
    return Chart(name, title, caption, _for_script(text), height, head, tuple(rows), more)


def _for_script(text: str) -> str:
    """Return JSON that may stand in a script element, whatever its strings say."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plan_axes(
    figure: Any, unit: str, totals: dict[str, float], shown: Callable[[float], str], size: float
) -> None:
    """Name the plans at their bars; one that dwarfs all others is cut off, and says so."""
    *_, second, most = sorted(totals.values())
    end = second * 1.15 if second and most > _DWARFS * second else most * 1.04
    labels = [
        f"{NAMES[name]}<br>{shown(total * size)}" + (", cut off" if total > end else "")
        for name, total in totals.items()
    ]
    last = len(labels) - 0.5
    places = list(range(len(labels)))
    figure.update_yaxes(tickvals=places, ticktext=labels, range=[last, -0.5], showgrid=False)
    figure.update_xaxes(title=unit, range=[0, end or 1.0])


def seconds_of(value: float) -> str:
    return terminal.scaled(value, "s").replace(" u", " µ")


def joules_of(value: float) -> str:
    return terminal.scaled(value, "J").replace(" u", " µ")


def parts_of(most: float, symbol: str = "s") -> tuple[float, str]:
    """Return the unit in which an axis up to ``most`` is read."""
    for prefix, size in (("", 1.0), ("m", 1e-3), ("µ", 1e-6)):
        if most >= size:
            return size, prefix + symbol
    return 1e-9, "n" + symbol


def _byte_unit(most: float) -> tuple[str, float]:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if most >= size:
            return unit, size
    return "bytes", 1.0


def short(value: float) -> float:
    """Return a coordinate to nine digits, finer than any screen."""
    return float(f"{value:.9g}")
