"""Plans on small arrays, to simulate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypar_opt as ho
from hypar_opt.hardware.array import Array
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies import simulation

LINK = {"bandwidth": "8 B/s"}
IN_LOCKSTEP: list[dict[str, Any]] = [
    {"kind": "htree", "accelerators": 8, "link": LINK},
    {"kind": "htree", "accelerators": 8, "growth": 1, "link": {**LINK, "latency": "1 ms"}},
    {"kind": "torus", "shape": [2, 4], "link": {**LINK, "duplex": "half"}},
    {"kind": "torus", "shape": [8], "link": LINK},
    {"kind": "mesh", "shape": [4, 2], "link": LINK},
    {
        "kind": "nodes",
        "nodes": 2,
        "per_node": 4,
        "link": {"bandwidth": "80 B/s", "latency": "1 ms"},
        "fabric": {"bandwidth": "3 B/s", "latency": "10 ms"},
    },
]
"""Topologies on which all accelerators run in lockstep."""

UNEVEN: list[dict[str, Any]] = [
    {
        "kind": "graph",
        "graph": {
            "nodes": [{"id": n, "accelerator": n} for n in range(8)] + [{"id": "hub"}],
            "edges": [
                *({"source": n, "target": "hub", "bandwidth": f"{n + 1} B/s"} for n in range(8)),
                {"source": 0, "target": 1, "bandwidth": "5 B/s", "duplex": "half"},
                {"source": 6, "target": 3, "bandwidth": "2 B/s", "latency": "1 s"},
            ],
        },
    },
]


def array(topology: dict[str, Any], **accelerator: Any) -> Array:
    base = {"units": 1, "operations": "100 op/s", "utilisation": 0.5}
    memory = {"dram_bandwidth": "40 B/s", "dram_capacity": "1 GB"}
    return Array.model_validate(
        {
            "name": "small",
            "accelerator": base | memory | accelerator,
            "topology": topology,
            "energy": {"mac": "1 J", "dram": "2 J", "remote": "3 J", "hop": "5 J"},
        }
    )


def plan_on(
    network: ho.Network, found: Array, rows: Sequence[Sequence[str]] | None = None, **asked: Any
) -> ho.Plan:
    """Any plan on an array: the given choices, or Data Parallelism's."""
    names = [layer.name for layer in network.layers]
    pins = tuple(
        f"{name}@{level}={choice}"
        for level, row in enumerate(rows or (), 1)
        for name, choice in zip(names, row, strict=True)
    )
    return ho.solve(network, array=found, constraints={"fix": pins}, **asked)


def run(plan: ho.Plan, **options: Any) -> StepResult:
    return simulation.simulate(plan, **options)
