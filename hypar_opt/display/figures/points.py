"""Points: fronts, configurations, sweeps, validated steps, and an array's roofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from statistics import fmean
from typing import TYPE_CHECKING, Any

import altair as alt

from hypar_opt.display.figures.marks import STAR
from hypar_opt.display.figures.style import (
    HEIGHT,
    POINT_SHAPES,
    SAYS,
    WIDTH,
    Figure,
    Rows,
    along,
    coloured,
    figure,
    legend,
    mark,
    scale,
    short,
    si_labels,
    ticks,
)
from hypar_opt.display.folding import ranges
from hypar_opt.display.labels import MEMORY, STEP
from hypar_opt.display.palette import DOTS, FAINT, INK, MARK, PLAN, SERIES, colours_of
from hypar_opt.hardware.roofline import DRAM, Roof, Roofline, roofline
from hypar_opt.studies.configurations import POINTS, in_words
from hypar_opt.studies.intensities import intensities
from hypar_opt.units import (
    axis_byte_unit,
    axis_unit,
    format_bytes,
    format_number,
    format_rate,
    format_si,
)

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.studies.configurations import Configurations
    from hypar_opt.studies.intensities import LayerIntensity
    from hypar_opt.studies.validation import Validation

_BEYOND = 0.06
"""Share of the range of memory by which lines extend beyond their ends."""

_NUMBER, _NAME = (16, 12), (36, 14)
"""Pixels of the label of a number, and of a layer's name."""

_BEYOND_RIDGES = 30.0
"""The factor by which the axis of a roofline goes beyond the first and the last ridge."""


def fronts(
    points: Mapping[str, Sequence[tuple[int, float]]],
    *,
    plan: tuple[int, Mapping[str, float]] | None = None,
    title: str = "",
) -> Figure:
    """Draw costs, relative to the least of each objective, against memory.

    Parameters
    ----------
    points
        By objective: bytes of memory and the least cost within them, as a ratio, from the most
        memory down.
    plan
        A plan's memory, and its cost by objective as ratios, to be starred.
    """
    memories = [memory for series in points.values() for memory, _ in series]
    memories += [plan[0]] if plan else []
    size, unit = axis_byte_unit(max(memories, default=1))
    lowest, highest = (end(memories, default=0) / size for end in (min, max))
    # A front of one point has no range, but is drawn.
    margin = (highest - lowest or highest or 1.0) * _BEYOND
    names = list(points)

    def row(name: str, memory: int, ratio: float) -> dict[str, Any]:
        says = f"{name}: {format_number(ratio)} times the least, {format_bytes(memory)}"
        return {
            "objective": name,
            "memory": short(memory / size),
            "ratio": short(ratio),
            "says": says,
        }

    rows = [row(name, *point) for name in names for point in reversed(points[name])]
    # A plan that fits less memory fits more: a cost holds until a cheaper plan fits.
    ends = [
        {"objective": name, "memory": short(highest + margin), "ratio": front[0][1]}
        for name, front in points.items()
        if front
    ]
    title_of_x = f"{MEMORY} ({unit})"
    x = along(alt.X, "memory", title_of_x, (lowest - margin, highest + margin), tickCount=6)
    y = along(alt.Y, "ratio", "relative to the least without a limit")
    shapes = {name: POINT_SHAPES[n % len(POINT_SHAPES)] for n, name in enumerate(names)}
    colour = alt.Color("objective:N", scale=scale(colours_of(names)), legend=legend(names))
    shape = alt.Shape("objective:N", scale=scale(shapes), legend=legend(names))
    point: dict[str, Any] = {"filled": True, "opacity": 1}
    data: dict[str, Rows] = {"steps": [*rows, *ends], "points": rows}
    layers = [
        mark("steps", "line", x, y, colour, interpolate="step-after", strokeWidth=1.5),
        # Each smaller than the previous one, since fronts may share points.
        *(
            mark(
                "points",
                "point",
                x,
                y,
                colour,
                shape,
                *SAYS,
                where=condition,
                size=max(130 - 40 * n, 26),
                **point,
            )
            for n, condition in enumerate(f"datum.objective == '{name}'" for name in names)
        ),
    ]
    if plan is not None:
        data["plan"] = [row(name, plan[0], ratio) for name, ratio in plan[1].items()]
        look = {"shape": STAR, "size": 190, "stroke": FAINT, **point}
        layers.append(mark("plan", "point", x, y, colour, *SAYS, **look))
    return figure(alt.layer(*layers), data, title, width=WIDTH, height=HEIGHT)


