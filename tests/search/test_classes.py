"""All levels by classes of states: against elimination of all states, and what permutes levels."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from hypar_opt.costs.state_classes import ClassTable, classed
from hypar_opt.costs.state_tables import canonical_states
from hypar_opt.costs.states import added_up
from hypar_opt.errors import HyparError
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.reductions import ByStates
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after
from tests.strategies.arrays import random_array
from tests.strategies.problems import random_network

DP, OPTIONS = DynamicProgramming(), SolverOptions()


def drawn(seed: int) -> Instance:
    """A random graph or chain: in bytes at levels of two to six parts, or on a random array."""
    rng = Random(seed)
    while True:
        network = random_network(rng, 4) if rng.random() < 0.2 else random_graph(rng, most=5)
        choices = CHOICES[: rng.choice([2, 3, 3])]
        reading = rng.choice(["executed", "executed", "executed", "text"])
        asked: dict[str, Any] = {"choices": choices, "reading": reading}
        levels = rng.randint(2, 4 if len(choices) == 2 else 3)
        if rng.random() < 0.5:
            asked["array"] = random_array(rng, levels)
            asked["cost"] = rng.choice(["time", "time", "energy"])
        elif reading == "text":
            asked["levels"] = levels
        else:
            sizes = [rng.choice([2, 2, 3, 6]) for _ in range(levels)]
            asked |= {"hierarchy": sizes, "whole_levels": True}
        if "array" not in asked and rng.random() < 0.3:
            asked["level_weights"] = tuple(rng.randint(1, 2) for _ in range(levels))
        constraints: dict[str, Any] = {"even": rng.random() < 0.2}
        if rng.random() < 0.3:
            constraints["fix"] = (f"*@H{rng.randint(1, levels)}=data",)
        batch = rng.choice([12, 36, 216])
        try:
            problem = problem_of(network, batch=batch, constraints=constraints, **asked)
            instance = Instance(network, problem)
            _ = instance.cost, instance.constraints
        except HyparError:  # an odd size between three, or no plan
            continue
        return instance


def table_of(instance: Instance) -> ClassTable:
    states = canonical_states(instance.problem.levels, len(instance.workload.choices))
    allowed = instance.constraints.allowed(states)
    return classed(instance.cost, instance.workload, states, allowed)


@pytest.mark.parametrize("seed", slow_after(60, range(1000)))
def test_classes_find_what_the_elimination_of_all_states_finds(seed: int) -> None:
    """The same assignment: of equals the canonical one."""
    instance = drawn(seed)
    plain, _ = ByStates(instance).apply()
    if DP.accepts(plain):
        pytest.skip("its states are too many to be eliminated")
    one, other = DP.solve(plain, OPTIONS), DP.solve(table_of(instance), OPTIONS)
    assert (other.status, other.bound) == (one.status, one.bound)
    assert (other.objective, other.assignment) == (one.objective, one.assignment)


@pytest.mark.parametrize("seed", slow_after(30, range(300)))
def test_permuting_levels_of_a_group_changes_no_charge_of_a_boundary(seed: int) -> None:
    instance = drawn(seed)
    workload, levels = instance.workload, instance.problem.levels
    groups = np.array(instance.cost.groups(workload, levels))
    rng = np.random.default_rng(seed)
    shape = levels, len(workload.ends), 50
    source, target = rng.integers(0, len(workload.choices), (2, *shape))
    order = np.arange(levels)
    for group in set(groups.tolist()):
        order[groups == group] = rng.permutation(order[groups == group])
    boundaries = np.arange(len(workload.ends))[:, None]
    one, other = (
        added_up(instance.cost.edge(workload, boundaries, [s], [t]))
        for s, t in ((source, target), (source[order], target[order]))
    )
    assert (np.broadcast_to(one, shape[1:]) == other).all()


def test_groups_of_a_machine_of_nodes_and_of_prime_factors() -> None:
    """Links are equal inside a node and between nodes; levels of six nodes of eight by parts."""
    asked: dict[str, Any] = {"choices": CHOICES, "reading": "executed"}

    def groups(**stated: Any) -> list[int]:
        network = find_network("resnet-18")
        instance = Instance(network, problem_of(network, **stated, **asked))
        return list(instance.cost.groups(instance.workload, instance.problem.levels))

    assert groups(array="h100-8x8", cost="time") == [0, 0, 0, 1, 1, 1]
    assert groups(hierarchy=(6, 8), batch=48) == [0, 1, 0, 0, 0]
    assert groups(levels=4) == [0, 0, 0, 0]
    assert groups(levels=4, level_weights=(1, 1, 2, 1)) == [0, 0, 1, 2]
