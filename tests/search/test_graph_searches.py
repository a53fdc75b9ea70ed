"""Searches on graphs, against every plan there is; and all solvers against one another."""

from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_levels
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.certificate import certify, check_certificate
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import examples, slow_after
from tests.strategies.arrays import arrays
from tests.strategies.graph_problems import (
    choices_of,
    every_plan_of,
    has_charges,
    plans_of,
    priced_graph_plans,
    random_graph_problem,
    solved,
)
from tests.strategies.networks import graph_networks
from tests.strategies.plans import Asked

GPT: dict[str, Any] = {
    "schema": "hypar-opt/network/2",
    "name": "gpt",
    "input": {"tokens": 8, "vocabulary": 24},
    "layer": [
        {"name": "wte", "kind": "embedding", "features": 8},
        {"name": "ln_f", "kind": "norm", "norm": "layer", "inputs": ["decoder"]},
        {"name": "head", "kind": "fc", "units": 24, "tied": "wte"},
        {"name": "loss", "kind": "output"},
    ],
    "block": [
        {
            "name": "decoder",
            "repeat": 2,
            "inputs": ["wte"],
            "layer": [
                {"name": "ln", "kind": "norm", "norm": "layer"},
                {"name": "qkv", "kind": "fc", "units": 24},
                {"name": "attention", "kind": "attention", "heads": 4},
                {"name": "proj", "kind": "fc", "units": 8},
                {"name": "add", "kind": "add", "inputs": ["input", "proj"]},
            ],
        }
    ],
}
"""Two blocks; its head's weights are the embedding's."""


def gpt() -> ho.Network:
    return ho.Network.model_validate(GPT)


@pytest.mark.parametrize("seed", slow_after(3, range(80)))
def test_the_joint_optimum_is_the_cheapest_plan_and_solvers_agree_on_it(seed: int) -> None:
    """All 2^(L H) plans are priced; of equals every exact solver returns the first."""
    rng = Random(seed)
    network, asked = random_graph_problem(rng)
    every = priced_graph_plans(network, asked)
    limited = "memory" in asked["constraints"]
    solvers = ["dp", "cut", "brute"] if not limited else ["dp", "brute", "cpsat"]
    if seed % 8 == 0:
        solvers += ["cpsat", "ilp"]
    joint = {name: solved(network, name, "joint", asked) for name in solvers}
    level = {name: solved(network, name, "levelwise", asked) for name in solvers}
    plans = [plan for plan in joint.values() if isinstance(plan, ho.Plan)]
    assert bool(plans) == bool(every), joint
    for plan in plans:
        total, rows = every[0]
        assert plan.cost.total == plan.solver.bound == total
        assert (plan.assignments(), plan.solver.status) == (rows, "optimal")
        assert price_of(plan) == total
    by_level = [plan for plan in level.values() if isinstance(plan, ho.Plan)]
    assert len({(plan.cost.total, plan.parallelism) for plan in by_level}) <= 1
    for plan in by_level:
        assert plan.cost.total >= every[0][0]
        assert price_of(plan) == plan.cost.total
    proved = plans[:1] + [plan for plan in by_level[:1] if plan.solver.status == "optimal"]
    for plan in proved if not limited else []:
        check_certificate(plan, certify(plan))


@pytest.mark.parametrize("seed", slow_after(15, range(30)))
def test_level_by_level_is_algorithm_2(seed: int) -> None:
    """Each level's cheapest row, given those above it; of equals the first from the last layer."""
    network, asked = random_graph_problem(Random(seed), constrained=False)
    if len(asked["choices"]) == 3 and asked["reading"] == "executed":
        return  # what is whole couples the levels: a plan's last level is not what it adds
    instance = Instance(network, problem_of(network, **asked))
    found: list[tuple[int, ...]] = []
    for _ in range(asked["levels"]):
        every = every_plan_of(network, 1, len(asked["choices"]), asked["reading"])
        rows = [row[0] for row in every]
        found.append(
            min(
                rows,
                key=lambda row: price_levels(instance.workload, instance.cost, [*found, row])[-1],
            )
        )
    for solver in ("dp", "cut", "brute"):
        plan = solved(network, solver, "levelwise", asked)
        assert isinstance(plan, str) or plan.assignments() == tuple(found), solver


@examples(40)
@given(
    graph_networks(),
    st.integers(1, 8),
    st.integers(1, 2),
    st.integers(2, 3),
    st.booleans(),
    st.randoms(),
)
def test_what_layers_share_takes_the_layouts_of_least_cost(
    network: ho.Network, batch: int, levels: int, count: int, even: bool, rng: Random
) -> None:
    """Of all layouts over all levels, those into equal parts if these are asked for."""
    asked: Asked = {"batch": batch, "levels": levels, "constraints": {"even": even}}
    asked["choices"] = CHOICES[:count]
    instance = Instance(network, problem_of(network, reading="executed", **asked))
    try:
        of_states = instance.states()
    except ho.HyparError:
        return
    workload, states = instance.workload, of_states.states
    if workload.shared > 6 - count:
        return
    table = of_states.dense()
    layers = [len(choices_of(layer, count, "executed")) for layer in network.layers]
    rows = tuple(tuple(rng.randrange(n) for n in layers) for _ in range(levels))
    own = [states.index(column) for column in zip(*rows, strict=True)]
    free = [range(len(states))] * workload.shared
    if table.allowed is not None:
        free = [row.nonzero()[0].tolist() for row in table.allowed[: workload.shared]]
    least = min(table.price([*layouts, *own]) for layouts in itertools.product(*free))
    price = sum(price_levels(workload, instance.cost, rows, rule=instance.rule), Fraction())
    assert price == table.in_units(least)