def time_and_memory(configurations: Configurations) -> Figure:
    """Draw configurations that fit by their memory and their seconds, and name the fastest.

    Of those with stages only the fastest are points. Lines are the memory that configurations may
    take, and the bound over all plans.
    """
    points = configurations.points()
    size, unit = axis_byte_unit(configurations.capacity)
    second, symbol = axis_unit(configurations.best.seconds)
    in_stages = [point for point in points if point.configuration.pp > 1]
    without = [point for point in points if point.configuration.pp == 1]
    which = "fastest in stages" if len(in_stages) >= POINTS else "in stages that fit"
    kinds = {
        f"{len(without):,} configurations that fit, recomputing no more than they must": (
            without,
            DOTS,
        ),
        f"{len(in_stages):,} {which}": (in_stages, SERIES[2]),
    }
    room = (configurations.capacity - configurations.margin) / size
    # Points at one place look like one.
    places = dict.fromkeys(
        (float(f"{dot.memory / size:.4g}"), float(f"{dot.seconds / second:.4g}"), what)
        for what, (dots, _) in kinds.items()
        for dot in dots
    )
    data: dict[str, list[dict[str, Any]]] = {
        "points": [{"memory": x, "seconds": y, "what": what} for x, y, what in places],
        "fastest": [],
        "limits": [{"memory": short(room), "what": "capacity"}],
    }
    colours = {what: colour for what, (dots, colour) in kinds.items() if dots}
    for number, configuration in enumerate(configurations, start=1):
        words = in_words(configuration.configuration, configurations.blocks)
        what = f"{number}: {format_si(configuration.seconds, 's')}, {words}"
        colours[what] = PLAN
        row = {
            "memory": short(configuration.memory / size),
            "seconds": short(configuration.seconds / second),
        }
        says = f"{what}, {format_bytes(configuration.memory)}"
        data["fastest"].append({**row, "what": what, "says": says})
    colours["capacity"] = MARK
    if configurations.bound is not None:
        bound = f"no plan takes less: {format_si(configurations.bound, 's')}"
        colours[bound] = SERIES[0]
        data["limits"].append({"seconds": short(configurations.bound / second), "what": bound})
    seconds = [row["seconds"] for rows in data.values() for row in rows if "seconds" in row]
    ends = 0.92 * min(seconds), 1.08 * max(seconds)
    highest = max(row["memory"] for rows in data.values() for row in rows if "memory" in row)
    pixels = [
        (WIDTH * row["memory"] / highest, _pixels(row["seconds"], ends, HEIGHT))
        for row in data["fastest"]
    ]
    data["numbers"] = [
        {
            "memory": short(fmean(data["fastest"][n]["memory"] for n in numbers)),
            "seconds": max(data["fastest"][n]["seconds"] for n in numbers),
            "number": ranges(n + 1 for n in numbers),
        }
        for numbers in near(pixels, _NUMBER)
    ]
    x = along(alt.X, "memory", f"{MEMORY} ({unit})")
    look: dict[str, Any] = {"grid": False, "values": ticks(*ends), "format": ",~g"}
    y = along(alt.Y, "seconds", f"{STEP} ({symbol})", ends, log=True, **look)
    colour = alt.Color("what:N", scale=scale(colours), legend=legend(colours))
    layers = [
        mark("points", "circle", x, y, colour, size=12, opacity=0.7),
        mark("limits", "rule", x, colour, where="isValid(datum.memory)", strokeWidth=1.2),
        mark("limits", "rule", y, colour, where="isValid(datum.seconds)", strokeWidth=1.2),
        mark("fastest", "circle", x, y, colour, *SAYS, size=44, opacity=1),
        mark("numbers", "text", x, y, alt.Text("number:N"), dy=-9),
    ]
    network, array = configurations.network.name, configurations.array.name
    title = f"{network} on {array}, batch {configurations.problem.batch:,}"
    title += f", {format_bytes(configurations.capacity)}"
    return figure(alt.layer(*layers), data, title, width=WIDTH, height=HEIGHT + 40)


