"""Networks whose sizes all halve three times, and which XLA compiles in a second or two."""

from __future__ import annotations

from math import prod
from typing import Any

import hypar_opt as ho
from hypar_opt.plan.plan import Plan
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES
from tests.choices import WITH_TOKENS

SCHEMA = "hypar-opt/network/2"


def gpt(*, tied: bool, blocks: int = 1, norm: str = "layer") -> Network:
    """Return a transformer of a few blocks: embeddings, attention, residual sums, a head."""
    head: dict[str, Any] = {"tied": "token"} if tied else {}
    block = [
        {"name": "norm1", "kind": "norm", "norm": norm},
        {"name": "qkv", "kind": "fc", "units": 48, "bias": True},
        {"name": "attention", "kind": "attention", "heads": 8, "causal": True},
        {"name": "proj", "kind": "fc", "units": 16},
        {"name": "add1", "kind": "add", "inputs": ["input", "proj"]},
        {"name": "norm2", "kind": "norm", "norm": norm},
        {"name": "up", "kind": "fc", "units": 64, "activation": "gelu"},
        {"name": "down", "kind": "fc", "units": 16},
        {"name": "add2", "kind": "add", "inputs": ["add1", "down"]},
    ]
    description = {
        "schema": SCHEMA,
        "name": "small GPT",
        "input": {"tokens": 8, "vocabulary": 32},
        "layer": [
            {"name": "token", "kind": "embedding", "features": 16},
            {"name": "position", "kind": "embedding", "features": 16}
            | {"inputs": [], "vocabulary": 8},
            {"name": "embedded", "kind": "add", "inputs": ["token", "position"]},
            {"name": "norm", "kind": "norm", "inputs": ["decoder"], "norm": norm},
            {"name": "head", "kind": "fc", "units": 32, **head},
            {"name": "loss", "kind": "output"},
        ],
        "block": [{"name": "decoder", "repeat": blocks, "inputs": ["embedded"], "layer": block}],
    }
    return Network.model_validate(description)


def mixture() -> Network:
    """Return a mixture of eight experts, of which each token has one, and a head."""
    layers: list[dict[str, Any]] = [
        {"name": "token", "kind": "embedding", "features": 16},
        {"name": "router", "kind": "router", "experts": 8, "top_k": 1},
        {"name": "dispatch", "kind": "dispatch", "inputs": ["token", "router"]},
        {"name": "up", "kind": "experts", "units": 32, "activation": "gelu"},
        {"name": "down", "kind": "experts", "units": 16},
        {"name": "combine", "kind": "combine", "inputs": ["down", "router"]},
        {"name": "add", "kind": "add", "inputs": ["token", "combine"]},
        {"name": "head", "kind": "fc", "units": 32},
        {"name": "loss", "kind": "output"},
    ]
    given = {"tokens": 8, "vocabulary": 32}
    return Network.model_validate(
        {"schema": SCHEMA, "name": "small mixture", "input": given, "layer": layers}
    )


def parallel_blocks(unit: int = 8) -> Network:
    """Return a transformer whose attention and feed-forward block one sum adds up, with biases."""
    block = [
        {"name": "norm", "kind": "norm", "norm": "layer"},
        {"name": "qkv", "kind": "fc", "units": 6 * unit},
        {"name": "attention", "kind": "attention", "heads": unit, "causal": True},
        {"name": "proj", "kind": "fc", "units": 2 * unit, "bias": True},
        {"name": "up", "kind": "fc", "inputs": ["norm"], "units": 4 * unit, "activation": "gelu"},
        {"name": "down", "kind": "fc", "units": 2 * unit, "bias": True},
        {"name": "add", "kind": "add", "inputs": ["input", "proj", "down"]},
    ]
    description = {
        "schema": SCHEMA,
        "name": "parallel blocks",
        "input": {"tokens": unit, "vocabulary": 4 * unit},
        "layer": [
            {"name": "token", "kind": "embedding", "features": 2 * unit},
            {"name": "head", "kind": "fc", "inputs": ["decoder"], "units": 4 * unit},
            {"name": "loss", "kind": "output"},
        ],
        "block": [{"name": "decoder", "inputs": ["token"], "layer": block}],
    }
    return Network.model_validate(description)


