"""Studies of plans that run with three choices: against every plan, priced one by one."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.shared_nodes import rows_with_shared
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.plan import columns_of, words_of
from hypar_opt.plan.stored_layouts import stored_layouts
from hypar_opt.studies import simulation
from hypar_opt.studies.exploration import Exploration, explore
from hypar_opt.studies.random_networks import random_chain, random_graph
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES
from tests.simulator.plans import IN_LOCKSTEP, array
from tests.strategies.graph_problems import plans_of, priced_graph_plans

THREE = CHOICES
RUN: dict[str, Any] = {"choices": THREE, "reading": "executed"}


def small(rng: Random, most_plans: int, levels: int) -> Network:
    """A chain or a graph, of which every plan can be looked at."""
    while True:
        graph = rng.random() < 0.8
        network = random_graph(rng, most=3) if graph else random_chain(rng, "chain")
        if 3**levels < plans_of(network, levels, 3) <= most_plans:
            return network


@pytest.mark.parametrize("seed", range(12))
def test_best_plans_and_regrets_are_those_of_every_plan_in_order(seed: int) -> None:
    rng = Random(seed)
    levels = 1 + seed % 2
    network = small(rng, 3**5, levels)
    asked: Any = {**RUN, "batch": rng.choice([2, 3, 8]), "levels": levels}
    every = priced_graph_plans(network, asked)
    plan = ho.solve(network, search="joint", **asked)
    assert plan.cost.total == every[0][0]
    for regret in ho.regrets(plan):
        layer = plan.layers.index(regret.layer)
        column = plan.words[layer].index(regret.choice)
        having = [total for total, rows in every if rows[regret.level - 1][layer] == column]
        assert regret.extra is not None
        assert Fraction(regret.extra) == min(having) - Fraction(plan.cost.total)
    found = [
        (Fraction(each.total), tuple(map(tuple, columns_of(each.parallelism, plan.words))))
        for each in ho.best_plans(plan, 10)
    ]
    if levels == 1:
        assert found == every[:10]
    else:  # with plans that differ in the order of levels alone, or without
        assert found[0] == every[0]
        assert {total for total, _ in found} <= {total for total, _ in every}


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("objective", ["bytes", "time", "energy"])
def test_each_explored_plan_costs_what_it_is_priced_and_simulated_at(
    seed: int, objective: str
) -> None:
    rng = Random(seed)
    levels = 2
    network = small(rng, 3**6, levels)
    four = array({**rng.choice(IN_LOCKSTEP[:2]), "accelerators": 4})
    plan = ho.solve(network, array=four, search="joint", batch=rng.choice([2, 4]), **RUN)
    found = explore(plan, rng.choice(["all", "H1", plan.layers[-1]]), objective=objective)
    if objective == "bytes":
        assert (found.plan_cost, found.rank) == (plan.cost.total, 1)
    problem = plan.problem.model_copy(update={"cost": objective})
    instance = Instance(network, problem)
    for index in {0, found.values.size - 1, rng.randrange(found.values.size)}:
        rows = found.digits(np.array([index]))[0].tolist()
        own, cost = found.values.flat[index], price(instance, rows)
        parts = 1 if objective == "bytes" else 10 ** round(np.log10(cost.total / own))
        assert own == pytest.approx(cost.total / parts)
        if objective == "time":  # in lockstep
            assert ho.simulate(of_rows(found, instance, rows)).seconds == pytest.approx(own)


def of_rows(found: Exploration, instance: Instance, rows: list[list[int]]) -> ho.Plan:
    """The plan of some choices, with tensors stored as the objective likes them best."""
    plan, workload = found.plan, instance.workload
    nodes = rows_with_shared(workload, instance.cost, rows)
    return plan.model_copy(
        update={
            "parallelism": words_of(rows, plan.words),
            "layouts": stored_layouts(workload, nodes),
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
