"""Chains on large arrays by time: bounded level by level, and proved though parts are uneven."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.state_table import StateTable
from hypar_opt.documents.document import validate
from hypar_opt.hardware.array import Array
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search import reductions
from hypar_opt.solvers import product_states
from tests.costs.test_longest_parts import chain
from tests.hardware.cubes import cubes
from tests.slow import slow_after

LINK = {"bandwidth": "1 GB/s", "latency": "1 us"}
TOPOLOGIES: list[dict[str, Any]] = [
    {"kind": "mesh", "shape": [2, 4], "link": LINK},
    {"kind": "mesh", "shape": [4, 4], "link": {"bandwidth": "1 GB/s"}},
    {"kind": "torus", "shape": [2, 2, 2], "link": LINK},
    {"kind": "torus", "shape": [3, 4], "link": LINK},
    {"kind": "nodes", "nodes": 4, "per_node": 2, "link": LINK, "fabric": {"bandwidth": "500 MB/s"}},
]


def drawn(seed: int) -> tuple[ho.Network, dict[str, Any]]:
    """A chain of sizes that levels do not divide, and a problem of its time."""
    rng = random.Random(seed)
    network = chain(*(rng.randrange(3, 40, 2) for _ in range(rng.randint(3, 5))))
    array = validate(Array, cubes(**rng.choice(TOPOLOGIES)))
    constraints: dict[str, Any] = {"runnable": rng.random() < 0.5}
    if rng.random() < 0.3:
        constraints["fix"] = [f"fc0@H1={rng.choice(['data', 'model'])}"]
    choices = ("data", "model", "output")[: rng.choice([2, 3])]
    asked = {"array": array, "cost": "time", "choices": choices, "batch": rng.randrange(9, 50, 2)}
    return network, asked | {"reading": "executed", "constraints": constraints}


@pytest.mark.parametrize("seed", slow_after(20, range(200)))
def test_levels_bound_what_pairs_of_states_are_charged(seed: int) -> None:
    network, asked = drawn(seed)
    instance = Instance(network, problem_of(network, **asked))
    levels = instance.problem.levels
    table = StateTable.of(instance.cost, instance.workload, levels).by_level(bounding=True)
    assert table is not None
    assert table.exact is not None  # odd sizes are uneven
    states = np.arange(table.choices**levels)
    for boundary in range(len(table.ends)):
        charged = table.exact(boundary, states, states)
        bound = [product_states.step_into(table, boundary, target) for target in states]
        assert (charged >= np.array(bound).T).all()


@pytest.mark.parametrize("seed", slow_after(8, range(300)))
def test_a_chain_that_is_bounded_has_the_optimum_of_all_states(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, asked = drawn(seed)
    exhaustive = ho.solve(network, search="joint", **asked)
    monkeypatch.setattr(reductions, "_MANY", 1)
    bounded = ho.solve(network, search="joint", **asked)
    assert bounded.cost.total == exhaustive.cost.total
    assert bounded.assignments() == exhaustive.assignments()
    assert bounded.solver.status == exhaustive.solver.status == "optimal"
    # Where fewer pairs are charged than a proof takes, the plan has a gap that holds.
    monkeypatch.setattr(product_states, "_MAX_PAIRS", 0)
    unproved = ho.solve(network, search="joint", **asked)
    assert unproved.solver.bound is not None
    assert unproved.solver.bound <= exhaustive.cost.total <= unproved.cost.total


def mesh_of(side: int) -> Array:
    """Cubes whose links take 100 ns and 10 GB/s."""
    link = {"bandwidth": "10 GB/s", "latency": "100 ns"}
    return validate(Array, cubes(kind="mesh", shape=[side, side], link=link))


@pytest.mark.parametrize(
    ("side", "choices"),
    slow_after(
        2,
        [
            (32, ("data", "model")),
            (32, ("data", "model", "output")),
            (64, ("data", "model")),
            (64, ("data", "model", "output")),
            (256, ("data", "model")),
        ],
    ),
)
def test_vgg_a_is_proved_on_large_meshes(side: int, choices: tuple[str, ...]) -> None:
    plan = ho.solve("vgg-a", array=mesh_of(side), batch=65536, choices=choices)
    assert plan.solver.status == "optimal"
    assert plan.solver.bound == plan.cost.total
