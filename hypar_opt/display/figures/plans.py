"""Plans in the form of the paper's Figure 5, and of graphs: one row per group of equal layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import altair as alt

from hypar_opt.display.figures.marks import CELL, marks
from hypar_opt.display.figures.style import CHARACTER, Figure, Rows, at, evenly, figure, mark
from hypar_opt.display.folding import fold
from hypar_opt.display.glyphs import (
    Symbol,
    explained,
    legend,
    stored_legend,
    stored_symbol,
    symbol,
)
from hypar_opt.display.labels import accelerators, level_costs
from hypar_opt.display.palette import GRID
from hypar_opt.display.plan_grid import Stored, drawn_choices, is_short_chain, plan_grid
from hypar_opt.errors import HyparError
from hypar_opt.units import format_cost

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

_MAX_LAYERS = 22
"""Layers per line; a longer chain continues below."""

_SEPARATED = 0.7
"""Cells between the choices and the layouts of stored tensors."""

_GAP = 0.8
"""Cells between two plans side by side."""

_MAX_ROWS, _MAX_PANELS = 44, 3
"""Beyond this many rows, the next ones are beside the first, in up to this many panels."""

_UPRIGHT: dict[str, Any] = {"angle": 270, "align": "right", "baseline": "middle"}


def plan_dots(plan: Plan, *, layouts: bool = False) -> Figure:
    """Draw a plan as in the paper's Figure 5, with the cost of each level beside it.

    Filled dots are model parallelism, open dots data parallelism, diamonds output parallelism. A
    graph, or a long chain, has one row per layer instead, with equal layers folded into one, and
    the layouts of tensors with several readers beside the choices.

    Parameters
    ----------
    layouts
        Show how every layer's output is stored.

    Source: Figure 5.
    """
    if is_short_chain(plan) and not layouts:
        return _chain(plan)
    return _folded(plan, Stored.ALL if layouts else Stored.SHARED)


def words_of(
    explained: Sequence[str], choices: Sequence[str], drawn: Iterable[str] = ()
) -> dict[Symbol, str]:
    """Return each symbol with its meaning, as a legend has it; of what is only drawn, a word."""
    words = dict(legend(explained, choices))
    return words | {glyph: word for word in drawn if (glyph := symbol(word)) not in words}


def cells_of(
    layers: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Mapping[Symbol, str],
    printed: Sequence[Sequence[str]] | None = None,
) -> Rows:
    """Return a mark for each layer and level, and whether it differs from a printed plan's."""
    return [
        {
            **_cell(n, level, layer, f"H{level + 1}", words[symbol(row[n])]),
            "differs": printed is not None and printed[level][n] is not row[n],
        }
        for level, row in enumerate(rows)
        for n, layer in enumerate(layers)
    ]


def _cell(column: float, line: int, layer: str, level: str, choice: str) -> dict[str, Any]:
    """Return the row of one mark."""
    row = {"column": column, "line": line, "layer": layer, "level": level, "choice": choice}
    return {**row, "says": f"{layer} at {level}: {choice}"}


def _words(plan: Plan) -> dict[Symbol, str]:
    drawn = {choice for row in plan.parallelism for choice in row}
    return words_of(explained(plan), plan.choices, drawn)


def _chain(plan: Plan) -> Figure:
    """Draw one column per layer and one row per level; a long chain in several lines."""
    words = _words(plan)
    lines = evenly(len(plan.layers), _MAX_LAYERS)
    levels = zip(plan.level_names, _level_costs(plan), strict=True)
    data: dict[str, Rows] = {
        "levels": [
            {"line": n, "level": name, "charge": charge} for n, (name, charge) in enumerate(levels)
        ]
    }
    charts = []
    for n, part in enumerate(lines, 1):
        layers = plan.layers[part.start : part.stop]
        name = f"line {n}"
        rows = [row[part.start : part.stop] for row in plan.parallelism]
        data[name] = cells_of(layers, rows, words)
        data[f"{name} names"] = names_of(layers)
        # Beside the first line, though they are for all.
        charges = _charges(plan, len(layers)) if n == 1 else []
        charts.append(chain(name, len(layers), max(plan.levels, 1), words, *charges))
    return figure(alt.vconcat(*charts, spacing=8), data, _title(plan))


