"""An exploration's plans by memory and cost, and the distribution of costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from hypar_opt.display.figures.style import (
    HEIGHT,
    SAYS,
    WIDTH,
    Figure,
    Rows,
    along,
    coloured,
    figure,
    label_expression,
    mark,
    short,
)
from hypar_opt.display.labels import ON_FRONT, SOLVERS_PLAN
from hypar_opt.display.palette import DOTS, MARK, PLAN

OTHERS, FRONT, OWN = "plans", ON_FRONT, SOLVERS_PLAN

Place = tuple[float, float]
"""A plan's memory and cost."""


def plans_by_memory(
    dominated: Sequence[Place],
    front: Mapping[str, Place],
    solver_plan: Place,
    memory: tuple[float, str],
    cost: tuple[float, str],
) -> Figure:
    """Draw plans by memory and cost, those of the front with their names, and the solver's.

    Parameters
    ----------
    memory, cost
        One of each axis' unit, and its title.
    """

    def rows(kind: str, places: Mapping[str, Place]) -> Rows:
        return [
            {"kind": kind, "x": short(x / memory[0]), "y": short(y / cost[0]), "says": name}
            for name, (x, y) in places.items()
        ]

    data = {
        "others": rows(OTHERS, {f"{n}": at for n, at in enumerate(dominated)}),
        "front": rows(FRONT, front),
        "own": rows(OWN, {OWN: solver_plan}),
    }
    x, y = along(alt.X, "x", memory[1]), along(alt.Y, "y", cost[1])
    colour = coloured({OTHERS: DOTS, FRONT: PLAN, OWN: MARK}, "kind", symbolType="circle")
    layers = [
        mark("others", "circle", x, y, colour, size=14, opacity=0.7),
        mark("front", "circle", x, y, colour, *SAYS, size=60, opacity=1),
        mark("own", "point", x, y, colour, *SAYS, size=220, opacity=1, strokeWidth=2),
    ]
    return figure(alt.layer(*layers), data, width=WIDTH, height=HEIGHT)


def histogram(
    ranges: Sequence[tuple[str, str, str]], counts: Sequence[int], objective: str
) -> Figure:
    """Draw the number of plans per range of costs; a range starts with its two ends as text."""
    rows = [
        {"range": n, "count": count, "says": f"{low} to {high}: {text} plans"}
        for n, ((low, high, text), count) in enumerate(zip(ranges, counts, strict=True))
    ]
    stride = -(-len(ranges) // 8)
    shown = {n: low for n, (low, *_) in enumerate(ranges) if n % stride == 0}
    labels = label_expression(shown)
    axis = alt.Axis(values=list(shown), labelExpr=labels, labelAngle=0, ticks=False)
    x = alt.X("range:O", title=f"{objective}, from", axis=axis)
    drawn = mark("ranges", "bar", x, alt.Y("count:Q", title="plans"), *SAYS, color=PLAN)
    return figure(alt.layer(drawn), {"ranges": rows}, width=WIDTH, height=180)
