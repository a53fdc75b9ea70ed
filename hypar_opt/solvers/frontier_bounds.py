"""Lower bounds on assignments through each frontier, with loads at a price.

Loads at a price are costs: a Lagrangian relaxation of the capacity. Two passes over the layers
compute the least sums before each frontier and behind it; together they show which frontiers are in
no assignment of interest. Sums are floats with a margin for rounding, and the exact integers of
assignments decide.

Source: Fisher, "The Lagrangian relaxation method for solving integer programming problems",
Management Science 27, 1981.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError
from hypar_opt.solvers.loaded_graph import Extension, Frontier, LoadedGraph

if TYPE_CHECKING:
    from hypar_opt.integers import Integers

Floats = NDArray[np.float64]

MAX_ENTRIES = 2**25
"""The most combinations of ports of frontiers and columns, over all layers."""

TOO_MANY = "layers have too many ways to be compared within a capacity"
"""The reason for no answer if there are too many frontiers, or completions of them."""

_MAX_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""The most axes of an array in NumPy: each layer of a frontier takes one, even with one port."""

_ROUNDING = 2.0**-30
"""A bound on the relative rounding of a sum of floats, for up to a million layers."""

_NEAR = 8
"""The distance in layers within which no place is narrower than a narrow one."""

_PRICES = 32
"""The most prices that are tried."""


@dataclass(frozen=True, eq=False)
class FrontierBounds:
    """The least sums of costs and priced loads, before and behind each frontier.

    Parameters
    ----------
    price
        The price of a unit of load, in the units of sums.
    shift
        The binary digits of costs that sums drop.
    most
        The highest sum of an assignment of interest.
    before, behind
        By layer, with an axis of ports for each layer of its frontier.
    """

    graph: LoadedGraph
    extension: Extension
    price: float
    shift: int
    most: float
    before: Sequence[Floats]
    behind: Sequence[Floats]

    @classmethod
    def of(cls, graph: LoadedGraph, most: int, price: Fraction) -> FrontierBounds:
        """Compute the bounds for assignments up to a sum.

        Raises
        ------
        RefusedError
            If there are too many frontiers.
        """
        shift = max(0, most.bit_length() - 62)
        scaled, extension = float(price / 2**shift), Extension(graph)
        highest = (float(most >> shift) + 2) * (1 + _ROUNDING)
        return cls(
            graph, extension, scaled, shift, highest, *_sums(graph, extension, scaled, shift)
        )

    def charged(self, costs: Integers, loads: Integers) -> Floats:
        """Return sums of costs and loads, ``(..., limits)``, at the price of the first limit."""
        return _charged(costs, loads, self.price, self.shift)

    @property
    def lowest(self) -> float:
        return float(self.behind[0])

    @cached_property
    def alive(self) -> Sequence[Sequence[Frontier]]:
        """By layer, the frontiers that are in an assignment of interest."""
        return [
            [*map(tuple, np.argwhere(before + behind <= self.most).tolist())]
            for before, behind in zip(self.before, self.behind, strict=True)
        ]

    @cached_property
    def narrow_places(self) -> list[int]:
        """Layers with few frontiers or of one layer, the first and behind the last among them."""
        counts = np.array([*map(len, self.alive)])
        ends = np.pad(counts, _NEAR, "edge")
        lowest = np.lib.stride_tricks.sliding_window_view(ends, 2 * _NEAR + 1).min(axis=1)
        places = np.flatnonzero(counts == lowest).tolist()
        single = (layer for layer, decided in enumerate(self.graph.frontiers) if len(decided) < 2)
        return sorted({0, *places, *single, len(counts) - 1})


def _charged(costs: Integers, loads: Integers, price: float, shift: int) -> Floats:
    total: Floats = (costs >> shift).astype(float) + price * loads[..., 0].astype(float)
    return total


def _sums(
    graph: LoadedGraph, extension: Extension, price: float, shift: int
) -> tuple[list[Floats], list[Floats]]:
    """Return the least sums before and behind each frontier.

    Raises
    ------
    RefusedError
    """
    sizes = [1 + int(ports.max(initial=0)) for ports in graph.ports]
    entries, layers = 0, len(sizes)
    for layer, frontier in enumerate(graph.frontiers[:-1]):
        entries += sizes[layer] * prod(sizes[one] for one in frontier)
        if entries > MAX_ENTRIES or len(frontier) >= _MAX_AXES:
            raise RefusedError(TOO_MANY)
    sums: list[Floats] = []
    """By layer, its charge and that of edges to earlier neighbours, with an axis per layer of its
    frontier."""
    for layer, frontier in enumerate(graph.frontiers[:-1]):
        lowest = np.full(sizes[layer], np.inf)
        charged = _charged(graph.costs[layer], graph.loads[layer], price, shift)
        np.minimum.at(lowest, graph.ports[layer], charged)
        total: Floats = lowest.reshape(*[1] * len(frontier), -1)
        for place, pairs in extension.read[layer]:
            shape = [1] * (1 + len(frontier))
            shape[place], shape[-1] = sizes[frontier[place]], sizes[layer]
            edge = pairs[: shape[place], : shape[-1]]
            total = total + (edge >> shift).astype(float).reshape(shape)
        sums.append(total)
    before: list[Floats] = [np.zeros(())]
    for layer, places in enumerate(extension.kept):
        count = sums[layer].ndim
        gone = tuple(axis for axis in range(count) if axis not in places)
        before.append((before[-1][..., None] + sums[layer]).min(axis=gone))
    behind: list[Floats] = [np.zeros(())] * (1 + layers)
    for layer in reversed(range(layers)):
        places, axes = extension.kept[layer], sums[layer].ndim
        gone = tuple(axis for axis in range(axes) if axis not in places)
        behind[layer] = (np.expand_dims(behind[layer + 1], gone) + sums[layer]).min(axis=-1)
    return before, behind


def best_price(graph: LoadedGraph, capacity: int) -> tuple[Fraction, int, int | None]:
    """Return the price of loads with the best bound, the bound, and a cost that fits.

    Of the first limit alone.

    The next price is the one at which the two known assignments around the capacity cost the same.

    Raises
    ------
    RefusedError
        If there are too many frontiers.
    """
    extension = Extension(graph)
    shift = max(0, sum(int(charges.max(initial=0)) for charges in graph.costs).bit_length() - 62)

    def at(price: Fraction) -> tuple[int, int]:
        """Return the cost and the load of an assignment of the least sum."""
        scaled, cost, load = float(price / 2**shift), 0, 0
        frontier: Frontier = ()
        behind = _sums(graph, extension, scaled, shift)[1]
        for layer, loads in enumerate(graph.loads):
            charges = extension.charges(layer, frontier)
            rest = extension.remaining_after(behind[layer + 1], layer, frontier)
            column = int((_charged(charges, loads, scaled, shift) + rest).argmin())
            cost, load = cost + int(charges[column]), load + int(loads[column, 0])
            frontier = extension.after(layer, frontier, column)
        return cost, load

    low = at(Fraction())
    if low[1] <= capacity:
        return Fraction(), low[0], low[0]
    high = at(Fraction(low[0] + 1))
    if high[1] > capacity:
        return Fraction(), low[0], None
    bound, best = low[0], Fraction()
    for _ in range(_PRICES):
        price = Fraction(max(high[0] - low[0], 0), low[1] - high[1])
        cost, load = at(price)
        lagrangian = int(cost + price * (load - capacity))
        if lagrangian > bound:
            bound, best = lagrangian, price
        if not high[1] < load < low[1]:
            break
        low, high = ((cost, load), high) if load > capacity else (low, (cost, load))
    return best, bound, high[0]