def _pixels(value: float, ends: tuple[float, float], length: int) -> float:
    """Return where a value is on a logarithmic axis of so many pixels."""
    return length * log(value / ends[0]) / log(ends[1] / ends[0])


def near(places: Sequence[tuple[float, float]], label: tuple[int, int]) -> list[list[int]]:
    """Return the groups of places, in pixels, whose labels would overlap.

    Parameters
    ----------
    label
        The width and the height of one.
    """
    width, height = label
    groups: list[list[int]] = []
    for number, (x, y) in enumerate(places):
        joined = [
            group
            for group in groups
            if any(abs(x - places[n][0]) < width and abs(y - places[n][1]) < height for n in group)
        ]
        groups = [group for group in groups if group not in joined]
        groups.append([*(n for group in joined for n in group), number])
    return [sorted(group) for group in groups]


def validated_steps(result: Validation) -> Figure:
    """Draw each modelled step by its measured and calculated seconds, on logarithmic axes."""
    steps = [step for step in result if step.error is not None]
    labels = {
        step_set.name: f"{step_set.name}: {100 * step_set.mean:.1f} %"
        for step_set in result.sets
        if step_set.mean is not None
    }
    rows = [
        {
            "set": labels[step.of_set],
            "measured": step.measured,
            "calculated": step.seconds,
            "says": f"{step.of_set}, {step.name}: measured {format_si(step.measured or 0, 's')},"
            f" calculated {format_si(step.seconds or 0, 's')}, {step.error:+.1%}",
        }
        for step in steps
        if step.of_set in labels
    ]
    times = [value for step in steps for value in (step.measured or 0, step.seconds or 0)] or [1.0]
    ends = min(times) / 1.3, max(times) * 1.3
    look: dict[str, Any] = {"grid": False, "labelExpr": si_labels("s"), "values": ticks(*ends)}
    x = along(alt.X, "measured", "measured", ends, log=True, **look)
    y = along(alt.Y, "calculated", "calculated", ends, log=True, **look)
    equal = [{"measured": end, "calculated": end} for end in ends]
    colour = coloured(colours_of(list(labels.values())), "set", symbolType="circle")
    layers = [
        mark("equal", "line", x, y, color=FAINT, strokeWidth=1),
        mark("steps", "circle", x, y, colour, *SAYS, size=34, opacity=0.75),
    ]
    title = "Seconds of a training step, and the mean error"
    data: dict[str, Rows] = {"steps": rows, "equal": equal}
    return figure(alt.layer(*layers), data, title, width=360, height=360)


def array_roofline(array: Array) -> Figure:
    """Draw what bounds an accelerator: its peak, its DRAM, and the levels' bandwidths.

    Under each roof, up to its ridge, bytes bound what is computed: those of DRAM, or those that an
    accelerator exchanges at the levels. The bottleneck is the lowest one of levels, with the link
    that is full.

    Source: see `hypar_opt.hardware.roofline`.
    """
    return _roofline(roofline(array), [], f"{array.name}: roofline of an accelerator")


def layers_roofline(plan: Plan) -> Figure:
    """Draw the layers of a plan under the roofs of its array, each where it is bounded most.

    The layers of the most operations are named where there is room.
    """
    roofs, layers = intensities(plan)
    array = "" if plan.array is None else f" on {plan.array.name}"
    title = f"{plan.network.name}{array}, batch {plan.batch:,}: layers under the roofline"
    return _roofline(roofs, layers, title)


