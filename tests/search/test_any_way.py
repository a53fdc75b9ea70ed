"""Bounds where levels may not be permuted: over equal links, and of all ways of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs import alignments
from hypar_opt.costs.state_charges import (
    canonical_states,
    nodes_by_state,
    state_indices,
    states_of,
)
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.time import TimeCost
from hypar_opt.deadline import NEVER
from hypar_opt.errors import HyparError
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.training import Training
from hypar_opt.search.reductions import ByStates
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.elimination.classes import bound_by_classes
from hypar_opt.step.states import runs_of
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.shards import Shards
from tests.slow import slow_after
from tests.strategies.arrays import random_array
from tests.strategies.problems import random_network
from tests.strategies.ways_of_training import words_on
from tests.strategies.written_plans import with_collective

COLLECTIVES = "hierarchical", "ring", "pairwise"


def drawn(rng: Random, *, layers: int, levels: int, choices: int) -> tuple[ho.Network, Any]:
    """A small network, and an array of links that differ, with or without buckets."""
    while True:
        chain = rng.random() < 0.5
        network = random_network(rng, layers) if chain else random_graph(rng, most=layers)
        array = with_collective(random_array(rng, levels), rng.choice(COLLECTIVES))
        bucket = rng.choice([0, 10**3, 10**6])
        asked: dict[str, Any] = {"array": array, "bucket": bucket, "batch": 8, "cost": "time"}
        asked |= {"choices": CHOICES[:choices], "constraints": {"even": rng.random() < 0.3}}
        try:
            Instance(network, problem_of(network, **asked)).constraints.allowed([(0,) * levels])
        except HyparError:  # an odd size, or no plan
            continue
        return network, asked


@pytest.mark.parametrize("seed", slow_after(6, range(300)))
def test_classes_over_equal_links_find_what_the_elimination_of_all_states_finds(
    seed: int,
) -> None:
    """And bound it, charges included: boundaries lie between those over the fastest and slowest."""
    rng = Random(seed)
    network, asked = drawn(rng, layers=5, levels=rng.randint(2, 3), choices=rng.choice([2, 3]))
    instance = Instance(network, problem_of(network, **asked))
    cost, solver = instance.cost, DynamicProgramming()
    assert isinstance(cost, TimeCost)
    plain, _ = ByStates(instance).apply()
    states = states_of(instance.workload, instance.problem.levels)
    allowed = instance.constraints.allowed(states)
    bounds = cost.uniform_link_bounds
    table = StateTable(cost, instance.workload, states, allowed).by_classes(bounds=bounds)
    if table.partitions[0].exact:
        pytest.skip("levels that sums make different")
    classes = table.partitions[0].classes
    for kind, ends in zip(table.boundary_kinds, table.node_kinds[table.ends], strict=True):
        may = [np.flatnonzero(table.allowed[end]) for end in ends]
        charged, of_classes = table.pairs(kind, *may), np.ix_(*(classes[own] for own in may))
        assert (table.partitions[0].lower_bounds[kind][of_classes] <= charged).all()
        assert charged.max() <= table.highest[kind]
    one, other = (solver.solve(own, SolverOptions()) for own in (plain, table))
    assert (one.objective, one.assignment) == (other.objective, other.assignment)
    if one.objective is not None:
        assert bound_by_classes(table, NEVER)[0] <= one.objective


def ways_of(network: ho.Network, problem: Problem, words: Sequence[str], count: int) -> list[Any]:
    """What nodes are charged in each state, ``(nodes, states)``: whole weights, and by other words.

    First as if rings were cut.
    """
    tables: list[Any] = []
    cost = Instance(network, problem).cost
    for word in words:
        training = Training(micro_batches=count, shard=word)
        way = Instance(network, problem.model_copy(update={"training": training}))
        assert isinstance(cost, TimeCost)
        assert isinstance(way.cost, TimeCost)
        own, nodes = way.cost.in_units(cost.per_unit, way.workload), len(way.workload.nodes)
        every = [own] if tables else [replace(own, relaxes_ring_splits=True), own]
        asked = np.arange(nodes), problem.levels, NEVER
        tables += [nodes_by_state(each, way.workload, *asked) for each in every]
    return tables


@pytest.mark.parametrize("seed", slow_after(4, range(300)))
def test_no_way_of_training_takes_less_than_rings_that_may_be_cut(seed: int) -> None:
    """Node by node and state by state, whatever is split of weights, from whichever levels on."""
    rng = Random(seed)
    levels, count = rng.randint(2, 4), rng.choice([1, 1, 2])
    network, asked = drawn(rng, layers=3, levels=levels, choices=2 if levels > 3 else 3)
    problem = problem_of(network, **asked)
    begins = [*combinations_with_replacement(range(levels + 1), 2)]
    # All share out their state, since updates may take time; the first has whole weights.
    words = [Shards(0, *own).word(levels) for own in reversed(begins)]
    least, whole, *others = ways_of(network, problem, words, count)
    assert all((least <= own).all() for own in (whole, *others))
    if asked["array"].collective == "pairwise":
        assert (least == whole).all()
    elif levels == 2 and count == 1 and not asked["bucket"]:
        assert (least == np.min([whole, *others], axis=0)).all()  # no part is cut again
    cost = Instance(network, problem).cost
    assert isinstance(cost, TimeCost)
    runs = runs_of(cost.level_links)
    tiers = {runs.index(run) for run in runs}
    if len(tiers) < 3:  # else what gathers weights again may take less, in three parts
        every = {*tiers, levels}
        each = [*zip(reversed(begins), (whole, *others), strict=True)]
        searched = [(weights, own) for (first, weights), own in each if {first, weights} <= every]
        once = [own for weights, own in searched if weights == levels]
        assert all((np.min(once, axis=0) <= own).all() for _, own in searched)


@pytest.mark.parametrize("seed", slow_after(4, range(100)))
def test_a_plan_of_too_many_states_has_a_bound_on_all_ways_of_training(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of all states, each node in the cheapest of the ways that are searched."""
    rng = Random(seed)
    network, asked = drawn(rng, layers=4, levels=3, choices=2)
    asked["bucket"] = 0
    problem = problem_of(network, **asked)
    words = [*reversed(words_on(asked["array"], problem.placement or ()))]
    instance = Instance(network, problem)
    plain, _ = ByStates(instance).apply()
    order = state_indices(canonical_states(3, 2), [2] * 3)
    node = np.min(ways_of(network, problem, words, 1)[1:], axis=0)[:, order]
    best = DynamicProgramming().solve(replace(plain, node=node), SolverOptions()).objective
    monkeypatch.setattr(alignments, "MAX_ENTRIES", 150)
    plan = ho.solve(network, **asked, training={"micro_batches": 1})
    assert plan.solver.bound is not None
    assert best is not None
    own = Instance.of_plan(plan).cost  # of other ways in a unit that may be coarser
    assert isinstance(instance.cost, TimeCost)
    assert isinstance(own, TimeCost)
    finer, most = instance.cost.per_unit // own.per_unit, 10 * len(plan.layers)
    assert (plan.solver.bound - most) * finer <= best <= (plan.cost.total + most) * finer
    if plan.solver.status == "optimal":
        assert plan.cost.total == plan.solver.bound


