"""The order in which layers are eliminated, and the sizes of the tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import combinations
from math import log2, prod
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_ENTRIES = 2**27
"""The largest number of entries in a table, and in all pairs and messages: 1 GiB of int64."""

_SMALL = 2**16
"""Up to this many entries of the largest table no other order is tried, which takes longer."""

_BIT = 2**20
"""The unit of logarithms: whole numbers of it, so that equal sizes are equal in any order."""

_LIMIT = round(log2(MAX_ENTRIES) * _BIT)


@dataclass(frozen=True, eq=False)
class Order:
    """An elimination order.

    Parameters
    ----------
    layers
        In the order of their elimination.
    scopes
        Each layer's neighbours when it is eliminated, in the same order. The first of them is
        its parent: its message is added to the parent's table.
    width
        The size of the largest scope: 1 on a tree.
    largest
        The entries of the largest table, over the choices of a layer and its scope.
    """

    layers: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    width: int
    largest: int


@lru_cache(maxsize=8)
def elimination_order(sizes: tuple[int, ...], pairs: tuple[tuple[int, int], ...]) -> Order:
    """Return an order whose largest table is small.

    Greedy: the layer with the smallest table is next, which is optimal up to width 2 with equal
    sizes. If the order is wider and a table not small, the order by least fill is tried too.

    Parameters
    ----------
    sizes
        Every layer's number of choices.
    pairs
        The neighbours.

    Raises
    ------
    RefusedError
        If a table exceeds `MAX_ENTRIES`; it names the size.
    """
    order, refused = None, None
    for fill in (False, True):
        try:
            candidate = _greedy(sizes, pairs, fill=fill)
        except _TooLargeError as error:
            if error.bits > _FAR:
                raise  # no other order is so much better
            refused = refused or error.sizes
            continue
        if order is None or candidate.largest < order.largest:
            order = candidate
        if order.width <= 2 or order.largest <= _SMALL:
            break
    if order is None:
        assert refused is not None
        # Not the first error: a frame and the error that it holds would keep all frames' tables.
        raise _TooLargeError(refused)
    return order


def in_given_order(
    sizes: Sequence[int], pairs: Sequence[tuple[int, int]], layers: Sequence[int]
) -> Order:
    """Return the elimination order that follows a given sequence of layers.

    Raises
    ------
    RefusedError
        As `elimination_order`.
    """
    remaining = _Remaining(sizes, pairs)
    scopes: list[set[int]] = [set() for _ in sizes]
    for layer in layers:
        if remaining.entries(layer) > _LIMIT:
            raise remaining.too_large(layer)
        scopes[layer] = remaining.eliminate(layer)
    return _order(sizes, layers, scopes)


def check_entries(entries: int, more: str = " or more") -> None:
    """Refuse pairs and messages that do not fit the memory together; equal ones count once."""
    if entries > MAX_ENTRIES:
        raise RefusedError(f"needs tables of {entries:,} entries{more}; {_AT_MOST}")


def check_distinct(order: Order, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> None:
    """Refuse an order whose pairs and messages, if no two are equal, do not fit the memory."""
    entries = sum(prod(sizes[n] for n in scope) for scope in order.scopes)
    check_entries(entries + sum(sizes[u] * sizes[v] for u, v in pairs), " in total")


def check_neighbours(sizes: Sequence[int], low: NDArray[np.intp], high: NDArray[np.intp]) -> None:
    """Refuse a graph in which every layer has too many neighbours, before it is searched.

    Whatever the order, the first layer's table has the choices of all its neighbours.

    Raises
    ------
    RefusedError
        As `elimination_order`.
    """
    if not len(sizes):
        return
    degrees = np.bincount(np.concatenate([low, high]), minlength=len(sizes))
    fewest, smallest = int(degrees.min()) + 1, min(sizes)
    if fewest * log2(smallest) > log2(MAX_ENTRIES):
        raise RefusedError(f"needs a table of {smallest}^{fewest} entries or more; {_AT_MOST}")


_AT_MOST = f"at most {MAX_ENTRIES:,} are kept in memory, try ilp or cpsat"


_FAR = 40
"""A table of this many bits ends the search for an order."""


class _TooLargeError(RefusedError):
    """The smallest table that can be next, by its layers' choices, exceeds `MAX_ENTRIES`."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes, self.bits = sizes, sum(map(log2, sizes))
        equal = len(set(sizes)) == 1
        entries = f"{sizes[0]}^{len(sizes)}" if equal else f"2^{self.bits:.1f}"
        super().__init__(f"needs a table of {entries} entries; {_AT_MOST}")


