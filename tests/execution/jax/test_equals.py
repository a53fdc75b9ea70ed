"""Equal layers as steps in JAX: XLA merges exchanges that it knows to be equal, a plan does not."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from hypar_opt.costs.shared_nodes import shared_weights
from hypar_opt.execution.jax.module import module_text
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.sharding.program import Program
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.execution.drawn_plans import alike_program, equal_layers
from tests.execution.jax.steps import results
from tests.execution.small_networks import SCHEMA, chain, gpt
from tests.slow import slow_after

CHUNKS = 20
PLANS_A_CHUNK = 10


def network(
    given: dict[str, int], *layers: tuple[str, str, str | list[str], dict[str, Any]]
) -> Network:
    described = [
        {"name": name, "kind": kind, "inputs": [reads] if isinstance(reads, str) else reads, **more}
        for name, kind, reads, more in layers
    ]
    return Network.model_validate(
        {"schema": SCHEMA, "name": "equals", "input": given, "layer": described}
    )


FC = {"units": 16}
CONV = {"filters": 16, "kernel": 1}
POOL = {"pool": {"kind": "max", "size": 2}}
FEATURES = {"features": 16}
NETWORKS = {
    "two layers of one tensor, and their sum": network(
        FEATURES,
        ("a", "fc", "input", FC),
        ("b", "fc", "input", FC),
        ("sum", "add", ["a", "b"], {}),
        ("c", "fc", "sum", FC),
        ("end", "add", ["sum", "c"], {}),
    ),
    "branches without weights, forward and backward": network(
        {"channels": 16, "height": 4, "width": 4},
        ("stem", "conv", "input", CONV),
        ("left", "pool", "stem", POOL),
        ("right", "pool", "stem", POOL),
        ("a", "conv", "left", CONV),
        ("b", "conv", "right", CONV),
        ("c", "pool", "a", POOL),
        ("d", "pool", "b", POOL),
        ("sum", "add", ["c", "d"], {}),
    ),
    "towers": network(
        FEATURES,
        ("stem", "fc", "input", FC),
        *((f"{t}1", "fc", "stem", FC) for t in "ab"),
        *((f"{t}2", "fc", f"{t}1", FC) for t in "ab"),
        *((f"{t}3", "fc", f"{t}2", FC) for t in "ab"),
        ("sum", "add", ["a3", "b3"], {}),
    ),
    "sums of sums": network(
        FEATURES,
        *((name, "fc", "input", FC) for name in "abcd"),
        ("ab", "add", ["a", "b"], {}),
        ("abc", "add", ["ab", "c"], {}),
        ("end", "add", ["abc", "d"], {}),
    ),
    "norms of one tensor, whose statistics are all-reduced": network(
        {"features": 16, "tokens": 4},
        ("stem", "fc", "input", FC),
        ("a", "norm", "stem", {"norm": "layer"}),
        ("b", "norm", "stem", {"norm": "layer"}),
        ("sum", "add", ["a", "b"], {}),
    ),
    "the same weights, twice of one tensor": network(
        FEATURES,
        ("stem", "fc", "input", FC),
        ("a", "fc", "stem", FC),
        ("b", "fc", "stem", {**FC, "tied": "a"}),
        ("sum", "add", ["a", "b"], {}),
    ),
}
ROWS = ((1, 0, 1), (1, 0, 0), (2, 1, 2))


def uniform(of: Network, choices: tuple[int, ...]) -> Program:
    """Return a plan that gives all layers the same choice at a level."""
    workload = workload_of(of, 16, CHOICES, shared_tensors=True)
    rows = []
    for choice in choices:
        row = [choice if not own[choice] else 0 for own in workload.forbidden]
        for node, column in shared_weights(workload, row).items():
            row[node] = column
        rows.append(row)
    return Program(workload, rows)


@pytest.mark.parametrize("name", NETWORKS)
def test_equal_exchanges_are_all_made(name: str) -> None:
    programs = [(NETWORKS[name], uniform(NETWORKS[name], choices)) for choices in ROWS]
    for choices, found in zip(ROWS, results(programs, compared=2), strict=True):
        assert found["differences"] == [], choices
        assert max(found.get("gradients", {}).values(), default=0) < 1e-5, choices


@pytest.mark.parametrize("chunk", slow_after(1, range(CHUNKS)))
def test_random_graphs_of_equal_layers_move_what_is_planned(chunk: int) -> None:
    rng = random.Random(chunk)
    programs = []
    for _ in range(PLANS_A_CHUNK):
        drawn = equal_layers(rng)
        programs.append((drawn, alike_program(rng, drawn, rng.randint(2, 3))))
    for (drawn, program), found in zip(programs, results(programs, compared=4), strict=True):
        shown = drawn.description(), program.rows
        assert found["differences"] == [], shown
        assert max(found.get("gradients", {}).values(), default=0) < 1e-5, shown
        assert found.get("alone", 0) < 1e-5, shown


def numbers(of: Network, choices: tuple[int, ...], *, alone: bool = False) -> list[str]:
    text = module_text(ShardedNetwork(of, uniform(of, choices)), title="", alone=alone)
    return re.findall(r"apart\(.*?, (\d+)\)", text[text.index("def loss") :])


@pytest.mark.parametrize("choices", ROWS)
def test_only_what_may_be_equal_has_a_number_of_its_own(choices: tuple[int, ...]) -> None:
    """A chain needs none, nor does a step on one device; no number stands twice."""
    assert numbers(chain(), choices) == []
    for of in (*NETWORKS.values(), gpt(tied=True, blocks=2)):
        found = numbers(of, choices)
        assert found
        assert len(set(found)) == len(found)
        assert numbers(of, choices, alone=True) == []
