"""Arrays: their files, presets, orders and descriptions."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.documents.document import validate
from hypar_opt.errors import HyparError, InputError, UnknownNameError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array, read_array
from hypar_opt.hardware.arrays import find_array
from tests.cli.shell import written
from tests.hardware.cubes import CUBES, LINK, cubes


def test_an_array_file_reads(tmp_path: Path) -> None:
    file = tmp_path / "cubes.toml"
    file.write_text(CUBES)
    array = read_array(file)
    assert array.name == "four cubes"
    assert array.collective == "pairwise"
    assert array.levels == 3
    assert array.placement == (2, 1, 0)
    assert array.accelerator.dram_bandwidth == 320 * 10**9
    assert array.energies.dram == Fraction(640, 10**12)
    assert array.energies.hop == array.energies.sram == 0
    assert array.interconnect.accelerators == 8
    assert array.interconnect is array.interconnect


def test_what_is_said_in_other_words_is_the_same_array() -> None:
    array = validate(Array, cubes())
    words = cubes(
        kind="torus",
        shape=[2, 4],
        link={"bandwidth": "200 MB/s", "latency": "0 us", "duplex": "full"},
    )
    words["schema"] = "hypar-opt/array/1"
    words["accelerator"] |= {"dram_capacity": "8e3 MB", "vaults": 1}
    assert validate(Array, words) == array
    assert validate(Array, words).digest() == array.digest()


@pytest.mark.parametrize(
    ("topology", "orders"),
    [
        ({"kind": "htree", "accelerators": 16}, 1),
        ({"kind": "htree", "accelerators": 1}, 1),
        ({"kind": "torus", "shape": [4, 4]}, 6),
        ({"kind": "torus", "shape": [2, 4, 2]}, 12),
        ({"kind": "nodes", "nodes": 2, "per_node": 8, "fabric": LINK}, 4),
    ],
)
def test_each_dimension_is_halved_before_it_is_quartered(
    topology: dict[str, Any], orders: int
) -> None:
    array = validate(Array, cubes(link=LINK, **topology))
    found = list(array.orders())
    assert len(found) == len(set(found)) == orders
    assert found[0] == array.placement
    allowed = [
        order for order in itertools.permutations(range(array.levels)) if array.allows(order)
    ]
    assert sorted(found) == sorted(allowed)


def test_what_is_no_order_of_the_bits_is_not_allowed() -> None:
    array = validate(Array, cubes())
    for placement in ((), (2, 1), (2, 1, 1), (3, 2, 1), (2, 1, 0, 0)):
        assert not array.allows(placement)


@pytest.mark.parametrize("name", arrays.names())
def test_every_preset_has_a_source_and_reads_back_as_itself(name: str) -> None:
    array = arrays.load(name.upper())
    assert array.name == name
    assert array.source
    again = validate(Array, json.loads(json.dumps(array.description())))
    assert again == array
    assert again.digest() == array.digest()
    assert find_array(name) == array
    assert find_array(array) is array
    assert array.allows(array.placement)


def test_the_papers_arrays_come_first_in_order_of_size() -> None:
    sizes = [2, 4, 8, 16, 32, 64]
    paper = [f"hmc-{kind}-{size}" for kind in ("htree", "torus") for size in sizes]
    assert list(arrays.names()[:12]) == paper
    assert [arrays.load(name).collective for name in paper] == ["pairwise"] * 12
    assert [arrays.load(name).interconnect.accelerators for name in paper] == sizes * 2


def test_the_papers_sixteen_cubes_in_numbers() -> None:
    tree, torus = arrays.load("hmc-htree-16"), arrays.load("hmc-torus-16")
    assert tree.accelerator == torus.accelerator
    assert tree.energy == torus.energy
    assert tree.accelerator.mac_count == "input"
    assert tree.accelerator.macs_per_second(3, 13) == 16 * 84 * 10**9 * 4 // 10
    assert tree.energies.remote == 3 * tree.energies.dram == Fraction(1920, 10**12)
    for bit in range(4):
        assert tree.interconnect.bisection(bit).seconds_per_byte == Fraction(1, 3_200_000_000)
        assert torus.interconnect.bisection(bit).seconds_per_byte == Fraction(2, 3_200_000_000)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown array 'hmc-htree-61': did you mean hmc-ht"):
        find_array("hmc-htree-61")
    with pytest.raises(UnknownNameError):
        arrays.load("cubes.toml")
    with pytest.raises(InputError, match=r"none\.toml: cannot be read"):
        find_array("none.toml")
    with pytest.raises(HyparError, match="array should be a name, a path or Array, got 3"):
        find_array(3)  # type: ignore[arg-type]


def test_a_file_of_no_array_is_named(tmp_path: Path) -> None:
    file = tmp_path / "array.toml"
    for text, complaint in (
        ("name = ", "should be TOML"),
        ("", "missing key 'name'"),
        ("topology = 3", "missing key 'name'"),
    ):
        file.write_text(text)
        with pytest.raises(InputError) as raised:
            find_array(file)
        assert str(raised.value).startswith(f"{file}: {complaint}")


def test_levels_are_whole_where_an_array_says_so() -> None:
    table = arrays.load("hmc-torus-16").description()
    factored, written, whole = (
        Array.model_validate(table | more)
        for more in ({}, {"whole_levels": False}, {"whole_levels": True})
    )
    assert written.digest() == factored.digest()
    assert factored.hierarchy().sizes == (2, 2, 2, 2)
    assert whole == factored.with_whole_levels() == whole.with_whole_levels()
    assert (whole.hierarchy().sizes, whole.placement) == ((4, 4), (1, 0))


THEIRS = """
from typing import ClassVar, Literal
import networkx as nx
from hypar_opt.hardware.topologies.base import LinkSpec, Topology

