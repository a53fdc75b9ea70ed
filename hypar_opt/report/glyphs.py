"""How a choice of parallelism looks in a grid of layers and levels."""

from __future__ import annotations

from hypar_opt.workload.parallelism import Parallelism

_GLYPHS = {Parallelism.DATA: "○", Parallelism.MODEL: "●", Parallelism.OUTPUT: "◆"}
_ASCII_GLYPHS = {Parallelism.DATA: "-", Parallelism.MODEL: "M", Parallelism.OUTPUT: "O"}
_COLOURS = {Parallelism.DATA: "cyan", Parallelism.MODEL: "yellow", Parallelism.OUTPUT: "magenta"}


def glyph(choice: Parallelism, *, ascii_only: bool = False) -> str:
    """Return the character that stands for a choice.

    Source: Figure 5, whose open dots are data and filled dots model parallelism.
    """
    return (_ASCII_GLYPHS if ascii_only else _GLYPHS)[choice]


def colour(choice: Parallelism) -> str:
    """Return a choice's colour on a terminal."""
    return _COLOURS[choice]
