"""Arrays of unequal groups of accelerators."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from hypar_opt.costs.groups import GroupTime
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.links import BisectionLink
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.workload.parallelism import CHOICES

RATES = {"v2": 180, "v3": 420}
"""Tflop/s of AccPar's two groups, TPU v2 and v3."""


def described(
    operations: dict[str, str], topology: dict[str, Any], dram: str = "1e6 TB/s"
) -> dict[str, Any]:
    """An array's description, with as many accelerators of each kind as of the other."""
    nodes = topology.get("nodes", 2) * topology.get("per_node", 1)
    groups = [
        {
            "name": name,
            "count": nodes // 2,
            "units": 1,
            "operations": rate,
            "utilisation": 1.0,
            "dram_bandwidth": dram,
            "dram_capacity": "64 GB",
        }
        for name, rate in operations.items()
    ]
    return {"name": "unequal", "accelerator": groups, "topology": topology}


def pair(bandwidth: str = "8 GB/s") -> Array:
    """One accelerator of each of AccPar's groups, and a link between them."""
    accelerators = [{"id": number, "accelerator": number} for number in range(2)]
    link = {"source": 0, "target": 1, "bandwidth": bandwidth}
    graph = {"nodes": accelerators, "edges": [link]}
    rates = {name: f"{rate} TFLOPS" for name, rate in RATES.items()}
    return Array.model_validate(described(rates, {"kind": "graph", "graph": graph}))


def nodes(
    per_node: int = 4,
    operations: tuple[str, str] = ("1 TFLOPS", "3 TFLOPS"),
    latency: str = "1 us",
    dram: str = "1 TB/s",
) -> Array:
    """A node of each of two groups."""
    topology = {
        "kind": "nodes",
        "nodes": 2,
        "per_node": per_node,
        "link": {"bandwidth": "4 GB/s", "latency": latency},
        "fabric": {"bandwidth": "6 GB/s", "latency": latency},
    }
    rates = dict(zip(("slow", "fast"), operations, strict=True))
    return Array.model_validate(described(rates, topology, dram))


GROUPS: dict[tuple[int, ...], tuple[int, int]] = {
    # Counts, and the nodes of so many each.
    (1, 1): (2, 1),
    (2, 2): (2, 2),
    (4, 2): (3, 2),
    (3, 1): (2, 2),
    (2, 2, 2): (3, 2),
    (1, 1, 2): (4, 1),
}


KERNELS = {
    "conv": 0.2,
    "elementwise": 0.5,
    "flash": 0.25,
    "launch": "20 ns",
    "host": "1 ns",
    "update": "20 B",
}


def of_counts(counts: tuple[int, ...], *, kernels: bool = False, **more: Any) -> Array:
    """Groups of any counts, each faster than the one before, on nodes that need not be theirs."""
    number, each = GROUPS[counts]
    topology = nodes(each).description()["topology"] | {"nodes": number}
    rates = {name: f"{2**n} TFLOPS" for n, name in enumerate("abc"[: len(counts)])}
    description = described(rates, topology, "1 TB/s") | more
    for group, count in zip(description["accelerator"], counts, strict=True):
        group["count"] = count
        if kernels:
            group |= {"gemm": 1 / (2 + count), **KERNELS}
            del group["utilisation"]
    return Array.model_validate(description)


def some_share(rng: Random, array: Array) -> float | tuple[float, ...]:
    """Shares of an array's groups, of which some divide a batch of 48 evenly."""
    if len(array.groups) == 2:
        return rng.choice([0.25, 0.375, 0.4])
    return rng.choice([(0.25, 0.25, 0.5), (0.2, 0.3, 0.5)])


def of_accpar(name: str, gigabytes: tuple[float, float], share: float, *sides: str) -> Instance:
    """A network on AccPar's two groups, each of which receives so much in a second."""
    network = find_network(name)
    problem = problem_of(
        network, array=pair(), cost="time", batch=512, choices=CHOICES, element_bytes=2
    ).model_copy(update={"choices": (*CHOICES, *sides), "share": share})
    instance = Instance(network, problem)
    cost = instance.cost
    assert isinstance(cost, GroupTime)
    # AccPar's groups receive at their own rates, which no link with two equal directions has.
    first, second = (
        (BisectionLink(1 / Fraction(2 * 10**9 * own), Fraction(), Fraction(1)),)
        for own in map(Fraction, gigabytes)
    )
    assert cost.work is not None
    # And fractions of images: 153.6 of 512.
    of_parts = tuple(replace(work, by_largest_shard=False) for work in cost.of_parts)
    work = replace(cost.work, by_largest_shard=False)
    return instance.with_cost(
        replace(cost, links=(first, second), per_unit=10**15, work=work, of_parts=of_parts)
    )
