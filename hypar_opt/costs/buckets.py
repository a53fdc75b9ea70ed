"""Gradient buckets: gradients that are all-reduced together, so that they share latencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.costs.reductions import joined
from hypar_opt.integers import scale
from hypar_opt.workload.repeats import REDUCTION_GROUPS

if TYPE_CHECKING:
    from hypar_opt.costs.reductions import Places, Reduction
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.tensors import Workload

LATENCY = 2**16
"""The parts of a latency that the gradients of a bucket share."""

LatencyShare = Callable[..., "Integers"]
"""Returns what nodes and states have of messages' latencies.

Given a latency, the messages, and, as ``places``, the nodes and states.
"""

Buckets = Sequence[Sequence[int]]
"""The nodes of each bucket."""


@lru_cache(maxsize=64)
def buckets_of(workload: Workload, most_elements: int) -> tuple[tuple[int, ...], ...]:
    """Return the nodes whose gradients are reduced together, in the order of the backward pass.

    A bucket takes the gradients of whole layers, as many as it holds; one that is larger is alone.
    Shared weights' gradients are complete with those of their first user.

    Parameters
    ----------
    most_elements
        The size of a bucket; 1 reduces each gradient by itself.

    Source: S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel
    Training", VLDB 13(12), 2020, section 3.2.3.
    """
    last_backward = {min(users): node for node, users in workload.weight_users.items()}
    buckets: list[list[int]] = []
    free = 0
    for layer in reversed(range(workload.shared, len(workload.nodes))):
        for node in (layer, last_backward.get(layer)):
            if node is None or not workload.stored[node]:
                continue
            if not buckets or workload.stored[node] > free:
                buckets.append([])
                free = most_elements
            buckets[-1].append(node)
            free -= workload.stored[node]
    return tuple(map(tuple, buckets))


@lru_cache(maxsize=64)
def latency_shares(workload: Workload, most_elements: int) -> LatencyShares:
    """Return the shares of the latencies of all buckets, by elements."""
    return LatencyShares.of(buckets_of(workload, most_elements), [workload.stored])


@lru_cache(maxsize=64)
def equal_shares(workload: Workload, most_elements: int) -> LatencyShares:
    """Return lower bounds on `latency_shares` that depend on nodes' elements alone."""
    ends: Integers = np.zeros((1, 2, len(workload.nodes)), np.int64)
    for bucket in buckets_of(workload, most_elements):
        total = sum(workload.stored[node] for node in bucket)
        ends[0, 1, list(bucket)] = [LATENCY * workload.stored[node] // total for node in bucket]
    return LatencyShares(ends, {})


def half_shared(share: LatencyShare) -> LatencyShare:
    """Return shares where reduce-scatters are in buckets, and weights are gathered node by node."""

    def half(latency: int, messages: Integers, places: Places) -> Integers:
        both: Integers = (share(latency, messages, places=places) + messages * latency) // 2
        return both

    return half


@dataclass(frozen=True, eq=False)
class LatencyShares:
    """Each node's share of the latencies of its bucket's all-reduce.

    Latencies are whole numbers, and so are their shares: cumulative sums are rounded, so that the
    shares of a bucket's nodes add up to its latency.

    Parameters
    ----------
    ends : (kinds, 2, nodes)
        Where a node's share begins and ends, in parts of a latency of 1 / `LATENCY`. Of a plan's
        own reductions there are as many kinds as `REDUCTION_GROUPS`.
    kinds
        The number in ``ends`` of reductions over a set of levels, whose bit 2^h is that of level
        h; 0 for those not named.
    """

    ends: Integers
    kinds: Mapping[int, int]

    @classmethod
    def of(
        cls,
        buckets: Buckets,
        weights: Sequence[Sequence[int]],
        kinds: Mapping[int, int] = MappingProxyType({}),
    ) -> LatencyShares:
        """Share out the latencies of buckets, in proportion to the nodes' weights of each kind."""
        ends: Integers = np.zeros((len(weights), 2, len(weights[0])), np.int64)
        for kind, elements_of_kind in enumerate(weights):
            for bucket in buckets:
                # Rounded cumulatively, so that they add up.
                sums = [0, *accumulate(elements_of_kind[node] for node in bucket)]
                rounded = [LATENCY * upto // sums[-1] for upto in sums]
                ends[kind][:, list(bucket)] = np.array([*pairwise(rounded)]).T
        return cls(ends, kinds)

    @classmethod
    def of_plan(
        cls, together: Mapping[tuple[Any, ...], Sequence[int]], elements: Sequence[int]
    ) -> LatencyShares:
        """Share out the latencies of a plan's reductions, in proportion to elements.

        Parameters
        ----------
        together
            The nodes that are reduced together, by keys that end with a number in
            `REDUCTION_GROUPS`.
        """
        buckets: list[list[Sequence[int]]] = [[] for _ in REDUCTION_GROUPS]
        for key, nodes in together.items():
            buckets[key[-1]].append(nodes)
        return cls(np.array([cls.of(group, [elements]).ends[0] for group in buckets]), {})

    @property
    def node_keys(self) -> list[bytes]:
        """A key of each node: nodes with equal keys have equal shares."""
        return [shares.tobytes() for shares in np.moveaxis(self.ends, 2, 0)]

    def for_nodes(
        self,
        nodes: Indices,
        reduced: Reduction,
        shape: tuple[int, ...],
        micro_batches: int,
    ) -> LatencyShare:
        """Return a function that shares out a latency among nodes and their states.

        Parameters
        ----------
        reduced
            The reduction of the nodes' gradients.
        shape
            Of the nodes and their states.

        """
        number = 0 if self.kinds or len(self.ends) == 1 else reduced.group
        begins, ends = self.ends[number][:, nodes]
        rounds = reduced.rounds
        if self.kinds:
            levels, _ = joined(reduced.moved, shape)
            numbers = np.zeros(1 << len(reduced.moved), np.intp)
            for joins, kind in self.kinds.items():
                if joins < len(numbers):  # else of levels that the states have not reached
                    numbers[joins] = kind
            begins, ends = (self.ends[numbers[levels], side, nodes] for side in range(2))

        def share(latency: int, messages: Integers, places: Places | None = None) -> Integers:
            begin, end, all_of = begins, ends, rounds
            if places is not None:
                begin, end, all_of = (
                    np.broadcast_to(limits, shape)[places] for limits in (begins, ends, rounds)
                )
            fraction = Fraction(latency, LATENCY)
            part: Integers = scale(end, fraction, "down") - scale(begin, fraction, "down")
            if not reduced.is_reduce_scatter:
                return messages * part
            # Gradients are reduce-scattered in buckets, weights all-gathered layer by layer.
            together: Integers = micro_batches * part + (all_of - micro_batches) * latency
            return messages // np.maximum(all_of, 1) * together

        return share
