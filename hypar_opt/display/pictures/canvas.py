"""Shared parts of pictures: style, colours, and writing to a file.

Nothing is kept in matplotlib: figures are made without pyplot, and the style holds only while
one is made or written, whatever the user's settings are.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.display.glyphs import DATA_SYMBOL, MODEL_SYMBOL
from hypar_opt.documents.document import write_whole
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INK, FAINT = "#222222", "#8a8a8a"
HYPAR, DATA, MODEL, OTHER = "#004c80", DATA_SYMBOL.colour, MODEL_SYMBOL.colour, "#009e73"
"""A plan of one choice has the choice's colour."""

MARK = "#d55e00"
"""Colour of rings and stars on a map, visible on its dark and light ends."""

CYCLE = (HYPAR, MODEL, "#8b8f99", OTHER, DATA, "#cc79a7")

FORMATS = ("png", "svg", "pdf")

_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""No date and no version, so that a picture changes only with its contents."""

_STYLE = {
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "figure.dpi": 160,
    "savefig.dpi": 160,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 8,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 9,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType: text stays text, and publishers refuse type 3
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "hypar-opt",  # else elements' ids are random
    "text.color": INK,
    "text.parse_math": False,  # a layer's name may contain dollar signs
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "ytick.minor.width": 0.4,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in our style; also a decorator.

    Raises
    ------
    HyparError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.style as mpl_style
    except ImportError:
        raise HyparError("pictures need matplotlib: pip install 'hypar-opt[plot]'") from None

    # The context leaves the session's settings alone: backend, interactivity, time zone.
    with mpl_style.context(["default", _STYLE]), warnings.catch_warnings():
        # A name may be in a script that our font lacks; an SVG uses the reader's fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        warnings.filterwarnings("ignore", "Matplotlib currently does not support", UserWarning)
        yield


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """Return an empty figure; width and height are in inches."""
    from matplotlib.figure import Figure

    # Without pyplot, which would keep the figure, and need a display on some systems.
    return Figure(figsize=(width, height), **options)


def add_axes(
    figure: Figure, left: float, bottom: float, width: float, height: float, **options: Any
) -> Axes:
    """Add axes of a place and size in inches, from the lower left corner."""
    across, up = figure.get_size_inches()
    return figure.add_axes((left / across, bottom / up, width / across, height / up), **options)


def write_near(
    axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **options: Any
) -> None:
    """Write a small text at an offset, in points, from a point of the axes."""
    options = {"fontsize": 7, **options}
    axes.annotate(text, at, textcoords="offset points", xytext=offset, **options)


def paler(color: str, share: float = 0.7) -> tuple[float, float, float]:
    """Return a colour with a share of it replaced by white."""
    from matplotlib.colors import to_rgb

    red, green, blue = (part + (1 - part) * share for part in to_rgb(color))
    return red, green, blue


def add_legend(figure: Figure, title: str, handles: list[Any], **options: Any) -> None:
    """Put the title, and below it the legend, above the axes, in as many columns as fit."""
    options = {"loc": "outside upper left", "columnspacing": 1.4, **options}
    for columns in range(options.pop("ncols", max(len(handles), 1)), 0, -1):
        legend = figure.legend(handles=handles, title=title, ncols=columns, **options)
        legend.set_alignment("left")
        if legend.get_window_extent().width <= figure.bbox.width:
            break
        if columns > 1:
            legend.remove()


def save(figure: Figure, path: str | Path) -> None:
    """Write a whole figure, as PNG, SVG or PDF by the file's suffix.

    The same figure gives the same bytes.

    Raises
    ------
    HyparError
        If the suffix is unknown, or the file cannot be written.
    """
    kind = checked_format(Path(path).suffix, str(path))
    content = io.BytesIO()
    with style():
        figure.savefig(content, format=kind, metadata=_METADATA[kind])
    write_whole(path, content.getvalue())


def checked_format(suffix: str, source: str) -> str:
    """Return the format's name for a suffix with or without a dot.

    Parameters
    ----------
    source
        The path or the option that has the suffix, for the message.

    Raises
    ------
    HyparError
        If there is no such format.
    """
    kind = suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise HyparError(f"{source}: a picture is one of {', '.join(FORMATS)}, got {suffix!r}")
    return kind


Numbers = Sequence[float | None]
"""One number per group; None for a missing one."""

Series = Mapping[str, Numbers]
"""Numbers by name of the series."""

HATCH = "//////"
"""Fill of bars that the paper prints."""

_COLORS = {
    "HyPar": HYPAR,
    "Model Parallelism": MODEL,
    "Data Parallelism": DATA,
    "H tree": HYPAR,
    "performance": HYPAR,
}


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """Return one colour per name: a fixed one, or the next unused one."""
    # A plan has a fixed colour in all pictures; other series take the rest in turn.
    own = {name: _COLORS.get(name, "") for name in names}
    free = cycle([color for color in CYCLE if color not in own.values()] or CYCLE)
    return {name: color or next(free) for name, color in own.items()}


def positive(*series: Numbers) -> list[float]:
    """Return the numbers that a logarithmic axis can show."""
    return [value for numbers in series for value in numbers if value is not None and value > 0]
