"""Gradients that are all-reduced together, and what each is charged of their latency."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypar_opt.proofs.reference.nodes import PlanGraph

UNITS = 2**16
"""A latency is divided in as many units."""


def shares_of_latency(graph: PlanGraph, most: int) -> list[Fraction]:
    """Return the share that each node's gradient is charged of the latency of its bucket.

    Buckets take whole gradients as the backward pass completes them, those of shared weights with
    those of their first user, and are full with ``most`` elements. Shares are as the elements;
    those of a bucket add up to 1, since what is rounded is where each ends.

    Source: S. Li et al., VLDB 13(12), 2020, section 3.2.3; docs/simulator.md.
    """
    shares = [Fraction(1)] * len(graph.nodes)
    stored = [node.stored for node in graph.nodes]
    with_first = {min(users): n for n in range(graph.shared) if (users := graph.users(n))}
    layers = reversed(range(graph.shared, len(stored)))
    complete = (node for layer in layers for node in (layer, with_first.get(layer)))
    buckets: list[list[int]] = []
    elements = most
    for node in complete:
        if node is None or not stored[node]:
            continue
        elements += stored[node]
        if elements > most or not buckets:
            buckets.append([])
            elements = stored[node]
        buckets[-1].append(node)
    for bucket in buckets:
        ends = [0, *accumulate(stored[node] for node in bucket)]
        rounded = (UNITS * end // ends[-1] for end in ends)
        for node, (start, end) in zip(bucket, pairwise(rounded), strict=True):
            shares[node] = Fraction(end - start, UNITS)
    return shares
