"""Attention in windows of an image, as Swin's: biases by relative position, and shifts."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.workload.operators.attention import ImageWindows
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_QUERIES, WITH_TOKENS
from tests.execution.any_plan import drawn_plan, moved
from tests.execution.jax.test_steps import assert_moves_its_price
from tests.execution.virtual.test_arithmetic import assert_gradients_are_slopes
from tests.slow import slow_after

ROWS, COLUMNS, SIZE = 4, 8, (2, 4)


def windowed(
    heads: int = 4, kv: int = 4, shift: tuple[int, int] = (1, 2), *, biased: bool = True
) -> ho.Network:
    """Return attention in windows of two rows and four columns."""
    layers: list[dict[str, Any]] = [
        {"name": "query", "kind": "fc", "inputs": ["input"], "units": 2 * heads},
        {"name": "key", "kind": "fc", "inputs": ["input"], "units": 2 * kv},
        {"name": "value", "kind": "fc", "inputs": ["input"], "units": 3 * kv},
    ]
    reads = ["query", "key", "value"]
    if biased:
        table = {"vocabulary": 3 * 7, "features": heads}
        layers.append({"name": "biases", "kind": "embedding", "inputs": [], **table})
        reads.append("biases")
    windows = {"size": SIZE, "columns": COLUMNS, "shift": shift}
    attention = {"name": "attention", "kind": "attention", "inputs": reads, "windows": windows}
    layers.append(attention | {"heads": heads, "kv_heads": kv})
    layers.append({"name": "proj", "kind": "fc", "units": 8})
    described = {"schema": "hypar-opt/network/2", "name": "windows", "layer": layers}
    return ho.Network.model_validate(
        described | {"input": {"tokens": ROWS * COLUMNS, "features": 8}}
    )


@pytest.mark.parametrize(
    "network", [windowed(2, 2), windowed(2, 2, biased=False), windowed(4, 2, (0, 0))]
)
def test_gradients_are_the_slopes_of_the_loss(network: ho.Network) -> None:
    assert_gradients_are_slopes(network, seed=0)


def test_a_query_sees_the_pixels_of_its_window_that_were_its_neighbours() -> None:
    """Each pair of pixels by itself: windows of the torus, and no way across a seam."""
    windows, (down, right) = ImageWindows(size=SIZE, columns=COLUMNS, shift=(1, 2)), (1, 2)
    seen = np.zeros((ROWS * COLUMNS, ROWS * COLUMNS), int)
    for tokens, keys in zip(windows.order(32), windows.seen(32), strict=True):
        seen[np.ix_(tokens, tokens)] += np.where(keys, windows.relative() + 1, 0)
    for query in range(32):
        for key in range(32):
            (a, b), (c, d) = divmod(query, COLUMNS), divmod(key, COLUMNS)
            alike = (a - down) // 2 == (c - down) // 2 and (b - right) // 4 == (d - right) // 4
            number = (a - c + 1) * 7 + b - d + 3 + 1
            assert seen[query, key] == (number if alike else 0), (query, key)


def test_scores_are_those_of_windows() -> None:
    network = windowed()
    *_, attention, _ = workload_of(network, 2).layers
    assert attention.sizes["s"] == 8
    assert attention.macs == 2 * 32 * 8 * 4 * (2 + 3)
    assert [own.name for own in network.layers if own.axes.weight] == [
        *("query", "key", "value", "biases", "proj")
    ]


@pytest.mark.parametrize("seed", slow_after(4, range(60)))
def test_any_plan_moves_what_is_charged_and_computes_what_one_device_does(seed: int) -> None:
    rng = Random(seed)
    network = windowed(kv=2, biased=rng.random() < 0.8)
    # An odd number of biases has no equal parts.
    choices = [word for word in (*WITH_QUERIES, "whole") if word != "tokens"]
    moved(network, drawn_plan(rng, network, choices))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (windowed(), ["heads"]),
        (windowed(8, 2), ["queries", "heads"]),
        (windowed(biased=False), ["data"]),
    ],
)
def test_jax_moves_what_is_planned(network: ho.Network, words: list[str]) -> None:
    pins = [f"attention@H{2 - n}={word}" for n, word in enumerate(words)]
    plan = ho.solve(
        network,
        batch=2,
        levels=2,
        choices=WITH_QUERIES if "queries" in words else WITH_TOKENS,
        constraints={"fix": pins, "even": True},
        search="joint",
    )
    assert_moves_its_price(plan)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"windows": {"size": 3, "columns": 8}}, "size should divide 4x8 pixels, got 3x3"),
        ({"windows": {"size": 2, "columns": 5}}, "columns should divide the 32 tokens, got 5"),
        (
            {"windows": {"size": 2, "columns": 8}},
            "and 9 tokens of 4 features, one of each relative position",
        ),
        (
            {"windows": {"size": SIZE, "columns": COLUMNS, "shift": [0, 8]}},
            "shift should be within 4x8 pixels, got 0x8",
        ),
        ({"causal": True}, "windows: should be without causal and rotary"),
    ],
)
def test_windows_tile_the_image(change: dict[str, Any], problem: str) -> None:
    described = windowed().model_dump(mode="json", by_alias=True, exclude_none=True)
    described["layer"][4] |= change
    with pytest.raises(ValueError, match=problem):
        ho.Network.model_validate(described).maps()
