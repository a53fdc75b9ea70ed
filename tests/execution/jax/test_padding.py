"""A padded vocabulary in JAX: the loss and the gradients are numpy's, which leave padding out."""

from __future__ import annotations

from typing import Any

import hypar_opt as ho
from hypar_opt.execution.export import jax_module, sharded_plan
from hypar_opt.workload.parallelism import CHOICES
from tests.execution.jax.steps import results
from tests.execution.jax.test_steps import assert_as_planned
from tests.execution.virtual.test_padding import language_model


def test_jax_leaves_the_padding_out_wherever_it_is() -> None:
    asked: Any = {"hierarchy": (2, 2), "batch": 4, "choices": CHOICES, "reading": "executed"}
    sharded, shown = [], []
    for tied in (True, False):
        network = language_model(tied=tied, pad=8)
        for head, loss in (("output", "channel"), ("model", "channel"), ("data", "data")):
            fixed = [f"head={head}", f"loss={loss}"]
            plan = ho.solve(network, constraints={"even": True, "fix": fixed}, **asked)
            assert "without_padding(" in jax_module(plan)
            sharded.append(sharded_plan(plan))
            shown.append(fixed)
    found = results([(one.network, one.program) for one in sharded])
    for one, fixed in zip(found, shown, strict=True):
        assert_as_planned(one, fixed)
