"""Mixtures of experts as networks compute what transformers' models of their configurations do.

``tests/data/mixtures.json`` has, of transformers 5.24.0 and torch 2.13 in double precision, small
configurations and, for the weights and ids of `_numbers`, the loss, the logits of the last token,
and the norm of each parameter's gradient.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.execution.virtual.data import random_data
from hypar_opt.models.config import content_of
from hypar_opt.workload.tensors import workload_of
from tests.execution.virtual.test_arithmetic import one_device

RECORDED = json.loads(Path("tests/data/mixtures.json").read_text())

Arrays = dict[str, Any]


def network_of(config: dict[str, Any]) -> ho.Network:
    """Return a configuration's network, whose experts take all tokens that choose them."""
    content = content_of(config)
    for layer in (layer for block in content["block"] for layer in block["layer"]):
        if layer["kind"] == "router":
            layer["capacity_factor"] = layer["experts"] / layer["top_k"]
    return ho.Network.model_validate(content)


def _numbers(shapes: dict[str, list[int]]) -> tuple[Arrays, Any]:
    """Return a model's parameters by name, and the ids of two sequences."""
    rng = np.random.default_rng(0)
    arrays = {name: 0.4 * rng.standard_normal(shape) for name, shape in shapes.items()}
    for name, array in arrays.items():
        if name.endswith(("gate_up_proj", "gate_up_proj_bias")) and "router.bias" in str(shapes):
            array *= 6  # beyond gpt-oss' clamps
    return arrays, rng.integers(24, size=(2, 16))


def parts_of(arrays: Arrays, config: dict[str, Any], layer: Any) -> list[tuple[str, Any]]:
    """Return the parameters that are a layer's weights and bias, by name, as the layer has them."""
    name, is_oss = layer.name, config["model_type"] == "gpt_oss"
    module, _, word = name.rpartition(".")
    if word == "sinks":
        return [(name, arrays[name][None])]
    if layer.kind == "experts":
        if word == "down_proj":
            of_experts = name
            own = arrays[name] if is_oss else arrays[name].swapaxes(1, 2)
            part: Any = slice(None)
        else:
            of_experts, number = f"{module}.gate_up_proj", ["gate_proj", "up_proj"].index(word)
            own, half = arrays[of_experts], config.get("moe_intermediate_size", 0)
            own = own if is_oss else own.swapaxes(1, 2)
            part = slice(number, None, 2) if is_oss else slice(number * half, (number + 1) * half)
        both = {key: arrays[key][..., part] for key in (f"{of_experts}_bias",) if key in arrays}
        return [(of_experts, own[..., part]), *both.items()]
    weight = f"{name}.weight"
    if module.endswith("kv_a_proj_with_mqa"):
        weight, rank = f"{module}.weight", config["kv_lora_rank"]
        return [(weight, np.split(arrays[weight], [rank])[word == "rotary"].T)]
    if module.endswith("kv_b_proj"):
        weight, size = f"{module}.weight", config["qk_nope_head_dim"]
        of_heads = arrays[weight].reshape(config["num_attention_heads"], -1, config["kv_lora_rank"])
        own = np.split(of_heads, [size], axis=1)[word == "value"]
        return [(weight, own.reshape(-1, own.shape[2]).T)]
    own = arrays[weight]
    own = own if layer.kind == "embedding" else own[None] if own.ndim == 1 else own.T
    return [(weight, own), *((key, arrays[key]) for key in (f"{name}.bias",) if key in arrays)]


@pytest.mark.parametrize("kind", RECORDED)
def test_outputs_and_gradients_are_those_of_the_model(kind: str) -> None:
    recorded = RECORDED[kind]
    config, (arrays, ids) = recorded["config"], _numbers(recorded["shapes"])
    network = network_of(config)
    workload = workload_of(network, 2, shared_tensors=True)
    data = random_data(network, workload, 0)
    own = {
        n: parts_of(arrays, config, layer)
        for n, layer in enumerate(network.layers)
        if n in data.weights
    }
    weights = {n: parts[0][1] for n, parts in own.items()}
    biases = {n: parts[1][1] for n, parts in own.items() if len(parts) > 1}
    assert biases.keys() == data.biases.keys()
    targets = dict.fromkeys(data.targets, np.roll(ids, -1, axis=1))
    record = one_device(
        network,
        replace(data, inputs={-1: ids}, weights=weights, biases=biases, targets=targets),
        workload,
    )
    # In single precision transformers take softmaxes of routers, and angles.
    close: dict[str, Any] = {"rel": 1e-5, "abs": 1e-6}
    assert record.loss == pytest.approx(recorded["loss"], **close)
    head = next(n for n, layer in enumerate(network.layers) if layer.name == "lm_head")
    assert record.outputs[head][1][0][1, -1] == pytest.approx(recorded["logits"], **close)
    squares = dict.fromkeys(recorded["shapes"], 0.0)
    for n, parts in own.items():
        (weight, _), *bias = parts
        squares[weight] += float((record.gradients[n][0] ** 2).sum())
        for name, _ in bias:
            squares[name] += float((record.bias_gradients[n][0] ** 2).sum())
    norms = {name: square**0.5 for name, square in squares.items()}
    assert norms == pytest.approx(recorded["gradients"], **close)
