"""A command's output files, checked before the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_outputs(read: Iterable[str], *outputs: Path | None, picture: Path | None = None) -> None:
    """Refuse, before the work, an output that could not be written, or that is an input too.

    Parameters
    ----------
    read
        The files that the command has read.
    """
    from hypar_opt.documents.files import check_outputs

    check_outputs(read, *outputs, picture)
    if picture is not None:
        from hypar_opt.report.pictures.canvas import checked_format

        checked_format(picture.suffix, str(picture))


def exported_models(model: Path | None) -> list[Path]:
    """Return the files that ``--export-model`` may write: a levelwise search has one a level."""
    from hypar_opt.plan.problem import MOST_LEVELS

    if model is None or not model.name:
        return [] if model is None else [model]
    # How many levels there are is known only once the array is; none of them is overwritten.
    names = [f"{model.stem}-H{level}" for level in range(1, MOST_LEVELS + 1)]
    return [model, *map(model.with_stem, names)]