def patches(unit: int = 8) -> Network:
    """Return a vision transformer: pixels as tokens, behind some of its own, pooled in two ways."""
    width = 2 * unit
    layers = [
        {"name": "conv", "kind": "conv", "filters": width, "kernel": 1},
        {"name": "pixels", "kind": "flatten", "to": "tokens"},
        {"name": "patch", "kind": "fc", "units": width},
        {"name": "position", "kind": "embedding", "features": width, "vocabulary": 2 * unit}
        | {"inputs": []},
        {"name": "embedded", "kind": "add", "inputs": ["patch", "position"]},
        {"name": "own", "kind": "embedding", "features": width, "vocabulary": unit, "inputs": []},
        {"name": "every", "kind": "concat", "axis": "tokens", "inputs": ["own", "embedded"]},
        {"name": "norm", "kind": "norm", "norm": "layer"},
        {"name": "qkv", "kind": "fc", "units": 3 * width},
        {"name": "attention", "kind": "attention", "heads": unit},
        {"name": "last", "kind": "global_pool", "over": "last", "inputs": ["attention"]},
        {"name": "mean", "kind": "global_pool", "over": "average", "inputs": ["embedded"]},
        {"name": "pooled", "kind": "add", "inputs": ["last", "mean"]},
        {"name": "head", "kind": "fc", "units": width},
        {"name": "loss", "kind": "output"},
    ]
    given = {"channels": unit, "height": 2, "width": unit}
    return Network.model_validate(
        {"schema": SCHEMA, "name": "patches", "input": given, "layer": layers}
    )


def decoder(unit: int = 8) -> Network:
    """Return attention to a longer sequence, then causal; to the input itself, too; flattened.

    With all that layers may say of what they compute: rotary positions, biases, scales, epsilons.
    """
    width = 2 * unit
    layers = [
        {"name": "q", "kind": "fc", "units": width},
        {"name": "memory", "kind": "embedding", "features": width, "vocabulary": 2 * unit}
        | {"inputs": []},
        {"name": "k", "kind": "fc", "units": width, "inputs": ["memory"], "bias": True},
        {"name": "v", "kind": "fc", "units": width, "inputs": ["memory"]},
        # Of two features a layer norm leaves the sign alone, but for its epsilon.
        {"name": "queries", "kind": "norm", "norm": "layer", "heads": unit, "inputs": ["q"]}
        | {"epsilon": 0.5},
        {"name": "keys", "kind": "norm", "norm": "rms", "heads": unit, "inputs": ["k"]}
        | {"epsilon": 0.1},
        {"name": "across", "kind": "attention", "heads": unit, "inputs": ["queries", "keys", "v"]}
        | {"rotary": {"base": 50.0}, "scale": 0.4},
        {"name": "causal", "kind": "attention", "heads": unit, "causal": True}
        | {"window": 3, "softcap": 0.7}
        | {"inputs": ["across", "input", "q"], "rotary": {"interleaved": True}},
        {"name": "normed", "kind": "norm", "norm": "rms", "epsilon": 0.01},
        {"name": "again", "kind": "attention", "heads": unit, "causal": True}
        | {"inputs": ["input", "normed", "q"]},
        {"name": "both", "kind": "concat", "inputs": ["again", "q"]},
        {"name": "gate", "kind": "fc", "units": 2 * width, "bias": True}
        | {"activation": "gelu_erf"},
        {"name": "gated", "kind": "mul", "inputs": ["both", "gate"]},
        {"name": "flat", "kind": "flatten"},
        {"name": "head", "kind": "fc", "units": width},
        {"name": "loss", "kind": "output", "softcap": 0.5},
    ]
    given = {"tokens": unit, "features": width}
    return Network.model_validate(
        {"schema": SCHEMA, "name": "decoder", "input": given, "layer": layers}
    )


def cnn() -> Network:
    """Return a residual network with a grouped convolution, a concatenation and a shuffle."""
    layers = [
        {"name": "stem", "kind": "conv", "filters": 16, "kernel": 3, "padding": 1},
        {"name": "bn", "kind": "norm", "norm": "affine", "activation": "relu"},
        {"name": "depthwise", "kind": "conv", "filters": 16, "kernel": 3, "padding": 1}
        | {"groups": 16},
        {"name": "sum", "kind": "add", "inputs": ["bn", "depthwise"], "activation": "relu"},
        {"name": "left", "kind": "conv", "filters": 32, "kernel": 1, "inputs": ["sum"]},
        {"name": "right", "kind": "conv", "filters": 32, "kernel": 3, "padding": 1}
        | {"inputs": ["sum"]},
        {"name": "both", "kind": "concat", "inputs": ["left", "right"]},
        {"name": "smaller", "kind": "pool", "pool": {"kind": "average", "size": 2}},
        {"name": "last", "kind": "conv", "filters": 64, "kernel": 1},
        {"name": "pooled", "kind": "global_pool"},
        {"name": "classes", "kind": "fc", "units": 16},
        {"name": "loss", "kind": "output"},
    ]
    given = {"channels": 8, "height": 4, "width": 4}
    return Network.model_validate(
        {"schema": SCHEMA, "name": "small CNN", "input": given, "layer": layers}
    )