@examples(35)
@given(
    graph_networks(most=3),
    arrays(2),
    st.sampled_from(["time", "energy"]),
    st.sampled_from(["executed", "text", "figures"]),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 9),
    st.integers(2, 3),
)
def test_least_time_and_energy_are_those_of_the_best_of_all_plans(
    network: ho.Network,
    array: Any,
    cost: str,
    reading: str,
    element_bytes: int,
    batch: int,
    choices: int,
) -> None:
    choices = 2 if reading == "figures" else choices
    if not has_charges(network, reading):
        return
    if plans_of(network, array.levels, choices, reading) > 2**7:
        return
    asked: Asked = {"array": array, "cost": cost, "reading": reading}
    asked["constraints"] = {"runnable": False}
    # Else the search shards what is updated, and parts of a batch round femtoseconds otherwise.
    asked["training"] = {"shard": "none", "micro_batches": 1}
    asked["choices"] = CHOICES[:choices]
    asked |= {"element_bytes": element_bytes, "batch": batch}
    every = priced_graph_plans(network, asked)
    plan = ho.solve(network, search="joint", **asked)
    assert plan.cost.total == every[0][0]
    assert (plan.assignments(), plan.solver.status) == (every[0][1], "optimal")
    assert price_of(plan) == plan.cost.total
    brute = solved(network, "brute", "joint", asked)
    assert isinstance(brute, str) or brute.parallelism == plan.parallelism


@pytest.mark.parametrize(
    ("pin", "words"),
    [
        ("*=data", {"data"}),
        ("*=model", {"model", "output", "channel", "heads"}),
        ("decoder=model", {"model", "channel", "heads"}),
        ("decoder.1=model", {"model", "channel", "heads"}),
        ("decoder.*.qkv=model", {"model"}),
        ("decoder.*.attention=heads", {"heads"}),
        ("decoder.0.attention=model", {"heads"}),
        ("wte=output", {"output"}),
    ],
)
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_a_pin_is_in_the_layers_word_or_by_its_place(
    pin: str, words: set[str], search: str
) -> None:
    """A block's name stands for its layers; "model" is the second choice of any kind."""
    pattern = pin.partition("=")[0]
    prefixes = {"decoder": "decoder.", "decoder.1": "decoder.1."}
    plan = ho.solve(gpt(), levels=2, search=search, constraints={"fix": (pin,)})
    chosen = {
        str(choice)
        for row in plan.parallelism
        for layer, choice in zip(plan.layers, row, strict=True)
        if pattern == "*"
        or layer == pattern
        or layer.startswith(prefixes.get(pattern, "no layer"))
        or (pattern.startswith("decoder.*") and layer.endswith(pattern.rpartition(".")[2]))
    }
    assert chosen == words
    assert price_of(plan) == plan.cost.total
    check_certificate(plan, certify(plan))


@pytest.mark.parametrize(
    ("pin", "problem"),
    [
        ("*=heads", r"heads is not among the choices of wte \(embedding\): data, output"),
        ("*=output", r"output is not among the choices of decoder.0.ln \(norm\): data, channel"),
        ("encoder=model", "no layer is called 'encoder'"),
        ("*@H3=data", "the level should be from 1 to 2"),
    ],
)
def test_a_pin_that_a_layer_cannot_keep_is_refused(pin: str, problem: str) -> None:
    with pytest.raises(ho.HyparError, match=problem):
        ho.solve(gpt(), levels=2, constraints={"fix": (pin,)})


@pytest.mark.parametrize(
    "layers",
    [
        [{"name": "fc", "kind": "fc", "units": 3}],
        [{"name": "norm", "kind": "norm", "norm": "rms"}],
        [
            {"name": "a", "kind": "shuffle", "groups": 2},
            {"name": "b", "kind": "mul", "inputs": ["a", "input"]},
            {"name": "c", "kind": "output", "loss": "none"},
            {"name": "d", "kind": "output", "inputs": ["a"]},
        ],
    ],
)
def test_networks_of_one_layer_and_without_weights(layers: list[dict[str, Any]]) -> None:
    described = {"schema": "hypar-opt/network/2", "name": "small", "input": {"features": 4}}
    network = ho.Network.model_validate({**described, "layer": layers})
    for levels, search in itertools.product((0, 2), ("levelwise", "joint")):
        asked: Asked = {"batch": 1, "levels": levels}
        plans = [solved(network, name, search, asked) for name in ("dp", "cut", "brute", "cpsat")]
        found = {(plan.cost.total, plan.parallelism) for plan in plans if isinstance(plan, ho.Plan)}
        assert len(found) == 1
        if all(kind != "fc" for kind in (layer["kind"] for layer in layers)) and levels:
            # All by batch: only scales and shifts have gradients to all-reduce.
            (total, _), *_ = found
            assert (total == 0) == all(layer["kind"] != "norm" for layer in layers)
