"""Arrays of two unequal groups of accelerators."""

from __future__ import annotations

from typing import Any

from hypar_opt.hardware.array import Array

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