def residual(unit: int) -> Network:
    """Return a ResNet in small: a stem and two blocks, the second of which halves its images.

    Images are large and channels few, so that parts of images move less than channels.
    """
    layers: list[dict[str, Any]] = [
        {"name": "stem", "kind": "conv", "filters": unit, "kernel": 7, "stride": 2, "padding": 3},
        {"name": "stem norm", "kind": "norm", "norm": "batch", "activation": "relu"},
        {"name": "pool", "kind": "pool"}
        | {"pool": {"kind": "max", "size": 3, "stride": 2, "padding": 1}},
    ]
    last = "pool"
    for name, stride in (("a", 1), ("b", 2)):
        conv = {"kind": "conv", "filters": unit * stride}
        layers += [
            {"name": f"{name}1", "kernel": 3, "stride": stride, "padding": 1, **conv},
            {"name": f"{name}1 norm", "kind": "norm", "norm": "batch", "activation": "relu"},
            {"name": f"{name}2", "kernel": 3, "padding": 1, **conv},
            {"name": f"{name}2 norm", "kind": "norm", "norm": "affine"},
        ]
        if stride == 2:
            short = {"kernel": 1, "stride": 2, "inputs": [last], **conv}
            layers.append({"name": "short", **short})
            last = "short"
        both = [f"{name}2 norm", last]
        layers.append({"name": name, "kind": "add", "inputs": both, "activation": "relu"})
        last = name
    layers += [
        {"name": "mean", "kind": "global_pool"},
        {"name": "classes", "kind": "fc", "units": 2 * unit},
        {"name": "loss", "kind": "output"},
    ]
    given = {"channels": 3, "height": 16 * unit, "width": 8 * unit}
    return Network.model_validate(
        {"schema": SCHEMA, "name": "small ResNet", "input": given, "layer": layers}
    )


def chain() -> Network:
    """Return an AlexNet in small: strided and pooled convolutions, then fully-connected layers."""
    layers = [
        {"name": "conv1", "kind": "conv", "filters": 16, "kernel": 3, "stride": 2, "padding": 1}
        | {"pool": {"kind": "max", "size": 3, "stride": 2, "rounding": "up"}},
        {"name": "conv2", "kind": "conv", "filters": 32, "kernel": 3, "padding": 1}
        | {"pool": {"kind": "average", "size": 2}, "activation": "relu"},
        {"name": "fc1", "kind": "fc", "units": 64, "activation": "relu"},
        {"name": "fc2", "kind": "fc", "units": 16},
    ]
    given = {"channels": 8, "height": 16, "width": 16}
    return Network.model_validate({"name": "small chain", "input": given, "layer": layers})


def translator() -> Network:
    """Return an encoder of one layer, and a decoder of fewer tokens that attends to it."""
    layers: list[dict[str, Any]] = [
        {"name": "token", "kind": "embedding", "features": 16},
        {"name": "second", "kind": "embedding", "inputs": [], "features": 16}
        | {"ids": 4, "tied": "token"},
        {"name": "encoded", "kind": "fc", "inputs": ["token"], "units": 16, "activation": "relu"},
        {"name": "query", "kind": "fc", "inputs": ["second"], "units": 16},
        {"name": "key", "kind": "fc", "inputs": ["encoded"], "units": 16},
        {"name": "value", "kind": "fc", "inputs": ["encoded"], "units": 16},
        {"name": "cross", "kind": "attention", "inputs": ["query", "key", "value"], "heads": 4},
        {"name": "sum", "kind": "add", "inputs": ["second", "cross"]},
        {"name": "head", "kind": "fc", "units": 16, "tied": "token"},
        {"name": "loss", "kind": "output"},
    ]
    given = {"tokens": 6, "vocabulary": 16}
    return Network.model_validate(
        {"schema": SCHEMA, "name": "small translator", "input": given, "layer": layers}
    )


