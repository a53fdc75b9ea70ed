"""Random plans of chains as steps in JAX: what XLA compiles moves what the plan says."""

from __future__ import annotations

import random

import pytest

from tests.execution.drawn_plans import chain, random_program
from tests.execution.steps_in_jax import results

CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_plans_of_chains_move_what_is_planned(chunk: int) -> None:
    """Bytes at every level and of every kind, and gradients as one device has them."""
    rng = random.Random(chunk)
    programs = []
    for _ in range(200 // CHUNKS):
        network = chain(rng)
        programs.append((network, random_program(rng, network, rng.randint(1, 3))))
    for (network, program), found in zip(programs, results(programs), strict=True):
        shown = [layer.kind for layer in network.layers], program.rows
        assert found["differences"] == [], shown
        assert found["unused"] == "0"
        assert found["loss"] < 1e-5, shown
        assert max(found["gradients"].values()) < 1e-5, shown
