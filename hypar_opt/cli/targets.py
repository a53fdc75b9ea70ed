"""Checks of a command's output files before the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_outputs(read: Iterable[str], *outputs: Path | None, picture: Path | None = None) -> None:
    """Refuse, before any work, an output that cannot be written or that is also an input.

    Parameters
    ----------
    read
        The files that the command read.
    """
    from hypar_opt.documents.files import check_outputs

    check_outputs(read, *outputs, picture)
    if picture is not None:
        from hypar_opt.report.pictures.canvas import checked_format

        checked_format(picture.suffix, str(picture))


def exported_models(model: Path | None) -> list[Path]:
    """Return the files that ``--export-model`` may write: one per level in a levelwise search."""
    from hypar_opt.plan.problem import MAX_LEVELS

    if model is None or not model.name:
        return [] if model is None else [model]
    # The number of levels is not known before the array is, so all possible names are checked.
    names = [f"{model.stem}-H{level}" for level in range(1, MAX_LEVELS + 1)]
    return [model, *map(model.with_stem, names)]
