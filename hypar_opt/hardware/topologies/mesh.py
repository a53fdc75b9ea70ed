"""A mesh: a grid without wrap-around links."""

from __future__ import annotations

from typing import ClassVar, Literal

from hypar_opt.hardware.topologies.grid import GridTopology


class Mesh(GridTopology):
    """A mesh of any number of dimensions, its accelerators numbered row by row."""

    summary: ClassVar[str] = "a grid of any number of dimensions, its ends not linked"
    wrapped: ClassVar[bool] = False

    kind: Literal["mesh"]
