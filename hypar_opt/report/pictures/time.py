"""A step's timeline: what a few accelerators and links do when, of a recorded simulation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError
from hypar_opt.report.pictures.canvas import DATA, HYPAR, OTHER, add_legend, new_figure, style
from hypar_opt.simulator.trace import ACCELERATORS, LINKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Event = Mapping[str, Any]
Track = tuple[str, list[Event]]
"""A name, and the spans on it."""

_PASSES = {"forward": DATA, "gradient": OTHER, "backward": HYPAR}
_LEVELS = ("#7f2704", "#d94801", "#fd8d3c", "#fdbe85", "#fee6ce")
"""Exchanges, H1 first and darkest; deeper levels share the last."""

_SEVERAL, _MIXED = "several levels", "#cc79a7"
"""What a ring crosses, and what shares a link."""

_DARK = ("gradient", "backward", "H1", "H2")

_HIGH, _GAP = 0.8, 0.35
_FEW = 4
_CHARACTER = 0.05
"""Inches of a span's name, a character."""


@style()
def timeline(
    trace: Mapping[str, Any],
    *,
    accelerators: Sequence[int] | None = None,
    links: Sequence[str] | None = None,
    between: tuple[float, float] | None = None,
    title: str = "",
) -> Figure:
    """Draw what some accelerators and links do when.

    Parameters
    ----------
    trace
        As ``simulate(plan, trace=True).trace`` has it.
    accelerators, links
        Which ones; None for a few: of those that are busy alike the first.
    between
        The seconds to show; None for the whole step.

    Raises
    ------
    HyparError
        If there is no such accelerator or link.
    """
    tracks, busy = _accelerators(trace, accelerators), _links(trace, links)
    rows = [*tracks, *busy]
    ends = [each["ts"] + each["dur"] for _, spans in rows for each in spans]
    start, end = between or (0.0, max(ends, default=1.0) / 1e6)
    size, unit = next(
        (size, unit)
        for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))
        if end >= size
    )
    size = size or 1e-9
    width = 10.0
    figure = new_figure(width, 1.1 + 0.34 * len(rows), layout="constrained")
    axes = figure.add_subplot()
    inch = (end - start) / size / (width - 1.8)
    seen: set[str] = set()
    for row, (_, spans) in enumerate(rows):
        at = row + _GAP * (row >= len(tracks))
        kinds = defaultdict(list)
        for span in spans:
            first = max(span["ts"] / 1e6, start) / size
            long = min((span["ts"] + span["dur"]) / 1e6, end) / size - first
            if long <= 0:  # before or after what is shown
                continue
            kind = _kind(span)
            kinds[kind].append((first, long))
            name = span["name"].removesuffix(f" {kind}")
            if long > inch * _CHARACTER * (len(name) + 0.5):
                axes.text(
                    first + long / 2,
                    at,
                    name,
                    ha="center",
                    va="center_baseline",
                    fontsize=6,
                    color="white" if kind in _DARK else "black",
                    clip_on=True,
                )
        for kind, places in kinds.items():
            axes.broken_barh(
                places,
                (at - _HIGH / 2, _HIGH),
                facecolor=_color(kind),
                edgecolor="white",  # but a rim would hide what is short
                linewidth=[0.5 if long > 0.05 * inch else 0 for _, long in places],
                gid=kind,
            )
        seen |= kinds.keys()
    heights = [row + _GAP * (row >= len(tracks)) for row in range(len(rows))]
    axes.set_yticks(heights, [name for name, _ in rows])
    axes.set_ylim(max(heights, default=0) + 0.6, -0.6)
    axes.set_xlim(start / size, end / size)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(unit)
    add_legend(figure, title, _handles(seen), handlelength=1.2)
    return figure


def _handles(seen: set[str]) -> list[Any]:
    from matplotlib.patches import Patch

    passes = [kind for kind in _PASSES if kind in seen]
    levels = sorted(seen - _PASSES.keys(), key=lambda level: (len(level), level))
    handles = [Patch(color=_color(kind), label=kind) for kind in passes]
    return handles + [Patch(color=_color(level), label=f"exchange {level}") for level in levels]


def _kind(span: Event) -> str:
    """Return a compute's pass, or an exchange's level."""
    level = span["args"].get("level")
    if level is None:
        return str(span["args"]["phase"])
    return str(level) if str(level)[1:].isdecimal() else _SEVERAL


def _color(kind: str) -> str:
    if kind in _PASSES:
        return _PASSES[kind]
    if kind == _SEVERAL:
        return _MIXED
    return _LEVELS[min(int(kind[1:]), len(_LEVELS)) - 1]


def _accelerators(trace: Mapping[str, Any], wanted: Sequence[int] | None) -> list[Track]:
    """Return the tracks of accelerators, each with its background exchanges after it."""
    found = _tracks(trace, ACCELERATORS)
    own = {number // 2: track for number, track in found.items() if number % 2 == 0}
    if wanted is None:
        unlike = _unlike({number: spans for number, (_, spans) in own.items()})
        wanted = unlike if len(unlike) > 1 else list(own)[:2]
    for number in wanted:
        if number not in own:
            raise HyparError(f"no accelerator {number}: there are {len(own)}, from 0")
    return [
        found[track]
        for number in wanted
        for track in (2 * number, 2 * number + 1)
        if track in found
    ]


def _links(trace: Mapping[str, Any], wanted: Sequence[str] | None) -> list[Track]:
    found = _tracks(trace, LINKS)
    if wanted is None:
        return [found[n] for n in _unlike({n: spans for n, (_, spans) in found.items() if spans})]
    named = {name: (name, spans) for name, spans in found.values()}
    for name in wanted:
        if name not in named:
            raise HyparError(f"no link {name!r}: there are {', '.join(named)}")
    return [named[name] for name in wanted]


def _tracks(trace: Mapping[str, Any], process: int) -> dict[int, Track]:
    found: dict[int, Track] = {}
    for event in trace["traceEvents"]:
        if event["pid"] != process:
            continue
        if event["name"] == "thread_name":
            found[event["tid"]] = (event["args"]["name"], [])
        elif event["ph"] == "X":
            found[event["tid"]][1].append(event)
    return found


def _unlike(spans: Mapping[int, Sequence[Event]]) -> list[int]:
    """Return a few, the first of each sort: those with spans of the same times are alike."""
    sorts: dict[tuple[tuple[float, float], ...], int] = {}
    for number, each in spans.items():
        sorts.setdefault(tuple((span["ts"], span["dur"]) for span in each), number)
    return list(sorts.values())[:_FEW]