def names_of(layers: Sequence[str]) -> Rows:
    """Return the names of columns, and whether the next one is of another kind of layer."""
    stems = [name.rstrip("0123456789_.-") for name in layers]
    ends = [*(before != after for before, after in pairwise(stems)), False]
    return [
        {"column": n, "edge": n + 0.5, "layer": name, "ends": end}
        for n, (name, end) in enumerate(zip(layers, ends, strict=True))
    ]


def chain(
    name: str, columns: int, levels: int, words: Mapping[Symbol, str], *more: alt.Chart
) -> Figure:
    """Return the marks, the names of layers and those of levels of a chain, as `cells_of` has it.

    The datasets are ``name``, its ``names``, and ``levels``.
    """
    x, edge = (at(alt.X, -0.5, columns - 0.5, field) for field in ("column", "edge"))
    y = at(alt.Y, -0.5, levels - 0.5, "line")
    names, below = f"{name} names", alt.YValue(CELL * levels + 4)
    layers = [
        # A faint rule between two kinds of layers, as conv1_1 to conv5_2 and fc1 to fc3.
        mark(names, "rule", edge, where="datum.ends", color=GRID),
        mark(names, "text", x, below, alt.Text("layer:N"), **_UPRIGHT),
        mark("levels", "text", y, alt.XValue(-6), alt.Text("level:N"), align="right"),
        marks(name, columns, levels, words),
    ]
    size = {"width": CELL * columns, "height": CELL * levels}
    return alt.layer(*layers, *more).properties(**size)


def _charges(plan: Plan, columns: int) -> list[alt.Chart]:
    """Return the costs of the levels to the right of a chain."""
    right, y = alt.XValue(CELL * columns + 8), at(alt.Y, -0.5, max(plan.levels, 1) - 0.5, "line")
    charges = mark("levels", "text", right, y, alt.Text("charge:N"), align="left")
    if plan.cost.communication is None:
        return [charges]
    # Local parts belong to no level: these costs are only a part of the total.
    look = {"align": "left", "baseline": "bottom", "text": "communication"}
    above = mark("levels", "text", right, alt.YValue(-1), where="datum.line == 0", **look)
    return [charges, above]


def _level_costs(plan: Plan) -> list[str]:
    return [format_cost(cost, plan.cost.unit) for cost in level_costs(plan.cost)]


def _title(plan: Plan) -> str:
    total = format_cost(plan.cost.total, plan.cost.unit)
    size = accelerators(plan.accelerators)
    return f"{plan.network.name}, batch {plan.batch}, {size}: {total} a step"


