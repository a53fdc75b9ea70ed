"""Eight cubes on a torus, for tests to change."""

from __future__ import annotations

import tomllib
from typing import Any

CUBES = """
name = "four cubes"
source = "made up"

[accelerator]
units = 16
operations = "84 GOPS"
utilisation = 0.8
dram_bandwidth = "320 GB/s"
dram_capacity = "8 GB"

[topology]
kind = "torus"
shape = [2, 4]
link = { bandwidth = "1.6 Gb/s" }

[energy]
mac = "4.6 pJ"
dram = "640 pJ"
remote = "1920 pJ"
"""

WIRED = """name = "wired"
[accelerator]
units = 1
operations = "84 GOPS"
utilisation = 0.5
dram_bandwidth = "320 GB/s"
dram_capacity = "8 GB"
[topology]
kind = "graph"
file = "wires.json"
[energy]
mac = "4.6 pJ"
dram = "640 pJ"
remote = "1280 pJ"
"""
"""An array whose topology is a graph in a file beside it."""


def cubes(**topology: Any) -> dict[str, Any]:
    data = tomllib.loads(CUBES)
    if topology:
        data["topology"] = topology
    return data


LINK = {"bandwidth": "1 GB/s"}
