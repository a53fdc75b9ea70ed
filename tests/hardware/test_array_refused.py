"""What is no array, and how that is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.hardware.array import Array
from tests.hardware.cubes import LINK, cubes

Change = Callable[[dict[str, Any]], object]


def top(key: str, value: object) -> Change:
    return lambda data: data.__setitem__(key, value)


def part(table: str, key: str, value: object) -> Change:
    return lambda data: data[table].__setitem__(key, value)


def wired(**topology: object) -> Change:
    return top("topology", topology)


PAIR = [{"id": "a", "accelerator": 0}, {"id": "b", "accelerator": 1}]
A_TO_B = {"source": "a", "target": "b", "bandwidth": "1 GB/s"}


def drawn(nodes: object = PAIR, edges: object = (A_TO_B,), **more: object) -> Change:
    return wired(kind="graph", graph={"nodes": nodes, "edges": edges, **more})


REFUSED: list[tuple[Change, str]] = [
    # keys
    (
        top("nmae", "x"),
        "unknown key 'nmae': did you mean name? known: schema, name, source, model, collective",
    ),
    (lambda data: data.pop("name"), "missing key 'name'"),
    (lambda data: data["accelerator"].pop("units"), "accelerator: missing key 'units'"),
    (part("energy", "joules", "1 J"), "energy: unknown key 'joules': known: mac, sram, dram"),
    (top("schema", "hypar-opt/array/2"), "schema: 'hypar-opt/array/2' is newer than this"),
    (top("schema", "hypar-opt/network/1"), "schema: should be 'hypar-opt/array/1', got"),
    (
        lambda data: data.update(schema="hypar-opt/array/2", topology={"kind": "dragonfly"}),
        "schema: 'hypar-opt/array/2' is newer than this version of hypar-opt reads",
    ),
    # values
    (top("name", ""), "name: should be a name in printable characters, got ''"),
    (top("source", "a\x1b[2J"), "source: should be in printable characters"),
    (
        top("collective", "tree"),
        "collective: should be 'pairwise', 'ring', 'one-ring' or 'hierarchical', got \"tree\"",
    ),
    # topologies
    (top("topology", 3), "topology: should be a table, got 3"),
    (wired(shape=[4]), "topology: missing key 'kind'"),
    (
        wired(kind="tours"),
        "topology: kind: unknown topology 'tours': did you mean torus? known: htree, torus",
    ),
    (wired(kind=["torus"]), "topology: kind: unknown topology"),
    (part("topology", "size", 4), "topology: unknown key 'size': known: kind, shape, link"),
    (part("topology", "link", {}), "topology, link: missing key 'bandwidth'"),
    (
        part("topology", "link", {**LINK, "duplex": "both"}),
        "topology, link, duplex: should be 'full' or 'half', got \"both\"",
    ),
    (part("topology", "link", {**LINK, "latency": 0}), "topology, link, latency: should be a time"),
    (
        part("topology", "shape", [4, 0]),
        "topology, shape[1]: should be greater than or equal to 1, got 0",
    ),
    (part("topology", "shape", []), "topology, shape: should have 1 to 10 dimensions, got 0"),
    (part("topology", "shape", 16), "topology, shape: should be an array, got 16"),
    (
        part("topology", "shape", [2048, 1024]),
        "topology, shape: should have at most 1,048,576 accelerators, got 2,097,152",
    ),
    (
        part("topology", "shape", [2, 8192]),
        "topology, shape[1]: should have at most 4,096 accelerators along a dimension, got 8,192",
    ),
    (
        wired(kind="htree", accelerators=12, link=LINK),
        "topology, accelerators: should be a power of two, got 12",
    ),
    (
        wired(kind="htree", accelerators=2**30, link=LINK),
        "topology, accelerators: should have at most 1,048,576 accelerators, got 1,073,741,824",
    ),
    (
        wired(kind="htree", accelerators=8, link=LINK, growth=0),
        "topology, growth: should be greater than or equal to 0.0009765625, got 0",
    ),
    (
        wired(kind="ring", accelerators=0, link=LINK),
        "topology, accelerators: should be greater than or equal to 1, got 0",
    ),
    (
        wired(kind="nodes", nodes=2**18, per_node=8, link=LINK, fabric=LINK),
        "topology: should have at most 1,048,576 accelerators, got 2,097,152",
    ),
    # graphs
    (wired(kind="graph"), "topology: missing key 'graph'"),
    (drawn(directed=True), "topology, graph: directed: should be false, got true"),
    (drawn(multigraph=True), "topology, graph: multigraph: should be false, got true"),
    (drawn(nodes=[]), "topology, graph, nodes: should have at least one entry"),
    (drawn(nodes=[{"accelerator": 0}]), "topology, graph, nodes[0]: missing key 'id'"),
    (
        drawn(nodes=[{"id": "a", "accelerators": 0}]),
        "topology, graph, nodes[0]: unknown key 'accelerators': did you mean accelerator?",
    ),
    (drawn(nodes=[{"id": 1.5}]), "topology, graph, nodes[0], id: should be"),
    (
        drawn(nodes=[*PAIR, {"id": "a"}]),
        "topology, graph: nodes: should have one id each, 'a' appears twice",
    ),
    (
        drawn(nodes=[*PAIR, {"id": "c", "accelerator": 1}]),
        "topology, graph: nodes: accelerator 1 appears twice",
    ),
    (
        drawn(nodes=[*PAIR, {"id": 3}, {"id": "switch 3"}]),
        "topology, graph: nodes: switch 'switch 3' appears twice",
    ),
    (
        drawn(edges=[{"source": "a", "target": "b"}]),
        "topology, graph, edges[0]: missing key 'bandwidth'",
    ),
    (
        drawn(edges=[A_TO_B, {**A_TO_B, "target": "c"}]),
        "topology, graph: edges[1], target: no node has the id 'c'",
    ),
    (
        drawn(edges=[A_TO_B, {**A_TO_B, "target": "a"}]),
        "topology, graph: edges[1]: should join two nodes, got 'a' twice",
    ),
    (
        drawn(edges=[A_TO_B, {**A_TO_B, "source": "b", "target": "a"}]),
        "topology, graph: edges[1]: should be the only one between 'b' and 'a'",
    ),
    (drawn(edges=[]), "topology: accelerators should all be connected; no path from 0 to 1"),
    (
        drawn(nodes=[{"id": "a"}, {"id": "b"}]),
        "topology: there should be an accelerator, got none",
    ),
    (
        drawn(nodes=[{"id": "a", "accelerator": 0}, {"id": "b", "accelerator": 2}]),
        "topology: accelerators should be numbered 0, 1, 2, ...",
    ),
]


@pytest.mark.parametrize(("change", "complaint"), REFUSED, ids=[c for _, c in REFUSED])
def test_a_bad_description_is_refused_in_a_line_that_names_the_key(
    change: Change, complaint: str
) -> None:
    data = cubes()
    change(data)
    with pytest.raises(InputError) as raised:
        validate(Array, data, file="cubes.toml")
    message = str(raised.value)
    assert message.startswith(f"cubes.toml: {complaint}")
    assert "\n" not in message
