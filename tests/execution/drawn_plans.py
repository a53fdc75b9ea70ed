"""Random plans of networks small enough that XLA compiles their steps in a moment."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.network import Network
from hypar_opt.workload.operators.axes import ADDENDS
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_ADDENDS
from tests.execution.drawn import random_row, with_shared_weights
from tests.execution.small_networks import decoder, parallel_blocks, patches

UNIT = 8
"""Sizes that levels split, and the batch, are multiples of it: three halves, unless told."""
CHANNEL_SIZES = ("filters", "units", "channels", "features", "vocabulary", "heads", "kv_heads")


def chain(rng: random.Random, unit: int = UNIT) -> Network:
    """Return convolutions, some pooled or strided, then fully-connected layers."""
    layers: list[dict[str, Any]] = []
    side = 4
    for number in range(rng.choice((0, 0, 1, 1, 2))):
        kernel = rng.choice([1, 3])
        layer: dict[str, Any] = {"name": f"conv{number}", "kind": "conv", "kernel": kernel}
        layer |= {"filters": rng.choice([unit, 2 * unit]), "padding": kernel // 2}
        if side > 1 and rng.random() < 0.3:
            layer["stride"] = 2
            side = (side + 1) // 2
        elif side > 1 and rng.random() < 0.5:
            layer["pool"] = {"kind": rng.choice(["max", "average"]), "size": 2}
            side //= 2
        layers.append(layer)
    given: dict[str, int] = {"features": 2 * unit}
    if layers:
        given = {"channels": unit, "height": 4, "width": 4}
    layers += [
        {"name": f"fc{number}", "kind": "fc", "units": rng.choice([unit, 2 * unit, 4 * unit])}
        for number in range(rng.randint(0 if layers else 1, 2))
    ]
    for layer in layers:
        if rng.random() < 0.5:
            layer["activation"] = rng.choice(["relu", "tanh"])
    return Network.model_validate({"name": "chain", "input": given, "layer": layers})


def graph(rng: random.Random, unit: int = UNIT, most: int = 4) -> Network:
    """Return a graph of every kind of layer, whose channels, heads and tokens levels can split."""
    while True:
        small = random_graph(rng, most=most, largest=3)
        reads = [*zip(small.layers, small.sources, strict=True)]
        read = Counter(source for _, of in reads for source in of)
        # Left out are what does not become larger with the rest: images of tokens, which have more
        # pixels than those of a vector, features of keys that more heads share, gates, and numbers
        # of which others than sines are made.
        if not any(
            (layer.kind == "unflatten" and small.map_of(of[0]).tokens)
            or (layer.kind == "sinusoid" and read[of[0]] > 1)
            or (layer.kind == "attention" and len(of) > 3)
            or getattr(layer, "gate", None)
            for layer, of in reads
        ):
            break
    description = small.model_dump(mode="json", by_alias=True, exclude_none=True)
    larger = _larger(description, unit)
    if any(layer.kind == "sinusoid" for layer in small.layers):
        larger["inputs"] = description["inputs"]
    return Network.model_validate(larger)


def equal_layers(rng: random.Random, unit: int = UNIT) -> Network:
    """Return a graph of layers that are equal but for their weights and read the same tensors.

    Sums hand equal errors on; layers without weights, and those that share them, compute equals.
    """
    given, kinds = rng.choice(
        [
            ({"features": 2 * unit}, ["fc", "fc", "fc", "add", "mul", "norm"]),
            (
                {"features": 2 * unit, "tokens": unit},
                ["fc", "fc", "add", "mul", "norm", "attention"],
            ),
            (
                {"channels": 2 * unit, "height": 2, "width": 2},
                ["conv", "conv", "add", "pool", "pool", "norm"],
            ),
        ]
    )
    forms: dict[str, dict[str, Any]] = {
        "fc": {"units": 2 * unit},
        "norm": {"norm": "affine" if "height" in given else rng.choice(["layer", "rms"])},
        "conv": {"filters": 2 * unit, "kernel": 1},
        "pool": {"pool": {"kind": rng.choice(["max", "average"]), "size": 1}},
        "attention": {"heads": unit},
    }
    layers: list[dict[str, Any]] = []
    tensors = ["input"]
    for number in range(rng.randint(3, 7)):
        kind = rng.choice(kinds)
        recent = tensors[-rng.randint(1, 3) :]
        count = {"add": 2, "mul": 2, "attention": 3}.get(kind, 1)
        if count > len(recent):
            kind, count = kinds[0], 1
        layer = {"name": f"{kind}{number}", "kind": kind, **forms.get(kind, {})}
        layer["inputs"] = rng.sample(recent, count)
        alike = [one["name"] for one in layers if one["kind"] == kind and "tied" not in one]
        if kind == "fc" and alike and rng.random() < 0.2:
            layer["tied"] = rng.choice(alike)
        layers.append(layer)
        tensors.append(layer["name"])
    read = {name for layer in layers for name in layer["inputs"]}
    ends = [name for name in tensors if name not in read]
    if rng.random() < 0.2:
        layers += [
            {"name": f"end{n}", "kind": "output", "inputs": [end]} for n, end in enumerate(ends)
        ]
    elif len(ends) > 1:
        layers.append({"name": "sum", "kind": "add", "inputs": ends})
    schema = "hypar-opt/network/2"
    return Network.model_validate(
        {"schema": schema, "name": "equals", "input": given, "layer": layers}
    )


def sequences(rng: random.Random, unit: int = UNIT) -> Network:
    """Return a network of tokens: one of those above, or one with all that tokens may meet."""
    if rng.random() < 0.5:
        return rng.choice((patches, decoder))(unit)
    draw = rng.choice((graph, equal_layers))
    while True:
        drawn = draw(rng, unit)
        if any(maps.output.tokens for maps in drawn.maps()):
            return drawn


def alike_program(
    rng: random.Random,
    network: Network,
    sizes: tuple[int, ...],
    choices: Sequence[str] = CHOICES,
    *,
    joined: bool = False,
) -> Program:
    """Return a plan with the same choice for most layers of a kind, which makes exchanges equal."""
    workload = workload_of(network, _batch(sizes), choices, shared_tensors=True)
    rows = []
    for _ in sizes:
        often = {node.operator.kind: rng.randrange(len(choices)) for node in workload.nodes}
        row = random_row(rng, workload)
        for position, node in enumerate(workload.nodes):
            choice = often[node.operator.kind]
            if rng.random() < 0.8 and not workload.forbidden[position][choice]:
                row[position] = choice
        rows.append(with_shared_weights(workload, row))
    return Program(workload, rows, Hierarchy(sizes), joined=joined)


def _batch(sizes: tuple[int, ...]) -> int:
    return UNIT if UNIT % prod(sizes) == 0 else prod(sizes)


def _larger(value: Any, unit: int) -> Any:
    if isinstance(value, list):
        return [_larger(one, unit) for one in value]
    if not isinstance(value, dict):
        return value
    sizes = (*CHANNEL_SIZES, "tokens", *["groups"] * (value.get("groups", 1) > 1))
    sizes = (*sizes, "start", "size") if value.get("kind") == "slice" else sizes
    return {
        key: one * unit if key in sizes and isinstance(one, int) else _larger(one, unit)
        for key, one in value.items()
    }


def random_program(
    rng: random.Random,
    network: Network,
    sizes: tuple[int, ...],
    choices: Sequence[str] = CHOICES,
    *,
    joined: bool = False,
) -> Program:
    """Return any plan of a network: each node's choice at each level at random."""
    workload = workload_of(network, _batch(sizes), choices, shared_tensors=True)
    rows = [random_row(rng, workload) for _ in sizes]
    return Program(workload, rows, Hierarchy(sizes), joined=joined)


def sums(rng: random.Random, unit: int = UNIT) -> Network:
    """Return a network in which some sum may take addends: parallel blocks, or any other."""
    if rng.random() < 0.3:
        return parallel_blocks(unit)
    draw = rng.choice((graph, equal_layers, sequences))
    while True:
        drawn = draw(rng, unit)
        if any(ADDENDS in layer.splits.values() for layer in drawn.layers):
            return drawn


def program_of_addends(
    rng: random.Random,
    network: Network,
    sizes: tuple[int, ...],
    choices: Sequence[str] = WITH_ADDENDS,
    *,
    batch: int | None = None,
    joined: bool = False,
) -> Program:
    """Return any plan of a network in which sums often take addends."""
    workload = workload_of(network, batch or _batch(sizes), choices, shared_tensors=True)
    own, rows = workload.layouts.addends.argmax(axis=0).tolist(), []
    for _ in sizes:
        row = [
            column if column and rng.random() < 0.5 else drawn
            for column, drawn in zip(own, random_row(rng, workload), strict=True)
        ]
        rows.append(with_shared_weights(workload, row))
    return Program(workload, rows, Hierarchy(sizes), joined=joined)
