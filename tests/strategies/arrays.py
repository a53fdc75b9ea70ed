"""Random arrays of every topology, in which compute, DRAM, bandwidth and latency all matter."""

from __future__ import annotations

from random import Random
from typing import Any

import hypar_opt as ho
from hypar_opt.documents.document import validate

TOPOLOGIES = ("htree", "torus", "mesh", "ring", "nodes", "graph")


def random_array(rng: Random, levels: int, *, collective: str | None = None) -> ho.Array:
    """An array of 2^levels accelerators, on links that are unequal where a topology has a say."""

    def amount(*choices: int) -> int:
        return rng.choice(choices) * rng.randint(1, 9)

    def link() -> dict[str, str]:
        return {
            "bandwidth": f"{amount(1, 10, 100)} kB/s",
            "latency": f"{amount(0, 1, 100, 10_000)} us",
            "duplex": rng.choice(["full", "half"]),
        }

    first = rng.randint(0, levels)
    topology: dict[str, Any] = {"kind": rng.choice(TOPOLOGIES)}
    match topology["kind"]:
        case "torus" | "mesh":
            topology |= {"shape": [2**first, 2 ** (levels - first)], "link": link()}
        case "nodes":
            topology |= {"nodes": 2**first, "per_node": 2 ** (levels - first)}
            topology |= {"link": link(), "fabric": link()}
        case "graph":
            names: list[int | str] = [*range(2**levels), "switch"]
            rng.shuffle(names)
            ends = [(rng.choice(names[:n]), names[n]) for n in range(1, len(names))]
            ends += [(u, v) for u, v in [rng.sample(names, 2)] if {u, v} not in map(set, ends)]
            nodes = [{"id": n} | ({} if n == "switch" else {"accelerator": n}) for n in names]
            edges = [{"source": u, "target": v, **link()} for u, v in ends]
            topology["graph"] = {"nodes": nodes, "edges": edges}
        case _:
            topology |= {"accelerators": 2**levels, "link": link()}
    accelerator = {
        "units": rng.randint(1, 4),
        "operations": f"{amount(10, 1000)} kOPS",
        "utilisation": rng.choice([0.3, 1]),
        "dram_bandwidth": f"{amount(1, 100, 10_000)} kB/s",
        "dram_capacity": "1 MB",
        "mac_count": rng.choice(["output", "input"]),
    }
    energy = {key: f"{amount(0, 1, 50)}.5 pJ" for key in ("mac", "sram", "dram", "remote", "hop")}
    collective = collective or rng.choice(["pairwise", "ring"])
    described = {"accelerator": accelerator, "topology": topology, "energy": energy}
    return validate(ho.Array, {"name": "drawn", "collective": collective, **described})
