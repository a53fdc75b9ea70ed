"""Levels of two to six parts: searches against every plan, constraints by hand, plans that run."""

from __future__ import annotations

import json
from fractions import Fraction
from math import lcm, prod
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_levels
from hypar_opt.plan.arguments import problem_of
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import CHOICES
from tests.commands import command
from tests.slow import slow_after
from tests.strategies.graph_problems import every_plan_of, plans_of
from tests.strategies.problems import random_network

SOLVERS = ("dp", "ilp", "cpsat", "brute")


def drawn(seed: int) -> tuple[ho.Network, dict[str, Any]]:
    """A small network, and a problem with levels of other sizes and perhaps constraints."""
    rng = Random(seed)
    chain = rng.random() < 0.5
    network = random_network(rng, 3) if chain else random_graph(rng, most=3)
    choices = CHOICES[: rng.choice([2, 3])]
    sizes = [rng.randint(2, 6) for _ in range(rng.randint(1, 3))]
    while plans_of(network, len(sizes), len(choices)) > 1500 and len(sizes) > 1:
        sizes.pop()
    constraints: dict[str, Any] = {}
    if rng.random() < 0.3:
        constraints["even"] = True
    # The memory of shared weights has a test of its own.
    if rng.random() < 0.3 and not any(layer.shares_weights_with for layer in network.layers):
        constraints["memory"] = rng.choice([300, 3_000, 30_000])
    if rng.random() < 0.2:
        constraints["fix"] = (f"*@H{rng.randint(1, len(sizes))}=data",)
    return network, {
        "batch": lcm(*sizes) * rng.randint(1, 2),
        "hierarchy": sizes,
        "whole_levels": True,
        "choices": choices,
        "reading": "executed",
        "element_bytes": rng.choice([1, 2, 4]),
        "constraints": constraints,
    }


def keeps(instance: Instance, rows: tuple[tuple[int, ...], ...]) -> bool:
    """Whether a plan keeps to even splits and pins, and fits the memory: from sizes alone."""
    problem, workload = instance.problem, instance.workload
    sizes, constraints = problem.hierarchy.sizes, problem.constraints
    load = Fraction()
    for layer, state in zip(workload.layers, zip(*rows, strict=True), strict=True):
        split = [layer.operator.splits[problem.choices[column]].axis for column in state]
        parts: dict[str, int] = {}
        for axis, size in zip(split, sizes, strict=True):
            parts[axis] = parts.get(axis, 1) * size
        if constraints.even and any(axis and layer.sizes[axis] % n for axis, n in parts.items()):
            return False

        def held(elements: int, axes: tuple[str, ...], parts: dict[str, int] = parts) -> Fraction:
            return Fraction(elements, prod(n for axis, n in parts.items() if axis in axes))

        contraction = layer.operator.contraction
        if not layer.tied and layer.weight:
            load += held(prod(layer.weight), contraction.weight)
        for shape in (layer.input, *layer.others):
            load += held(prod(shape) if shape else 0, contraction.input)
        load += held(prod(layer.output) if layer.output else 0, contraction.output)
    pins = [int(pin.split("@H")[1].split("=")[0]) for pin in constraints.fix]
    if any(column for level in pins for column in rows[level - 1]):
        return False
    memory = constraints.memory
    return memory is None or 2 * problem.element_bytes * load <= memory


@pytest.mark.parametrize("seed", slow_after(36, range(400)))
def test_a_search_finds_the_best_of_every_plan(seed: int) -> None:
    network, asked = drawn(seed)
    plain = Instance(network, problem_of(network, **{**asked, "constraints": {}}))
    instance = Instance(network, problem_of(network, **asked))
    levels, choices = len(asked["hierarchy"]), len(asked["choices"])
    kept = (rows for rows in every_plan_of(network, levels, choices) if keeps(instance, rows))
    priced = [
        sum(price_levels(plain.workload, plain.cost, rows, even=instance.even), Fraction())
        for rows in kept
    ]
    solver = Random(seed).choice(SOLVERS)
    try:
        plan = ho.solve(network, solver=solver, search="joint", **asked)
    except ho.errors.InfeasibleError as error:
        # None, or none of the layouts of a tensor that several layers read.
        if priced and "no layout fits the output of" not in error.message:
            raise
        return
    assert plan.cost.total == min(priced)
    assert keeps(instance, plan.assignments())
    assert plan.cost.executed_bytes == plan.cost.total
    level = ho.solve(network, **asked)
    assert level.cost.total >= plan.cost.total
    assert keeps(instance, level.assignments())


