"""Grids of any number of dimensions, with or without wrap-around links: tori, meshes and rings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from hypar_opt.documents.document import rule
from hypar_opt.hardware.folded import FoldedGrid
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.hardware.links import Graph
from hypar_opt.hardware.topologies.base import (
    Length,
    LinkSpec,
    Topology,
    as_dimensions,
    check_size,
)

MAX_DIMENSIONS = 10


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if not 1 <= len(shape) <= MAX_DIMENSIONS:
        raise rule(f"should have 1 to {MAX_DIMENSIONS} dimensions, got {len(shape)}")
    check_size(math.prod(shape))
    return shape


Shape = Annotated[tuple[Length, ...], AfterValidator(_shape)]
"""The number of accelerators along every dimension."""


class GridTopology(Topology):
    """A grid, its accelerators numbered row by row."""

    wrapped: ClassVar[bool]
    """Whether the two ends of every dimension are linked."""

    shape: Shape
    link: LinkSpec

    def graph(self) -> Graph:
        """Return the graph of neighbours along every dimension, numbers row-major."""
        numbers = {
            position: number for number, position in enumerate(product(*map(range, self.shape)))
        }
        graph = Graph((number, {}) for number in numbers.values())
        edge = self.link.edge()
        for position, number in numbers.items():
            for dimension, size in enumerate(self.shape):
                next_position = list(position)
                next_position[dimension] = (position[dimension] + 1) % size
                neighbour = numbers[tuple(next_position)]
                # In a dimension of two, the wrap-around link would be the same link again.
                if neighbour > number or (self.wrapped and size > 2):
                    graph.add_edge(number, neighbour, **edge)
        return graph

    def grid(self) -> tuple[int, ...]:
        return self.shape

    def folded(self, levels: Sequence[Sequence[int]]) -> FoldedGrid | None:
        if type(self) not in (Torus, Mesh):  # it may have another graph
            return None
        shapes = [(size,) for size in self.shape if size > 1]
        lines = [self.model_copy(update={"shape": shape}).graph() for shape in shapes]
        return FoldedGrid(list(map(Interconnect, lines, shapes, levels)))

    def levels(self) -> tuple[tuple[int, ...], ...]:
        return as_dimensions(*self.shape)


class Torus(GridTopology):
    """A torus of any number of dimensions, its accelerators numbered row by row."""

    summary: ClassVar[str] = "a grid of any number of dimensions, linked around its ends"
    wrapped: ClassVar[bool] = True

    kind: Literal["torus"]


class Mesh(GridTopology):
    """A mesh of any number of dimensions, its accelerators numbered row by row."""

    summary: ClassVar[str] = "a grid of any number of dimensions, its ends not linked"
    wrapped: ClassVar[bool] = False

    kind: Literal["mesh"]


class Ring(Topology):
    """A ring of accelerators, numbered around it: a torus of one dimension."""

    summary: ClassVar[str] = "a ring"

    kind: Literal["ring"]
    accelerators: Length
    link: LinkSpec

    def graph(self) -> Graph:
        return Torus(kind="torus", shape=self.grid(), link=self.link).graph()

    def grid(self) -> tuple[int, ...]:
        return (self.accelerators,)

    def levels(self) -> tuple[tuple[int, ...], ...]:
        return as_dimensions(self.accelerators)
