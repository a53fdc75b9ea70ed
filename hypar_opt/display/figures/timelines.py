"""A step in time: a few accelerators and the busiest links, or all stages of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import altair as alt

from hypar_opt.display.figures.style import (
    COMMUNICATES,
    COMPUTES,
    SAYS,
    WIDTH,
    Figure,
    Rows,
    along,
    coloured,
    faded,
    figure,
    mark,
    name_rows,
    row_names,
    short,
)
from hypar_opt.display.palette import INK, PASSES
from hypar_opt.errors import HyparError
from hypar_opt.units import axis_unit, format_si

if TYPE_CHECKING:
    from hypar_opt.simulator.result import LinkTraffic, StepResult
    from hypar_opt.simulator.spans import Span, StepTrace, Track

_MAX_ACCELERATORS = 4
_MAX_BARS = 4000
"""Of a figure: browsers are slow with more."""

_PIXELS = 2000
"""Width of a step on a wide screen, in pixels: closer spans cannot be told apart."""

_FITS = "scale('x', datum.end) - scale('x', datum.start) > 5.4 * length(datum.label) + 3"
"""Vega's test of whether a bar has room for its name, at any width and zoom."""

_ROW = 22
"""Pixels of a row of one line."""


@dataclass(frozen=True)
class Bar:
    """A span, or several that are less than a pixel apart; in seconds."""

    name: str
    phase: str
    exchange: bool
    start: float
    seconds: float

    @property
    def end(self) -> float:
        """The second at which it ends."""
        return self.start + self.seconds


@dataclass(frozen=True)
class TimelineRow:
    """The bars in one row of the figure, and its label, which may have several lines."""

    label: str
    bars: list[Bar]

    def share(self, seconds: float, *, exchange: bool) -> str:
        """Return the percentage of the step spent computing, or exchanging."""
        busy = sum(bar.seconds for bar in self.bars if bar.exchange is exchange)
        return f"{busy / seconds:.0%}"


def timeline(
    step: StepResult,
    *,
    accelerators: Sequence[int] | None = None,
    links: Sequence[str] | None = None,
    between: tuple[float, float] | None = None,
    title: str = "",
) -> Figure:
    """Draw a recorded step in time, on a few accelerators and links; of stages on all of them.

    Parameters
    ----------
    step
        As ``simulate(plan, trace=True)`` returns it.
    accelerators, links
        Those to draw; None for a few that differ, and the busiest links.
    between
        The seconds to show; None for the whole step.

    Raises
    ------
    HyparError
        If the step is not recorded, or has no such accelerator or link.
    """
    return draw_lines(lines_of(step, accelerators, links), step.seconds, between, title)