@pytest.mark.parametrize(
    ("array", "memory"), slow_after(1, [("tpu-v4-8", 15 * 10**8), ("h100-8", 700 * 10**6)])
)
def test_layers_train_alike_where_ways_of_each_have_too_many_states(
    array: str, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = "gpt:layers=2,hidden=1024,heads=16,tokens=1024,vocabulary=8192"
    asked: dict[str, Any] = {"array": array, "batch": 64, "bucket": 0}
    asked["constraints"] = {"optimizer": "adam", "memory": memory}
    best = ho.solve(network, **asked)
    monkeypatch.setattr(alignments, "MAX_ENTRIES", 0)
    plan = ho.solve(network, **asked)
    assert ho.memory(plan).tensors <= memory
    assert plan.solver.bound is not None
    assert 0 < plan.solver.bound <= best.cost.total <= plan.cost.total


@pytest.mark.slow
@pytest.mark.parametrize(("network", "batch", "gap"), [("gpt2", 512, 0), ("resnet-50", 1024, 0.07)])
def test_three_choices_at_eight_levels_of_a_torus(network: str, batch: int, gap: float) -> None:
    plan = ho.solve(network, array="tpu-v5e-256", batch=batch)
    assert plan.solver.gap is not None
    assert plan.solver.gap <= gap
