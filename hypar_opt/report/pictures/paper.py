"""The paper's Figures 5 to 13, one picture each, from the rows of a reproduction."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hypar_opt.errors import InputError
from hypar_opt.report.pictures.bar_chart import bars
from hypar_opt.report.pictures.canvas import checked_format, save, style
from hypar_opt.report.pictures.paper_plans import draw_plans
from hypar_opt.report.pictures.paper_rows import PaperRows, rows_of_one_reading
from hypar_opt.report.pictures.paper_surfaces import draw_lenet, draw_vgg_a
from hypar_opt.report.pictures.scaling_chart import scaling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.report.pictures.series import Numbers

Values = dict[str, dict[str, float]]
"""By series, then by group."""

_PRINTED_BYTES = "model, printed bytes"
"""Our series that is computed from printed bytes."""

_SERIES = {
    "model": "Model Parallelism",
    _PRINTED_BYTES: "Model Parallelism, if it moved what Figure 8 prints",
    "data": "Data Parallelism",
    "hypar": "HyPar",
    "htree": "H tree",
    "torus": "torus",
    "performance": "performance",
    "energy": "energy efficiency",
}
_TITLES = {
    "fig6": "Figure 6: performance over Data Parallelism",
    "fig7": "Figure 7: energy efficiency over Data Parallelism",
    "fig8": "Figure 8: communication of a training step",
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
"""Bar charts: the axis' label, and the value at which bars begin."""

_SCALING_LABEL = re.compile(
    r"(?P<network>\S+) (?P<column>hypar|data) (?P<quantity>gain|GB) (?P<accelerators>\d+)"
)


def draw_paper(
    rows: Mapping[str, PaperRows], folder: Path, formats: Sequence[str] = ("png",)
) -> list[Path]:
    """Draw one picture per figure: our values, beside those that the paper prints.

    If a figure has rows in several readings, those of ``figures`` are drawn. Rows that no picture
    can show are left out, and so are figures without any row to draw.

    Parameters
    ----------
    rows
        By figure: ``fig5`` to ``fig13``.
    folder
        Created if it does not exist.
    formats
        ``png``, ``svg``, ``pdf``.

    Raises
    ------
    HyparError
        If matplotlib is not installed, a format is unknown, or a file cannot be written.
    """
    kinds = [checked_format(name, "formats") for name in formats]
    with style():
        pass  # refuses a missing matplotlib before the folder is created
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", file=str(folder)) from None
    written = []
    for figure, figure_rows in rows.items():
        picture = _draw(figure, rows_of_one_reading(figure_rows)) if figure_rows else None
        if picture is None:
            continue
        for kind in kinds:
            written.append(folder / f"figure{figure.removeprefix('fig')}.{kind}")
            save(picture, written[-1])
    return written


@style()
def _draw(figure: str, rows: PaperRows) -> Figure | None:
    if figure in _BARS:
        return _draw_bars(figure, rows)
    draw = {"fig5": draw_plans, "fig9": draw_lenet, "fig10": draw_vgg_a, "fig11": _draw_scaling}
    return draw[figure](rows) if figure in draw else None


def _draw_bars(figure: str, rows: PaperRows) -> Figure | None:
    ours, printed = _by_series(rows)
    if not ours:
        return None
    groups = dict.fromkeys(
        group for series in (ours, printed) for values in series.values() for group in values
    )
    # Networks of both: a printed series may have some that ours lacks, in another order.
    order = sorted(
        groups, key=lambda group: group == "geometric mean"
    )  # stable, so that the mean stays last
    ylabel, baseline = _BARS[figure]
    return bars(
        # Figure 13's groups are all of VGG-E; one word per line keeps them narrow.
        [group.removeprefix("VGG-E ").replace(" ", "\n") for group in order],
        {_SERIES[name]: [values.get(group) for group in order] for name, values in ours.items()},
        {_SERIES[name]: [values.get(group) for group in order] for name, values in printed.items()},
        ylabel=ylabel,
        title=_TITLES[figure],
        baseline=baseline,
    )


def _by_series(rows: PaperRows) -> tuple[Values, Values]:
    """Return ours and the printed, by series and group: ``hypar`` and ``VGG-A`` of a label.

    A printed value is left out if it would be drawn twice, or if it is not a number.
    """
    values: dict[str, Values] = {"ours": {}, "printed": {}}
    for row in rows:
        # "VGG-A model, printed bytes": the group's name may have spaces, the series a note.
        label, comma, note = row.label.partition(",")
        group, _, column = label.rpartition(" ")
        name = f"{column}{comma}{note}"
        if name not in _SERIES:
            continue
        for kind, value in (("ours", row.ours), ("printed", row.printed)):
            # A bar that the paper cuts off, printed as >10, has no height to draw.
            # "Printed bytes" has the printed column of Model Parallelism, which is drawn there.
            if not isinstance(value, str) and (kind, name) != ("printed", _PRINTED_BYTES):
                values[kind].setdefault(name, {})[group] = value
    ours, printed = (
        {name: series[name] for name in _SERIES if name in series} for series in values.values()
    )
    return ours, {name: groups for name, groups in printed.items() if name in ours}


def _draw_scaling(rows: PaperRows) -> Figure | None:
    """Draw the first network; a second one may have a row or two for comparison."""
    matches = [(row, match) for row in rows if (match := _SCALING_LABEL.fullmatch(row.label))]
    if not matches:
        return None
    # VGG-E, whose numbers the figure shows; its text says VGG-A, listed after it.
    network = matches[0][1]["network"]
    values: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for row, match in matches:
        for kind, value in (("ours", row.ours), ("printed", row.printed)):
            if match["network"] == network and not isinstance(value, str):
                key = kind, match["quantity"], match["column"]
                values[key][int(match["accelerators"])] = value
    accelerators = sorted({count for series in values.values() for count in series})

    def series_of(kind: str, quantity: str) -> dict[str, Numbers]:
        return {
            _SERIES[name]: [values[kind, quantity, name].get(n) for n in accelerators]
            for name in ("hypar", "data")
            if (kind, quantity, name) in values
        }

    return scaling(
        accelerators,
        series_of("ours", "gain"),
        series_of("ours", "GB"),
        printed_gains=series_of("printed", "gain"),
        printed_gigabytes=series_of("printed", "GB"),
        title=_TITLES["fig11"].format(network, accelerators[0], accelerators[-1]),
    )
