"""Buckets: gradients that are all-reduced together, as frameworks do, for fewer latencies."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hypar_opt.costs.table import Integers
    from hypar_opt.workload.tensors import Workload

LATENCY = 2**16
"""The parts of a latency that the gradients of a bucket share."""


@lru_cache(maxsize=64)
def buckets_of(workload: Workload, most_elements: int) -> tuple[tuple[int, ...], ...]:
    """Return the nodes whose gradients are reduced together, in the order of the backward pass.

    A bucket takes the gradients of whole layers, as many as it holds; one that is larger is alone.
    Shared weights' gradients are complete with those of their first user.

    Parameters
    ----------
    most_elements
        Of a bucket; 1 for each gradient by itself.

    Source: S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel
    Training", VLDB 13(12), 2020, section 3.2.3.
    """
    last_backward = {min(users): node for node, users in workload.weight_users.items()}
    buckets: list[list[int]] = []
    left = 0
    for layer in reversed(range(workload.shared, len(workload.nodes))):
        for node in (layer, last_backward.get(layer)):
            if node is None or not workload.stored[node]:
                continue
            if not buckets or workload.stored[node] > left:
                buckets.append([])
                left = most_elements
            buckets[-1].append(node)
            left -= workload.stored[node]
    return tuple(map(tuple, buckets))


@lru_cache(maxsize=64)
def shares_of_latency(workload: Workload, most_elements: int) -> Integers:
    """Return the part of its bucket's latency that each node is charged: ``(nodes,)``.

    In proportion to its elements, so that together a bucket's are charged one latency exactly, if
    all of them are reduced over the same levels; else each group's reduction is charged less than
    the latency that it has.

    Returns
    -------
    Integers in units of 1 / `LATENCY`.
    """
    shares: Integers = np.zeros(len(workload.nodes), np.int64)
    for bucket in buckets_of(workload, most_elements):
        # Rounded cumulatively, so that they add up.
        before = np.cumsum([0, *(workload.stored[node] for node in bucket)], dtype=object)
        shares[list(bucket)] = np.diff(before * LATENCY // before[-1])
    return shares
