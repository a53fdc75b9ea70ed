"""A torus: a grid with wrap-around links."""

from __future__ import annotations

from typing import ClassVar, Literal

from hypar_opt.hardware.topologies.grid import GridTopology


class Torus(GridTopology):
    """A torus of any number of dimensions, its accelerators numbered row by row."""

    summary: ClassVar[str] = "a grid of any number of dimensions, linked around its ends"
    wrapped: ClassVar[bool] = True

    kind: Literal["torus"]
