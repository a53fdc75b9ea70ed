"""Studies of graphs: every plan explored, the best in order, regrets, against brute force."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.plan import columns_of
from hypar_opt.search.level_order import levels_permute
from hypar_opt.studies import advice
from hypar_opt.studies.exploration import explore
from hypar_opt.studies.random_networks import random_graph, random_networks
from tests.strategies.graph_problems import plans_of, priced_graph_plans, random_graph_problem
from tests.strategies.plans import Rows


@pytest.mark.parametrize("seed", range(30))
def test_best_plans_and_regrets_are_those_of_every_plan_in_order(seed: int) -> None:
    network, asked = random_graph_problem(Random(seed))
    asked["constraints"].pop("memory", None)
    every = priced_graph_plans(network, asked)
    if not every:
        return
    plan = ho.solve(network, search="joint", **asked)
    for regret in ho.regrets(plan):
        layer = plan.layers.index(regret.layer)
        column = plan.words[layer].index(regret.choice)
        having = [total for total, rows in every if rows[regret.level - 1][layer] == column]
        extra = None if regret.extra is None else Fraction(regret.extra)
        assert extra == (min(having) - Fraction(plan.cost.total) if having else None)
    if levels_permute(plan.problem):
        first: dict[object, tuple[Fraction, Rows]] = {}
        for total, rows in every:
            first.setdefault(tuple(sorted(rows)), (total, rows))
        every = list(first.values())
    found = [
        (Fraction(each.total), tuple(map(tuple, columns_of(each.parallelism, plan.words))))
        for each in ho.best_plans(plan, 20)
    ]
    assert found == every[:20]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_a_regret_is_what_solving_again_with_the_choice_pinned_costs_more(
    seed: int, search: str
) -> None:
    network = random_graph(Random(seed), most=4)
    plan = ho.solve(network, search=search, batch=4, levels=2)
    for regret in ho.regrets(plan)[::3]:
        fix = (f"{regret.layer}@H{regret.level}={regret.choice}",)
        other = ho.solve(network, search=search, batch=4, levels=2, constraints={"fix": fix})
        assert regret.extra == other.cost.total - plan.cost.total


@pytest.mark.parametrize("seed", range(30))
def test_each_explored_plan_costs_what_it_is_priced_at(seed: int) -> None:
    rng = Random(seed)
    network = random_graph(rng, most=4)
    objective = rng.choice(["bytes", "time", "energy"])
    levels = rng.choice([1, 2])
    if plans_of(network, levels, 2) > 2**12:
        return
    try:
        plan = ho.solve(
            network,
            search="joint",
            batch=rng.choice([2, 4, 6]),
            array=["hmc-htree-2", "hmc-torus-4"][levels - 1],
            reading=rng.choice(["executed", "text", "figures"]),
            constraints={"even": rng.random() < 0.3},
        )
    except ho.HyparError:  # no choice fits
        return
    found = explore(plan, rng.choice(["all", "H1", plan.layers[-1]]), objective=objective)
    problem = plan.problem.model_copy(update={"cost": objective})
    instance = Instance(network, problem)
    data = price(instance, plan.assignments()).baselines.data
    parts = data / found.data_parallel_cost if data else 1
    assert parts == pytest.approx(1 if objective == "bytes" else 10 ** round(np.log10(parts)))
    for index in {0, found.values.size - 1, rng.randrange(found.values.size)}:
        rows = found.digits(np.array([index]))[0].tolist()
        assert found.values.flat[index] == pytest.approx(price(instance, rows).total / parts)
    if objective == "bytes":
        assert (found.plan_cost, found.rank) == (plan.cost.total, 1)


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


def test_random_networks_are_chains_and_graphs_in_turn() -> None:
    networks = list(random_networks(40, seed=3))
    assert all(network.is_chain for network in networks[::2])
    kinds = {layer.kind for network in networks for layer in network.layers}
    assert kinds >= {"conv", "fc", "norm", "add", "attention", "concat", "embedding", "output"}
    assert any(network.blocks for network in networks)
    assert not all(network.is_chain for network in networks[1::2])


def test_solvers_agree_on_random_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["verify", "--random", "6", "--seed", "5", "--levels", "2", "--solvers", "dp,cut,cpsat"]
    assert run([*args, "--json"]) == 0
    out = capsys.readouterr().out
    assert "disagrees" not in out
    assert out.count('"agrees"') == 6 * 2 * 3
