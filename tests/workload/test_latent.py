"""Attention whose keys have features that all heads share, as latent attention has."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.execution.virtual.arithmetic.attention import turned
from hypar_opt.workload.operators.attention import Rotary
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_TOKENS
from tests.execution.any_plan import drawn_plan, moved
from tests.execution.jax.test_steps import assert_moves_its_price
from tests.execution.virtual.test_arithmetic import assert_gradients_are_slopes
from tests.slow import slow_after

HEADS, FEATURES, SHARED = 4, 2, 2

LAYERS = [
    {"name": "query", "kind": "fc", "inputs": ["input"], "units": HEADS * (FEATURES + SHARED)},
    {"name": "latent", "kind": "fc", "inputs": ["input"], "units": 4},
    {"name": "key", "kind": "fc", "inputs": ["latent"], "units": HEADS * FEATURES},
    {"name": "value", "kind": "fc", "inputs": ["latent"], "units": HEADS * 3},
    {"name": "shared", "kind": "fc", "inputs": ["input"], "units": SHARED},
    {
        "name": "attention",
        "kind": "attention",
        "inputs": ["query", "key", "value", "shared"],
        "heads": HEADS,
        "causal": True,
        "rotary": {},
    },
    {"name": "proj", "kind": "fc", "units": 8},
]

LATENT = ho.Network.model_validate(
    {
        "schema": "hypar-opt/network/2",
        "name": "latent attention",
        "input": {"tokens": 8, "features": 8},
        "layer": LAYERS,
    }
)


def test_gradients_are_the_slopes_of_the_loss() -> None:
    assert_gradients_are_slopes(LATENT, seed=0)


@pytest.mark.parametrize("seed", slow_after(3, range(60)))
def test_any_plan_moves_what_is_charged_and_computes_what_one_device_does(seed: int) -> None:
    moved(LATENT, drawn_plan(Random(seed), LATENT, (*WITH_TOKENS, "whole")))


def test_features_that_turn_are_those_that_heads_share() -> None:
    """Scores differ by positions in the shared features alone."""
    rng = np.random.default_rng(0)
    x, rotary = rng.normal(size=(1, 1, 1, 8, FEATURES + SHARED)), Rotary()
    y = turned(x, np.arange(8), rotary, FEATURES)
    assert np.array_equal(y[..., :FEATURES], x[..., :FEATURES])
    alone = turned(x[..., FEATURES:], np.arange(8), rotary)
    assert np.allclose(y[..., FEATURES:], alone)
    assert np.allclose(turned(y, np.arange(8), rotary, FEATURES, back=True), x)


def test_parameters_and_products_are_those_of_the_model() -> None:
    sizes = workload_of(LATENT, 1).layers[5].sizes
    attention = LATENT.layers[5]
    assert attention.macs(sizes) == 8 * 8 * HEADS * (FEATURES + SHARED + 3)


@pytest.mark.parametrize("word", ["heads", "tokens"])
def test_jax_moves_what_is_planned(word: str) -> None:
    plan = ho.solve(
        LATENT,
        batch=2,
        levels=2,
        choices=WITH_TOKENS,
        constraints={"fix": [f"attention@H2={word}"], "even": True},
        search="joint",
    )
    assert_moves_its_price(plan)
