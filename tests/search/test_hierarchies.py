"""Levels of two to six parts: searches against every plan, constraints by hand, plans that run."""

from __future__ import annotations

import itertools
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
from hypar_opt.plan.arguments import problem_of
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.operators.axes import FALLBACK_REPLICATED
from hypar_opt.workload.parallelism import CHOICES
from tests.cli.shell import command
from tests.simulator.plans import array
from tests.slow import slow_after
from tests.strategies.graph_problems import every_plan_of, plans_of
from tests.strategies.plans import totals_of
from tests.strategies.problems import random_network

SOLVERS = ("dp", "ilp", "cpsat", "brute")


def drawn(seed: int) -> tuple[ho.Network, dict[str, Any]]:
    """A small network, and a problem with levels of other sizes and perhaps constraints."""
    rng = Random(seed)
    chain = rng.random() < 0.5
    network = random_network(rng, 3) if chain else random_graph(rng, most=3)
    choices = CHOICES[: rng.choice([2, 3])]
    while plans_of(network, 1, len(choices)) > 5000:
        network = random_graph(rng, most=3)
    sizes = [rng.randint(2, 6) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.4:
        sizes = sizes[:1] * len(sizes)  # which have thresholds
    while plans_of(network, len(sizes), len(choices)) > 1500 and len(sizes) > 1:
        sizes.pop()
    constraints: dict[str, Any] = {}
    if rng.random() < 0.5:
        constraints[rng.choice(["even", "runnable"])] = True
    # The memory of shared weights has a test of its own.
    if rng.random() < 0.3 and not any(layer.shares_weights_with for layer in network.layers):
        constraints["memory"] = rng.choice([300, 3_000, 30_000])
    if rng.random() < 0.2:
        constraints["fix"] = (f"*@H{rng.randint(1, len(sizes))}=data",)
    return network, {
        "batch": rng.choice([lcm(*sizes) * rng.randint(1, 2), rng.randint(1, 2 * prod(sizes))]),
        "hierarchy": sizes,
        "whole_levels": True,
        "choices": choices,
        "reading": "executed",
        "element_bytes": rng.choice([1, 2, 4]),
        "constraints": constraints,
    }


def on_an_array(seed: int) -> tuple[ho.Network, dict[str, Any]]:
    """The same on an array whose levels are those, whole or as their prime factors."""
    network, asked = drawn(seed)
    rng = Random(f"array {seed}")
    shape = asked.pop("hierarchy")[:2]
    link = {"bandwidth": f"{rng.randint(1, 9)} B/s", "latency": rng.choice(["0 s", "1 s"])}
    topology: dict[str, Any] = {"kind": rng.choice(["torus", "mesh"]), "shape": shape, "link": link}
    if len(shape) == 2 and rng.random() < 0.5:
        per_node = {"nodes": shape[0], "per_node": shape[1]}
        topology = {"kind": "nodes", **per_node, "link": link, "fabric": {"bandwidth": "3 B/s"}}
    found = array(topology)
    asked["whole_levels"] = rng.random() < 0.5
    if plans_of(network, found.levels, len(asked["choices"])) > 1500:
        asked["whole_levels"] = True
    # Within a memory it trains in micro-batches and shards: test_within_memory.py.
    asked["constraints"] = {k: v for k, v in asked["constraints"].items() if k == "even"}
    collective = rng.choice(["pairwise", "ring", "hierarchical"])
    asked["array"] = found.model_copy(update={"collective": collective})
    # Around rings shards of inner levels take less; what trains otherwise has tests of its own.
    asked["training"] = {"micro_batches": 1, "recompute": "none", "shard": "none"}
    return network, asked | {"cost": rng.choice(["bytes", "time", "time", "energy"])}


def states_of(instance: Instance, layer: int) -> list[tuple[int, ...]]:
    """The states of a layer that keep to rules on splits and pins, from sizes alone.

    As a last resort it is whole in as few parts as can be, and then splits no sums over channels.
    """
    problem, of_layer = instance.problem, instance.workload.layers[layer]
    sizes, constraints = problem.hierarchy.sizes, problem.constraints
    own = instance.workload.choices_of_nodes[instance.workload.shared + layer]
    data = {int(pin.split("@H")[1].split("=")[0]) - 1 for pin in constraints.fix}

    def parts(state: tuple[int, ...]) -> dict[str, int]:
        made: dict[str, int] = {}
        for column, size in zip(state, sizes, strict=True):
            axis = own[column].axis  # type: ignore[union-attr]
            made[axis] = made.get(axis, 1) * size
        return made

    def fits(state: tuple[int, ...]) -> bool:
        # Of several results in one, such as queries, keys and values, each is divided by itself.
        cut = [
            (size, count)
            for axis, count in parts(state).items()
            if axis
            for size in (axis in "oc" and of_layer.split_outputs) or (of_layer.sizes[axis],)
        ]
        if constraints.even and any(size % count for size, count in cut):
            return False
        if constraints.runnable and any(size < count for size, count in cut):
            return False
        return not any(state[level] for level in data)

    every = itertools.product((n for n, choice in enumerate(own) if choice), repeat=len(sizes))
    states = [state for state in every if fits(state)]
    if FALLBACK_REPLICATED not in own:
        return states
    if any(of_layer.statistics) and all("" in parts(state) for state in states):
        states = [state for state in states if "c" not in parts(state)]
    fewest = min((parts(state).get("", 1) for state in states), default=1)
    return [state for state in states if parts(state).get("", 1) == fewest]


def fits_memory(instance: Instance, rows: tuple[tuple[int, ...], ...]) -> bool:
    """Whether a plan fits the memory: from sizes alone."""
    problem, workload = instance.problem, instance.workload
    sizes, load = problem.hierarchy.sizes, Fraction()
    for n, state in enumerate(zip(*rows, strict=True)):
        layer, own = workload.layers[n], workload.choices_of_nodes[workload.shared + n]
        parts: dict[str, int] = {}
        for column, size in zip(state, sizes, strict=True):
            axis = own[column].axis
            parts[axis] = parts.get(axis, 1) * size

        def held(elements: int, axes: tuple[str, ...], parts: dict[str, int] = parts) -> Fraction:
            # A shuffle reads, as c', those channels that it writes.
            own = {axis[0] for axis in axes}
            return Fraction(elements, prod(n for axis, n in parts.items() if axis in own))

        contraction = layer.operator.axes
        if not layer.tied and layer.weight:
            load += held(prod(layer.weight), contraction.weight)
        for shape in (layer.input, *layer.further_inputs):
            load += held(prod(shape) if shape else 0, contraction.input)
        load += held(prod(layer.output) if layer.output else 0, contraction.output)
    memory = problem.constraints.memory
    return memory is None or 2 * problem.element_bytes * load <= memory


@pytest.mark.parametrize(
    ("draw", "seed"),
    [
        *slow_after(15, [(drawn, seed) for seed in range(1000)]),
        *slow_after(8, [(on_an_array, seed) for seed in range(1000)]),
    ],
)
def test_a_search_finds_the_best_of_every_plan(draw: Any, seed: int) -> None:
    network, asked = draw(seed)
    instance = Instance.to_search(network, problem_of(network, **asked))
    asked_of_all = {**asked, "constraints": {}, "choices": instance.problem.choices}
    plain = Instance(network, problem_of(network, **asked_of_all))
    states = [states_of(instance, n) for n in range(len(network.layers))]
    every = (tuple(zip(*columns, strict=True)) for columns in itertools.product(*states))
    kept = [rows for rows in every if fits_memory(instance, rows)]
    priced = totals_of(plain.workload, plain.cost, kept, instance.rule)
    # CP-SAT counts in 64 bits, which hold no sums of femtoseconds; on a graph dp takes no memory
    # limit.
    solvers = SOLVERS if instance.cost.unit == "bytes" else ("dp", "brute")
    solver = Random(seed).choice(solvers["memory" in asked["constraints"] :])
    if solver == "brute" and any(
        FALLBACK_REPLICATED in own for own in instance.workload.choices_of_nodes
    ):
        solver = "dp"  # it would enumerate every plan that has whole layers too
    try:
        plan = ho.solve(network, solver=solver, search="joint", **asked)
    except ho.errors.InfeasibleError as error:
        # None, or none of the layouts of a tensor that several layers read.
        if priced and "no layout fits the output of" not in error.message:
            raise
        return
    assert plan.cost.total == min(priced)
    assert plan.assignments() in kept
    if plan.problem.cost == "bytes":
        assert plan.cost.executed_bytes == plan.cost.total
    around_rings = instance.problem.array and asked["array"].collective != "pairwise"
    if plan.problem.cost != "bytes" and around_rings:
        return  # a ring joins levels
    level = ho.solve(network, solver=solver, search="levelwise", **asked)
    assert level.cost.total >= plan.cost.total
    assert level.assignments() in kept


@pytest.mark.parametrize("seed", slow_after(6, range(60)))
def test_levels_of_equal_parts_are_proved_optimal_by_thresholds(seed: int) -> None:
    """On chains by dynamic programming, on graphs by elimination, on both by minimum cuts."""
    rng = Random(seed)
    parts, levels = rng.randint(3, 6), rng.randint(2, 3)
    networks = iter(lambda: random_network(rng, 3) if seed % 2 else random_graph(rng, most=3), None)
    network = next(one for one in networks if plans_of(one, levels, 2) <= 1500)
    asked: Any = {"batch": parts, "hierarchy": (parts,) * levels, "whole_levels": True}
    instance = Instance(network, problem_of(network, **asked))
    every = list(every_plan_of(network, levels, 2))
    least = min(totals_of(instance.workload, instance.cost, every))
    for solver in ("dp", "cut") if instance.thresholds else ("dp",):
        try:
            plan = ho.solve(network, solver=solver, search="joint", **asked)
        except ho.errors.RefusedError:  # cuts take no pair that is cheaper unlike
            assert solver == "cut"
            continue
        assert plan.cost.total == plan.solver.bound == least
        assert plan.solver.status == "optimal"


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
        (["simulate", "plan.json", "--array", "hmc-htree-16"], "the plan is for 6 accelerators"),
        (["simulate", "sfc", "--hierarchy", "3"], "a simulation needs an array of the levels 3"),
        (["report", "sfc", "--hierarchy", "3"], "a report needs an array of the levels 3"),
        (
            ["explore", "sfc", "--free", "all", "--objective", "time", "--hierarchy", "3"],
            "--objective time needs an array of the levels 3",
        ),
        (
            ["solve", "sfc", "--hierarchy", "3", "--batch", "3", "--cost", "time"],
            "--cost time needs an array of the levels 3: --array NAME|FILE",
        ),
        (
            ["solve", "sfc", "--hierarchy", "3", "--batch", "3", "--reading", "text"],
            "need --reading",
        ),
        (
            [*["solve", "sfc", "--hierarchy", "3", "--batch", "3", "--array", "a100-4x8"]],
            "--hierarchy should be 2,2,2,2,2, as the levels of the array a100-4x8, got 3",
        ),
    ],
)
def test_what_is_of_two_parts_alone_says_so(tmp_path: Path, call: list[str], said: str) -> None:
    (tmp_path / "plan.json").write_text(ho.solve("sfc", batch=6, hierarchy=(6,)).to_json())
    done = command(call, tmp_path)
    assert done.status == 2, done.output
    assert said in done.errors
    assert done.errors.count("\n") == 1
