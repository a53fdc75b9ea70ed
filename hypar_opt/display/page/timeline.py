"""The step's timeline: a few accelerators and the most loaded links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from typing import Any

from hypar_opt.display.page.figure import PALE, PHASES, Chart, chart_of, figure_of, short
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.simulator.result import LinkTraffic, StepResult
from hypar_opt.simulator.spans import Span, StepTrace
from hypar_opt.units import axis_unit, format_seconds

_MAX_ACCELERATORS = 4
_MAX_BARS = 4000
_PIXELS = 2000
"""Width of a step on a wide screen, in pixels: closer spans cannot be told apart."""


@dataclass(frozen=True)
class _Bar:
    """A span, or several that are less than a pixel apart; in seconds."""

    name: str
    phase: str
    exchange: bool
    start: float
    seconds: float

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True)
class _Row:
    """The bars in one row of the chart, and its label as HTML."""

    label: str
    bars: list[_Bar]

    def share(self, seconds: float, *, exchange: bool) -> str:
        """Return the percentage of the step spent computing, or exchanging."""
        busy = sum(bar.seconds for bar in self.bars if bar.exchange is exchange)
        return f"{busy / seconds:.0%}"


def timeline(step: StepResult) -> Chart:
    """Draw the timeline of a few accelerators and the busiest links of a recorded step."""
    assert step.trace is not None
    rows = _rows(step.trace, _busiest(step.links, step.seconds), step.seconds / _PIXELS)
    return chart_of(
        _figure(rows, step.seconds),
        "timeline",
        "The step in time",
        "Full colour computes, pale colour communicates. Drag to look closer, double-click to"
        " see all.",
        ("who", "computing", "communicating"),
        [
            (
                unescape(row.label.replace("<br>", ", ")),
                row.share(step.seconds, exchange=False),
                row.share(step.seconds, exchange=True),
            )
            for row in rows
        ],
    )


def pipeline_timeline(step: PipelineResult) -> Chart:
    """Draw the passes of all stages of a recorded step; where one waits nothing is drawn."""
    assert step.trace is not None
    tracks = step.trace.accelerators
    rows = [_Row(track.name, _bars(track.spans, step.seconds / _PIXELS)) for track in tracks]
    # As many stages, evenly spread, as browsers draw quickly.
    rows = rows[:: -(-sum(len(row.bars) for row in rows) // _MAX_BARS)]
    figure = _figure(rows, step.seconds)
    figure.update_traces(textposition="inside", textangle=0, insidetextanchor="middle")
    figure.update_layout(uniformtext={"minsize": 8, "mode": "hide"})
    for trace in figure.data:
        # A task is named after its micro-batch, then its pass.
        trace.text = [text.partition(" ")[0] for text in trace.hovertext]
    return chart_of(
        figure,
        "timeline",
        "The step in time",
        "A row a stage; bars have the number of their micro-batch, and of their chunk if a stage"
        " has several. Where nothing is drawn a stage waits. Drag to look closer, double-click to"
        " see all.",
        ("stage", "computing and exchanging"),
        [(row.label, row.share(step.seconds, exchange=False)) for row in rows],
    )


def _figure(rows: Sequence[_Row], seconds: float) -> Any:
    size, unit = axis_unit(seconds)
    figure = figure_of(_bar_traces(rows, size), 90 + 44 * len(rows), barmode="overlay", bargap=0.3)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[row.label for row in rows],
        # The first row on top, although Plotly's axis runs upwards.
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        fixedrange=True,
    )
    # Zooms along time only, so that all rows stay in view.
    figure.update_xaxes(title=unit, range=[0, seconds / size], fixedrange=False)
    return figure


def _bar_traces(rows: Sequence[_Row], size: float) -> list[Any]:
    """Return Plotly's traces, one for compute and one for exchanges of each pass."""
    traces = []
    for phase, colour in PHASES.items():
        for exchange in (False, True):
            drawn = [
                (position, bar)
                for position, row in enumerate(rows)
                for bar in row.bars
                if (bar.phase, bar.exchange) == (phase, exchange)
            ]
            if not drawn:
                continue
            # One legend entry for both: the pale colour is explained in the caption.
            opacity = PALE if exchange else 1.0
            hover = [
                f"{escape(bar.name)}<br>{format_seconds(bar.seconds)}"
                f" from {format_seconds(bar.start)}"
                for _, bar in drawn
            ]
            shown = {"hovertext": hover, "hoverinfo": "text", "showlegend": not exchange}
            places = {
                "y": [position for position, _ in drawn],
                "base": [short(bar.start / size) for _, bar in drawn],
                "x": [short(bar.seconds / size) for _, bar in drawn],
            }
            marker = {"color": colour, "opacity": opacity, "line": {"width": 0}}
            names = {"name": phase, "legendgroup": phase, "marker": marker}
            traces.append({"type": "bar", "orientation": "h", **names, **shown, **places})
    return traces


