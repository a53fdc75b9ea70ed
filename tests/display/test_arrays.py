"""What is shown of an array: its levels, its links, its file, its topology's picture."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import networkx as nx
import pytest

from hypar_opt import models
from hypar_opt.cli.app import run
from hypar_opt.display.figures.topologies import places, strokes_of, topology
from hypar_opt.errors import RefusedError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array, read_array
from hypar_opt.hardware.roofline import Roof, roofline
from tests.cli.shell import Shell

NAMES = ["hmc-htree-8", "hmc-torus-16", "tpu-v4-4x4x4", "h100-8x8"]


def star() -> Array:
    """Four accelerators around a switch, two of which are linked too."""
    graph = nx.star_graph(4)
    nx.set_node_attributes(graph, {leaf: leaf - 1 for leaf in range(1, 5)}, "accelerator")
    graph.add_edge(1, 2)
    for edge in graph.edges:
        graph.edges[edge]["bandwidth"] = "1 GB/s"
    table = arrays.load("hmc-torus-4").description()
    table["topology"] = {"kind": "graph", "graph": nx.node_link_data(graph, edges="edges")}
    return Array.model_validate(table)


@pytest.mark.parametrize("name", [*arrays.names(), "GPT2", "resnet50", "sfc"])
def test_what_is_packaged_is_a_template(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", name.upper(), "--toml"]) == 0
    file = tmp_path / "mine.toml"
    file.write_text(capsys.readouterr().out)
    if name in arrays.names():
        assert read_array(file).digest() == arrays.load(name).digest()
    else:
        assert models.read_network(file).digest() == models.load(name).digest()
    # Of a file too, which is known as an array's.
    assert run(["show", str(file), "--toml"]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_levels_have_the_bandwidth_of_their_bisection() -> None:
    for name in NAMES:
        array = arrays.load(name)
        document = array.document()
        assert [level["digit"] for level in document["levels"]] == list(array.placement)
        for level in document["levels"]:
            link = array.interconnect.bisection(level["digit"])
            assert level["bytes_per_second"] == pytest.approx(1 / float(link.seconds_per_byte))
        assert sum(link["count"] for link in document["links"]) == len(array.interconnect.links)
        assert Array.model_validate(document["description"]).digest() == document["digest"]


def test_an_array_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "h100-8x8"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "h100-8x8: 2^6 = 64 accelerators, 8 nodes of 8, pairwise all-reduce"
    rows = [line.split() for line in shown if re.match(r"H\d", line)]
    assert [row[0] for row in rows] == ["H1–H3", "H4–H6"]
    assert [" ".join(row[1:6]) for row in rows] == ["0 with 32; 16; 8", "0 with 4; 2; 1"]
    # Between nodes eight accelerators share 320 GB/s; within one each has 345 GB/s.
    assert [" ".join(row[6:10]) for row in rows] == ["2.56 TB/s 40 GB/s", "22.08 TB/s 345 GB/s"]
    assert run(["show", "h100-8x8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == arrays.load("h100-8x8").document()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (["h100-8x8", "--batch", "2"], "--batch takes a network, and 'h100-8x8' is an array"),
        (["h100-8x8", "--rerun"], "--rerun takes a plan file, and 'h100-8x8' is an array"),
        (["h100-8x8", "--toml", "--json"], "leave --json and --picture out"),
        (["h100-8x8", "--schema"], "unknown command with --json 'h100-8x8'"),
        (["h100-8x9"], "did you mean h100-8x8?"),
    ],
)
def test_an_option_that_says_nothing_of_an_array_is_refused(
    call: list[str], complaint: str, shell: Shell
) -> None:
    assert complaint in shell.refused("show", *call)


@pytest.mark.parametrize("array", [*map(arrays.load, NAMES), star()], ids=[*NAMES, "star"])
def test_nodes_of_a_topology_stand_apart(array: Array) -> None:
    points = places(array)
    assert set(points) == set(array.interconnect.graph)
    assert len({(round(x, 3), round(y, 3)) for x, y in points.values()}) == len(points)
    if "tree" in array.name:  # what a switch joins stands below it
        heights = [
            {points[end][1] for end in edge} for edge in nx.Graph(array.interconnect.graph).edges
        ]
        assert all(len(own) == 2 for own in heights)


def test_a_picture_has_every_link_and_every_accelerator() -> None:
    array = arrays.load("hmc-torus-16")
    data = topology(array).to_dict()["datasets"]
    names = {link.name for link in array.interconnect.links}
    assert {row["says"].partition(": ")[0] for row in data["links"]} == names
    assert [row["node"] for row in data["nodes"]] == list(map(str, range(16)))


@pytest.mark.parametrize("name", ["hmc-htree-16", "hmc-torus-32", "tpu-v4-4x4x4", "h100-8x8"])
def test_every_link_is_drawn_from_both_of_its_ends(name: str) -> None:
    array = arrays.load(name)
    points = places(array)
    for link in array.interconnect.links:
        strokes = strokes_of(link, array, points)
        # A wrap-around link is two stubs.
        ends = {stroke[0] for stroke in strokes} | ({strokes[0][1]} if len(strokes) == 1 else set())
        assert ends == {points[link.source], points[link.target]}


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("topologies", {"htree", "torus", "mesh", "ring", "nodes", "graph"}),
        ("costs", {"bytes", "time", "energy"}),
        ("operators", {"conv", "fc", "attention", "norm", "add"}),
    ],
)
def test_what_can_be_named_is_listed(
    what: str, names: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", what, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert names <= {row["name"] for row in rows}
    assert all(row["summary"] for row in rows)
    # A table needs the same columns in all rows.
    assert all(a.keys() == b.keys() for a, b in itertools.pairwise(rows))
    assert run(["list", what]) == 0
    assert names <= set(capsys.readouterr().out.split())


def test_an_array_that_no_picture_can_show_is_not_drawn() -> None:
    many = arrays.load("hmc-torus-16").description()
    many["topology"]["shape"] = [2, 4096]
    with pytest.raises(RefusedError, match="at most 4,096 accelerators are drawn, got 8,192"):
        topology(Array.model_validate(many))


@pytest.mark.parametrize("name", arrays.names())
def test_a_roof_is_the_bandwidth_of_its_levels(name: str) -> None:
    """At its ridge, computing takes as long as exchanging what the level exchanges."""
    array = arrays.find_array(name)
    roofs, count = roofline(array), array.interconnect.accelerators
    of_levels: dict[int, Roof] = {}
    for roof in roofs.roofs[1:]:
        first, _, last = roof.name.replace("H", "").partition("–")
        of_levels |= dict.fromkeys(range(int(first), int(last or first) + 1), roof)
    for row in array.rows():
        roof = of_levels[row["level"]]
        assert math.isclose(roof.bytes_per_second, row["bytes_per_second"] / count)
        assert math.isclose(roofs.ridge(roof) * roof.bytes_per_second, roofs.operations_per_second)
        assert roof.link in array.interconnect.links
    least = min(row["bytes_per_second"] for row in array.rows())
    assert roofs.bottleneck is not None
    assert math.isclose(roofs.bottleneck.bytes_per_second * count, least)


def test_the_bottleneck_of_nodes_is_where_their_bandwidth_says(
    shell: Shell, tmp_path: Path
) -> None:
    picture = tmp_path / "roofline.svg"
    shown = shell.output("show", "h100-8x8", "--roofline", "--picture", picture)
    expected = "Bottleneck: H1–H3, 40 GB/s per accelerator, limited by links such as node0-fabric"
    assert expected in " ".join(shown.split())
    assert "H1–H3, 40 GB/s: bottleneck, link " in picture.read_text()
    inside = shell.output("show", "h100-8x8", "--set", "link.bandwidth=10 GB/s")
    expected = "Bottleneck: H1–H6, 10 GB/s per accelerator, limited by links such as 0-node0"
    assert expected in " ".join(inside.split())
    for refused, why in (
        (["h100-8x8", "--roofline"], "--roofline goes with --picture"),
        (
            ["sfc", "--roofline", "--picture", picture],
            "takes an array or a plan file, and 'sfc' is",
        ),
    ):
        assert why in shell.refused("show", *refused)
