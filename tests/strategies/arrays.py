"""Random arrays of every topology, in which compute, DRAM, bandwidth and latency all matter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from random import Random
from typing import Any

from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.hardware.links import BisectionLink
from hypar_opt.workload.parallelism import PAPERS_CHOICES

AS_THE_PAPER: dict[str, Any] = {
    "cost": "bytes",
    "choices": PAPERS_CHOICES,
    "element_bytes": 4,
    "constraints": {"runnable": False},
}
"""What the paper's arrays leave undecided, and others decide."""

ONE_RATE = ("utilisation", "pe_array", "mac_count")
"""The keys of an accelerator whose layers take one time each pass, and not that of kernels."""

TOPOLOGIES = ("htree", "torus", "mesh", "ring", "nodes", "graph")


def arrays(most_levels: int = 3, *, least_levels: int = 1) -> st.SearchStrategy[ho.Array]:
    """Arrays of 2 or more accelerators, with vaults, some with processing elements."""
    levels = st.integers(least_levels, most_levels)
    return st.builds(partial(random_array, detailed=True), st.randoms(), levels)


def random_array(
    rng: Random, levels: int, *, detailed: bool = False, of_parts: bool = False
) -> ho.Array:
    """An array of 2^levels accelerators, on links that are unequal where a topology has a say.

    Or of as many as come: two dimensions, of two parts or more.
    """

    def amount(*choices: int) -> int:
        return rng.choice(choices) * rng.randint(1, 9)

    def link() -> dict[str, str]:
        return {
            "bandwidth": f"{amount(1, 10, 100)} kB/s",
            "latency": f"{amount(0, 1, 100, 10_000)} us",
            "duplex": rng.choice(["full", "half"]),
        }

    above = rng.randint(0, levels)
    first, second = 2**above, 2 ** (levels - above)
    topology: dict[str, Any] = {"kind": rng.choice(TOPOLOGIES)}
    if of_parts:
        first, second = rng.randint(2, 6), rng.randint(2, 4)
        topology = {"kind": rng.choice(TOPOLOGIES[1:])}
    match topology["kind"]:
        case "torus" | "mesh":
            topology |= {"shape": [first, second], "link": link()}
        case "nodes":
            topology |= {"nodes": first, "per_node": second}
            topology |= {"link": link(), "fabric": link()}
        case "graph":
            names: list[int | str] = [*range(first * second), "switch"]
            rng.shuffle(names)
            ends = [(rng.choice(names[:n]), names[n]) for n in range(1, len(names))]
            ends += [(u, v) for u, v in [rng.sample(names, 2)] if {u, v} not in map(set, ends)]
            nodes = [{"id": n} | ({} if n == "switch" else {"accelerator": n}) for n in names]
            edges = [{"source": u, "target": v, **link()} for u, v in ends]
            topology["graph"] = {"nodes": nodes, "edges": edges}
        case _:
            topology |= {"accelerators": first * second, "link": link()}
    accelerator: dict[str, Any] = {
        "units": rng.randint(1, 4),
        "operations": f"{amount(10, 1000)} kOPS",
        "utilisation": rng.choice([0.3, 1]),
        "dram_bandwidth": f"{amount(1, 100, 10_000)} kB/s",
        "dram_capacity": "1 GB",
        "mac_count": rng.choice(["output", "input"]),
    }
    energy = {key: f"{amount(0, 1, 50)}.5 pJ" for key in ("mac", "sram", "dram", "remote", "hop")}
    collective = rng.choice(COLLECTIVES)
    if detailed:
        accelerator["vaults"] = rng.randint(1, 4)
        if rng.random() < 0.5:
            del accelerator["utilisation"]
            accelerator["pe_array"] = {"rows": rng.randint(1, 4), "columns": 3}
    if rng.random() < 0.25:
        accelerator = {k: v for k, v in accelerator.items() if k not in ONE_RATE}
        accelerator |= {
            "gemm": rng.choice([0.7, 1]),
            **rng.choice([{}, {"conv": 0.3}]),
            "elementwise": rng.choice([0.6, 1]),
            "attention": rng.choice(["fused", "unfused"]),
            "flash": rng.choice([0.4, 1]),
            "launch": f"{amount(0, 1, 1000)} us",
            "update": f"{amount(1, 44)} B",
        }
    # Drawn apart: seeds that tests name stay what they are.
    more = Random(repr((accelerator, topology)))
    accelerator["loss"] = more.choice(["eager", "in-place", "fused"])
    if more.random() < 0.5:
        reserved = ("reserve", "reserve_groups", "reserve_experts")
        accelerator |= {key: f"{more.randint(1, 200)} B" for key in reserved}
    described = {"accelerator": accelerator, "topology": topology, "energy": energy}
    return validate(ho.Array, {"name": "drawn", "collective": collective, **described})


def stages_by_hand(array: ho.Array, bits: Sequence[int]) -> list[tuple[list[int], BisectionLink]]:
    """Of a reduction around rings over some bits, H1's first: bits and links of its stages.

    The latency is that of all rounds of a stage.
    """
    dimension = dict(zip(array.placement, array.dimensions_of(array.placement), strict=True))
    stages = [list(bits)]
    if array.collective == "hierarchical":
        stages = [list(run) for _, run in groupby(bits, dimension.__getitem__)]
    links_of_stages = []
    for stage in stages:
        if array.collective == "ring" and array.topology.grid():
            rings: defaultdict[int, list[int]] = defaultdict(list)
            for bit in stage:
                rings[dimension[bit]].append(bit)
            rounds = array.interconnect.around(rings.values(), at_once=True)
            link = array.interconnect.link(rounds)
        else:
            link = array.interconnect.ring(stage)
            link = replace(link, latency=link.latency * (2 ** len(stage) - 1))
        links_of_stages.append((stage, link))
    return links_of_stages
