"""Optima of small networks as steps in JAX: what XLA compiles moves what the plan says."""

from __future__ import annotations

from fractions import Fraction

import pytest

import hypar_opt as ho
from hypar_opt.execution.export import sharded_plan
from hypar_opt.plan.plan import Plan
from tests.execution.jax.steps import results
from tests.execution.small_networks import chain, cnn, gpt
from tests.slow import slow_after

NETWORKS = {
    "tied GPT": gpt(tied=True, norm="rms"),
    "GPT": gpt(tied=False),
    "CNN": cnn(),
    "chain": chain(),
}


def optimum(name: str, levels: int, batch: int) -> Plan:
    return ho.solve(
        NETWORKS[name],
        batch=batch,
        levels=levels,
        choices=("data", "model", "output"),
        reading="executed",
        search="joint",
        constraints={"even": True},
    )


@pytest.mark.parametrize("name", slow_after(1, NETWORKS))
def test_optima_move_what_is_planned(name: str) -> None:
    """In bytes by level and kind, which add up to the plan's price; gradients are one device's."""
    batches = {1: (8,), 2: (64,), 3: (8,)}
    plans = [optimum(name, levels, batch) for levels, many in batches.items() for batch in many]
    sharded = [sharded_plan(plan) for plan in plans]
    found = results([(one.network, one.program) for one in sharded])
    for plan, one in zip(plans, found, strict=True):
        assert one["differences"] == []
        assert one["moved"] + Fraction(one["unused"]) == plan.cost.total == plan.cost.executed_bytes
        assert one["loss"] < 1e-5
        assert max(one["gradients"].values()) < 1e-5
        assert one.get("alone", 0) < 1e-5
