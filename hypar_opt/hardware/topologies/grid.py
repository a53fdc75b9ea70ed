"""Grids of any number of dimensions, with or without wrap-around links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any, ClassVar

import networkx as nx
from pydantic import AfterValidator

from hypar_opt.documents.document import rule
from hypar_opt.hardware.topologies.base import Length, LinkSpec, Topology, bits_of, check_size

MAX_DIMENSIONS = 10


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if not 1 <= len(shape) <= MAX_DIMENSIONS:
        raise rule(f"should have 1 to {MAX_DIMENSIONS} dimensions, got {len(shape)}")
    check_size(math.prod(shape))
    return shape


Shape = Annotated[tuple[Length, ...], AfterValidator(_shape)]
"""The number of accelerators along every dimension."""


def grid(shape: Sequence[int], link: LinkSpec, *, wrapped: bool) -> nx.Graph[Any]:
    """Return the graph of a grid: neighbours along every dimension linked, numbers row-major."""
    graph: nx.Graph[Any] = nx.Graph()
    numbers = {position: number for number, position in enumerate(product(*map(range, shape)))}
    graph.add_nodes_from(numbers.values())
    edge = link.edge()
    for position, number in numbers.items():
        for dimension, size in enumerate(shape):
            next_position = list(position)
            next_position[dimension] = (position[dimension] + 1) % size
            neighbour = numbers[tuple(next_position)]
            # In a dimension of two, the wrap-around link would be the same link again.
            if neighbour > number or (wrapped and size > 2):
                graph.add_edge(number, neighbour, **edge)
    return graph


class GridTopology(Topology):
    """A grid of any number of dimensions, its accelerators numbered row by row."""

    wrapped: ClassVar[bool]
    """Whether the two ends of every dimension are linked."""

    shape: Shape
    link: LinkSpec

    def graph(self) -> nx.Graph[Any]:
        return grid(self.shape, self.link, wrapped=self.wrapped)

    def grid(self) -> tuple[int, ...]:
        return self.shape

    def dimensions(self) -> tuple[tuple[int, ...], ...]:
        return bits_of(*self.shape)