class Star(Topology):
    summary: ClassVar[str] = "a star"
    kind: Literal["star"]
    rays: int
    link: LinkSpec

    def graph(self):
        graph = nx.Graph()
        for ray in range(self.rays):
            graph.add_edge(ray, "hub", **self.link.edge())
        return graph

    def levels(self):
        return ((2,), (2,))
"""

USE = """
import json, sys
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.hardware.array import Array, read_array
array = read_array(sys.argv[1])
assert array.placement == (1, 0)
assert array.description()["topology"]["rays"] == 4
assert validate(Array, json.loads(json.dumps(array.description()))) == array
try:
    validate(Array, array.description() | {"topology": {**array.description()["topology"],
                                                        "rays": 8}})
except InputError as error:
    print(error)
"""


def test_an_installed_packages_topology_is_used_like_ours(tmp_path: Path) -> None:
    """A fresh interpreter, in which another package adds the kind ``star``."""
    written(tmp_path, {"theirs": THEIRS}, ["[hypar_opt.topologies]", "star = theirs:Star"])
    head, _, tail = CUBES.partition("[topology]")
    star = '[topology]\nkind = "star"\nrays = 4\nlink = { bandwidth = "1 GB/s" }\n'
    (tmp_path / "star.toml").write_text(head + star + tail[tail.index("[energy]") :])
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "star.toml")],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("topology: levels of 2, 2 parts should have 4 accelerators, got 8\n")


@st.composite
def described(draw: st.DrawFn) -> dict[str, Any]:
    """Arrays of any built-in kind but ``graph``, with numbers of any size."""

    def link() -> dict[str, str]:
        return {
            "bandwidth": f"{draw(st.integers(1, 10**6))}.{draw(st.integers(0, 999))} Mb/s",
            "latency": f"{draw(st.integers(0, 10**4))} ns",
            "duplex": draw(st.sampled_from(["full", "half"])),
        }

    sizes = st.sampled_from([1, 2, 4])
    topology: dict[str, Any] = {"link": link()}
    topology["kind"] = draw(st.sampled_from(["htree", "torus", "mesh", "ring", "nodes"]))
    match topology["kind"]:
        case "torus" | "mesh":
            topology["shape"] = draw(st.lists(sizes, min_size=1, max_size=3))
        case "nodes":
            topology |= {"nodes": draw(sizes), "per_node": draw(sizes), "fabric": link()}
        case _:
            topology["accelerators"] = draw(sizes)
    data = cubes(**topology)
    data["accelerator"]["utilisation"] = draw(st.floats(1e-6, 1))
    data["energy"]["hop"] = f"{draw(st.integers(0, 10**6))}e-3 pJ"
    return data


@given(described())
def test_a_description_reads_back_as_the_same_array(data: dict[str, Any]) -> None:
    array = validate(Array, data)
    again = validate(Array, json.loads(json.dumps(array.description())))
    assert again == array
    assert again.digest() == array.digest()
    assert again.accelerator.utilisation_of(3, 3) == Fraction(
        str(data["accelerator"]["utilisation"])
    )
