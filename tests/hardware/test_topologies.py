"""Every topology's wires: routes, what they carry, and what a level's exchange gets of them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.errors import HyparError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.hardware.topologies import TOPOLOGIES
from hypar_opt.hardware.topologies.base import Topology

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
    made = TOPOLOGIES[table["kind"]].model_validate(table)
    assert isinstance(made, Topology)
    return made


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
        made = topology(example)
        assert made.kind == example["kind"]
        assert made.summary
        assert "\n" not in made.summary

    def test_its_dimensions_hold_each_bit_once(self, example: dict[str, Any]) -> None:
        made = topology(example)
        bits = [bit for bits in made.dimensions() for bit in bits]
        assert sorted(bits) == list(range(Interconnect(made.graph()).levels))

    def test_it_is_described_whole(self, example: dict[str, Any]) -> None:
        made = topology(example)
        described = made.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert topology(described) == made

    def test_a_route_is_a_flow_along_shortest_paths(self, example: dict[str, Any]) -> None:
        """One byte leaves the source, one reaches the target, and no node keeps any."""
        interconnect = Interconnect(topology(example).graph())
        ways = directions(interconnect)
        for source, target in itertools.permutations(range(interconnect.accelerators), 2):
            route = interconnect.route(source, target)
            away = nx.single_source_shortest_path_length(interconnect.graph, source)
            left = nx.single_source_shortest_path_length(interconnect.graph, target)
            kept: dict[Any, Fraction] = defaultdict(Fraction)
            for channel, share in zip(route.channels, route.shares, strict=True):
                (tail, head), *rest = (w for w in ways[channel] if away[w[0]] < away[w[1]])
                assert not rest
                assert away[tail] + 1 + left[head] == away[target] == route.hops
                kept[tail] -= share
                kept[head] += share
            assert {node: flow for node, flow in kept.items() if flow} == {source: -1, target: 1}
            assert sum(route.shares) == route.hops

    def test_an_exchange_takes_as_long_as_its_most_loaded_channel(
        self, example: dict[str, Any]
    ) -> None:
        interconnect = Interconnect(topology(example).graph())
        for bit in range(interconnect.levels):
            loads: dict[int, Fraction] = defaultdict(Fraction)
            for number in range(interconnect.accelerators):
                route = interconnect.route(number, number ^ 1 << bit)
                for channel, share in zip(route.channels, route.shares, strict=True):
                    loads[channel] += share
            split = interconnect.bisection(bit)
            assert sum(loads.values()) == split.hops * interconnect.accelerators
            assert split.seconds_per_byte * interconnect.accelerators == max(
                load / interconnect.capacities[channel] for channel, load in loads.items()
            )


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


def test_the_papers_torus_takes_twice_the_h_trees_time_at_every_level() -> None:
    tree = Interconnect(topology({"kind": "htree", "accelerators": 16, "link": LINK}).graph())
    torus = Interconnect(topology({"kind": "torus", "shape": [4, 4], "link": HALF}).graph())
    full = Interconnect(topology({"kind": "torus", "shape": [4, 4], "link": LINK}).graph())
    for bit in range(4):
        assert torus.bisection(bit).seconds_per_byte == 2 * tree.bisection(bit).seconds_per_byte
        assert full.bisection(bit).seconds_per_byte == tree.bisection(bit).seconds_per_byte


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
    assert graph.number_of_edges() == links


def test_a_ring_is_a_torus_of_one_dimension() -> None:
    ring = topology({"kind": "ring", "accelerators": 8, "link": LINK})
    torus = topology({"kind": "torus", "shape": [8], "link": LINK})
    assert nx.utils.graphs_equal(ring.graph(), torus.graph())
    assert ring.dimensions() == torus.dimensions() == ((2, 1, 0),)


def test_grids_are_numbered_row_by_row() -> None:
    made = topology({"kind": "mesh", "shape": [2, 4], "link": LINK})
    assert set(made.graph()[5]) == {1, 4, 6}
    assert made.dimensions() == ((2,), (1, 0))


def test_nodes_come_before_what_is_in_them() -> None:
    table = {"kind": "nodes", "nodes": 4, "per_node": 2, "link": LINK, "fabric": HALF}
    made = topology(table)
    assert made.dimensions() == ((2, 1), (0,))
    assert set(made.graph()["node1"]) == {2, 3, "fabric"}


def test_a_mesh_of_two_rows_and_four_columns_by_hand() -> None:
    """0-1-2-3 above 4-5-6-7, every link one byte a second each way."""
    link = {"bandwidth": "1 B/s", "latency": "1 s"}
    interconnect = Interconnect(topology({"kind": "mesh", "shape": [2, 4], "link": link}).graph())
    # Bit 2 exchanges the rows, each pair over a link of its own.
    assert interconnect.bisection(2).seconds_per_byte == Fraction(1, 8)
    # Bit 1 sends 0 to 2 and 1 to 3, so link 1-2 carries two of the eight bytes each way.
    assert interconnect.bisection(1).seconds_per_byte == Fraction(2, 8)
    # Bit 0 exchanges neighbours.
    assert interconnect.bisection(0).seconds_per_byte == Fraction(1, 8)
    assert [interconnect.bisection(bit).hops for bit in (2, 1, 0)] == [1, 2, 1]
    assert [interconnect.bisection(bit).latency for bit in (2, 1, 0)] == [1, 2, 1]
    # From corner to corner 0 -> 7 there are four paths, one for each place to go down.
    route = interconnect.route(0, 7)
    ends = [
        interconnect.links[interconnect.channel_link[channel]].name for channel in route.channels
    ]
    shares = dict(zip(ends, (4 * share for share in route.shares), strict=True))
    assert shares == {
        "0-1": 3,
        "1-2": 2,
        "2-3": 1,
        "4-5": 1,
        "5-6": 2,
        "6-7": 3,
        "0-4": 1,
        "1-5": 1,
        "2-6": 1,
        "3-7": 1,
    }


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


@st.composite
def wired(draw: st.DrawFn) -> nx.Graph[Any]:
    """Connected graphs of 2 to 8 accelerators and a few switches, no two links alike."""
    accelerators = draw(st.sampled_from([2, 4, 8]))
    nodes: list[Any] = [*range(accelerators), *(f"s{n}" for n in range(draw(st.integers(0, 3))))]
    nodes = draw(st.permutations(nodes))
    graph: nx.Graph[Any] = nx.Graph()
    tree = [(nodes[draw(st.integers(0, at - 1))], nodes[at]) for at in range(1, len(nodes))]
    more = draw(st.lists(st.sampled_from(list(itertools.combinations(nodes, 2))), max_size=12))
    for ends in (*tree, *more):
        graph.add_edge(
            *ends,
            bytes_per_second=Fraction(draw(st.integers(1, 9))),
            latency=Fraction(draw(st.integers(0, 9))),
            full_duplex=draw(st.booleans()),
        )
    return graph


@given(wired())
def test_traffic_is_spread_evenly_over_all_shortest_paths(graph: nx.Graph[Any]) -> None:
    interconnect = Interconnect(graph)
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
        found = {
            next(way for way in ways[channel] if way in shares): share
            for channel, share in zip(route.channels, route.shares, strict=True)
        }
        assert found == shares
        assert route.latency == slowest
        assert route.hops == len(paths[0]) - 1


@given(wired())
def test_no_exchange_beats_its_most_loaded_channel(graph: nx.Graph[Any]) -> None:
    interconnect = Interconnect(graph)
    for bit in range(interconnect.levels):
        loads: dict[Any, Fraction] = defaultdict(Fraction)
        for number in range(interconnect.accelerators):
            paths = list(nx.all_shortest_paths(graph, number, number ^ 1 << bit))
            for step in itertools.chain.from_iterable(map(itertools.pairwise, paths)):
                data = graph.edges[step]
                one = step if data["full_duplex"] else frozenset(step)
                loads[one] += Fraction(1, len(paths)) / data["bytes_per_second"]
        slowest = max(loads.values())
        assert interconnect.bisection(bit).seconds_per_byte == slowest / interconnect.accelerators


@pytest.mark.parametrize(
    ("nodes", "edges", "problem"),
    [
        ([], [], "the number of accelerators should be a power of two, got 0"),
        ([0, 1, 2], [(0, 1), (1, 2)], "should be a power of two, got 3"),
        ([0, 2], [(0, 2)], "accelerators should be numbered 0, 1, 2"),
        ([0, 1], [], "accelerators should all be connected; no path from 0 to 1"),
        ([0, 1, "s"], [(0, "s")], "accelerators should all be connected; no path from 0 to 1"),
    ],
)
def test_a_graph_that_is_no_array_is_refused(
    nodes: list[Any], edges: list[Any], problem: str
) -> None:
    graph: nx.Graph[Any] = nx.Graph()
    graph.add_nodes_from(nodes)
    for ends in edges:
        graph.add_edge(*ends, bytes_per_second=Fraction(1), latency=Fraction(), full_duplex=True)
    with pytest.raises(HyparError, match=problem):
        Interconnect(graph)


def test_a_switch_that_leads_nowhere_does_no_harm() -> None:
    graph = topology({"kind": "ring", "accelerators": 4, "link": LINK}).graph()
    graph.add_node("spare")
    assert Interconnect(graph).bisection(1).hops == 2
