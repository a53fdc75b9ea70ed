"""Random networks on images, and random programs of them that split rows and columns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.contiguous import Orders, split_leading_levels
from hypar_opt.workload.network import Network
from hypar_opt.workload.splitting import may_split, spatial_columns
from hypar_opt.workload.tensors import Workload, workload_of
from tests.execution.drawn import with_shared_weights

IMAGE_CHOICES = ("data", "model", "output", "rows", "columns")


def images(rng: random.Random, unit: int = 8, most: int = 7) -> Network:
    """Return a network of convolutions, pools, norms, sums, products and enlargements.

    Its height and width, and channels, are multiples of ``unit``; it ends with a loss of each
    pixel, with an average and a product, or as it is.
    """
    height, width = (unit * rng.choice([1, 2]) for _ in range(2))
    channels = unit * rng.choice([1, 2])
    given = {"channels": channels, "height": height, "width": width}
    layers: list[dict[str, Any]] = []
    at = {"input": (channels, height, width)}
    last = "input"
    for number in range(rng.randint(2, most)):
        size = at[last]
        name, (layer, size) = f"l{number}", _layer(rng, unit, last, at)
        layers.append({"name": name, "inputs": layer.pop("inputs", [last]), **layer})
        at[name] = size
        last = name
    layers += rng.choice(
        [
            [],
            [{"name": "loss", "kind": "output"}],
            [
                {"name": "mean", "kind": "global_pool"},
                {"name": "fc", "kind": "fc", "units": unit},
                {"name": "loss", "kind": "output"},
            ],
            [{"name": "fc", "kind": "fc", "units": unit}],
        ]
    )
    schema = "hypar-opt/network/2"
    return Network.model_validate(
        {"schema": schema, "name": "images", "input": given, "layer": layers}
    )


def _layer(
    rng: random.Random, unit: int, last: str, at: dict[str, tuple[int, int, int]]
) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """Return a layer that reads the last one, and what it writes."""
    channels, height, width = at[last]
    alike = [name for name, size in at.items() if size == at[last] and name != last]
    small = min(height, width) <= unit // 2
    keys: dict[str, Any]
    kind = rng.choice(
        ["conv", "conv", "conv", "pool", "norm", "join", "join"] + ["upsample"] * small
    )
    if kind == "join" and alike:
        kinds = rng.choice(["add", "add", "mul"])
        return {"kind": kinds, "inputs": [last, rng.choice(alike)]}, at[last]
    if kind == "norm":
        norm = rng.choice(["batch", "batch", "layer", "affine", "groups", "groups"])
        if norm == "groups":
            # Of two pixels a norm leaves the sign alone, but for its epsilon.
            keys = {"norm": "layer", "groups": rng.choice([1, unit, channels]), "epsilon": 0.1}
            return {"kind": "norm", **keys, "activation": "tanh"}, at[last]
        # What a batch norm alone leaves has no mean, and what it reads no scale, to learn from.
        return {"kind": "norm", "norm": norm, "activation": "tanh"}, at[last]
    if kind == "upsample":
        enlarged = channels, 2 * height, width
        if channels > unit:
            keys = {"factor": [2, 1], "order": rng.choice(["chw", "hwc", "whc"])}
            return {"kind": "pixel_shuffle", **keys}, (channels // 2, *enlarged[1:])
        if len(at) % 2:
            keys = {"kernel": [4, 3], "stride": [2, 1], "padding": 1, "filters": channels}
            return {"kind": "conv", "transposed": True, **keys}, enlarged
        return {"kind": "upsample", "factor": [2, 1]}, enlarged
    stride = [1 if side <= unit // 2 else rng.choice([1, 1, 2]) for side in (height, width)]
    after = height // stride[0], width // stride[1]
    if kind == "pool":
        size = [rng.choice([own, own + 1]) if own > 1 else 3 for own in stride]
        padding = [max(0, (own - s + 1) // 2) for own, s in zip(size, stride, strict=True)]
        over = rng.choice(["max", "average"])
        pool = {"kind": over, "size": size, "stride": stride, "padding": padding}
        return {"kind": "pool", "pool": pool}, (channels, *after)
    kernel = [rng.choice([1, 3, 3, 5]) if s == 1 else rng.choice([2, 3]) for s in stride]
    padding = [max(0, (k - s + 1) // 2) for k, s in zip(kernel, stride, strict=True)]
    filters = unit * rng.choice([1, 2])
    layer: dict[str, Any] = {"kind": "conv", "kernel": kernel, "stride": stride, "padding": padding}
    if rng.random() < 0.2:
        layer["groups"], filters = rng.choice([(unit, filters), (channels, channels)])
    if rng.random() < 0.2:
        # Before a batch norm the gradient of a bias alone would be zero.
        layer |= {"bias": True, "activation": "tanh"}
    if rng.random() < 0.2 and min(after) > 1 and not any(own % 2 for own in after):
        layer["pool"] = {"kind": rng.choice(["max", "average"]), "size": 2}
        after = after[0] // 2, after[1] // 2
    return {**layer, "filters": filters}, (filters, *after)


def image_program(
    rng: random.Random,
    network: Network,
    batch: int,
    sizes: Sequence[int],
    *,
    joined: bool = False,
) -> Program:
    """Return a random program of contiguous parts, most of which are of rows and columns."""
    workload = workload_of(network, batch, IMAGE_CHOICES, shared_tensors=True)
    hierarchy, levels = Hierarchy(tuple(sizes)), range(len(sizes))
    orders = {
        column: tuple(level for level in levels if rng.random() < 0.7)
        for column in spatial_columns(workload)
    }
    states = [_state(rng, workload, node, hierarchy, orders) for node in range(len(workload.nodes))]
    rows = [with_shared_weights(workload, list(row)) for row in zip(*states, strict=True)]
    return Program(workload, rows, hierarchy, joined=joined)


def _state(
    rng: random.Random, workload: Workload, node: int, hierarchy: Hierarchy, orders: Orders
) -> list[int]:
    """Return random choices of a node that split its rows and columns evenly, contiguously."""
    own = workload.choices_of_nodes[node]
    offered = [n for n, choice in enumerate(own) if choice and not choice.last_resort]
    wanted = [n for n in offered if n in orders] or offered
    while True:
        some = wanted if rng.random() < 0.6 else offered
        state = [rng.choice(some if rng.random() < 0.8 else offered) for _ in hierarchy.sizes]
        if not split_leading_levels(np.array(state), orders):
            continue
        parts = {n: hierarchy.parts(i for i, c in enumerate(state) if c == n) for n in offered}
        if all(may_split(workload, None, parts[n], n, node) for n in offered):
            return state