def lines_of(
    step: StepResult,
    accelerators: Sequence[int] | None = None,
    links: Sequence[str] | None = None,
) -> list[TimelineRow]:
    """Return the rows of `timeline`."""
    trace = step.trace
    if trace is None:
        raise HyparError("a step is drawn from its events: simulate it with trace=True")
    pixel = step.seconds / _PIXELS
    if getattr(step, "stages", None) is not None:
        lines = [_line(track, pixel) for track in trace.accelerators]
        # As many stages, evenly spread, as browsers draw quickly.
        return lines[:: -(-sum(len(line.bars) for line in lines) // _MAX_BARS) or 1]
    busiest = _busiest(step.links, step.seconds)
    if accelerators is None and links is None:
        return _few(trace, busiest, pixel)
    if accelerators is None:
        upper = [line for track in _unlike(trace, pixel)[:_MAX_ACCELERATORS] for line in track]
    else:
        upper = _named(trace, accelerators, pixel)
    tracks = {track.name: track for track in trace.links}
    for name in links or ():
        if name not in tracks:
            raise HyparError(f"no link {name!r}: there are {', '.join(tracks)}")
    if links is None:
        lower = _link_rows(trace, busiest[:_MAX_ACCELERATORS], pixel)
    else:
        lower = [_line(tracks[name], pixel) for name in links]
    return upper + lower


def draw_lines(
    lines: Sequence[TimelineRow],
    seconds: float,
    between: tuple[float, float] | None = None,
    title: str = "",
) -> Figure:
    """Draw rows of bars of a step of so many seconds."""
    start, end = between or (0.0, seconds)
    # By the end shown, so that the numbers along the axis stay short.
    unit, symbol = axis_unit(end)
    rows = [
        {
            "line": n,
            "start": short(bar.start / unit),
            "end": short(bar.end / unit),
            "middle": short((max(bar.start, start) + min(bar.end, end)) / 2 / unit),
            "pass": bar.phase,
            "does": COMMUNICATES if bar.exchange else COMPUTES,
            # Its pass has a colour already.
            "label": bar.name.removesuffix(f" {bar.phase}"),
            "ink": "white" if bar.phase == "backward" and not bar.exchange else INK,
            "name": bar.name,
            "says": f"{line.label}: {bar.name}, {format_si(bar.seconds, 's')} from"
            f" {format_si(bar.start, 's')}".replace("\n", ", "),
        }
        for n, line in enumerate(lines)
        for bar in line.bars
        if bar.end > start and bar.start < end
    ]
    row_scale = alt.Scale(domain=list(range(len(lines))), paddingInner=0.2)
    y = alt.Y("line:O", scale=row_scale, axis=None)
    x, middle = (
        along(alt.X, field, symbol, (start / unit, end / unit)) for field in ("start", "middle")
    )
    exchanges = any(bar.exchange for line in lines for bar in line.bars)
    pale = [faded("does", (COMPUTES, COMMUNICATES))] if exchanges else []
    spans = x, alt.X2("end:Q"), y, coloured(PASSES, "pass"), *pale
    named = alt.condition(_FITS, "label:N", alt.value(""))
    ink = alt.Color("ink:N", scale=None)
    # Along time only, so that all rows stay in view; the wheel alone scrolls the page.
    zoom = alt.selection_interval(
        name="zoom", bind="scales", encodings=["x"], zoom="wheel![event.ctrlKey]"
    )
    labels = [line.label for line in lines]
    data: dict[str, Rows] = {"spans": rows, "tracks": name_rows(labels)}
    layers = (
        mark("spans", "bar", *spans, *SAYS, clip=True, strokeWidth=0).add_params(zoom),
        mark("spans", "text", middle, y, ink, fontSize=9, clip=True).encode(text=named),
        *row_names("tracks", y),
    )
    height = (30 if any("\n" in label for label in labels) else _ROW) * max(len(lines), 1)
    return figure(alt.layer(*layers), data, title, width=WIDTH, height=height)


def _line(track: Track, pixel: float, label: str = "") -> TimelineRow:
    return TimelineRow(label or track.name, _bars(track.spans, pixel))


def _bars(spans: Sequence[Span], pixel: float) -> list[Bar]:
    """Return a row's bars, joined if less than a pixel apart, such as the rounds of a ring."""
    bars: list[Bar] = []
    for span in spans:
        bar = Bar(
            name=span.name,
            # Exchanges that share a link may be of several passes; a bar has one colour.
            phase=span.phases[0],
            exchange=bool(span.exchanges),
            # Spans are in microseconds, as in Chrome traces; figures are in seconds.
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


def _looks_joined(before: Bar, bar: Bar, pixel: float) -> bool:
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


def _few(
    trace: StepTrace, busiest: Sequence[tuple[LinkTraffic, int]], pixel: float
) -> list[TimelineRow]:
    """Choose accelerators across the array and the busiest links, as many as stay legible."""
    accelerators = _unlike(trace, pixel)
    lines: list[TimelineRow] = []
    # Fewer tracks are drawn for a step with many tasks.
    for tracks in range(_MAX_ACCELERATORS, 0, -1):
        # Evenly spread, not all from one corner of the array.
        shown = min(tracks, len(accelerators))
        spread = dict.fromkeys(index * len(accelerators) // tracks for index in range(shown))
        lines = [line for index in spread for line in accelerators[index]]
        lines += _link_rows(trace, busiest[:tracks], pixel)
        if sum(len(line.bars) for line in lines) <= _MAX_BARS:
            break
    return lines


def _link_rows(
    trace: StepTrace, busiest: Sequence[tuple[LinkTraffic, int]], pixel: float
) -> list[TimelineRow]:
    tracks = {track.name: track for track in trace.links}
    return [
        _line(tracks[link.link], pixel, f"link {link.link}{_one_of(count)}")
        for link, count in busiest
    ]


def _named(trace: StepTrace, wanted: Sequence[int], pixel: float) -> list[TimelineRow]:
    """Return the rows of accelerators by their numbers."""
    tracks = trace.accelerators
    for number in wanted:
        if not 0 <= number < len(tracks):
            raise HyparError(f"no accelerator {number}: there are {len(tracks)}, from 0")
    return [line for number in wanted for line in _accelerator_rows(tracks[number], pixel)]


def _accelerator_rows(track: Track, pixel: float) -> list[TimelineRow]:
    """Return an accelerator's row, and those of what runs in the background."""
    foreground, *background = [_line(stream, pixel) for stream in track.streams()]
    # Overlapped exchanges run during the passes, and would hide them.
    return [
        foreground,
        *(
            replace(
                line, label=f"{foreground.label}\n{line.label.removeprefix(f'{foreground.label} ')}"
            )
            for line in background
        ),
    ]


def _unlike(trace: StepTrace, pixel: float) -> list[list[TimelineRow]]:
    """Return the rows of one accelerator from each group that looks the same on a screen."""
    groups: dict[tuple[tuple[str, int, int], ...], list[list[TimelineRow]]] = {}
    for track in trace.accelerators:
        lines = _accelerator_rows(track, pixel)
        # In pixels, since accelerators that run in lockstep may differ by rounding.
        looks = tuple(
            (bar.name, round(bar.start / pixel), round(bar.seconds / pixel))
            for bar in lines[0].bars
        )
        groups.setdefault(looks, []).append(lines)
    return [
        [replace(foreground, label=foreground.label + _one_of(len(group))), *background]
        for group in groups.values()
        for foreground, *background in group[:1]
    ]


def _one_of(count: int) -> str:
    """Return a note on the number of accelerators or links that a row represents."""
    return f"\n1 of {count:,} identical ones" if count > 1 else ""
