"""Topologies by name: how the links join the accelerators of an array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.registry import Registry

if TYPE_CHECKING:
    from hypar_opt.hardware.topologies.base import Topology

# Modules are named as text, so that listing topologies imports none of them.
TOPOLOGIES: Registry[type[Topology]] = Registry(
    "topology",
    "hypar_opt.topologies",
    {
        "htree": "hypar_opt.hardware.topologies.htree:HTree",
        "torus": "hypar_opt.hardware.topologies.grid:Torus",
        "mesh": "hypar_opt.hardware.topologies.grid:Mesh",
        "ring": "hypar_opt.hardware.topologies.grid:Ring",
        "nodes": "hypar_opt.hardware.topologies.nodes:NodesTopology",
        "graph": "hypar_opt.hardware.topologies.graph:GraphTopology",
    },
    base="hypar_opt.hardware.topologies.base:Topology",
)
