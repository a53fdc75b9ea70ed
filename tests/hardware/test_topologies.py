"""Every topology's wires: routes, what they carry, and what a level's exchange gets of them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction
from math import prod
from typing import Any

import networkx as nx
import pytest
from hypothesis import given

from hypar_opt.hardware import arrays
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.hardware.topologies import TOPOLOGIES
from hypar_opt.hardware.topologies.base import Topology
from tests.simulator import random_interconnects

LINK = {"bandwidth": "1.6 Gb/s", "latency": "1 us"}
HALF = {**LINK, "duplex": "half"}

# One of each kind at least; a new kind adds a line.
EXAMPLES: list[dict[str, Any]] = [
    {"kind": "htree", "accelerators": 1, "link": LINK},
    {"kind": "htree", "accelerators": 16, "link": LINK},
    {"kind": "htree", "accelerators": 8, "link": HALF, "growth": 1},
    {"kind": "torus", "shape": [1, 2], "link": HALF},
    {"kind": "torus", "shape": [4, 4], "link": HALF},
    {"kind": "torus", "shape": [2, 4, 4], "link": LINK},
    {"kind": "mesh", "shape": [2, 8], "link": LINK},
    {"kind": "mesh", "shape": [4, 4], "link": HALF},
    {"kind": "ring", "accelerators": 2, "link": LINK},
    {"kind": "ring", "accelerators": 8, "link": LINK},
    {"kind": "nodes", "nodes": 4, "per_node": 4, "link": LINK, "fabric": HALF},
    {"kind": "nodes", "nodes": 1, "per_node": 4, "link": LINK, "fabric": HALF},
    {
        "kind": "graph",
        "graph": {
            "nodes": [
                {"id": "a", "accelerator": 1},
                {"id": 0, "accelerator": 0},
                {"id": 1},
                {"id": "1"},
            ],
            "edges": [
                {"source": "a", "target": 1, **LINK},
                {"source": 1, "target": 0, **HALF},
                {"source": "a", "target": "1", **LINK},
                {"source": "1", "target": 0, **LINK},
            ],
        },
    },
]


def topology(table: dict[str, Any]) -> Topology:
    parsed = TOPOLOGIES[table["kind"]].model_validate(table)
    assert isinstance(parsed, Topology)
    return parsed


def test_there_is_an_example_of_every_kind() -> None:
    assert {example["kind"] for example in EXAMPLES} == set(TOPOLOGIES)


def directions(interconnect: Interconnect) -> list[list[tuple[Any, Any]]]:
    """Return the ways along each channel: one, or both of a half-duplex link."""
    ways: list[list[tuple[Any, Any]]] = []
    for link in interconnect.links:
        there, back = (link.source, link.target), (link.target, link.source)
        ways += [[there], [back]] if link.full_duplex else [[there, back]]
    return ways


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["kind"]))
class TestEveryTopology:
    def test_says_what_it_is(self, example: dict[str, Any]) -> None:
        parsed = topology(example)
        assert parsed.kind == example["kind"]
        assert parsed.summary
        assert "\n" not in parsed.summary

    def test_its_levels_count_its_accelerators(self, example: dict[str, Any]) -> None:
        parsed = topology(example)
        sizes = [size for sizes in parsed.levels() for size in sizes]
        assert prod(sizes) == Interconnect(parsed.graph()).accelerators

    def test_it_is_described_whole(self, example: dict[str, Any]) -> None:
        parsed = topology(example)
        described = parsed.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert topology(described) == parsed


@pytest.mark.parametrize("levels", range(1, 7))
def test_the_papers_h_tree_moves_a_levels_bytes_at_its_total_bandwidth(levels: int) -> None:
    """25.6 Gb/s at every level, for any number of accelerators."""
    link = {"bandwidth": f"{25.6 / 2**levels} Gb/s"}
    interconnect = Interconnect(
        topology({"kind": "htree", "accelerators": 2**levels, "link": link}).graph()
    )
    for bit in range(levels):
        split = interconnect.bisection(bit)
        assert split.seconds_per_byte == Fraction(1, 3_200_000_000)
        assert split.hops == 2 * (bit + 1)


@pytest.mark.parametrize(
    ("accelerators", "times"),
    [(4, [2, 2]), (8, [2] * 3), (16, [2] * 4), (32, [2, 2, 4, 4, 2]), (64, [4, 4, 2, 4, 4, 2])],
)
def test_a_larger_torus_takes_four_times_where_a_dimension_of_eight_is_crossed_in_many_links(
    accelerators: int, times: list[int]
) -> None:
    torus, tree = (arrays.load(f"hmc-{kind}-{accelerators}") for kind in ("torus", "htree"))
    pace = tree.interconnect.bisection(0).seconds_per_byte  # an H tree's is the same at every level
    splits = [torus.interconnect.bisection(bit) for bit in torus.placement]
    assert [split.seconds_per_byte / pace for split in splits] == times
    assert all((split.hops > 1) for split, n in zip(splits, times, strict=True) if n == 4)


def test_links_of_an_h_tree_widen_upwards() -> None:
    table = {"kind": "htree", "accelerators": 8, "link": {"bandwidth": "10 B/s"}, "growth": 1.5}
    interconnect = Interconnect(topology(table).graph())
    rates = sorted(link.bytes_per_second for link in interconnect.links)
    assert rates == [10] * 8 + [15] * 4 + [Fraction(45, 2)] * 2


@pytest.mark.parametrize(
    ("kind", "shape", "links"),
    [
        ("torus", [1], 0),
        ("torus", [2], 1),
        ("torus", [4], 4),
        ("torus", [2, 2], 4),
        ("torus", [1, 4], 4),
        ("torus", [4, 4], 32),
        ("torus", [2, 4, 4], 16 + 2 * 32),
        ("mesh", [4, 4], 24),
        ("mesh", [2, 8], 8 + 14),
    ],
)
def test_a_grid_has_one_link_between_neighbours(kind: str, shape: list[int], links: int) -> None:
    graph = topology({"kind": kind, "shape": shape, "link": LINK}).graph()
    assert len(Interconnect(graph).links) == links


def test_a_ring_is_a_torus_of_one_dimension() -> None:
    ring = topology({"kind": "ring", "accelerators": 8, "link": LINK})
    torus = topology({"kind": "torus", "shape": [8], "link": LINK})
    assert ring.graph() == torus.graph()
    assert ring.levels() == torus.levels() == ((8,),)


def test_grids_are_numbered_row_by_row() -> None:
    parsed = topology({"kind": "mesh", "shape": [2, 4], "link": LINK})
    assert set(parsed.graph()[5]) == {1, 4, 6}
    assert parsed.levels() == ((2,), (4,))


def test_nodes_come_before_what_is_in_them() -> None:
    table = {"kind": "nodes", "nodes": 4, "per_node": 2, "link": LINK, "fabric": HALF}
    parsed = topology(table)
    assert parsed.levels() == ((4,), (2,))
    assert set(parsed.graph()["node1"]) == {2, 3, "fabric"}


def test_the_slower_of_a_fabric_and_its_links_decides_by_hand() -> None:
    """Two nodes of two: 3 bytes a second from an accelerator, 4 from a node."""
    table = {
        "kind": "nodes",
        "nodes": 2,
        "per_node": 2,
        "link": {"bandwidth": "3 B/s", "latency": "1 s"},
        "fabric": {"bandwidth": "4 B/s", "latency": "10 s"},
    }
    interconnect = Interconnect(topology(table).graph())
    # Of four bytes two leave each node: half a second; one leaves each accelerator.
    assert interconnect.bisection(1).seconds_per_byte == Fraction(1, 2) / 4
    assert interconnect.bisection(0).seconds_per_byte == Fraction(1, 3) / 4
    assert [interconnect.bisection(bit).latency for bit in (1, 0)] == [22, 2]
    assert [interconnect.bisection(bit).hops for bit in (1, 0)] == [4, 2]


@given(random_interconnects(latencies=range(10)))
def test_traffic_is_spread_evenly_over_all_shortest_paths(interconnect: Interconnect) -> None:
    graph = nx.Graph(interconnect.graph)
    ways = directions(interconnect)
    for source, target in itertools.permutations(range(interconnect.accelerators), 2):
        paths = list(nx.all_shortest_paths(graph, source, target))
        shares: dict[tuple[Any, Any], Fraction] = defaultdict(Fraction)
        slowest = Fraction()
        for path in paths:
            steps = list(itertools.pairwise(path))
            for step in steps:
                shares[step] += Fraction(1, len(paths))
            latencies = (graph.edges[step]["latency"] for step in steps)
            slowest = max(slowest, sum(latencies, Fraction()))
        route = interconnect.route(source, target)
        crossed = {
            next(way for way in ways[channel] if way in shares): share
            for channel, share in zip(route.channels, route.shares, strict=True)
        }
        assert crossed == shares
        assert route.latency == slowest
        assert route.hops == len(paths[0]) - 1


@given(random_interconnects())
def test_no_exchange_beats_its_most_loaded_channel(interconnect: Interconnect) -> None:
    """Of n parts, that of each of n - 1 rounds; so many have the exchange's bytes together."""
    graph = nx.Graph(interconnect.graph)
    for digit in range(interconnect.levels):
        level = interconnect.levels - 1 - digit
        parts = interconnect.hierarchy.sizes[level]
        seconds = Fraction()
        for shift in range(1, parts):
            loads: dict[Any, Fraction] = defaultdict(Fraction)
            for number in range(interconnect.accelerators):
                group = interconnect.hierarchy.peers(number, level)
                receiver = group[(group.index(number) + shift) % parts]
                paths = list(nx.all_shortest_paths(graph, number, receiver))
                for step in itertools.chain.from_iterable(map(itertools.pairwise, paths)):
                    data = graph.edges[step]
                    one = step if data["full_duplex"] else frozenset(step)
                    loads[one] += Fraction(1, len(paths)) / data["bytes_per_second"]
            seconds += max(loads.values())
        of_byte = interconnect.bisection(digit).seconds_per_byte
        assert of_byte == seconds / (parts - 1) / interconnect.accelerators


def test_a_switch_that_leads_nowhere_does_no_harm() -> None:
    graph = nx.Graph(topology({"kind": "ring", "accelerators": 4, "link": LINK}).graph())
    graph.add_node("spare")
    assert Interconnect(graph).bisection(1).hops == 2
