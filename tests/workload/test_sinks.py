"""Attention with sinks: a learned score of each head beside those of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.proofs.certificate import check_price
from hypar_opt.workload.mirrored import are_mirrored
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_QUERIES, WITH_TOKENS
from tests.execution.any_plan import drawn_plan, moved
from tests.execution.jax.test_steps import assert_moves_its_price
from tests.execution.virtual.test_arithmetic import (
    assert_gradients_are_slopes,
    one_device,
    stated,
)
from tests.slow import slow_after
from tests.workload.forward import attention

QKV, FEATURES = ("query", "key", "value"), 2


def described(heads: int = 8, kv_heads: int = 4, inputs: Sequence[str] = (*QKV, "sinks")) -> Any:
    counts = dict(zip(QKV, (heads, kv_heads, kv_heads), strict=True))
    layers: list[dict[str, Any]] = [
        {"name": name, "kind": "fc", "inputs": ["input"], "units": count * FEATURES}
        for name, count in counts.items()
    ]
    keys = {"heads": heads, "kv_heads": kv_heads, "causal": True, "window": 5, "sinks": True}
    layers += [
        {"name": "sinks", "kind": "embedding", "inputs": [], "features": heads, "vocabulary": 1},
        {"name": "attention", "kind": "attention", "inputs": [*inputs], **keys},
        {"name": "proj", "kind": "fc", "units": 8},
    ]
    return {
        "schema": "hypar-opt/network/2",
        "name": "attention with sinks",
        "input": {"tokens": 8, "features": 8},
        "layer": layers,
    }


WITH_SINKS = ho.Network.model_validate(described())


def test_a_sink_is_the_score_of_a_key_without_a_value() -> None:
    data, workload = stated(WITH_SINKS)
    outputs = one_device(WITH_SINKS, data, workload).outputs
    position = {layer.name: n for n, layer in enumerate(WITH_SINKS.layers)}
    of_image = {name: outputs[n][1][0][0] for name, n in position.items()}
    expected = attention(described()["layer"][4], *(of_image[name] for name in (*QKV, "sinks")))
    assert np.allclose(of_image["attention"], expected)


def test_a_heads_parameter_is_its_sink() -> None:
    layers = zip(WITH_SINKS.layers, WITH_SINKS.maps(), strict=True)
    assert [layer.parameters(maps) for layer, maps in layers][3:5] == [8, 0]


def test_gradients_are_the_slopes_of_the_loss() -> None:
    assert_gradients_are_slopes(WITH_SINKS, seed=0)


@pytest.mark.parametrize("seed", slow_after(6, range(60)))
def test_any_plan_moves_what_is_charged_and_computes_what_one_device_does(seed: int) -> None:
    # One token is not split: a run refuses it.
    never = {("sinks", "tokens")}
    choices = (*WITH_QUERIES, "whole")
    moved(WITH_SINKS, drawn_plan(Random(seed), WITH_SINKS, choices, never=never))


@pytest.mark.parametrize(("tokens", "mirrored"), [(2**16, True), (2**16 - 8, False)])
def test_sinks_leave_parts_of_sequences_mirrored(tokens: int, mirrored: bool) -> None:
    """One token has no order, and what parts compute of the others is proved."""
    network = described()
    network["input"]["tokens"] = tokens
    del network["layer"][4]["window"]
    plan = ho.solve(
        ho.Network.model_validate(network),
        array="h100-8",
        batch=8,
        choices=WITH_TOKENS,
        constraints={"fix": ["attention=tokens", "sinks=data"]},
        overlap="none",
    )
    workload = workload_of(plan.network.description, 8, WITH_TOKENS)
    assert are_mirrored(workload, 8) == mirrored
    check_price(plan)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [((8, 4), ["heads"]), ((8, 4), ["tokens"]), ((4, 2), ["queries", "heads"])],
)
def test_jax_moves_what_is_planned(sizes: tuple[int, int], words: list[str]) -> None:
    levels = zip(("H2", "H1"), words, strict=False)
    plan = ho.solve(
        ho.Network.model_validate(described(*sizes)),
        batch=2,
        levels=2,
        choices=WITH_QUERIES,
        constraints={"fix": [f"attention@{level}={word}" for level, word in levels], "even": True},
        search="joint",
    )
    assert_moves_its_price(plan)


@pytest.mark.parametrize(
    "inputs", [[*QKV], [*QKV, "query"], ["query", "sinks"], [*QKV, "sinks", "sinks"]]
)
def test_what_are_no_sinks_is_refused(inputs: list[str]) -> None:
    network = described(inputs=inputs)
    # Whatever attention reads, something reads each of them.
    network["layer"] += [
        {"name": f"end of {name}", "kind": "output", "inputs": [name]}
        for name in (*QKV, "sinks", "proj")
    ]
    with pytest.raises(ValueError, match="'attention', inputs: should be"):
        ho.Network.model_validate(network)
