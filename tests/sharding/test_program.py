"""A program keeps each tensor as docs/plan-file.md says, also where other layouts move the same."""

from __future__ import annotations

import itertools

import pytest

import hypar_opt as ho
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.layouts import WHOLE
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.program import Program
from hypar_opt.sharding.weights import shared_weights
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.execution.drawn import run_as_one_device
from tests.strategies.written_plans import fully_connected, written

DATA, MODEL, OUTPUT = range(3)
THREE = CHOICES

TIED = ho.Network.model_validate(
    {
        "schema": "hypar-opt/network/2",
        "name": "tied",
        "input": {"tokens": 4, "vocabulary": 8},
        "layer": [
            {"name": "token", "kind": "embedding", "features": 8},
            {"name": "up", "kind": "fc", "units": 8},
            {"name": "head", "kind": "fc", "units": 8, "tied": "token"},
        ],
    }
)


def test_partial_sums_that_are_read_whole_or_by_nobody_are_stored_by_batch() -> None:
    """Model parallelism leaves partial sums, output parallelism reads its input whole."""
    write = written(fully_connected(8, 8, 8), "joint", levels=1, choices=THREE, batch=8)
    for choices, stored in [
        ((MODEL, OUTPUT), {"fc1": ("batch",), "fc2": ("channel",)}),
        ((MODEL, MODEL), {"fc1": ("channel",), "fc2": ("batch",)}),
        ((MODEL, DATA), {"fc1": ("batch",), "fc2": ("batch",)}),
    ]:
        assert write((choices,)).layouts == stored


@pytest.mark.parametrize("levels", [1, 2])
def test_shared_weights_are_whole_at_a_level_unless_all_users_split_them_alike(levels: int) -> None:
    """Whatever their users choose such a plan runs: each has the elements that it needs."""
    workload = workload_of(TIED, 8, CHOICES, shared_tensors=True)
    (shared,) = workload.weight_users
    users = workload.weight_users[shared]
    assert [workload.nodes[user].name for user in users] == ["token", "head"]
    for token, head in itertools.product(itertools.product(range(3), repeat=levels), repeat=2):
        rows = []
        for pair in zip(token, head, strict=True):
            row = [DATA] * len(workload.nodes)
            for user, choice in zip(users, pair, strict=True):
                row[user] = choice
            row[shared] = shared_weights(workload, row)[shared]
            assert row[shared] == (pair[0] if pair[0] == pair[1] else DATA)
            rows.append(row)
        program = Program(workload, rows, Hierarchy((2,) * len(rows)))
        reduced = {step.level for step in program.gradient_steps(shared)}
        assert reduced == {level for level, row in enumerate(rows) if row[shared] == DATA}
        run_as_one_device(TIED, program)


@pytest.mark.parametrize("heads", [2, 3, 6])
def test_layers_that_share_weights_split_them_in_one_order(heads: int) -> None:
    """Heads that do not halve evenly leave features that do not, and so rows of the weights."""
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "tied behind heads",
            "input": {"tokens": 4, "vocabulary": 8},
            "layer": [
                {"name": "token", "kind": "embedding", "features": 12},
                {"name": "qkv", "kind": "fc", "units": 36},
                {"name": "attention", "kind": "attention", "heads": heads},
                {"name": "head", "kind": "fc", "units": 8, "tied": "token"},
            ],
        }
    )
    workload = workload_of(network, 8, CHOICES, shared_tensors=True)
    row = [MODEL] * len(workload.nodes)
    for levels in (1, 2):
        run_as_one_device(network, Program(workload, [row] * levels, Hierarchy((2,) * levels)))


def test_what_nobody_splits_is_read_and_written_whole() -> None:
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "ends in a norm",
            "input": {"tokens": 4, "features": 8},
            "layer": [{"name": "norm", "kind": "norm", "norm": "affine"}],
        }
    )
    workload = workload_of(network, 8, CHOICES, shared_tensors=True)
    program = Program(workload, [[OUTPUT] * len(workload.nodes)], Hierarchy((2,)))
    assert (program.read, program.written) == ([(WHOLE,)], [(WHOLE,)])
    # The error of replicas is a sum of addends, and so is the gradient of their weights.
    (only,) = exchanges_of_step(program)
    assert (only.phase, only.kind) == (Phase.GRADIENT, StepKind.ALL_REDUCE)
