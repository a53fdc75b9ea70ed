"""A padded vocabulary in JAX: the loss and the gradients are numpy's, which leave padding out."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.execution.export import jax_module, sharded_plan
from hypar_opt.workload.parallelism import CHOICES
from tests.execution.jax.steps import results
from tests.execution.jax.test_steps import assert_as_planned
from tests.execution.virtual.test_padding import language_model
from tests.slow import slow_after


@pytest.mark.parametrize(
    ("head", "loss", "tied"),
    slow_after(
        3,
        [
            *(("output", "channel", True), ("model", "channel", False), ("data", "data", True)),
            *(("output", "channel", False), ("model", "channel", True), ("data", "data", False)),
        ],
    ),
)
def test_jax_leaves_the_padding_out_wherever_it_is(head: str, loss: str, tied: bool) -> None:
    asked: Any = {"hierarchy": (2, 2), "batch": 4, "choices": CHOICES, "reading": "executed"}
    fixed = [f"head={head}", f"loss={loss}"]
    network = language_model(tied=tied, pad=8)
    plan = ho.solve(network, constraints={"even": True, "fix": fixed}, **asked)
    assert "without_padding(" in jax_module(plan)
    sharded = sharded_plan(plan)
    (found,) = results([(sharded.network, sharded.program)])
    assert_as_planned(found, fixed)
