"""Small mixtures of experts, from a seed alone."""

from __future__ import annotations

import random
from typing import Any

import hypar_opt as ho

Table = dict[str, Any]


def mixture(seed: int) -> ho.Network:
    """Return a mixture of experts inside a residual sum, of sizes that two levels can split.

    Experts are gated or not, slots are short or plenty, groups are parts of a sequence or all of
    it, and a shared expert is beside the others or not; routers weigh by softmax or sigmoids, of
    all experts or of the best groups of them, and biases are there or not.
    """
    rng = random.Random(seed)
    tokens, experts, features = rng.choice([4, 8]), rng.choice([4, 6, 8]), 8
    group = rng.choice([None, 2, 4])
    router: Table = {"experts": experts, "top_k": rng.randint(1, 3)}
    router |= {} if group is None else {"group": group}
    router |= {"softmax": "all"} if rng.random() < 0.5 else {}
    router |= {"capacity_factor": rng.choice([0.5, 1.25, 4.0])} if rng.random() < 0.5 else {}
    ffn: list[Table] = [
        {"name": "up", "kind": "experts", "inputs": ["dispatch"], "units": 12, "activation": "silu"}
    ]
    if rng.random() < 0.5:
        ffn += [
            {"name": "by", "kind": "experts", "inputs": ["dispatch"], "units": 12},
            {"name": "gated", "kind": "mul", "inputs": ["up", "by"]},
        ]
    down: Table = {"name": "down", "kind": "experts", "units": features}
    shared: list[Table] = [
        {"name": "wide", "kind": "fc", "inputs": ["norm"], "units": 16, "activation": "relu"},
        {"name": "narrow", "kind": "fc", "units": features},
    ]
    last = "narrow"
    beside = rng.random() < 0.5
    # Of a generator of its own, so that sizes stay what they were.
    more = random.Random(f"routers {seed}")
    if more.random() < 0.5:
        # Of one expert a normalised weight is 1, and the router's gradient rounding errors alone.
        router["sigmoid"] = more.choice(["plain", *["normalised"] * (router["top_k"] > 1)])
        router.pop("softmax", None)
    if more.random() < 0.5:
        router["factor"] = 2.5
    if more.random() < 0.5 and experts != 6:
        router |= {"expert_groups": 4, "top_groups": 2 if experts == 8 else 3}
    if more.random() < 0.3:
        last = "weighed"
        shared += [
            {"name": "weight", "kind": "fc", "inputs": ["norm"], "units": 1},
            {"name": last, "kind": "mul", "inputs": ["narrow", "weight"], "gate": True},
        ]
        shared[-2]["activation"] = "sigmoid"
    if more.random() < 0.5:
        for layer in (router, *ffn, down):
            layer |= {"bias": True} if layer.get("kind") != "mul" else {}
    layers = [
        {"name": "norm", "kind": "norm", "norm": "rms"},
        {"name": "router", "kind": "router", **router},
        {"name": "dispatch", "kind": "dispatch", "inputs": ["norm", "router"]},
        *ffn,
        down,
        {"name": "combine", "kind": "combine", "inputs": ["down", "router"]},
        *(shared if beside else []),
        {"name": "sum", "kind": "add", "inputs": ["input", "combine", *[last] * beside]},
        {"name": "head", "kind": "fc", "units": 16},
        {"name": "loss", "kind": "output"},
    ]
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": f"mixture {seed}",
            "input": {"tokens": tokens, "features": features},
            "layer": layers,
        }
    )


def smallest() -> ho.Network:
    """Return five layers, whose plans can all be priced."""
    layers = [
        {"name": "router", "kind": "router", "experts": 4, "top_k": 2, "group": 2},
        {"name": "dispatch", "kind": "dispatch", "inputs": ["input", "router"]},
        {"name": "experts", "kind": "experts", "units": 24},
        {"name": "combine", "kind": "combine", "inputs": ["experts", "router"]},
        {"name": "head", "kind": "fc", "units": 6},
    ]
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "smallest mixture",
            "input": {"tokens": 4, "features": 16},
            "layer": layers,
        }
    )


def eight_groups(seed: int = 1) -> ho.Network:
    """Return a mixture of sixteen tokens in eight groups, which any levels of two can split."""
    document = mixture(seed).description()
    document["input"]["tokens"] = 16
    for layer in document["layer"]:
        if layer["kind"] == "router":
            layer |= {"group": 2, "experts": 8}
    return ho.Network.model_validate(document)


def with_load(network: ho.Network, load: Any) -> ho.Network:
    """Return a mixture whose experts have a load in place of a capacity."""
    document = network.description()
    for layer in document["layer"]:
        if layer["kind"] == "router":
            layer.pop("capacity_factor", None)
            layer["load"] = load
    return ho.Network.model_validate(document)