class _Remaining:
    """The part of a graph not yet eliminated; sizes are logarithms."""

    def __init__(self, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> None:
        self.sizes = sizes
        self.bits = [round(log2(size) * _BIT) for size in sizes]
        self.neighbours: list[set[int]] = [set() for _ in sizes]
        for u, v in pairs:
            self.neighbours[u].add(v)
            self.neighbours[v].add(u)

    def entries(self, layer: int) -> int:
        """Return the size of the table of this layer and its neighbours."""
        return self.bits[layer] + sum([self.bits[n] for n in self.neighbours[layer]])

    def fill(self, layer: int) -> int:
        """Return the size of the pairs' tables that its elimination would add."""
        bits, neighbours = self.bits, self.neighbours
        pairs = combinations(neighbours[layer], 2)
        return sum([bits[u] + bits[v] for u, v in pairs if v not in neighbours[u]])

    def too_large(self, layer: int) -> _TooLargeError:
        return _TooLargeError([self.sizes[n] for n in (layer, *self.neighbours[layer])])

    def eliminate(self, layer: int) -> set[int]:
        """Join a layer's neighbours to each other, remove it, and return them."""
        scope = self.neighbours[layer]
        for neighbour in scope:
            self.neighbours[neighbour] |= scope
            self.neighbours[neighbour] -= {neighbour, layer}
        return scope


def _greedy(sizes: Sequence[int], pairs: Sequence[tuple[int, int]], *, fill: bool) -> Order:
    """Return the order in which the layer of the smallest table, or of the least fill, is next.

    Of equal keys and two neighbours, the one around which least is eliminated: equal blocks are
    eliminated from inside, each in the same order, before the remaining chain is eliminated from
    its ends.

    Raises
    ------
    RefusedError
        As `elimination_order`, at the first table that is too large.
    """
    remaining = _Remaining(sizes, pairs)

    def rank(layer: int) -> int:
        # Layers of too large tables wait: the work for their keys grows with their neighbours.
        if (entries := remaining.entries(layer)) > _LIMIT:
            return _WAITS
        return remaining.fill(layer) if fill else entries

    ranks = [(rank(layer), 0) for layer in range(len(sizes))]
    heap = [(*rank, layer) for layer, rank in enumerate(ranks)]
    heapify(heap)
    scopes: list[set[int]] = [set() for _ in sizes]
    order: list[int] = []
    while heap:
        lowest, around, layer = heappop(heap)
        if (lowest, around) != ranks[layer]:
            continue
        if lowest == _WAITS:
            raise remaining.too_large(layer)
        ranks[layer] = _GONE
        order.append(layer)
        scopes[layer] = remaining.eliminate(layer)
        changed = set(scopes[layer])
        if fill:  # it changes with the neighbours of neighbours
            changed.update(*(remaining.neighbours[n] for n in scopes[layer]))
        for neighbour in changed:
            few = len(remaining.neighbours[neighbour]) <= 2
            now = rank(neighbour), few * max(ranks[neighbour][1], around + 1)
            if now != ranks[neighbour]:
                ranks[neighbour] = now
                heappush(heap, (*now, neighbour))
    return _order(sizes, order, scopes)


def _order(sizes: Sequence[int], layers: Sequence[int], scopes: Sequence[set[int]]) -> Order:
    position = {layer: n for n, layer in enumerate(layers)}
    sorted_scopes = tuple(tuple(sorted(scope, key=position.__getitem__)) for scope in scopes)
    return Order(
        tuple(layers),
        sorted_scopes,
        max(map(len, scopes), default=0),
        max(
            (sizes[n] * prod(sizes[m] for m in scope) for n, scope in enumerate(scopes)),
            default=1,
        ),
    )


_WAITS, _GONE = 2**62, (-1, 0)
"""The key of a layer whose table is currently too large, and the rank of an eliminated layer."""