@pytest.mark.parametrize("sizes", [(6, 8), (3,), (2, 5), (7, 2)])
def test_prime_factors_move_no_more(sizes: tuple[int, ...]) -> None:
    asked: Any = {"batch": 2 * prod(sizes), "hierarchy": sizes, "search": "joint"}
    whole = ho.solve("alexnet", whole_levels=True, **asked)
    factored = ho.solve("alexnet", **asked)
    assert factored.hierarchy == Hierarchy(sizes).in_primes
    assert factored.accelerators == whole.accelerators == prod(sizes)
    assert factored.cost.total <= whole.cost.total
    # All in data parallelism: an all-reduce of all gradients, whatever the levels.
    weights = sum(Instance.of_plan(whole).workload.weights)
    data = 4 * 2 * weights * (prod(sizes) - 1)
    assert factored.cost.baselines.data == whole.cost.baselines.data == data


def test_the_order_of_levels_changes_no_total() -> None:
    one, other = (
        ho.solve("gpt2", batch=8, hierarchy=sizes, whole_levels=True, search="joint")
        for sizes in ((2, 4), (4, 2))
    )
    assert one.cost.total == other.cost.total


def test_a_plan_of_six_nodes_of_eight_is_written_read_and_run(tmp_path: Path) -> None:
    solve = ["solve", "lenet-c", "--batch", "48", "--hierarchy", "6,8", "--output", "plan.json"]
    solved = command(solve, tmp_path)
    assert solved.status == 0
    assert "2 x 3 x 2 x 2 x 2 = 48 accelerators" in " ".join(solved.output.split())
    document = json.loads((tmp_path / "plan.json").read_text())
    assert (document["schema"], document["parts"]) == ("hypar-opt/plan/3", [2, 3, 2, 2, 2])
    plan = ho.read_plan(tmp_path / "plan.json")
    assert plan.hierarchy.accelerators == 48
    ran = command(["run", "plan.json", "--scale-down", "--output", "run.json"], tmp_path)
    assert ran.status == 0
    assert json.loads((tmp_path / "run.json").read_text())["parts"] == [2, 3, 2, 2, 2]
    assert "batch 48 on 2 x 3 x 2 x 2 x 2 = 48 devices" in " ".join(ran.output.split())
    document["schema"] = "hypar-opt/plan/2"
    (tmp_path / "older.json").write_text(json.dumps(document))
    shown = command(["show", "older.json"], tmp_path)
    assert shown.status == 2
    assert "parts: should be in files of 'hypar-opt/plan/3'" in shown.errors


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["export", "plan.json", "--to", "jax"], "JAX meshes are of two parts"),
        (["run", "plan.json", "--backend", "jax"], "JAX meshes are of two parts"),
        (["verify", "plan.json"], "certificates are of levels of two parts"),
        (["simulate", "plan.json", "--array", "hmc-htree-16"], "the plan is for 6 accelerators"),
        (["solve", "sfc", "--hierarchy", "3"], "batch: should be a multiple of 3"),
        (
            ["solve", "sfc", "--hierarchy", "3", "--batch", "3", "--reading", "text"],
            "need --reading",
        ),
        (
            [*["solve", "sfc", "--hierarchy", "3", "--batch", "3", "--array", "a100-4x8"]],
            "levels have two parts",
        ),
    ],
)
def test_what_is_of_two_parts_alone_says_so(tmp_path: Path, call: list[str], said: str) -> None:
    (tmp_path / "plan.json").write_text(ho.solve("sfc", batch=6, hierarchy=(6,)).to_json())
    done = command(call, tmp_path)
    assert done.status == 2, done.output
    assert said in done.errors
    assert done.errors.count("\n") == 1