def conditioned() -> Network:
    """Return tokens that attend to features of others, scaled and shifted by a vector of another.

    The features and the vector are inputs of their own.
    """
    layers: list[dict[str, Any]] = [
        {"name": "token", "kind": "embedding", "features": 16},
        {"name": "turns", "kind": "sinusoid", "inputs": ["time"], "features": 16, "base": 50.0},
        {"name": "step", "kind": "fc", "units": 16, "activation": "silu"},
        {"name": "both", "kind": "fc", "units": 32, "bias": True},
        {"name": "scale", "kind": "slice", "inputs": ["both"], "size": 16},
        {"name": "shift", "kind": "slice", "inputs": ["both"], "start": 16, "size": 16},
        {"name": "scaled", "kind": "mul", "inputs": ["token", "scale"]},
        {"name": "shifted", "kind": "add", "inputs": ["scaled", "shift"]},
        {"name": "query", "kind": "fc", "units": 16},
        {"name": "key", "kind": "fc", "inputs": ["states"], "units": 16},
        {"name": "value", "kind": "fc", "inputs": ["states"], "units": 16},
        {"name": "cross", "kind": "attention", "inputs": ["query", "key", "value"], "heads": 4},
        {"name": "sum", "kind": "add", "inputs": ["token", "cross", "states"]},
        {"name": "head", "kind": "fc", "units": 16, "tied": "token"},
        {"name": "loss", "kind": "output"},
    ]
    further = {"states": {"tokens": 8, "features": 16}, "time": {"features": 1}}
    given = {"input": {"tokens": 8, "vocabulary": 16}, "inputs": further}
    return Network.model_validate({"schema": SCHEMA, "name": "small", "layer": layers, **given})


def enlarged() -> Network:
    """Return convolutions with an image enlarged between them, one of them transposed."""
    layers = [
        {"name": "conv", "kind": "conv", "filters": 8, "kernel": 1},
        {"name": "up", "kind": "upsample", "factor": [2, 3]},
        {"name": "last", "kind": "conv", "filters": 4, "kernel": 3},
        {"name": "transposed", "kind": "conv", "transposed": True, "filters": 4}
        | {"kernel": [3, 2], "stride": [2, 1], "padding": [1, 0, 0, 1], "bias": True},
    ]
    given = {"channels": 4, "height": 3, "width": 2}
    return Network.model_validate(
        {"schema": SCHEMA, "name": "small enlarged", "input": given, "layer": layers}
    )


def rearranged() -> Network:
    """Return a vector and tokens as images, and blocks of pixels as channels and back."""
    layers = [
        {"name": "fc", "kind": "fc", "units": 128},
        {"name": "image", "kind": "unflatten", "height": 4, "width": 4},
        {"name": "larger", "kind": "pixel_shuffle", "factor": [2, 1], "order": "hwc"},
        {"name": "conv", "kind": "conv", "filters": 4, "kernel": 3, "padding": 1},
        {"name": "deeper", "kind": "pixel_shuffle", "to": "depth", "order": "whc"},
        {"name": "tokens", "kind": "flatten", "to": "tokens"},
        {"name": "mixed", "kind": "fc", "units": 32},
        {"name": "half", "kind": "slice", "start": 16, "size": 16},
        {"name": "quarter", "kind": "slice", "inputs": ["half"], "size": 8},
        {"name": "other", "kind": "slice", "inputs": ["half"], "start": 8, "size": 8},
        {"name": "joined", "kind": "concat", "inputs": ["other", "quarter"]},
        {"name": "again", "kind": "unflatten", "height": 4, "width": 2},
        {"name": "last", "kind": "pixel_shuffle", "factor": [1, 2]},
    ]
    given = {"features": 8}
    return Network.model_validate(
        {"schema": SCHEMA, "name": "rearranged", "input": given, "layer": layers}
    )


def one_image(*sizes: int, reading: str = "joined") -> Plan:
    """Return the best plan of a residual network and a single image: by rows and columns."""
    plan = ho.solve(
        residual(prod(sizes)),
        batch=1,
        hierarchy=sizes,
        whole_levels=True,
        choices=(*CHOICES, "rows", "columns"),
        reading=reading,
        search="joint",
        constraints={"even": True},
    )
    assert any("rows" in own for own in plan.parallelism)
    return plan


def by_tokens(network: Network, batch: int, *sizes: int) -> Plan:
    """Return the best plan whose attention is all by tokens."""
    names = [layer.name for layer in network.layers if layer.kind == "attention"]
    return ho.solve(
        network,
        batch=batch,
        hierarchy=sizes,
        whole_levels=True,
        choices=WITH_TOKENS,
        reading="executed",
        constraints={"even": True, "fix": [f"{name}=tokens" for name in names]},
    )
