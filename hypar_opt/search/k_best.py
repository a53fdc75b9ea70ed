"""All plans of a problem, the cheapest first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hypar_opt.integers import Integers
from hypar_opt.search.cost_to_go import Completion

Ties = tuple[bool, ...]
"""Whether neighbouring levels have had equal choices so far: one flag per pair of levels."""


def in_order_of_cost(
    completion: Completion, shared: int, count: int, *, interchangeable: bool
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the allowed assignments of the layers with their costs, the cheapest first.

    Shared nodes are not enumerated: they take their cheapest states. Ties come in canonical order:
    compared from the last layer back, the first state first. Of assignments that differ only in the
    order of ``interchangeable`` levels, only the first is yielded.

    The search is best-first and completes assignments from the last layer back. The cost-to-go is
    known exactly, so each assignment that leaves the heap is the next best, and no path is expanded
    in vain. At most ``count`` assignments are needed, which may be more than exist.
    """
    allowed, states = completion.allowed, completion.states
    digits = np.array(states, np.intp).reshape(len(states), -1)

    @cache
    def ranked(node: int, scope: tuple[int, ...], ties: Ties) -> tuple[NDArray[np.intp], Integers]:
        """Rank a node's states by the least cost up to it, given those of later nodes."""
        costs = completion.column(node, scope)
        choices = digits[allowed[node]]
        # Of levels that tie in later layers, those with model parallelism come topmost.
        canonical = ~((choices[:, :-1] < choices[:, 1:]) & np.array(ties, bool)).any(axis=1)
        # As many as there can be paths through this node.
        ranks = np.flatnonzero(canonical)[costs[canonical].argsort(kind="stable")[:count]]
        return ranks, costs[ranks]

    last = len(allowed) - 1

    def scope_of(node: int, path: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(path[last - later] for later in completion.scopes[node])

    ties = (interchangeable,) * max(digits.shape[1] - 1, 0)
    first = int(ranked(last, (), ties)[0][0])
    # Equal totals compare by path, last layer first: that is the canonical order.
    heap: list[tuple[int, tuple[int, ...], Ties, int]] = [(completion.minimum, (first,), ties, 0)]
    while heap:
        total, path, ties, rank = heapq.heappop(heap)
        for node in range(len(allowed) - len(path), shared - 1, -1):
            ranks, costs = ranked(node, scope_of(node, path), ties)
            if rank + 1 < len(ranks):
                increase = int(costs[rank + 1]) - int(costs[rank])
                # The next best path: another state of this layer, completed at least cost.
                sibling = (*path[:-1], int(ranks[rank + 1]))
                heapq.heappush(heap, (total + increase, sibling, ties, rank + 1))
            # Levels still tie only if they have the same choice in this layer too.
            pairs = pairwise(states[allowed[node][path[-1]]])
            ties = tuple(tie and a == b for tie, (a, b) in zip(ties, pairs, strict=True))
            if node > shared:
                ranks, costs = ranked(node - 1, scope_of(node - 1, path), ties)
                path, rank = (*path, int(ranks[0])), 0
        columns = zip(allowed[shared:], path[::-1], strict=True)
        yield total, tuple(int(choices[n]) for choices, n in columns)
