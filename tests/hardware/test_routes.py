"""Routes by coordinates and by climbing a tree, against a search of the graph."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import prod
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.errors import RefusedError
from hypar_opt.hardware import traffic
from hypar_opt.hardware.grid_paths import GridPaths
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.hardware.links import Graph
from hypar_opt.hardware.patterns import MessagePattern
from hypar_opt.hardware.routing import ShortestPaths
from hypar_opt.hardware.topologies import TOPOLOGIES
from hypar_opt.hardware.topologies.grid import Torus
from hypar_opt.hardware.traffic import Route
from hypar_opt.hardware.tree_paths import TreePaths
from tests.simulator import random_interconnects
from tests.slow import examples, slow_after

LINK = {"bandwidth": "1 GB/s", "latency": "1 us"}


def searched(graph: Graph | nx.Graph[Any], sizes: tuple[int, ...]) -> Interconnect:
    """Return the interconnect of a graph whose routes are searched, whatever it is."""
    interconnect = Interconnect(graph, sizes=sizes)
    interconnect.__dict__["paths"] = ShortestPaths(graph, interconnect.links)
    return interconnect


def as_set(route: Route) -> tuple[set[tuple[int, Fraction]], int, Fraction, int]:
    shares = set(zip(route.channels, route.shares, strict=True))
    return shares, len(route.channels), route.latency, route.hops


def assert_equal_routes(found: Interconnect) -> None:
    """Check the routes of all pairs, and what each level's exchange and each ring gets."""
    expected = searched(found.graph, found.hierarchy.sizes)
    for pair in itertools.permutations(range(found.accelerators), 2):
        assert as_set(found.route(*pair)) == as_set(expected.route(*pair))
    for bit in range(found.levels):
        assert found.bisection(bit) == expected.bisection(bit)
    for bits in [range(found.levels), range(0, found.levels, 2), range(found.levels - 1)]:
        if bits:
            assert found.ring(bits) == expected.ring(bits)


@st.composite
def grids(draw: st.DrawFn, *, accelerators: int = 64) -> dict[str, Any]:
    """Draw a torus, a mesh or a ring."""
    shape: list[int] = []
    for _ in range(draw(st.integers(1, 3))):
        left = accelerators // max(1, *itertools.accumulate([1, *shape], int.__mul__))
        shape.append(draw(st.sampled_from([n for n in (1, 2, 3, 4, 5, 6, 8, 12, 16) if n <= left])))
    link = LINK | {"duplex": draw(st.sampled_from(["half", "full"]))}
    return {"kind": draw(st.sampled_from(["torus", "mesh"])), "shape": shape, "link": link}


@given(grids(accelerators=16))
@examples(20)
def test_routes_by_coordinates_are_those_of_a_search(table: dict[str, Any]) -> None:
    topology = TOPOLOGIES[table["kind"]].model_validate(table)
    found = Interconnect(topology.graph(), topology.grid())
    assert isinstance(found.paths, GridPaths) or found.accelerators == 1
    assert_equal_routes(found)


@given(random_interconnects(latencies=[0, 0.5, 3], cycles=False))
@examples(20)
def test_routes_of_a_tree_are_those_of_a_search(found: Interconnect) -> None:
    assert isinstance(found.paths, TreePaths)
    assert_equal_routes(found)


@given(grids(), st.data())
def test_a_block_of_a_grid_stands_for_all_of_it(table: dict[str, Any], data: st.DataObject) -> None:
    """The load of all messages is that of a block's, repeated."""
    topology = TOPOLOGIES[table["kind"]].model_validate(table)
    interconnect = Interconnect(topology.graph(), topology.grid())
    if not interconnect.levels:
        return
    digits = st.sets(st.integers(0, interconnect.levels - 1), min_size=1).map(sorted)
    pattern = MessagePattern(tuple(data.draw(digits)), data.draw(st.integers(1, 5)))
    if (interconnect.receivers(pattern) == range(interconnect.accelerators)).any():
        return  # once around the group, to itself
    block, channels = interconnect.block(pattern.digits), len(interconnect.channel_link)
    all_messages = interconnect.traffic(pattern)
    part = interconnect.traffic(pattern, block)
    assert len(part.hops) == prod(block)
    repeated = interconnect.paths.repeated(part.loads(channels), block)
    loads = all_messages.loads(channels)
    assert [Fraction(int(load), part.unit) for load in repeated] == [
        Fraction(int(load), all_messages.unit) for load in loads
    ]


class Shortcut(Torus):
    """A torus with a link more, whose author did not think of its shape."""

    def graph(self) -> Graph:
        graph = super().graph()
        graph.add_edge(0, 5, **self.link.edge())
        return graph


class Slow(Torus):
    """A torus with one link of a longer latency."""

    def graph(self) -> Graph:
        graph = super().graph()
        graph[0][1]["latency"] = Fraction(1)
        return graph


class Open(Torus):
    """A torus without one of its links."""

    def graph(self) -> Graph:
        graph = super().graph()
        del graph[0][1], graph[1][0]
        return graph


@pytest.mark.parametrize("kind", [Shortcut, Slow, Open])
def test_a_graph_that_is_no_grid_of_its_shape_is_searched(kind: type[Torus]) -> None:
    topology = kind.model_validate({"kind": "torus", "shape": [4, 4], "link": LINK})
    interconnect = Interconnect(topology.graph(), topology.grid())
    assert isinstance(interconnect.paths, ShortestPaths)
    assert_equal_routes(interconnect)


@pytest.mark.parametrize("levels", slow_after(1, [12, 16]))
def test_an_array_has_sixteen_levels(levels: int) -> None:
    table = {"kind": "torus", "shape": [256, 2 ** (levels - 8)], "link": LINK}
    topology = TOPOLOGIES["torus"].model_validate(table)
    interconnect = Interconnect(topology.graph(), topology.grid())
    # Half of a ring of 256 is as far either way; a quarter is loaded on one side alone.
    half, quarter, *last = (levels - 1, levels - 2, levels - 8, 0)
    hops = [interconnect.bisection(bit).hops for bit in (half, quarter, *last)]
    assert hops == [128, 64, 1, 1]
    bytes_per_second = [
        1 / (interconnect.bisection(bit).seconds_per_byte * 2**levels)
        for bit in (half, quarter, last[0])
    ]
    assert bytes_per_second == [Fraction(10**9, 64), Fraction(10**9, 64), 10**9]


def test_messages_that_cross_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MAX_CROSSED", 100)
    for kind in ("ring", "htree"):
        table = {"kind": kind, "accelerators": 16, "link": LINK}
        topology = TOPOLOGIES[kind].model_validate(table)
        interconnect = Interconnect(topology.graph(), topology.grid())
        assert interconnect.bisection(1).hops
        with pytest.raises(RefusedError, match="links or more, and at most 100 are listed; use"):
            interconnect.bisection(3)
