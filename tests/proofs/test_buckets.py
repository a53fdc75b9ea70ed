"""Buckets of gradients: both derivations share latencies alike."""

from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random

import pytest

import hypar_opt as ho
from hypar_opt.costs.buckets import LATENCY, LatencyShares, buckets_of
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.proofs.check.nodes import nodes_of
from hypar_opt.proofs.check.operations import shares_of_latency
from hypar_opt.studies.random_networks import random_graph


@pytest.mark.parametrize("seed", range(12))
def test_gradients_share_latencies_as_in_the_search(seed: int) -> None:
    """All of a bucket, and of a plan those that are reduced over the same levels."""
    rng = Random(seed)
    plan = ho.solve(random_graph(rng, most=6), solver="dp", levels=1, reading="executed")
    workload, graph = Instance.of_plan(plan).workload, nodes_of(plan)
    (chosen,) = rows_of_plan(plan, workload)
    reduced = [n for n, node in enumerate(graph.nodes) if node.stored]
    most = sum(graph.nodes[n].stored for n in reduced)
    for elements in {2, most + 1, *(rng.randint(2, most + 2) for _ in range(20))}:
        of_levels = [
            [
                [n for n in bucket if (chosen[n] in graph.nodes[n].copied[0]) is data]
                for bucket in buckets
            ]
            for buckets, data in itertools.product([buckets_of(workload, elements)], [False, True])
        ]
        for states, together in (
            ((), buckets_of(workload, elements)),
            ([(choice,) for choice in chosen], list(filter(None, itertools.chain(*of_levels)))),
        ):
            shares = LatencyShares.of(together, [workload.stored])
            sharing = [{"none": [0]}] * len(graph.nodes)
            ours = shares_of_latency(graph, elements, states, sharing)
            for n in reduced:
                begin, end = shares.ends[0, :, n].tolist()
                assert ours[n]["none"] == (Fraction(begin, LATENCY), Fraction(end, LATENCY))
