"""How a choice of parallelism looks in a grid of layers and levels."""

from __future__ import annotations

from hypar_opt.workload.operators.words import choice_of
from hypar_opt.workload.parallelism import Parallelism

_COLOURS = {Parallelism.DATA: "cyan", Parallelism.MODEL: "yellow", Parallelism.OUTPUT: "magenta"}


def glyph(choice: Parallelism, *, ascii_only: bool = False) -> str:
    """Return the character that stands for a choice, as its kind of layer says.

    Source: Figure 5, whose open dots are data and filled dots model parallelism.
    """
    declared = choice_of(choice)
    assert declared is not None  # or it would be no choice
    return declared.ascii_glyph if ascii_only else declared.glyph


def colour(choice: Parallelism) -> str:
    """Return a choice's colour on a terminal."""
    return _COLOURS.get(choice, "green")
