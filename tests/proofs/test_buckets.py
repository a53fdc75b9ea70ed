"""Buckets of gradients: both derivations share latencies alike."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

import hypar_opt as ho
from hypar_opt.costs.buckets import LATENCY, shares_of_latency
from hypar_opt.instance.instance import Instance
from hypar_opt.proofs.reference import buckets
from hypar_opt.proofs.reference.nodes import nodes_of
from hypar_opt.studies.random_networks import random_graph


@pytest.mark.parametrize("seed", range(12))
def test_gradients_share_latencies_as_in_the_search(seed: int) -> None:
    rng = Random(seed)
    plan = ho.solve(random_graph(rng, most=6), solver="data", levels=1, reading="executed")
    workload, graph = Instance.of_plan(plan).workload, nodes_of(plan, shared_tensors=True)
    reduced = [n for n, node in enumerate(graph.nodes) if node.stored]
    most = sum(graph.nodes[n].stored for n in reduced)
    for elements in {2, most + 1, *(rng.randint(2, most + 2) for _ in range(20))}:
        shares = shares_of_latency(workload, elements)
        ours = buckets.shares_of_latency(graph, elements)
        assert [ours[n] for n in reduced] == [Fraction(int(shares[n]), LATENCY) for n in reduced]
