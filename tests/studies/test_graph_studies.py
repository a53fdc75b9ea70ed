"""Studies of graphs and of three choices: every plan explored, the best in order, regrets."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.shared_nodes import rows_with_shared
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.plan import words_of
from hypar_opt.plan.stored_layouts import stored_layouts
from hypar_opt.studies import advice, simulation
from hypar_opt.studies.exploration import Exploration, explore
from hypar_opt.studies.random_networks import random_chain, random_graph
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES
from tests.simulator.plans import IN_LOCKSTEP, array
from tests.slow import slow_after
from tests.strategies.graph_problems import plans_of

THREE = CHOICES
RUN: dict[str, Any] = {"choices": THREE, "reading": "executed"}


@pytest.mark.parametrize("name", ["resnet-50", "gpt2"])
def test_networks_of_more_layers_than_axes_are_explored_and_ranked(name: str) -> None:
    plan = ho.solve(name, search="joint")
    found = explore(plan, f"{plan.layers[5]},{plan.layers[40]}@H1,{plan.layers[-1]}@H3")
    assert found.values.shape == (16, 2, 2)
    assert (found.rank, found.best_cost) == (1, plan.cost.total)
    best = ho.best_plans(plan, 3)
    assert (best[0].total, best[0].parallelism) == (plan.cost.total, plan.parallelism)
    assert [each.total for each in best] == sorted(each.total for each in best)
    regrets = [regret.extra for regret in ho.regrets(plan)]
    assert len(regrets) == 4 * len(plan.layers)
    # The second best differs from the best by one choice at least, of which it has the regret.
    assert min(extra for extra in regrets if extra is not None) <= best[1].total - plan.cost.total


def test_a_graph_too_wide_for_its_best_plans_is_refused_by_name() -> None:
    branches = [
        {"name": f"branch{n}", "kind": "fc", "units": 4, "inputs": ["stem"]} for n in range(8)
    ]
    names = [layer["name"] for layer in branches]
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "wide",
            "input": {"features": 4},
            "layer": [
                {"name": "stem", "kind": "fc", "units": 4},
                *branches,
                {"name": "sum", "kind": "add", "inputs": names},
            ],
        }
    )
    plan = ho.solve(network, levels=4)
    refusal = r"listing the best plans over 4 levels needs a table of 16\^10 entries; use fewer"
    with pytest.raises(ho.HyparError, match=refusal):
        ho.best_plans(plan, 3)
    assert len(ho.best_plans(ho.solve(network, levels=1), 3)) == 3


def test_advice_on_graphs_is_the_joint_optimum() -> None:
    plan = ho.solve("resnet-18", batch=16)
    joint = advice.joint_optimum(plan)
    assert joint is not None
    assert joint.cost.total <= plan.cost.total
    assert joint.solver.scope == "joint"
    deep = ho.solve("resnet-18", batch=16, levels=6, choices=("data", "model", "output"))
    assert advice.joint_optimum(deep) is None


def small(rng: Random, most_plans: int, levels: int) -> Network:
    """A chain or a graph, of which every plan can be looked at."""
    while True:
        graph = rng.random() < 0.8
        network = random_graph(rng, most=3) if graph else random_chain(rng, "chain")
        if 3**levels < plans_of(network, levels, 3) <= most_plans:
            return network


@pytest.mark.parametrize("seed", slow_after(2, range(40)))
@pytest.mark.parametrize("objective", ["bytes", "time", "energy"])
def test_each_explored_plan_costs_what_it_is_priced_and_simulated_at(
    seed: int, objective: str
) -> None:
    """Of three choices, as they are run, and of two by any reading."""
    rng = Random(seed)
    three, levels = seed % 2 == 0, rng.choice([1, 2])
    network = small(rng, 3**6, levels)
    own = array({**rng.choice(IN_LOCKSTEP[:2]), "accelerators": 2**levels})
    asked: Any = {"batch": rng.choice([2, 4, 6]), "array": own, "search": "joint", "cost": "bytes"}
    readings, even = ("executed", "text", "figures"), rng.random() < 0.3
    asked |= RUN if three else {"reading": rng.choice(readings), "constraints": {"even": even}}
    try:
        plan = ho.solve(network, **asked)
    except ho.HyparError:  # no choice fits
        return
    found = explore(plan, rng.choice(["all", "H1", plan.layers[-1]]), objective=objective)
    if objective == "bytes":
        assert (found.plan_cost, found.rank) == (plan.cost.total, 1)
    instance = Instance(network, plan.problem.model_copy(update={"cost": objective}))
    data = price(instance, plan.assignments()).baselines.data
    parts = data / found.data_parallel_cost if data else 1
    assert parts == pytest.approx(1 if objective == "bytes" else 10 ** round(np.log10(parts)))
    for index in {0, found.values.size - 1, rng.randrange(found.values.size)}:
        rows = found.digits(np.array([index]))[0].tolist()
        value = found.values.flat[index]
        assert value == pytest.approx(price(instance, rows).total / parts)
        if objective == "time" and three:  # in lockstep
            assert ho.simulate(of_rows(found, instance, rows)).seconds == pytest.approx(value)


def of_rows(found: Exploration, instance: Instance, rows: list[list[int]]) -> ho.Plan:
    """The plan of some choices, with tensors stored as the objective likes them best."""
    plan, workload = found.plan, instance.workload
    nodes = rows_with_shared(workload, instance.cost, rows)
    return plan.model_copy(
        update={
            "parallelism": words_of(rows, plan.words),
            "layouts": stored_layouts(workload, nodes, plan.hierarchy),
            "cost": price(instance, rows),
        }
    )


def test_a_regret_lists_no_choice_that_the_reading_lacks() -> None:
    network = random_graph(Random(4), most=6)
    kinds = {layer.name: layer.kind for layer in network.layers}
    for reading in ("text", "executed"):
        plan = ho.solve(network, levels=1, batch=4, choices=THREE, reading=reading)
        whole = {kinds[each.layer] for each in ho.regrets(plan) if each.choice == "whole"}
        assert bool(whole) == (reading == "executed")


@pytest.mark.parametrize("name", ["lenet-c", "resnet-18"])
def test_the_fastest_of_the_best_is_one_of_them(name: str) -> None:
    plan = ho.solve(name, array="hmc-htree-4", search="joint", **RUN)
    fast = simulation.contenders(plan, 2)
    assert [each.plan.cost.total for each in fast] == sorted(each.plan.cost.total for each in fast)
    assert all(ho.simulate(each.plan).seconds == each.seconds for each in fast)
