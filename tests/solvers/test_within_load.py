"""Assignments within a capacity come in the order of their costs: brute force and CP-SAT agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from operator import le
from random import Random
from typing import Any

import numpy as np
import pytest

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError
from hypar_opt.solvers import within_load
from hypar_opt.solvers.loaded_graph import LoadedGraph
from hypar_opt.solvers.within_load import cheapest_within
from tests.slow import slow_after

MOST = 2**40


def drawn(rng: Random, layers: int, columns: int, limits: int = 1) -> LoadedGraph:
    """A graph with a few columns of each layer, of which neighbours see fewer ports."""
    counts = [rng.randint(1, columns) for _ in range(layers)]
    ports = [np.array([rng.randrange(1 + own // 2) for _ in range(own)], np.intp) for own in counts]
    pairs = [(n, n + 1) for n in range(layers - 1)]
    pairs += [(rng.randrange(layers), rng.randrange(layers)) for _ in range(2)]
    edges = {
        pair: np.array([[rng.randrange(9) for _ in range(columns)] for _ in range(columns)])
        for pair in pairs
        if pair[0] < pair[1]
    }

    def amounts(count: int) -> Any:
        return np.array([rng.randrange(12) for _ in range(count)])

    loads = [np.stack([amounts(count) for _ in range(limits)], axis=1) for count in counts]
    return LoadedGraph([*map(amounts, counts)], loads, ports, edges)


def cost_and_loads(graph: LoadedGraph, chosen: tuple[int, ...]) -> tuple[int, list[int]]:
    cost = sum(int(own[n]) for own, n in zip(graph.costs, chosen, strict=True))
    for (one, other), pairs in graph.edges.items():
        ends = graph.ports[one][chosen[one]], graph.ports[other][chosen[other]]
        cost += int(pairs[ends])
    rows = (own[n] for own, n in zip(graph.loads, chosen, strict=True))
    return cost, np.sum([*rows], axis=0).tolist()


@pytest.mark.parametrize("part", slow_after(1, range(5)))
def test_every_assignment_within_capacities_comes_once_in_the_order_of_costs(part: int) -> None:
    for seed in range(100 * part, 100 * (part + 1)):
        rng = Random(seed)
        graph = drawn(rng, rng.randint(1, 5), 3, limits=1 + seed % 3)
        capacities = [rng.randrange(40) for _ in range(1 + seed % 3)]
        most = rng.choice([MOST, rng.randrange(60)])
        every = product(*(range(len(own)) for own in graph.costs))
        known = {chosen: cost_and_loads(graph, chosen) for chosen in every}
        fitting = sorted(
            (cost, chosen)
            for chosen, (cost, loads) in known.items()
            if all(map(le, loads, capacities)) and cost <= most
        )
        found = list(cheapest_within(graph, capacities, most, NEVER))
        assert sorted(found) == fitting, seed
        assert [cost for cost, _ in found] == [cost for cost, _ in fitting], seed


@pytest.mark.parametrize("seed", slow_after(2, range(20)))
def test_the_cheapest_assignment_is_cp_sats(seed: int) -> None:
    from ortools.sat.python import cp_model

    rng = Random(seed)
    graph = drawn(rng, 12, 5)
    least = sum(int(own.min()) for own in graph.loads)
    capacity = least + rng.randrange(10, 60)
    model = cp_model.CpModel()
    chosen = [[model.new_bool_var("") for _ in own] for own in graph.costs]
    total: Any = 0
    for layer, own in enumerate(chosen):
        model.add_exactly_one(own)
        total += sum(int(c) * x for c, x in zip(graph.costs[layer], own, strict=True))
    for (one, other), pairs in graph.edges.items():
        for n, m in product(range(len(chosen[one])), range(len(chosen[other]))):
            both = model.new_bool_var("")
            model.add_bool_or(chosen[one][n].negated(), chosen[other][m].negated(), both)
            total += int(pairs[graph.ports[one][n], graph.ports[other][m]]) * both
    loads = zip(graph.loads, chosen, strict=True)
    model.add(
        sum(int(w) * x for of, own in loads for w, x in zip(of[:, 0], own, strict=True)) <= capacity
    )
    model.minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    cost, assignment = next(cheapest_within(graph, [capacity], MOST, NEVER))
    assert cost == round(solver.objective_value)
    spent, (load,) = cost_and_loads(graph, assignment)
    assert spent == cost
    assert load <= capacity


@dataclass(frozen=True)
class Counting(Deadline):
    """Never, and how often it was asked: before fronts and paths, and each extension of a plan."""

    checks: list[float] = field(default_factory=list)

    def check(self, needed: float = 0.0) -> None:
        self.checks.append(needed)


def test_96_blocks_of_36_states_leave_few_labels_and_no_detour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four layouts, each with nine ways to recompute and shard: 70,935 labels."""
    monkeypatch.setattr(within_load, "MAX_LABELS", 71_000)
    rng, blocks = Random(1), 96
    costs, loads, ports = [], [], []
    for layout in range(4):
        for again, shard in product(range(3), range(3)):
            costs.append(1000 + 40 * layout + (0, 30, 333)[again] + 17 * shard + rng.randrange(5))
            loads.append(900 // (1 + layout) * (6, 3, 1)[again] + (300, 120, 40)[shard])
            ports.append(layout)
    change = np.array([[0 if a == b else 55 for b in range(4)] for a in range(4)])
    graph = LoadedGraph(
        [np.array(costs)] * blocks,
        [np.array(loads)[:, None]] * blocks,
        [np.array(ports)] * blocks,
        {(n, n + 1): change for n in range(blocks - 1)},
    )
    counting = Counting()
    cost, chosen = next(cheapest_within(graph, [96 * 1500], MOST, counting))
    # The fronts tell exactly: each block is decided once. Of paths there are eight kinds.
    assert len(counting.checks) == 2 * blocks + 8
    assert cost_and_loads(graph, chosen)[0] == cost
    assert len(set(chosen)) > 1


def test_too_many_frontiers_are_refused() -> None:
    columns = np.arange(40)
    every = {(one, other): np.zeros((40, 40), int) for other in range(5) for one in range(other)}
    graph = LoadedGraph([columns] * 5, [columns[:, None]] * 5, [columns] * 5, every)
    with pytest.raises(RefusedError, match="too many ways"):
        next(cheapest_within(graph, [10], MOST, NEVER))


def test_a_frontier_of_more_layers_than_an_array_has_axes_is_refused() -> None:
    """Also where each has one port, so that the array would have one entry."""
    layers, one = 70, np.zeros(1, np.int64)
    edges = {(n, layers): np.zeros((1, 1), np.int64) for n in range(layers)}
    every, loads = [one] * (1 + layers), [one[:, None]] * (1 + layers)
    with pytest.raises(RefusedError):
        next(cheapest_within(LoadedGraph(every, loads, every, edges), [1], MOST, NEVER))
