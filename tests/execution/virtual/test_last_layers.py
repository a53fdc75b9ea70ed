"""A step that ends in replicas or in a split loss: error and loss are there once, not once each."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.execution.drawn import run_as_one_device
from tests.slow import slow_off_diagonal

GIVEN = {"tokens": 4, "features": 8}
NORM = {"name": "norm", "kind": "norm", "norm": "affine"}
ENDS: dict[str, list[dict[str, Any]]] = {
    "norm": [NORM],
    "fc, norm": [{"name": "fc", "kind": "fc", "units": 8, "activation": "relu"}, NORM],
    "add": [
        {"name": "fc", "kind": "fc", "units": 8},
        {"name": "add", "kind": "add", "inputs": ["input", "fc"]},
    ],
    "loss": [
        {"name": "fc", "kind": "fc", "units": 8},
        {"name": "loss", "kind": "output", "loss": "softmax"},
    ],
}


@pytest.mark.parametrize(("ends", "levels"), slow_off_diagonal([*ENDS], [1, 2]))
def test_every_plan_runs_as_on_one_device_whatever_its_last_layer(ends: str, levels: int) -> None:
    """Whole, both halves have all of its output, and its error is one of two addends."""
    described = {"schema": "hypar-opt/network/2", "name": ends, "input": GIVEN, "layer": ENDS[ends]}
    network = ho.Network.model_validate(described)
    workload = workload_of(network, 8, CHOICES, shared_tensors=True)
    columns = [[n for n, no in enumerate(row) if not no] for row in workload.forbidden]
    whole = 0
    rows = list(itertools.product(*columns))
    for plan in itertools.product(rows, repeat=levels):
        if levels == 2 and len(rows) > 9 and plan[0] > plan[1]:
            continue  # the same choices at the other level
        run_as_one_device(network, Program(workload, plan, Hierarchy((2,) * len(plan))))
        whole += any(row[-1] == 2 for row in plan)
    assert whole or ends == "loss"
