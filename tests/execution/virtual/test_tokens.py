"""Plans that split sequences, run: they move the bytes of the model, and compute the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.execution.virtual.division import Division
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.sharding.program import Program
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_TOKENS
from tests.execution.drawn import drawn_network, drawn_programs, run_as_one_device
from tests.execution.drawn_plans import graph
from tests.slow import slow_after

SIZES = ((2,), (3,), (2, 2), (2, 3), (2, 2, 2))


@pytest.mark.parametrize("seed", slow_after(12, range(60)))
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
    workload = workload_of(network, 6, WITH_TOKENS, shared_tensors=True)
    program = Program(workload, rows_of_plan(plan, workload), plan.hierarchy)
    division = Division(network, program)
    devices = range(plan.hierarchy.accelerators)
    rows = np.concatenate([division.stored(1, device)[0] for device in devices])
    assert sorted(rows.tolist()) == list(range(12))
