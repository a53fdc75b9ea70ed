"""Gradients that are all-reduced together, and what each is charged of their latency."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hypar_opt.proofs.reference.plan_graph import PlanGraph, State

UNITS = 2**16
"""A latency is divided in as many units."""

Share = tuple[Fraction, Fraction]
"""Where a gradient's share of a latency begins and ends; rounded there, shares add up to it."""


def shares_of_latency(
    graph: PlanGraph,
    most: int,
    chosen: Sequence[State],
    sharing: Sequence[Mapping[str, Collection[int]]],
) -> list[dict[str, Share]]:
    """Return the share that each node's gradient is charged of the latency of its bucket.

    One for each of its reductions, by a name.

    Buckets take whole gradients as the backward pass completes them, those of shared weights with
    those of their first user, and are full with ``most`` elements. Shares are as the elements.

    Parameters
    ----------
    chosen
        The nodes' states, if only gradients that are reduced over the same levels share; else all
        of a bucket do, which is no more for any plan.
    sharing
        The levels of each node's reductions. What is scattered micro-batch by micro-batch is apart
        from what is all-reduced.

    Source: S. Li et al., VLDB 13(12), 2020, section 3.2.3; docs/simulator.md.
    """
    stored = [node.stored for node in graph.nodes]
    with_first = {min(users): n for n in range(graph.shared) if (users := graph.users(n))}
    layers = reversed(range(graph.shared, len(stored)))
    complete = (node for layer in layers for node in (layer, with_first.get(layer)))
    together: defaultdict[tuple[int, str | None, object], list[int]] = defaultdict(list)
    elements, number = most, 0
    for node in complete:
        if node is None or not stored[node]:
            continue
        elements += stored[node]
        if elements > most or not together:
            number, elements = number + 1, stored[node]
        state = enumerate(chosen[node] if chosen else ())
        copying = graph.nodes[node].copied_by[0]
        reduced = {level for level, choice in state if choice in copying}
        top = graph.nodes[node].own.get(chosen[node][0]) if chosen and chosen[node] else None
        side = top.output if top and top.output in SIDES else None
        if not chosen:
            together[number, None, ()].append(node)
            continue
        for name, levels in sharing[node].items():
            together[number, name, (frozenset(reduced.intersection(levels)), side)].append(node)
    shares: list[dict[str, Share]] = [{} for _ in graph.nodes]
    for (_, own, _), nodes in together.items():
        ends = [0, *accumulate(stored[node] for node in nodes)]
        rounded = (Fraction(UNITS * end // ends[-1], UNITS) for end in ends)
        for node, share in zip(nodes, pairwise(rounded), strict=True):
            shares[node] |= dict.fromkeys(sharing[node] if own is None else [own], share)
    return shares
