"""Topologies that networkx has written: a JSON file beside the array's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.hardware.array import Array, read_array
from tests.hardware.cubes import CUBES


def node_link(graph: nx.Graph[Any], edges: str) -> str:
    return json.dumps(nx.node_link_data(graph, edges=edges))


def square() -> nx.Graph[Any]:
    """Four accelerators at the corners, their ids pairs, and a link across."""
    graph: nx.Graph[Any] = nx.grid_2d_graph(2, 2)
    graph.add_edge((0, 0), (1, 1))
    graph.graph["drawn by"] = "hand"
    for place, node in enumerate(sorted(graph)):
        graph.nodes[node]["accelerator"] = place
    for ends in graph.edges:
        graph.edges[ends].update(bandwidth="2 GB/s", latency="1 us", duplex="half")
    return graph


def a_file_of(tmp_path: Path, graph: str, rest: str = "") -> Path:
    head, _, tail = CUBES.partition("[topology]")
    energy = tail[tail.index("[energy]") :]
    file = tmp_path / "own.toml"
    file.write_text(f'{head}[topology]\nkind = "graph"\nfile = "own.json"\n{rest}\n{energy}')
    (tmp_path / "own.json").write_text(graph)
    return file


@pytest.mark.parametrize("edges", ["edges", "links"])
def test_a_graph_of_networkx_lies_beside_the_array_and_is_read_into_it(
    tmp_path: Path, edges: str
) -> None:
    file = a_file_of(tmp_path, node_link(square(), edges))
    array = read_array(file)
    assert array.levels == 2
    assert array.interconnect.route(0, 3).hops == 1
    assert array.interconnect.route(1, 2).hops == 2
    assert set(array.orders()) == {(1, 0), (0, 1)}
    described = array.description()
    assert "file" not in described["topology"]
    assert "own.json" not in json.dumps(described)
    assert "hand" not in json.dumps(described)
    again = validate(Array, json.loads(json.dumps(described)))
    assert again == array
    assert again.digest() == array.digest()


@pytest.mark.parametrize(
    ("graph", "rest", "complaint"),
    [
        ("{", "", "own.json: should be JSON"),
        ('{"nodes": 1, "nodes": 2}', "", "own.json: should be JSON: key 'nodes' is given twice"),
        ("[]", "", "own.toml: topology, graph: should be a table, got []"),
        ("{}", "", "own.toml: topology, graph: missing key 'nodes'"),
        ("{}", "graph = {}", "own.toml: topology: should have one of file and graph, got both"),
    ],
)
def test_a_bad_graph_file_is_refused(tmp_path: Path, graph: str, rest: str, complaint: str) -> None:
    with pytest.raises(InputError) as raised:
        read_array(a_file_of(tmp_path, graph, rest))
    assert str(raised.value).startswith(str(tmp_path / complaint))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('file = "none.json"', "none.json: cannot be read: No such file"),
        ("file = 3", "own.toml: topology, file: should be a path, got 3"),
        ("", "own.toml: topology: should have one of file and graph, got neither"),
    ],
)
def test_a_graph_needs_its_file(tmp_path: Path, line: str, complaint: str) -> None:
    file = a_file_of(tmp_path, "{}")
    file.write_text(file.read_text().replace('file = "own.json"', line))
    with pytest.raises(InputError) as raised:
        read_array(file)
    assert str(raised.value).startswith(str(tmp_path / complaint))