def _bars(spans: Sequence[Span], pixel: float) -> list[_Bar]:
    """Return a row's bars, joined if less than a pixel apart, such as the rounds of a ring."""
    bars: list[_Bar] = []
    for span in spans:
        bar = _Bar(
            name=span.name,
            # Exchanges that share a link may be of several passes; a bar has one colour.
            phase=span.phases[0],
            exchange=bool(span.exchanges),
            # Spans are in microseconds, as in Chrome traces; charts are in seconds.
            start=span.start_us * 1e-6,
            seconds=span.duration_us * 1e-6,
        )
        if bars and _looks_joined(bars[-1], bar, pixel):
            before = bars[-1]
            name = before.name
            if name != bar.name:
                name = f"{name.removesuffix(' and more')} and more"
            bars[-1] = replace(before, name=name, seconds=bar.end - before.start)
        else:
            bars.append(bar)
    return bars


def _looks_joined(before: _Bar, bar: _Bar, pixel: float) -> bool:
    """Return whether two bars look like one: of the same colour, at most a pixel apart."""
    same_colour = (before.phase, before.exchange) == (bar.phase, bar.exchange)
    near = bar.start - before.start - before.seconds <= pixel
    # Only bars too thin to be pointed at lose their names.
    thin = max(before.seconds, bar.seconds) <= pixel
    return same_colour and near and (thin or before.name == bar.name)


def _busiest(links: Sequence[LinkTraffic], seconds: float) -> list[tuple[LinkTraffic, int]]:
    """Return the links by time at capacity: the first of equally loaded ones, and their number."""
    by_load: dict[tuple[float, float], list[LinkTraffic]] = {}
    for link in links:
        if link.bytes:
            # To a thousandth of the step: equal loads differ by rounding in the last digits.
            key = round(link.seconds_at_capacity / seconds, 3), round(link.busy / seconds, 3)
            by_load.setdefault(key, []).append(link)
    groups = sorted(by_load.values(), key=lambda group: -group[0].seconds_at_capacity)
    return [(group[0], len(group)) for group in groups]


def _rows(trace: StepTrace, busiest: list[tuple[LinkTraffic, int]], pixel: float) -> list[_Row]:
    """Choose accelerators across the array and the busiest links, as many as stay legible."""
    accelerators = _unlike_accelerators(trace, pixel)
    link_spans = {track.name: track.spans for track in trace.links}
    # Browsers are slow with many bars, so fewer tracks are drawn for a step with many tasks.
    for tracks in range(_MAX_ACCELERATORS, 0, -1):
        # Evenly spread, not all from one corner of the array.
        shown = min(tracks, len(accelerators))
        spread = dict.fromkeys(index * len(accelerators) // tracks for index in range(shown))
        rows = [row for index in spread for row in accelerators[index]]
        for link, count in busiest[:tracks]:
            label = f"link {escape(link.link)}{_one_of(count)}"
            rows.append(_Row(label, _bars(link_spans[link.link], pixel)))
        if sum(len(row.bars) for row in rows) <= _MAX_BARS:
            break
    return rows


def _unlike_accelerators(trace: StepTrace, pixel: float) -> list[list[_Row]]:
    """Return the rows of one accelerator from each group that looks the same on a screen."""
    groups: dict[tuple[tuple[str, int, int], ...], list[list[_Row]]] = {}
    for track in trace.accelerators:
        own, *background = [
            _Row(stream.name, _bars(stream.spans, pixel)) for stream in track.streams()
        ]
        rows = [own]
        # In pixels, since accelerators that run in lockstep may differ by rounding.
        looks = tuple(
            (bar.name, round(bar.start / pixel), round(bar.seconds / pixel)) for bar in own.bars
        )
        # Overlapped exchanges run during the passes, and would hide them.
        for row in background:
            name = row.label.removeprefix(f"{own.label} ")
            rows.append(replace(row, label=f"its<br>{name}"))
        groups.setdefault(looks, []).append(rows)
    return [
        [replace(own, label=own.label + _one_of(len(group))), *background]
        for group in groups.values()
        for own, *background in group[:1]
    ]


def _one_of(count: int) -> str:
    """Return a note on the number of accelerators or links that a row represents."""
    return f"<br>1 of {count:,} identical ones" if count > 1 else ""
