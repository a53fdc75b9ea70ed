"""The step in time: what a few accelerators and the busiest links do when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from typing import TYPE_CHECKING

from hypar_opt.report.page.figure import (
    PALE,
    PHASES,
    Chart,
    chart_of,
    figure_of,
    short,
)
from hypar_opt.simulator.trace import ACCELERATORS, LINKS
from hypar_opt.units import axis_unit, format_seconds

if TYPE_CHECKING:
    from hypar_opt.simulator.result import LinkTraffic, StepResult

_TRACKS = 4
_MOST_BARS = 4000
_PIXELS = 2000
"""Of a step on a wide screen."""


@dataclass(frozen=True)
class _Span:
    name: str
    phase: str
    exchange: bool
    start: float
    seconds: float


def timeline(step: StepResult) -> Chart:
    """What a few accelerators and the busiest links do when."""
    import plotly.graph_objects as go

    assert step.trace is not None
    spans: dict[tuple[int, int], list[_Span]] = {}
    names: dict[tuple[int, int], str] = {}
    for event in step.trace["traceEvents"]:
        track = event["pid"], event["tid"]
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[track] = event["args"]["name"]
                spans.setdefault(track, [])
            continue
        phase = event["args"]["phase"].split(" + ")[0]
        exchange = "level" in event["args"]
        start, seconds = event["ts"] * 1e-6, event["dur"] * 1e-6
        spans[track].append(_Span(event["name"], phase, exchange, start, seconds))
    # A ring's rounds are as one where no screen shows what is between them.
    spans = {track: _joined(found, step.seconds / _PIXELS) for track, found in spans.items()}
    tracks = _tracks(names, spans, _busiest(step.links, step.seconds), step.seconds / _PIXELS)
    size, unit = axis_unit(step.seconds)
    bars: dict[tuple[str, bool], list[tuple[int, _Span]]] = {
        (phase, exchange): [] for phase in PHASES for exchange in (False, True)
    }
    for place, (track, _) in enumerate(tracks):
        for span in spans[track]:
            bars[span.phase, span.exchange].append((place, span))
    traces = [
        go.Bar(
            name=phase,
            legendgroup=phase,
            showlegend=not exchange,
            orientation="h",
            y=[place for place, _ in found],
            base=[short(span.start / size) for _, span in found],
            x=[short(span.seconds / size) for _, span in found],
            marker={
                "color": PHASES[phase],
                "opacity": PALE if exchange else 1.0,
                "line": {"width": 0},
            },
            hovertext=[
                f"{escape(span.name)}<br>{format_seconds(span.seconds)}"
                f" from {format_seconds(span.start)}"
                for _, span in found
            ],
            hoverinfo="text",
        )
        for (phase, exchange), found in bars.items()
        if found
    ]
    figure = figure_of(traces, 90 + 44 * len(tracks), barmode="overlay", bargap=0.3)
    figure.update_yaxes(
        tickvals=list(range(len(tracks))),
        ticktext=[label for _, label in tracks],
        range=[len(tracks) - 0.5, -0.5],
        showgrid=False,
        fixedrange=True,
    )
    figure.update_xaxes(title=unit, range=[0, step.seconds / size], fixedrange=False)
    rows = [
        (
            unescape(label.replace("<br>", ", ")),
            f"{sum(s.seconds for s in spans[track] if not s.exchange) / step.seconds:.0%}",
            f"{sum(s.seconds for s in spans[track] if s.exchange) / step.seconds:.0%}",
        )
        for track, label in tracks
    ]
    return chart_of(
        figure,
        "timeline",
        "The step in time",
        "Full colour computes, pale colour communicates. Drag to look closer, double-click to"
        " see all.",
        ("who", "computing", "communicating"),
        rows,
    )


def _joined(spans: Sequence[_Span], pixel: float) -> list[_Span]:
    """Draw as one what no screen tells apart."""
    found: list[_Span] = []
    for span in spans:
        before = found[-1] if found else span
        end = span.start + span.seconds
        alike = (before.phase, before.exchange) == (span.phase, span.exchange)
        near = span.start - before.start - before.seconds <= pixel
        thin = max(before.seconds, span.seconds) <= pixel
        if found and alike and near and (thin or before.name == span.name):
            name = (
                before.name
                if before.name == span.name
                else f"{before.name.removesuffix(' and more')} and more"
            )
            found[-1] = replace(before, name=name, seconds=end - before.start)
        else:
            found.append(span)
    return found


def _busiest(found: Sequence[LinkTraffic], seconds: float) -> list[tuple[LinkTraffic, int]]:
    """Return links that are full longest, one of those alike, and how many these are."""
    groups: dict[tuple[float, float], list[LinkTraffic]] = {}
    for each in found:
        if each.bytes:
            key = round(each.full / seconds, 3), round(each.busy / seconds, 3)
            groups.setdefault(key, []).append(each)
    order = sorted(groups.values(), key=lambda group: -group[0].full)
    return [(group[0], len(group)) for group in order]


def _tracks(
    names: dict[tuple[int, int], str],
    spans: dict[tuple[int, int], list[_Span]],
    busiest: list[tuple[LinkTraffic, int]],
    pixel: float,
) -> list[tuple[tuple[int, int], str]]:
    """Choose accelerators across the array and the busiest links, as many as stay legible."""
    accelerators = [track for track in names if track[0] == ACCELERATORS]
    alike: dict[tuple[tuple[str, int, int], ...], list[tuple[int, int]]] = {}
    for track in accelerators:
        if track[1] % 2 == 0:  # the odd ones are its gradients
            seen = tuple(
                (span.name, round(span.start / pixel), round(span.seconds / pixel))
                for span in spans[track]
            )
            alike.setdefault(seen, []).append(track)
    own = [group[0] for group in alike.values()]
    times = {group[0]: len(group) for group in alike.values()}
    by_link = {name: track for track, name in names.items() if track[0] == LINKS}
    for number in range(_TRACKS, 0, -1):
        some = [own[place * len(own) // number] for place in range(min(number, len(own)))]
        chosen = []
        for track in dict.fromkeys(some):
            chosen.append((track, names[track] + _of(times[track])))
            aside = track[0], track[1] + 1
            if aside in names:
                chosen.append((aside, "its<br>gradients"))
        for link, number_alike in busiest[:number]:
            chosen.append((by_link[link.link], f"link {escape(link.link)}{_of(number_alike)}"))
        if sum(len(spans[track]) for track, _ in chosen) <= _MOST_BARS:
            break
    return chosen


def _of(alike: int) -> str:
    return f"<br>1 of {alike:,} alike" if alike > 1 else ""
