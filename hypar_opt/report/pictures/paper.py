"""The paper's Figures 5 to 13, one picture each, from the rows of a reproduction."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hypar_opt.errors import InputError
from hypar_opt.models import load
from hypar_opt.models import names as zoo
from hypar_opt.report.pictures.canvas import checked_format, head, new_figure, save, style
from hypar_opt.report.pictures.charts import bars, scaling
from hypar_opt.report.pictures.dots import dots, legend
from hypar_opt.report.pictures.heat import surface
from hypar_opt.workload.parallelism import PAPERS_CHOICES, Parallelism

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Row(Protocol):
    """What is drawn of a row of `hypar_opt.paper`."""

    @property
    def label(self) -> str: ...
    @property
    def reading(self) -> str: ...
    @property
    def ours(self) -> float | str: ...
    @property
    def printed(self) -> float | str: ...


Rows = Sequence[Row]
Values = dict[str, dict[str, float]]
"""By series, then by group."""

READING = "figures"

_GIVEN = "model, printed bytes"
_SERIES = {
    "model": "Model Parallelism",
    _GIVEN: "Model Parallelism, if it moved what Figure 8 prints",
    "data": "Data Parallelism",
    "hypar": "HyPar",
    "htree": "H tree",
    "torus": "torus",
    "performance": "performance",
    "energy": "energy efficiency",
}
_TITLES = {
    "fig5": "Figure 5: HyPar's parallelism for ten networks, batch 256, 16 accelerators",
    "fig6": "Figure 6: performance over Data Parallelism",
    "fig7": "Figure 7: energy efficiency over Data Parallelism",
    "fig8": "Figure 8: communication of a training step",
    "fig9": "Figure 9: Lenet-c, every choice at H1 and H4; 0 data, 1 model parallelism",
    "fig10": "Figure 10: VGG-A, every choice of conv5_2 and fc1; 0 data, 1 model parallelism",
    "fig11": "Figure 11: {} on {} to {} accelerators",
    "fig12": "Figure 12: HyPar on two topologies, over Data Parallelism on the H tree",
    "fig13": "Figure 13: HyPar over the Trick, parts of VGG-E",
}
_RATIO = "times Data Parallelism"
_BARS: dict[str, tuple[str, float | None]] = {
    "fig6": (_RATIO, 1.0),
    "fig7": (_RATIO, 1.0),
    "fig8": ("GB", None),
    "fig12": (_RATIO, 1.0),
    "fig13": ("times the Trick", 1.0),
}
_SCALED = re.compile(r"(\S+) (hypar|data) (gain|GB) (\d+)")
_LINE_CELLS, _PANEL_CELL = 44, 0.23


def draw_paper(
    rows: Mapping[str, Rows], folder: Path, formats: Sequence[str] = ("png",)
) -> list[Path]:
    """Draw one picture a figure: ours, and beside it what the paper prints.

    Where a figure's rows are of several readings, those of ``figures`` are drawn. What no
    picture has a place for is left out, and so is a figure of which nothing can be drawn.

    Parameters
    ----------
    rows
        By figure: ``fig5`` to ``fig13``.
    folder
        Made, if it is not there.
    formats
        ``png``, ``svg``, ``pdf``.

    Raises
    ------
    HyparError
        If matplotlib is not installed, a format is unknown, or a file cannot be written.
    """
    kinds = [checked_format(each, "formats") for each in formats]
    with style():
        pass  # refused before the folder is made
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", file=str(folder)) from None
    written = []
    for figure, found in rows.items():
        picture = _draw(figure, _of_one_reading(found)) if found else None
        if picture is None:
            continue
        for kind in kinds:
            written.append(folder / f"figure{figure.removeprefix('fig')}.{kind}")
            save(picture, written[-1])
    return written


@style()
def _draw(figure: str, rows: Rows) -> Figure | None:
    if figure in _BARS:
        return _bars(figure, rows)
    drawn = {"fig5": _plans, "fig9": _lenet, "fig10": _vgg_a, "fig11": _scaling}
    return drawn[figure](rows) if figure in drawn else None


def _of_one_reading(rows: Rows) -> Rows:
    readings = dict.fromkeys(row.reading for row in rows)
    chosen = READING if READING in readings else next(iter(readings), "any")
    return [row for row in rows if row.reading in (chosen, "any")]


def _bars(figure: str, rows: Rows) -> Figure | None:
    ours, printed = _grouped(rows)
    if not ours:
        return None
    groups = dict.fromkeys(
        group for values in (ours, printed) for of in values.values() for group in of
    )
    order = sorted(groups, key=lambda group: group == "geometric mean")  # stable: the mean last
    ylabel, baseline = _BARS[figure]
    return bars(
        [each.removeprefix("VGG-E ").replace(" ", "\n") for each in order],
        {_SERIES[name]: [ours[name].get(each) for each in order] for name in ours},
        {_SERIES[name]: [printed[name].get(each) for each in order] for name in printed},
        ylabel=ylabel,
        title=_TITLES[figure],
        baseline=baseline,
    )


def _grouped(rows: Rows) -> tuple[Values, Values]:
    """Return ours and the printed, by series and group: ``VGG-A`` and ``hypar`` of a label.

    What is printed is left out where it would stand there twice, and where it is no number.
    """
    found: dict[str, Values] = {"ours": {}, "printed": {}}
    for row in rows:
        whole, comma, note = row.label.partition(",")
        group, _, word = whole.rpartition(" ")
        name = f"{word}{comma}{note}"
        if name not in _SERIES:
            continue
        for kind, value in (("ours", row.ours), ("printed", row.printed)):
            if not isinstance(value, str) and (kind, name) != ("printed", _GIVEN):
                found[kind].setdefault(name, {})[group] = value
    ours, printed = (
        {name: values[name] for name in _SERIES if name in values} for values in found.values()
    )
    return ours, {name: values for name, values in printed.items() if name in ours}


def _plans(rows: Rows) -> Figure | None:
    """Draw the networks' plans in panels, wrapped to lines of about one width."""
    plans: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for row in rows:
        name, _, level = row.label.rpartition(" ")
        if name.lower() in zoo() and isinstance(row.ours, str):
            printed = row.printed if isinstance(row.printed, str) else row.ours
            plans[name][level] = (row.ours, printed)
    if not plans:
        return None
    lines: list[list[str]] = [[]]
    for name in plans:
        line = [*lines[-1], name]
        if lines[-1] and sum(len(load(each).layers) + 1 for each in line) > _LINE_CELLS:
            lines.append([])
        lines[-1].append(name)
    most = max(map(len, lines))
    cells = max(sum(len(load(each).layers) for each in line) for line in lines)
    cell, gap = _PANEL_CELL, 0.45
    high = cell * max(map(len, plans.values())) + 0.88
    width, height = gap * (most + 0.5) + cell * cells, high * len(lines) + 0.4
    figure = new_figure(width, height)
    for down, line in enumerate(lines):
        x, top = gap, height - 0.7 - high * down
        for name in line:
            layers = [layer.name for layer in load(name).layers]
            levels = sorted(plans[name])
            wide, tall = cell * len(layers), cell * len(levels)
            axes = figure.add_axes(
                (x / width, (top - tall) / height, wide / width, tall / height), label=name
            )
            ours, theirs = (
                [_choices(plans[name][level][which]) for level in levels] for which in (0, 1)
            )
            dots(axes, layers, ours, cell, theirs)
            axes.set_title(name, pad=3, fontsize=8)
            x += wide + gap
    head(figure, _TITLES["fig5"], legend(PAPERS_CHOICES), loc="upper left", handletextpad=0.2)
    return figure


