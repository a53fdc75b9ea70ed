"""Random plans of chains as steps in JAX: what XLA compiles moves what the plan says."""

from __future__ import annotations

import random

import pytest

from tests.execution.drawn_plans import chain, graph, random_program
from tests.execution.jax.steps import results
from tests.slow import slow_after

CHUNKS = 8


@pytest.mark.parametrize("chunk", slow_after(1, range(CHUNKS)))
def test_random_plans_of_chains_move_what_is_planned(chunk: int) -> None:
    """Bytes at every level and of every kind; of every fifth plan gradients, too."""
    rng = random.Random(chunk)
    programs = []
    for _ in range(200 // CHUNKS):
        network = chain(rng)
        programs.append((network, random_program(rng, network, rng.randint(1, 3))))
    for (network, program), found in zip(programs, results(programs, compared=5), strict=True):
        shown = [layer.kind for layer in network.layers], program.rows
        assert found["differences"] == [], shown
        assert found["unused"] == "0"
        if "gradients" in found:
            assert found["loss"] < 1e-5, shown
            assert max(found["gradients"].values()) < 1e-5, shown


@pytest.mark.parametrize("count", slow_after(1, [6, 12]))
def test_random_plans_of_graphs_move_what_is_planned(count: int) -> None:
    """Every kind of layer, tensors of several readers and shared weights.

    XLA merges exchanges that are alike in all, such as those of one error that a sum hands on to
    all that it reads: the module gives them different shapes. It drops the errors that no weights
    need, which a plan counts: those of layers before the first weights.
    """
    rng = random.Random(4)
    programs = []
    for _ in range(count):
        network = graph(rng)
        programs.append((network, random_program(rng, network, rng.randint(1, 3))))
    found = [one for one in results(programs, compared=3) if "refused" not in one]
    assert len(found) >= count * 2 / 3
    for one in found:
        assert one["differences"] == []
        assert max(one.get("gradients", {}).values(), default=0) < 1e-5
        assert one.get("alone", 0) < 1e-5
