"""Plans that split sequences, run: they move the bytes of the model, and compute the same."""

from __future__ import annotations

import random
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.execution.virtual.division import Division
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.plan.strategies import strategy_pins
from hypar_opt.sharding.layouts import TOKEN
from hypar_opt.sharding.program import Program
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_TOKENS
from tests.execution.drawn import drawn_network, drawn_programs, run_as_one_device
from tests.execution.drawn_plans import graph
from tests.slow import slow_after

SIZES = ((2,), (3,), (2, 2), (2, 3), (2, 2, 2))


@pytest.mark.parametrize("seed", slow_after(3, range(60)))
def test_sequences_in_parts_are_computed_as_one(seed: int) -> None:
    rng = random.Random(seed)
    ran = 0
    while ran < 4:
        network = drawn_network(rng.randrange(10**6))
        if rng.random() < 0.5:
            network = graph(rng, rng.choice([6, 8]), most=5)
        if not any(maps.output.tokens > 1 for maps in network.maps()):
            continue
        uneven, drawn = rng.random() < 0.3, rng.randrange(10**6)
        for program in drawn_programs(network, drawn, 2, SIZES, uneven=uneven, choices=WITH_TOKENS):
            try:
                run_as_one_device(network, program, seed)
                ran += 1
            except RefusedError as refused:  # a part without a token, or channels tied to others
                said = str(refused)
                if "should be at least" not in said and "tied to other" not in said:
                    raise


def test_a_class_tokens_gradient_is_all_reduced_where_images_are_split() -> None:
    """Eight features of each of eight devices: 2 (8 - 1) 8 elements, as the cost model has them."""
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "patches",
            "input": {"channels": 3, "height": 4, "width": 4},
            "layer": [
                {"name": "patch", "kind": "conv", "filters": 8, "kernel": 2, "stride": 2},
                {"name": "patches", "kind": "flatten", "to": "tokens"},
                {"name": "class", "kind": "embedding", "inputs": [], "features": 8}
                | {"vocabulary": 1},
                {"name": "tokens", "kind": "concat", "inputs": ["class", "patches"]}
                | {"axis": "tokens"},
                {"name": "first", "kind": "global_pool", "over": "first"},
                {"name": "head", "kind": "fc", "units": 5},
                {"name": "loss", "kind": "output"},
            ],
        }
    )
    asked: Any = {"batch": 8, "levels": 3, "choices": WITH_TOKENS}
    run = ho.run(ho.solve(network, constraints={"fix": ("*=data",)}, **asked))
    assert run.agrees
    assert run.priced == run.counted
    (reduced,) = {row.tensor for row in run.exchanges if row.layer == "class"}
    assert reduced == "gradient"
    moved = sum(row.counted for row in run.exchanges if row.layer == "class")
    assert moved == 2 * (8 - 1) * 8 * 4


def division_by_tokens(network: ho.Network, plan: ho.Plan) -> Division:
    workload = workload_of(network, plan.batch, WITH_TOKENS, shared_tensors=True)
    return Division(network, Program(workload, rows_of_plan(plan, workload), plan.hierarchy))


@pytest.mark.parametrize("sizes", [(2,), (2, 3)])
def test_a_part_of_a_sequence_has_its_rows_of_a_table_of_positions(sizes: tuple[int, ...]) -> None:
    """Their gradients are no other part's: nothing of the table moves."""
    network = ho.gpt(layers=1, hidden=4, heads=2, tokens=12, vocabulary=10)
    pinned = {"fix": ("position=tokens", "embedded=tokens")}
    asked: Any = {"batch": 6, "hierarchy": sizes, "choices": WITH_TOKENS, "constraints": pinned}
    plan = ho.solve(network, search="joint", **asked)
    run = ho.run(plan)
    assert run.agrees
    assert run.priced == run.counted
    assert "position" not in {row.layer for row in run.exchanges}
    division = division_by_tokens(network, plan)
    devices = range(plan.hierarchy.accelerators)
    rows = np.concatenate([division.stored(1, device)[0] for device in devices])
    assert sorted(rows.tolist()) == list(range(12))


SUBSETS = [(2,), (2, 2), (2, 3), (2, 2, 2)]


@pytest.mark.parametrize("sizes", SUBSETS)
def test_parts_of_a_causal_sequence_see_as_much_at_any_of_their_levels(
    sizes: tuple[int, ...],
) -> None:
    """Each has one chunk from the front, and the one as far from the end."""
    accelerators, batch = prod(sizes), prod(sizes)
    network = ho.gpt(layers=1, hidden=4, heads=2, tokens=4 * accelerators, vocabulary=10)
    fix = strategy_pins(network, sizes, "context", accelerators)
    asked: Any = {"batch": batch, "hierarchy": sizes, "choices": WITH_TOKENS}
    plan = ho.solve(network, constraints={"fix": fix}, **asked)
    run = ho.run(plan)
    assert run.agrees
    assert run.priced == run.counted
    division = division_by_tokens(network, plan)
    axis, seen = division.along(TOKEN, 4 * accelerators), np.arange(1, 4 * accelerators + 1)
    for count in range(1, len(sizes) + 1):
        for levels in combinations(range(len(sizes)), count):
            held = [axis.indices((levels, ()), device) for device in range(accelerators)]
            assert len({len(own) for own in held}) == 1
            assert len({int(seen[own].sum()) for own in held}) == 1
    assert axis.indices(((0,), ()), 0)[0] == 0
    assert axis.indices(((0,), ()), 0)[-1] == 4 * accelerators - 1


def test_of_odd_chunks_parts_are_in_order() -> None:
    """Of twelve tokens eight chunks are not equal."""
    network = ho.gpt(layers=1, hidden=4, heads=2, tokens=12, vocabulary=10)
    plan = ho.solve(network, batch=4, hierarchy=(4,), choices=WITH_TOKENS)
    labels = division_by_tokens(network, plan).along(TOKEN, 12).labels
    assert (np.diff(labels) >= 0).all()