def _folded(plan: Plan, which: Stored) -> Figure:
    """Draw one row per group of equal layers, one column per level, and its cost below."""
    grid = plan_grid(plan, stored=which)
    lines = grid.lines("    ")
    words = _words(plan)
    stored = {stored_symbol(layout): text for layout, text in _layouts(grid.layouts)}
    # What only a stored tensor has is explained too.
    words |= {glyph: text for glyph, text in stored.items() if glyph not in words}
    columns = 2 * plan.levels + _SEPARATED if grid.layouts else max(plan.levels, 1)
    headings = [{"column": n, "text": name} for n, name in enumerate(plan.level_names)]
    if grid.layouts:
        headings.append({"column": (3 * plan.levels - 1) / 2 + _SEPARATED, "text": "stored"})
    data: dict[str, Rows] = {
        "headings": headings,
        "charges": [{"column": n, "text": text} for n, text in enumerate(_level_costs(plan))],
    }
    panels = []
    parts = evenly(len(lines), max(_MAX_ROWS, -(-len(lines) // _MAX_PANELS)))
    for n, part in enumerate(parts, 1):
        name, panel_lines = f"panel {n}", lines[part.start : part.stop]
        data[f"{name} rows"] = row_labels([(label, row is None) for label, row in panel_lines])
        rows = [(line, row) for line, (_, row) in enumerate(panel_lines) if row is not None]
        data[name] = [
            _cell(level, line, row.name, f"H{level + 1}", words[symbol(choice)])
            for line, row in rows
            for level, choice in enumerate(row.choices)
        ]
        beside = plan.levels + _SEPARATED
        data[f"{name} stored"] = [
            _cell(beside + n, line, row.name, f"stored, H{n + 1}", words[stored_symbol(layout)])
            for line, row in rows
            for n, layout in enumerate(row.stored)
        ]
        drawn = [
            *_rows_and_headings(name, panel_lines, columns),
            marks(name, columns, len(panel_lines), words),
            marks(f"{name} stored", columns, len(panel_lines), words, small=True),
        ]
        if n == 1:  # below the first rows, though they are for all
            x, below = (
                at(alt.X, -0.5, columns - 0.5, "column"),
                alt.YValue(CELL * len(panel_lines) + 4),
            )
            drawn.append(mark("charges", "text", x, below, alt.Text("text:N"), **_UPRIGHT))
        panels.append(
            alt.layer(*drawn).properties(width=CELL * columns, height=CELL * len(panel_lines))
        )
    return figure(alt.hconcat(*panels, spacing=24), data, _title(plan))


def _layouts(layouts: set[Any]) -> list[tuple[Any, str]]:
    """Return each layout with its words."""
    return [(layout, stored_legend([layout])[0][1]) for layout in sorted(layouts)]


def row_labels(labels: Sequence[tuple[str, bool]]) -> Rows:
    """Return the labels of rows: some are headings, and those below them are set in."""
    # Spaces at the start of a text are not drawn.
    return [
        {"line": n, "text": label.strip(), "set_in": label.startswith(" "), "heading": heading}
        for n, (label, heading) in enumerate(labels)
    ]


def _rows_and_headings(name: str, labels: Sequence[tuple[str, Any]], columns: float) -> list[Any]:
    """Return the labels of rows to the left of their marks, and those of columns above."""
    left = -6 - CHARACTER * max(len(label) for label, _ in labels)
    x, y = at(alt.X, -0.5, columns - 0.5, "column"), at(alt.Y, -0.5, len(labels) - 0.5, "line")
    rows, text = f"{name} rows", alt.Text("text:N")
    kinds = (("!datum.heading && !datum.set_in", 0), ("datum.set_in", 14))
    bold: dict[str, Any] = {"align": "left", "fontWeight": "bold"}
    return [
        mark(rows, "text", alt.XValue(left), y, text, where="datum.heading", **bold),
        *(
            mark(rows, "text", alt.XValue(left + more), y, text, where=where, align="left")
            for where, more in kinds
        ),
        mark("headings", "text", x, alt.YValue(-1), text, baseline="bottom"),
    ]


def plans_side_by_side(plans: Mapping[str, Plan]) -> Figure:
    """Draw plans of the same layers: one row per layer, one column per level of each plan.

    Repetitions of a block that are equal in all plans are drawn once.

    Parameters
    ----------
    plans
        The plans by heading.

    Raises
    ------
    HyparError
        If there is no plan, or if the plans are of networks with other layers: of one network, for
        sequences of any length.
    """
    drawn_plans = list(plans.values())
    if len({(plan.network.name, plan.layers) for plan in drawn_plans}) != 1:
        raise HyparError("plans side by side should be of one network")
    first = drawn_plans[0]
    # A layer's choices in all plans: layers must be equal in all of them to be folded.
    keys = list(zip(*map(drawn_choices, drawn_plans), strict=True))
    lines: list[tuple[str, int | None]] = []
    for section in fold(first.layers, first.network.description.repeats, keys, runs=False):
        lines += [(section.heading(), None)] if section.block else []
        indent = "    " * bool(section.block)
        lines += [(indent + row.label(), row.positions[0]) for row in section.rows]
    starts, end = [], 0.0
    for name, plan in plans.items():
        starts.append(end)
        # At least as wide as its heading.
        end += max(plan.levels, (CHARACTER * len(name) + 4) / CELL) + _GAP
    columns = max(end - _GAP, 1)
    words = {glyph: word for plan in drawn_plans for glyph, word in _words(plan).items()}
    data: dict[str, Rows] = {
        "plans rows": row_labels([(label, position is None) for label, position in lines]),
        "headings": [
            {"column": start + (plan.levels - 1) / 2, "text": name}
            for start, (name, plan) in zip(starts, plans.items(), strict=True)
        ],
        "plans": [
            _cell(
                start + n, line, first.layers[layer], f"H{n + 1}, {name}", words[symbol(row[layer])]
            )
            for start, (name, plan) in zip(starts, plans.items(), strict=True)
            for n, row in enumerate(plan.parallelism)
            for line, (_, layer) in enumerate(lines)
            if layer is not None
        ],
    }
    title = (
        f"{first.network.name}, {accelerators(first.accelerators)}: one column per level, H1 first"
    )
    layers = (
        *_rows_and_headings("plans", lines, columns),
        marks("plans", columns, len(lines), words),
    )
    size = {"width": CELL * columns, "height": CELL * len(lines)}
    return figure(alt.layer(*layers), data, title, **size)
