"""Random networks, arrays and cost tables, small enough for brute force."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.documents.document import validate
from hypar_opt.hardware.array import Array
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.network import Network

_sizes = st.integers(1, 9)


@st.composite
def networks(draw: st.DrawFn, longest: int = 6) -> Network:
    """Chains of convolutions, some pooled, then fully-connected layers, all sizes odd or even."""
    count = draw(st.integers(1, longest))
    convolutions = draw(st.integers(0, count))
    layers: list[dict[str, object]] = []
    height, width = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    description: dict[str, object] = {"name": "random", "layer": layers}
    if convolutions:
        description["input"] = {"channels": draw(_sizes), "height": height, "width": width}
    else:
        description["input"] = {"features": draw(_sizes)}
    for place in range(convolutions):
        border = draw(st.integers(0, 1))
        stride = draw(st.integers(1, 2))
        kernel = [draw(st.integers(1, min(side + 2 * border, 3))) for side in (height, width)]
        height, width = (
            (side + 2 * border - k) // stride + 1
            for side, k in zip((height, width), kernel, strict=True)
        )
        layer = {"name": f"conv{place}", "kind": "conv", "filters": draw(_sizes)}
        layer |= {"kernel": kernel, "stride": stride, "padding": border}
        if min(height, width) >= 2 and draw(st.booleans()):
            rounding = draw(st.sampled_from(["down", "up"]))
            layer["pool"] = {"kind": "max", "size": 2, "rounding": rounding}
            up = rounding == "up"
            height, width = (height + up) // 2, (width + up) // 2
        layers.append(layer)
    layers += [
        {"name": f"fc{place}", "kind": "fc", "units": draw(_sizes)}
        for place in range(convolutions, count)
    ]
    return Network.model_validate(description)


def graph_networks(most: int = 4, largest: int = 9) -> st.SearchStrategy[Network]:
    """Graphs of every kind of layer: several readers, blocks, shared weights, several outputs."""
    return st.builds(partial(random_graph, most=most, largest=largest), st.randoms())


@st.composite
def tables(
    draw: st.DrawFn, longest: int = 7, largest: int = 4, *, limited: bool = True
) -> CostTable:
    """Tables of two or three choices with costs so small that many plans tie.

    Chains, chains side by side, now and then another graph, with edges that lead backwards and
    several between two layers; some choices forbidden and a capacity, if ``limited``.
    """
    layers = draw(st.integers(1, longest))
    choices = draw(st.integers(2, 3))

    def array(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        count = int(np.prod(shape))
        drawn = draw(st.lists(st.integers(0, largest), min_size=count, max_size=count))
        return np.array(drawn, np.int64).reshape(shape)

    ends = chain_ends(layers)
    match draw(st.sampled_from(["chain", "chain", "chains", "graph"])):
        case "chains":
            ends = ends[[draw(st.booleans()) for _ in ends]]
        case "graph":
            pairs = [(u, v) for v in range(layers) for u in range(v)]
            kept = [pair for pair in pairs if draw(st.booleans())]
            kept += [(v, u) for u, v in pairs if draw(st.sampled_from([True, False, False]))]
            ends = np.array(kept, np.intp).reshape(-1, 2)
    table = CostTable(
        node=array(layers, choices),
        edge=array(len(ends), choices, choices),
        ends=ends,
        trick=tuple(draw(st.sampled_from([0, 1])) for _ in range(layers)),
    )
    if limited and draw(st.booleans()):
        table = replace(table, allowed=array(layers, choices) > 0)
    if limited and draw(st.booleans()):
        load = array(layers, choices)
        table = replace(table, load=load, capacity=draw(st.integers(0, largest * layers)))
    return table


@st.composite
def arrays(draw: st.DrawFn, most_levels: int = 3) -> Array:
    """Arrays of every topology, links unequal where it has any say, from 2 accelerators on.

    Their numbers are such that on small networks compute, DRAM and links all matter.
    """

    def amount(*choices: int) -> int:
        return draw(st.sampled_from(choices)) * draw(st.integers(1, 9))

    def link() -> dict[str, str]:
        return {
            "bandwidth": f"{amount(1, 10, 100)} kB/s",
            "latency": f"{amount(0, 1, 100)} us",
            "duplex": draw(st.sampled_from(["full", "half"])),
        }

    levels = draw(st.integers(1, most_levels))
    first = draw(st.integers(0, levels))
    topology: dict[str, Any] = {
        "kind": draw(st.sampled_from(["htree", "torus", "mesh", "ring", "nodes", "graph"]))
    }
    match topology["kind"]:
        case "torus" | "mesh":
            topology |= {"shape": [2**first, 2 ** (levels - first)], "link": link()}
        case "nodes":
            topology |= {"nodes": 2**first, "per_node": 2 ** (levels - first)}
            topology |= {"link": link(), "fabric": link()}
        case "graph":
            names = draw(st.permutations([*range(2**levels), "switch"]))
            ends = [(names[draw(st.integers(0, n - 1))], names[n]) for n in range(1, len(names))]
            nodes = [{"id": n} | ({} if n == "switch" else {"accelerator": n}) for n in names]
            edges = [{"source": u, "target": v, **link()} for u, v in ends]
            topology["graph"] = {"nodes": nodes, "edges": edges}
        case _:
            topology |= {"accelerators": 2**levels, "link": link()}
    accelerator: dict[str, Any] = {
        "units": draw(st.integers(1, 4)),
        "operations": f"{amount(10, 1000)} kOPS",
        "dram_bandwidth": f"{amount(1, 100, 10_000)} kB/s",
        "dram_capacity": "1 MB",
        "mac_count": draw(st.sampled_from(["output", "input"])),
        "vaults": draw(st.integers(1, 4)),
    }
    if draw(st.booleans()):
        accelerator["pe_array"] = {"rows": draw(st.integers(1, 4)), "columns": 3}
    else:
        accelerator["utilisation"] = draw(st.sampled_from([0.3, 0.8, 1]))
    energy = {key: f"{amount(0, 1, 50)}.5 pJ" for key in ("mac", "sram", "dram", "remote", "hop")}
    described = {"accelerator": accelerator, "topology": topology, "energy": energy}
    collective = draw(st.sampled_from(["pairwise", "pairwise", "ring"]))
    return validate(Array, {"name": "drawn", "collective": collective, **described})
