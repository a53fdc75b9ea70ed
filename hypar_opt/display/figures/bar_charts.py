"""Bars: beside each other on one axis, our values beside the printed ones; and stacked in rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, log10
from typing import Any, TypeAlias

import altair as alt

from hypar_opt.display.figures.style import (
    CHARACTER,
    COMMUNICATES,
    COMPUTES,
    SAYS,
    WIDTH,
    Figure,
    Rows,
    along,
    coloured,
    evenly,
    faded,
    figure,
    mark,
    name_rows,
    positive,
    row_names,
    short,
    ticks,
)
from hypar_opt.display.palette import INK, MARK, colours_of
from hypar_opt.units import format_label

Numbers: TypeAlias = Sequence[float | None]
"""One number per group; None for a missing one."""

Series: TypeAlias = Mapping[str, Numbers]
"""Numbers by name of the series."""

OURS, PRINTED = "ours", "as the paper prints it"

_BAR, _BETWEEN = 11, 18
"""Pixels of a bar with its upright label, and between two groups."""

_LABEL_ROOM = 0.16
"""The share of a logarithmic axis that labels of bars take at an end."""

SPLIT = "split(datum.label, '\\n')"
"""Vega's expression of a label of several lines."""


def bars(
    groups: Sequence[str],
    series: Series,
    printed: Series | None = None,
    *,
    ylabel: str = "",
    title: str = "",
    baseline: float | None = None,
    form: Callable[[float], str] = format_label,
) -> Figure:
    """Draw grouped bars on a logarithmic axis, each with its value.

    Parameters
    ----------
    groups
        One name per group, along the axis; a line of a name may end in a newline.
    series
        One number for each group, by the series' name; None for no bar.
    printed
        Pale, beside the series of the same name.
    baseline
        Value at which bars begin, as 1 for ratios: bars of smaller values hang down. None for a
        power of ten below all values.
    """
    printed = printed or {}
    pairs = [
        (name, by, numbers)
        for name, ours in series.items()
        for by, numbers in ((OURS, ours), (PRINTED, printed.get(name)))
        if numbers is not None
    ]
    values = positive(*(numbers for *_, numbers in pairs)) + ([baseline] if baseline else [])
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    # The power of ten well below the lowest, so that its bar has some height.
    base = baseline or 10.0 ** (ceil(log10(low / 1.5)) - 1)
    ends = _ends(min(low, base), high, hanging=low < base)
    # A series of few bars is as wide as the names of its groups.
    longest = max((len(line) for name in groups for line in name.split("\n")), default=1)
    group_width = max(_BAR * len(pairs) + _BETWEEN, CHARACTER * longest + 8)
    lines = evenly(len(groups), max(int((WIDTH + 60) // group_width), 1))
    data: dict[str, Rows] = {"base": [{"value": base}]}
    charts = []
    for n, line in enumerate(lines or [range(0)], 1):
        dataset = f"line {n}" if len(lines) > 1 else "bars"
        names = [groups[group] for group in line]
        data[dataset] = [
            {**row, "bar": f"{name}, {by}", "base": base, "says": f"{group}: {name}, {by}: {text}"}
            for position, group in zip(line, names, strict=True)
            for name, by, numbers in pairs
            if (value := numbers[position]) is not None and value > 0
            for text in [form(value)]
            for row in [{"group": group, "series": name, "by": by, "value": value, "amount": text}]
        ]
        order = [f"{name}, {by}" for name, by, _ in pairs]
        layers = _grouped(
            dataset,
            names,
            order,
            colours_of(series),
            along(
                alt.Y,
                "value",
                ylabel or None,
                ends,
                log=True,
                values=ticks(*ends),
                format="~g",
                domain=False,
                ticks=False,
            ),
        )
        width = max(group_width * len(line), 120)
        charts.append(alt.layer(*layers).properties(height=190, width=width))
    return figure(charts[0] if len(charts) == 1 else alt.vconcat(*charts), data, title)


def _grouped(
    name: str, groups: list[str], order: list[str], colours: Mapping[str, str], y: alt.Y
) -> list[alt.Chart]:
    """Return the bars of a line, their labels, and the line at which they begin."""
    label = alt.Axis(labelAngle=0, ticks=False, domain=False, labelExpr=SPLIT, labelPadding=6)
    group_scale = alt.Scale(domain=groups, paddingInner=0.16, paddingOuter=0.1)
    x = alt.X("group:N", sort=groups, title=None, scale=group_scale, axis=label)
    beside = alt.XOffset("bar:N", sort=order, scale=alt.Scale(paddingInner=0.08))
    pale = [faded("by", (OURS, PRINTED))] if any(bar.endswith(PRINTED) for bar in order) else []
    colour = coloured(colours, "series")
    channels, text = (x, y, beside), alt.Text("amount:N")
    look: dict[str, Any] = {"angle": 270, "fontSize": 9, "baseline": "middle"}
    up, down = "datum.value >= datum.base", "datum.value < datum.base"
    return [
        mark(name, "bar", *channels, alt.Y2("base:Q"), colour, *pale, *SAYS, clip=True),
        mark(name, "text", *channels, text, where=up, align="left", dx=3, **look),
        mark(name, "text", *channels, text, where=down, align="right", dx=-3, **look),
        mark("base", "rule", y, color=INK),
    ]


def _ends(low: float, high: float, *, hanging: bool) -> tuple[float, float]:
    """Return the ends of a logarithmic axis, with room for labels."""
    # Equal bars would span 0 decades and leave no room.
    decades = max(log10(high / low), 0.2) / (1 - _LABEL_ROOM * (1 + hanging))
    room = 10 ** (_LABEL_ROOM * decades)
    # Bars that hang down have their labels below them.
    return low / (room if hanging else 1.0), high * room


@dataclass(frozen=True)
class StackedPart:
    """One part of the amounts of all rows of `stacked`."""

    name: str
    """Its entry in the legend; parts may share one."""
    colour: str
    amounts: Sequence[float]
    communicates: bool | None = None
    """Whether it is pale; None for all parts if the distinction does not apply."""

    @property
    def named(self) -> str:
        """The part's name, and what it does."""
        if self.communicates is None:
            return self.name
        return f"{self.name} {COMMUNICATES if self.communicates else COMPUTES}"


def stacked(
    labels: Sequence[str],
    parts: Sequence[StackedPart],
    size: float,
    unit: str,
    form: Callable[[float], str],
    *,
    end: float | None = None,
    limit: float | None = None,
    title: str = "",
) -> Figure:
    """Stack the parts of each row's amount.

    Parameters
    ----------
    labels
        The names of rows, from top to bottom; a line of a name may end in a newline.
    size, unit
        One of the axis' unit, in that of amounts, and its name.
    form
        Shows an amount.
    end
        Of the axis; None for the largest sum. Longer bars are cut off.
    limit
        An amount to mark by a line, if the axis has it.
    """
    sums = [
        list(accumulate(amounts)) for amounts in zip(*(part.amounts for part in parts), strict=True)
    ]
    longest = end or max((totals[-1] for totals in sums), default=0.0) * 1.04 or 1.0
    rows = [
        {
            "line": n,
            "part": part.name,
            "does": COMMUNICATES if part.communicates else COMPUTES,
            "start": short((sums[n][k] - amount) / size),
            "end": short(sums[n][k] / size),
            "amount": form(amount),
            "says": f"{label}: {part.named}: {form(amount)}".replace("\n", ", "),
        }
        for k, part in enumerate(parts)
        for n, (label, amount) in enumerate(zip(labels, part.amounts, strict=True))
        if amount
    ]
    two = any("\n" in label for label in labels)
    height = 36 if two else min(max(900 / max(len(labels), 1), 4), 18)
    row_scale = alt.Scale(domain=list(range(len(labels))), paddingInner=0.25, paddingOuter=0.1)
    y = alt.Y("line:O", scale=row_scale, axis=None)
    look: dict[str, Any] = {"grid": True, "domain": False, "ticks": False, "tickCount": 6}
    x = along(alt.X, "start", unit, (0, longest / size), **look)
    some_pale = any(part.communicates is not None for part in parts)
    pale = [faded("does", (COMPUTES, COMMUNICATES))] if some_pale else []
    colour = coloured({part.name: part.colour for part in parts}, "part")
    names = name_rows(labels, step=max(ceil(11 / height), 1))
    data: dict[str, Rows] = {"parts": rows, "rows": names}
    layers = [
        mark("parts", "bar", x, alt.X2("end:Q"), y, colour, *pale, *SAYS, clip=True),
        *row_names("rows", y),
    ]
    if limit is not None and limit <= longest:
        data["limit"] = [{"start": short(limit / size)}]
        layers.append(mark("limit", "rule", x, color=MARK, strokeWidth=1.5))
    rows_height = max(height * len(labels), 30)
    return figure(alt.layer(*layers), data, title, width=WIDTH - 60, height=rows_height)


def scaling(
    accelerators: Sequence[int],
    gains: Series,
    gigabytes: Series | None = None,
    *,
    printed_gains: Series | None = None,
    printed_gigabytes: Series | None = None,
    title: str = "",
) -> Figure:
    """Draw gains over one accelerator as lines, and a step's communication as bars behind.

    Parameters
    ----------
    accelerators
        The numbers of accelerators, powers of two.
    gains, printed_gains
        Speed over that of one accelerator, ours and the paper's: one number per array.
    gigabytes, printed_gigabytes
        Bytes of a step in units of 1e9, ours and the paper's; None for no bars.

    Source: Figure 11.
    """
    sets = {
        "gains": ((OURS, gains), (PRINTED, printed_gains or {})),
        "gigabytes": ((OURS, gigabytes or {}), (PRINTED, printed_gigabytes or {})),
    }
    counts = [f"{count:,}" for count in accelerators]
    data = {
        kind: [
            {
                "accelerators": count,
                "series": name,
                "by": by,
                "bar": f"{name}, {by}",
                "value": value,
                "amount": format_label(value),
                # A line's last and highest points are labelled with their gain.
                "named": count == counts[-1] or value == max(positive(numbers), default=0),
                "says": f"{count} accelerators: {name}, {by}: {format_label(value)}",
            }
            for by, series in both
            for name, numbers in series.items()
            for count, value in zip(counts, numbers, strict=True)
            if value is not None
        ]
        for kind, both in sets.items()
    }
    colours = colours_of([*gains, *(gigabytes or {})])
    colour = coloured(colours, "series")
    # Equally spaced, which for powers of two is a logarithmic axis.
    spaced = alt.Scale(domain=counts, paddingInner=0.25)
    plain = alt.Axis(labelAngle=0, ticks=False, domain=False)
    x = alt.X("accelerators:N", sort=counts, scale=spaced, axis=plain)
    order = [f"{name}, {by}" for name in colours for by in (OURS, PRINTED)]
    opacities = alt.Scale(domain=[OURS, PRINTED], range=[0.5, 0.2])
    pale = alt.FillOpacity("by:O", scale=opacities, legend=None)
    right = alt.Axis(orient="right", grid=False, tickCount=6)
    bytes_ = alt.Y("value:Q", title="GB a step (bars, pale as printed)", axis=right)
    beside = alt.XOffset("bar:N", sort=order)
    behind = mark("gigabytes", "bar", x, beside, bytes_, colour, pale, *SAYS)
    highest = max(positive(*gains.values()), default=1.0)
    y = along(
        alt.Y, "value", "gain over one accelerator (lines, rings as printed)", (0, highest * 1.15)
    )
    point, ours = (x, y, colour, *SAYS), f"datum.by == '{OURS}'"
    front = alt.layer(
        mark("gains", "line", *point, where=ours, point=alt.OverlayMarkDef(size=36)),
        mark("gains", "point", *point, where=f"datum.by == '{PRINTED}'", size=110, strokeWidth=1.1),
        mark(
            "gains",
            "text",
            *point,
            alt.Text("amount:N"),
            where=f"{ours} && datum.named",
            align="left",
            dx=7,
        ),
    )
    layers = [behind, front] if data["gigabytes"] else [front]
    # Gains and gigabytes have no common scale.
    chart = alt.layer(*layers).resolve_scale(y="independent")
    return figure(chart, data, title, width=WIDTH - 40, height=240)
