"""The paper's tables and figures: our values beside the printed ones.

Printed values are in ``figures.toml``; how far each row is expected to be from them, and why, is in
``verdicts.toml``. Our values are always computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module

from hypar_opt.checked import checked
from hypar_opt.errors import UnknownNameError
from hypar_opt.paper.rows import Measure, PaperRow, Verdict
from hypar_opt.paper.verdicts import (
    REPRODUCED,
    FigureSummary,
    count_verdicts,
    is_unexpected,
    judge,
    summary,
)
from hypar_opt.search.result import Progress
from hypar_opt.step.readings import READINGS

__all__ = [
    "FIGURES",
    "REPRODUCED",
    "TITLES",
    "FigureSummary",
    "PaperRow",
    "Verdict",
    "count_verdicts",
    "reproduce",
    "select_figures",
    "summary",
    "unexpected_rows",
]

TITLES = {
    "tables": "Tables 1 and 2: what a layer and a boundary exchange, with the worked examples",
    "fig5": "Figure 5: HyPar's plans, one digit per layer: 0 data, 1 model parallelism",
    "fig6": "Figure 6: performance over Data Parallelism on the H tree",
    "fig7": "Figure 7: energy efficiency over Data Parallelism",
    "fig8": "Figure 8: communication of a training step, GB",
    "fig9": "Figure 9: Lenet-c with every choice at H1 and H4, performance over Data Parallelism",
    "fig10": "Figure 10: VGG-A with every choice of conv5_2 and fc1, performance likewise",
    "fig11": "Figure 11: 2 to 64 accelerators, gain over one and GB of a training step",
    "fig12": "Figure 12: HyPar's plan on H tree and torus, over Data Parallelism on the H tree",
    "fig13": "Figure 13: HyPar over OWT ('one weird trick'), on parts of VGG-E, 2 to 4 levels",
}
FIGURES = tuple(TITLES)

# By name, not by function, so that listing the figures imports no module.
_MEASURES = {
    "tables": ("communication", "tables"),
    "fig5": ("communication", "plans"),
    "fig6": ("arrays", "performance"),
    "fig7": ("arrays", "energy_efficiency"),
    "fig8": ("communication", "totals"),
    "fig9": ("surfaces", "lenet"),
    "fig10": ("surfaces", "vgg_a"),
    "fig11": ("arrays", "scalability"),
    "fig12": ("arrays", "topologies"),
    "fig13": ("arrays", "trick"),
}
"""The module and the function that return a figure's measures in given readings."""

_READINGS = {"tables": ("tables", "text")}
"""The readings of a figure, if they are not `_FIGURES_READINGS`."""

_FIGURES_READINGS = ("figures", "text")


_WRITTEN = re.compile(r"^(?:figure|fig\.?)?(\d+)$")
_TABLES = re.compile(r"^tables?[12]?$")


def select_figures(names: Iterable[str]) -> tuple[str, ...]:
    """Return the figures of these names, in the paper's order; ``all`` or no names for all.

    Raises
    ------
    UnknownNameError
        Suggesting the nearest name.
    """
    # As people write them: 5, figure5, Figure 5, table 2.
    plain = (_WRITTEN.sub(r"fig\1", name.lower().replace(" ", "")) for name in names)
    selected = [_TABLES.sub("tables", name) for name in plain] or ["all"]
    for name in selected:
        if name not in (*FIGURES, "all"):
            raise UnknownNameError("figure", name, [*FIGURES, "all"])
    # By FIGURES: in the paper's order, and once even if named twice.
    return tuple(figure for figure in FIGURES if "all" in selected or figure in selected)


@checked
def reproduce(
    figures: str | Sequence[str] = (),
    progress: Progress = lambda done, total: None,
    *,
    reading: str | None = None,
) -> dict[str, list[PaperRow]]:
    """Compute the rows of figures and compare them with what the paper prints.

    Parameters
    ----------
    figures
        A name or names in `FIGURES`, or ``all``, which is the default.
    progress
        Called with the number of rows done, and the total.
    reading
        Compute everything in this reading only. By default figures are computed in ``figures`` and
        ``text``, tables in ``tables`` and ``text``: the readings that the paper follows.

    Raises
    ------
    UnknownNameError
        Suggesting the nearest name.

    Examples
    --------
    >>> for row in reproduce(["fig9"])["fig9"]:
    ...     print(row.label, row.reading, row.printed, row.verdict)
    Lenet-c hypar figures 3.05 equal
    Lenet-c peak figures 3.05 equal
    Lenet-c peak H1 figures 0011 equal
    Lenet-c peak H4 figures 0011 equal
    Lenet-c hypar text 3.05 near, cause known
    Lenet-c peak text 3.05 near, cause known
    Lenet-c peak H1 text 0011 equal
    Lenet-c peak H4 text 0011 equal
    """
    if reading is not None and reading not in READINGS:
        raise UnknownNameError("reading", reading, list(READINGS))
    readings = {figure: (reading,) if reading else _listed(figure) for figure in FIGURES}
    measures: dict[str, list[Measure]] = {}
    for figure in select_figures([figures] if isinstance(figures, str) else figures):
        # Imported on demand: not every figure needs, for example, the simulator.
        module, function = _MEASURES[figure]
        measure_all = getattr(import_module(f"{__name__}.{module}"), function)
        measures[figure] = measure_all(readings[figure])
    total = sum(map(len, measures.values()))
    done = 0
    rows: dict[str, list[PaperRow]] = {}
    for figure, figure_measures in measures.items():
        rows[figure] = []
        for measure in figure_measures:
            progress(done, total)
            listed = measure.reading in ("any", *_listed(figure))
            rows[figure].append(judge(figure, measure, listed=listed))
            done += 1
    progress(done, total)
    return rows


def unexpected_rows(rows: Mapping[str, Sequence[PaperRow]]) -> list[tuple[str, PaperRow]]:
    """Return the rows that are no longer as listed, with their figures.

    Readings that the paper does not follow are not listed.
    """
    return [
        (figure, row)
        for figure, figure_rows in rows.items()
        for row in figure_rows
        if row.reading in ("any", *_listed(figure)) and is_unexpected(figure, row)
    ]


def _listed(figure: str) -> tuple[str, ...]:
    """Return the readings of a figure whose expected rows are listed."""
    return _READINGS.get(figure, _FIGURES_READINGS)
