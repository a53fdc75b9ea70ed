"""Grids of any number of dimensions, with and without links around their ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any

import networkx as nx
from pydantic import AfterValidator

from hypar_opt.documents import rule
from hypar_opt.hardware.topologies.base import LinkSpec, PowerOfTwo, few

MOST_DIMENSIONS = 10


def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if not 1 <= len(shape) <= MOST_DIMENSIONS:
        raise rule(f"should have 1 to {MOST_DIMENSIONS} dimensions, got {len(shape)}")
    few(math.prod(shape))
    return shape


Shape = Annotated[tuple[PowerOfTwo, ...], AfterValidator(_shape)]
"""Accelerators along each dimension."""


def grid(shape: Sequence[int], link: LinkSpec, *, wrapped: bool) -> nx.Graph[Any]:
    """Link the neighbours along each dimension; numbers are row-major."""
    graph: nx.Graph[Any] = nx.Graph()
    numbers = {place: number for number, place in enumerate(product(*map(range, shape)))}
    graph.add_nodes_from(numbers.values())
    for place, number in numbers.items():
        for dimension, size in enumerate(shape):
            following = list(place)
            following[dimension] = (place[dimension] + 1) % size
            neighbour = numbers[tuple(following)]
            # Of two in a dimension each is the other's neighbour on both sides: one link.
            if neighbour > number or (wrapped and size > 2):
                graph.add_edge(number, neighbour, **link.edge())
    return graph
