"""A step's timeline on a few accelerators and links, from a recorded simulation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.display.pictures.canvas import DATA, HYPAR, OTHER, add_legend, new_figure, style
from hypar_opt.errors import HyparError
from hypar_opt.units import axis_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hypar_opt.simulator.spans import Span, StepTrace, Track

_PASSES = {"forward": DATA, "gradient": OTHER, "backward": HYPAR}
_LEVELS = ("#7f2704", "#d94801", "#fd8d3c", "#fdbe85", "#fee6ce")
"""Colours of exchanges, H1 first and darkest; deeper levels share the last."""

_SEVERAL, _MIXED = "several levels", "#cc79a7"
"""A ring over several levels, or exchanges of several levels on one link; and their colour."""

_DARK = ("gradient", "backward", "H1", "H2")

_WIDTH, _LABELS = 10.0, 1.8
"""Width of the figure, and the part of it left of the axes, in inches."""
_BAR, _GAP = 0.8, 0.35
"""Height of a bar, and space between accelerators and links, in rows."""
_MAX_TRACKS = 4
_CHARACTER = 0.05
"""Inches per character of a span's name."""


@style()
def timeline(
    trace: StepTrace,
    *,
    accelerators: Sequence[int] | None = None,
    links: Sequence[str] | None = None,
    between: tuple[float, float] | None = None,
    title: str = "",
) -> Figure:
    """Draw the timeline of a few accelerators and links.

    Parameters
    ----------
    trace
        As in ``simulate(plan, trace=True).trace``.
    accelerators, links
        Those to draw; None for a few that differ: the first of those with equal times.
    between
        The seconds to show; None for the whole step.

    Raises
    ------
    HyparError
        If there is no such accelerator or link.
    """
    upper, lower = _accelerator_rows(trace, accelerators), _link_tracks(trace, links)
    tracks = [*upper, *lower]
    heights = [row + _GAP * (row >= len(upper)) for row in range(len(tracks))]
    ends = (_end(span) for track in tracks for span in track.spans)
    start, end = between or (0.0, max(ends, default=1.0))
    # By the end shown, so that the numbers along the axis stay short.
    unit, symbol = axis_unit(end)
    figure = new_figure(_WIDTH, 1.1 + 0.34 * len(tracks), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(start / unit, end / unit)
    kinds: set[str] = set()
    for height, track in zip(heights, tracks, strict=True):
        kinds |= _draw_track(axes, track, height, unit)
    axes.set_yticks(heights, [track.name for track in tracks])
    # Upside down, with the first track on top.
    axes.set_ylim(max(heights, default=0) + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(symbol)
    add_legend(figure, title, _handles(kinds), handlelength=1.2)
    return figure


def _end(span: Span) -> float:
    """Return the second at which a span ends."""
    return (span.start_us + span.duration_us) / 1e6


def _draw_track(axes: Axes, track: Track, height: float, unit: float) -> set[str]:
    """Draw the visible spans of a track, on an axis in ``unit`` seconds; return their kinds."""
    low, high = axes.get_xlim()
    inch = (high - low) / (_WIDTH - _LABELS)
    bars = defaultdict(list)
    for span in track.spans:
        left = max(span.start_us / 1e6 / unit, low)
        width = min(_end(span) / unit, high) - left
        if width <= 0:  # before or after what is shown
            continue
        kind = _kind(span)
        bars[kind].append((left, width))
        # The legend has the pass or the level, so the label need not.
        name = span.name.removesuffix(f" {kind}")
        # A name wider than its bar would run into the next.
        if width > inch * _CHARACTER * (len(name) + 0.5):
            axes.text(
                left + width / 2,
                height,
                name,
                ha="center",
                va="center_baseline",
                fontsize=6,
                color="white" if kind in _DARK else "black",
                clip_on=True,
            )
    for kind, intervals in bars.items():
        axes.broken_barh(
            intervals,
            (height - _BAR / 2, _BAR),
            facecolor=_color(kind),
            edgecolor="white",  # but a rim would hide short spans
            linewidth=[0.5 if width > 0.05 * inch else 0 for _, width in intervals],
            gid=kind,
        )
    return set(bars)


def _handles(kinds: set[str]) -> list[Any]:
    from matplotlib.patches import Patch

    passes = [kind for kind in _PASSES if kind in kinds]
    # By length first: as text H10 would precede H2.
    levels = sorted(kinds - _PASSES.keys(), key=lambda level: (len(level), level))
    handles = [Patch(color=_color(kind), label=kind) for kind in passes]
    return handles + [Patch(color=_color(level), label=f"exchange {level}") for level in levels]


def _kind(span: Span) -> str:
    """Return a computation's pass, or an exchange's level."""
    if not span.exchanges:
        return span.phases[0]
    # A ring over several levels has no single level's colour.
    return span.levels if span.levels[1:].isdecimal() else _SEVERAL


def _color(kind: str) -> str:
    if kind in _PASSES:
        return _PASSES[kind]
    if kind == _SEVERAL:
        return _MIXED
    return _LEVELS[min(int(kind[1:]), len(_LEVELS)) - 1]


def _accelerator_rows(trace: StepTrace, wanted: Sequence[int] | None) -> list[Track]:
    """Return the accelerators' tracks, each followed by its background track."""
    tracks = trace.accelerators
    if wanted is None:
        # If all run in lockstep, a second one shows that they do.
        unlike = _unlike([track.streams()[0] for track in tracks])
        wanted = unlike if len(unlike) > 1 else range(len(tracks))[:2]
    for number in wanted:
        if not 0 <= number < len(tracks):
            raise HyparError(f"no accelerator {number}: there are {len(tracks)}, from 0")
    return [stream for number in wanted for stream in tracks[number].streams()]


def _link_tracks(trace: StepTrace, wanted: Sequence[str] | None) -> list[Track]:
    if wanted is None:
        used = [track for track in trace.links if track.spans]
        return [used[index] for index in _unlike(used)]
    by_name = {track.name: track for track in trace.links}
    for name in wanted:
        if name not in by_name:
            raise HyparError(f"no link {name!r}: there are {', '.join(by_name)}")
    return [by_name[name] for name in wanted]


def _unlike(tracks: Sequence[Track]) -> list[int]:
    """Return the indices of a few tracks: the first of those with equal spans."""
    representatives: dict[tuple[tuple[float, float], ...], int] = {}
    for index, track in enumerate(tracks):
        times = tuple((span.start_us, span.duration_us) for span in track.spans)
        representatives.setdefault(times, index)
    return list(representatives.values())[:_MAX_TRACKS]
