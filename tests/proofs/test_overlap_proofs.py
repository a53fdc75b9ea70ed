"""Certificates of plans with overlap: priced tables derived twice, and what is proved of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.costs.overlap import OverlapTime, waits_on
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.integers import Integers
from hypar_opt.proofs.check.nodes import State
from hypar_opt.proofs.check.overlap import PRICE, prices_of_nodes
from hypar_opt.proofs.check.rows import PlanProblem
from hypar_opt.step.states import added_up
from tests.search.test_overlap import Drawn, drawn
from tests.slow import slow_after


def random_prices(rng: Random, layers: tuple[str, ...]) -> dict[str, int]:
    """Prices that never fall along the backward pass, from some layers on."""
    begins = sorted(rng.sample(range(len(layers)), rng.randint(1, len(layers))), reverse=True)
    rising = sorted(rng.randint(0, PRICE) for _ in begins)
    return {layers[n]: price for n, price in zip(begins, rising, strict=True)}


def charged_by_the_search(own: Drawn, cost: OverlapTime, node: int, state: State) -> int:
    """What the search's cost charges a node in a state of all levels."""
    block = np.array(state, np.intp)[:, None]
    return int(added_up(cost.node(own.workload, np.array([node]), [block])).item())


@pytest.mark.parametrize("first", slow_after(2, range(12)))
def test_priced_tables_are_derived_twice_to_the_unit(first: int) -> None:
    """Of all nodes and boundaries, in random states of each and in all pairs of these."""
    for own in (own for n, own in enumerate(drawn(6 * (first + 1))) if n // 6 == first):
        plan, workload = own.plan, own.workload
        prices = random_prices(own.rng, plan.layers)
        problem = PlanProblem(plan, prices)
        graph = problem.graph
        nodes = prices_of_nodes(plan, graph, prices)
        assert plan.array is not None
        waits = waits_on(plan.array.description)
        cost = OverlapTime.of(own.instance.cost.time, workload, nodes, waits=waits)
        cost = replace(cost.in_parts(own.instance.cost.time.per_unit, workload), largest=2**80)
        assert problem.charges.resolution == cost.scale
        states: list[list[State]] = []
        for node, laid_out in enumerate(graph.nodes):
            every = [*product(laid_out.choices, repeat=plan.levels)]
            states.append(own.rng.sample(every, min(len(every), 8)))
            for state in states[node]:
                charged = charged_by_the_search(own, cost, node, state)
                assert problem.charges.node(node, state) == charged, (node, state)
        for n, edge in enumerate(graph.edges):
            ends = (states[edge.source], states[edge.target])
            there: Integers = problem.charges.edge(n, *ends)
            blocks = [np.array(end, np.intp).T for end in ends]
            here = added_up(
                cost.edge(
                    workload, np.array([[n]]), [blocks[0][:, :, None]], [blocks[1][:, None, :]]
                )
            )
            assert (there == np.broadcast_to(here, there.shape)).all(), (n, edge)
