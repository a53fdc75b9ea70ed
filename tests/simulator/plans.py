"""Plans on small arrays, to simulate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.hardware.array import COLLECTIVES, Array
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies import simulation
from hypar_opt.workload.operators.axes import FALLBACK_REPLICATED
from hypar_opt.workload.operators.base import Operator
from hypar_opt.workload.operators.words import choices_of_kind
from hypar_opt.workload.parallelism import CHOICES
from tests.strategies.drawn_networks import drawn_networks
from tests.strategies.networks import networks

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
    {"kind": "nodes", "nodes": 3, "per_node": 2, "link": LINK, "fabric": {"bandwidth": "9 B/s"}},
    {"kind": "torus", "shape": [3, 4], "link": {**LINK, "latency": "1 ms"}},
    {"kind": "ring", "accelerators": 6, "link": {**LINK, "duplex": "half"}},
    {"kind": "torus", "shape": [5], "link": LINK},
]
"""Topologies on which all accelerators run in lockstep."""

KERNELS = {
    "gemm": 0.5,
    "elementwise": 0.8,
    "attention": "unfused",
    "launch": "10 ms",
    "update": "20 B",
}
"""An accelerator that takes the time of kernels."""

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
    base = {"units": 1, "operations": "100 op/s"}
    base |= {} if "gemm" in accelerator else {"utilisation": 0.5}
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
    network: ho.Network,
    hardware: Array,
    rows: Sequence[Sequence[str]] | None = None,
    **arguments: Any,
) -> ho.Plan:
    """Any plan on an array: the given choices, or Data Parallelism's."""
    names = [layer.name for layer in network.layers]
    pins = tuple(
        f"{name}@{level}={choice}"
        for level, row in enumerate(rows or (), 1)
        for name, choice in zip(names, row, strict=True)
    )
    arguments = {"cost": "bytes", "choices": CHOICES[:2]} | arguments
    pinned = {"fix": pins, "runnable": False}
    return ho.solve(network, array=hardware, constraints=pinned, **arguments)


def run(plan: ho.Plan, **options: Any) -> StepResult:
    return simulation.simulate(plan, **options)


@st.composite
def plans(
    draw: st.DrawFn,
    topologies: Sequence[dict[str, Any]],
    *,
    chain: bool = False,
    cost: str = "bytes",
    readings: Sequence[str] = ("executed", "executed", "joined", "text", "figures", "tables"),
) -> ho.Plan:
    """A random plan of a random graph or chain, in any of some readings."""
    if chain:
        network = draw(networks(longest=4))
    else:
        network = ho.Network.model_validate(draw(drawn_networks(most_steps=4)).description)
    hardware = array(draw(st.sampled_from(topologies)), **draw(st.sampled_from([{}, {}, KERNELS])))
    collective = draw(st.sampled_from(COLLECTIVES)) if cost == "time" else "pairwise"
    hierarchy = hardware.hierarchy()
    if not hierarchy.is_binary and draw(st.booleans()):
        hardware, hierarchy = hardware.with_whole_levels(), hardware.with_whole_levels().hierarchy()
    # The paper's readings are of halves; other parts divide the batch.
    reading = draw(st.sampled_from(readings if hierarchy.is_binary else RUN_READINGS))
    three = reading in {"text", *RUN_READINGS} and draw(st.booleans())
    choices = CHOICES[: 3 if three else 2]
    rows = [
        [
            draw(st.sampled_from(words_of_reading(layer, len(choices), reading)))
            for layer in network.layers
        ]
        for _ in hierarchy.sizes
    ]
    return plan_on(
        network,
        hardware.model_copy(update={"collective": collective}),
        rows,
        cost=cost,
        batch=draw(st.integers(1, 15)),
        reading=reading,
        choices=choices,
        inference=draw(st.booleans()),
    )


def words_of_reading(layer: Operator, choices: int, reading: str) -> list[str]:
    """The words of a layer's choices; what is whole is a choice of a run alone."""
    choices_of_layer = [
        choice for choice in choices_of_kind(layer.splits, CHOICES[:choices]) if choice
    ]
    # What is whole as a last resort is not split by channels that are summed over, too.
    whole = reading in RUN_READINGS and not (
        FALLBACK_REPLICATED in choices_of_layer and any(layer.statistics)
    )
    return [choice.word for choice in choices_of_layer if choice.axis or whole]