def _roofline(roofs: Roofline, layers: Sequence[LayerIntensity], title: str) -> Figure:
    peak, ridges = roofs.operations_per_second, [roofs.ridge(roof) for roof in roofs.roofs]
    places = [*ridges, *(layer.intensity for layer in layers)]
    low = min(min(ridges) / _BEYOND_RIDGES, min(places) / 2)
    high = max(max(ridges) * _BEYOND_RIDGES, max(places) * 2)
    lines: list[dict[str, Any]] = []
    corners: list[dict[str, Any]] = []
    dashes, colours, names_of = {}, {}, {}
    for number, (roof, ridge) in enumerate(zip(roofs.roofs, ridges, strict=True)):
        slowest = roof is roofs.bottleneck
        name = f"{roof.name}, {format_rate(roof.bytes_per_second)}"
        name += f": bottleneck, link {roof.link.name}" if slowest and roof.link else ""
        names_of[roof] = name
        colours[name] = MARK if slowest else SERIES[number % 5]
        dashes[name] = [5, 3] if roof.name == DRAM else [1, 0]
        slope = [(low, low * roof.bytes_per_second), (ridge, peak)]
        lines += [{"roof": name, "intensity": x, "speed": y} for x, y in slope]
        text = format_number(ridge)
        row = {"roof": name, "intensity": ridge, "speed": peak, "ridge": text}
        corners.append({**row, "says": f"{name}: up to {text} operations per byte"})
    ends = min(line["speed"] for line in lines), 4 * peak
    look: dict[str, Any] = {"values": ticks(low, high), "format": ",~r"}
    x = along(alt.X, "intensity", "operations per byte of that roof", (low, high), log=True, **look)
    look = {"grid": False, "values": ticks(*ends), "labelExpr": si_labels("OP/s")}
    y = along(alt.Y, "speed", "operations per second of an accelerator", ends, log=True, **look)
    names = legend(colours, symbolType="stroke", symbolSize=300, symbolStrokeWidth=2)
    colour = alt.Color("roof:N", scale=scale(colours), legend=names)
    dash = alt.StrokeDash("roof:N", scale=scale(dashes), legend=names)
    above: dict[str, Any] = {"baseline": "bottom", "dy": -4}
    marks = [
        mark("peak", "line", x, y, color=INK, strokeWidth=1.4),
        mark("ridges", "rule", x, strokeDash=[2, 3], strokeWidth=0.8),
        mark("roofs", "line", x, y, colour, dash, strokeWidth=2, clip=True),
        mark("ridges", "circle", x, y, colour, *SAYS, size=44, opacity=1),
        mark("ridges", "text", x, y, alt.Text("ridge:N"), align="left", dx=3, **above),
        mark("peak", "text", x, y, alt.Text("text:N"), align="right", **above),
        mark("layers", "point", x, y, colour, *SAYS, filled=True, size=52, opacity=1, stroke=INK),
        mark("layers", "text", x, y, alt.Text("name:N"), align="left", dx=4, dy=13),
    ]
    roof_of_all = [(low, ""), (high, format_si(peak, "OP/s"))]
    data: dict[str, Rows] = {
        "roofs": lines,
        "ridges": corners,
        "peak": [{"intensity": x, "speed": peak, "text": text} for x, text in roof_of_all],
        "layers": _layers(layers, names_of, peak, (low, high), ends),
    }
    return figure(alt.layer(*marks), data, title, width=WIDTH, height=HEIGHT)


def _layers(
    layers: Sequence[LayerIntensity],
    names: Mapping[Roof, str],
    peak: float,
    ends_of_x: tuple[float, float],
    ends_of_y: tuple[float, float],
) -> list[dict[str, Any]]:
    """Return the points of layers, with the names of the largest that have room."""
    rows: list[dict[str, Any]] = []
    named: list[tuple[float, float]] = []
    for layer in sorted(layers, key=lambda layer: -layer.operations):
        speed = min(peak, layer.intensity * layer.roof.bytes_per_second)
        x, y = _pixels(layer.intensity, ends_of_x, WIDTH), _pixels(speed, ends_of_y, HEIGHT)
        has_room = all(len(near([(x, y), other], _NAME)) > 1 for other in named)
        named += [(x, y)] * has_room
        says = f"{layer.layer}: {format_si(layer.operations, 'OP')}, {format_bytes(layer.bytes)} of"
        says += f" {names[layer.roof]}, {format_number(layer.intensity)} operations per byte"
        row = {"roof": names[layer.roof], "intensity": layer.intensity, "speed": speed}
        rows.append({**row, "name": layer.layer if has_room else "", "says": says})
    return rows