def _choices(digits: str) -> list[Parallelism]:
    return [PAPERS_CHOICES[int(digit)] for digit in digits]


def _scaling(rows: Rows) -> Figure | None:
    """Draw the network that comes first; of another there may be a row or two to compare."""
    read = [(row, found) for row in rows if (found := _SCALED.fullmatch(row.label))]
    if not read:
        return None
    network = read[0][1][1]
    values: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for row, found in read:
        for kind, value in (("ours", row.ours), ("printed", row.printed)):
            if found[1] == network and not isinstance(value, str):
                values[kind, found[3], found[2]][int(found[4])] = value
    accelerators = sorted({n for of in values.values() for n in of})

    def drawn(kind: str, quantity: str) -> dict[str, list[float | None]]:
        return {
            _SERIES[name]: [values[kind, quantity, name].get(n) for n in accelerators]
            for name in ("hypar", "data")
            if (kind, quantity, name) in values
        }

    return scaling(
        accelerators,
        drawn("ours", "gain"),
        drawn("ours", "GB"),
        printed_gains=drawn("printed", "gain"),
        printed_gigabytes=drawn("printed", "GB"),
        title=_TITLES["fig11"].format(network, accelerators[0], accelerators[-1]),
    )


def _printed_peak(rows: Rows, network: str, x: str, y: str) -> dict[str, tuple[str, str]]:
    """Return the mark of the peak that the paper prints, if its place is among the rows."""
    found = {row.label: row.printed for row in rows}
    peak, *place = (found.get(f"{network} peak{axis}") for axis in ("", f" {x}", f" {y}"))
    if not all(isinstance(each, str) and re.fullmatch("[01]{4}", each) for each in place):
        return {}
    return {f"at the paper's peak, printed {peak}": (str(place[0]), str(place[1]))}


def _lenet(rows: Rows) -> Figure:
    """Draw Figure 9: H2 and H3 as HyPar has them, every choice of all layers at H1 and H4."""
    layers = "conv1, conv2, fc1, fc2"
    return _explored("fig9", rows, "Lenet-c", {"H1": layers, "H4": layers})


def _vgg_a(rows: Rows) -> Figure:
    """Draw Figure 10: conv5_2 and fc1 free at all levels, the rest as HyPar has it."""
    return _explored("fig10", rows, "VGG-A", {"conv5_2": "H1 to H4", "fc1": "H1 to H4"})


def _explored(figure: str, rows: Rows, network: str, axes: Mapping[str, str]) -> Figure:
    """Draw each plan's speed over Data Parallelism's.

    Parameters
    ----------
    axes
        What is free along x and along y, and what the digits there stand for.
    """
    from hypar_opt.pipeline import solve
    from hypar_opt.studies.exploration import explore

    x, y = axes
    plan = solve(network, reading=READING, array="hmc-htree-16")
    found = explore(plan, f"{x},{y}", objective="time")
    grid = found.grid(x, y)
    choices = plan.assignments()
    own = "".join(str(choices[level][layer]) for level, layer in found.cells)  # x's, then y's
    first, last = own[: len(own) // 2], own[len(own) // 2 :]
    xlabel, ylabel = (f"{name}: {digits}" for name, digits in axes.items())
    return surface(
        found.data / grid.values.T,
        grid.rows,
        grid.columns,
        {"HyPar's plan": (first, last), **_printed_peak(rows, network, x, y)},
        xlabel=xlabel,
        ylabel=ylabel,
        name=_RATIO,
        title=_TITLES[figure],
    )
