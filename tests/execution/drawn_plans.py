"""Random plans of networks small enough that XLA compiles their steps in a moment."""

from __future__ import annotations

import random
from typing import Any

from hypar_opt.costs.sharing import shared_weights
from hypar_opt.sharding.program import Program
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.network import Network
from hypar_opt.workload.tensors import Workload, workload_of

BATCH = 8
CHANNEL_SIZES = ("filters", "units", "channels", "features", "vocabulary", "heads", "kv_heads")


def chain(rng: random.Random) -> Network:
    """Return convolutions, some pooled or strided, then fully-connected layers; all halve often."""
    layers: list[dict[str, Any]] = []
    side = 4
    for number in range(rng.choice((0, 0, 1, 1, 2))):
        kernel = rng.choice([1, 3])
        layer: dict[str, Any] = {"name": f"conv{number}", "kind": "conv", "kernel": kernel}
        layer |= {"filters": rng.choice([8, 16]), "padding": kernel // 2}
        if side > 1 and rng.random() < 0.3:
            layer["stride"] = 2
            side = (side + 1) // 2
        elif side > 1 and rng.random() < 0.5:
            layer["pool"] = {"kind": rng.choice(["max", "average"]), "size": 2}
            side //= 2
        layers.append(layer)
    given: dict[str, int] = {"features": 16}
    if layers:
        given = {"channels": 8, "height": 4, "width": 4}
    layers += [
        {"name": f"fc{number}", "kind": "fc", "units": rng.choice([8, 16, 32])}
        for number in range(rng.randint(0 if layers else 1, 2))
    ]
    for layer in layers:
        if rng.random() < 0.5:
            layer["activation"] = rng.choice(["relu", "tanh"])
    return Network.model_validate({"name": "chain", "input": given, "layer": layers})


def graph(rng: random.Random, most: int = 4) -> Network:
    """Return a graph of every kind of layer, whose channels, heads and tokens halve three times."""
    small = random_graph(rng, most=most, largest=3)
    description = small.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Network.model_validate(_larger(description))


def _larger(value: Any) -> Any:
    if isinstance(value, list):
        return [_larger(one) for one in value]
    if not isinstance(value, dict):
        return value
    sizes = (*CHANNEL_SIZES, "tokens", *["groups"] * (value.get("groups", 1) > 1))
    return {
        key: one * 8 if key in sizes and isinstance(one, int) else _larger(one)
        for key, one in value.items()
    }


def random_program(rng: random.Random, network: Network, levels: int) -> Program:
    """Return any plan of a network: each node's choice at each level at random."""
    workload = workload_of(network, BATCH, shared_tensors=True)
    return Program(workload, [_row(rng, workload) for _ in range(levels)])


def _row(rng: random.Random, workload: Workload) -> tuple[int, ...]:
    row = [rng.randrange(int((~own).sum())) for own in workload.forbidden(3)]
    for node, column in shared_weights(workload, row).items():
        row[node] = column
    return tuple(row)
