"""The operator graph as it is drawn: every layer and edge is there, and edges lead downwards."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

import hypar_opt as ho
from hypar_opt.display import layered as layers
from hypar_opt.display.layered import Point, layered
from hypar_opt.display.operator_graph import OperatorGraph, operator_graph
from hypar_opt.display.plan_grid import layer_shapes
from hypar_opt.workload.expansion import Repeat
from tests.display.graphs import Structure, structures


def drawn(structure: Structure, *, unfolded: bool = False) -> OperatorGraph:
    keys = range(len(structure.names)) if unfolded else structure.keys
    return operator_graph(structure.names, structure.sources, structure.repeats, keys)


@given(structures())
def test_unfolded_it_is_the_network(structure: Structure) -> None:
    graph = drawn(structure, unfolded=True)
    assert [node.position for node in graph.nodes] == list(range(-1, len(structure.names)))
    assert {(source - 1, target - 1) for source, target in graph.edges} == {
        (source, target) for target, read in enumerate(structure.sources) for source in read
    }


@given(structures())
def test_each_layer_is_drawn_or_is_like_one_that_is(structure: Structure) -> None:
    graph = drawn(structure)
    positions = {node.position for node in graph.nodes}
    frames = [range(frame.first, frame.stop) for frame in graph.frames]
    for position in range(len(structure.names)):
        within = [
            frame for frame, layers in zip(graph.frames, frames, strict=True) if position in layers
        ]
        assert len(within) <= 1
        if not within:
            assert position in positions
            continue
        (frame,) = within
        like = frame.first + (position - frame.first) % frame.length
        assert like in positions
        assert structure.keys[like] == structure.keys[position]
    assert all(source < target for source, target in graph.edges)


@given(structures())
def test_what_is_read_stands_above_and_no_two_in_one_place(structure: Structure) -> None:
    graph = drawn(structure)
    layout = layered(graph)
    assert len(set(layout.nodes)) == len(graph.nodes)
    for (source, target), path in zip(graph.edges, layout.edges, strict=True):
        assert (path[0], path[-1]) == (layout.nodes[source], layout.nodes[target])
        assert all(below == above + 1 for (_, above), (_, below) in pairwise(path))
    # No edge bends where a box stands.
    bends = {point for path in layout.edges for point in path[1:-1]}
    assert not bends & set(layout.nodes)
    assert min(x for x, _ in (*layout.nodes, *bends)) == 0
    assert layered(graph) == layout


@given(structures())
def test_a_blocks_repetitions_stand_one_below_the_other(structure: Structure) -> None:
    graph = drawn(structure)
    layout = layered(graph)
    for number, ((left, top), (right, bottom)) in enumerate(layout.frames):
        own = [
            point
            for node, point in zip(graph.nodes, layout.nodes, strict=True)
            if node.frame == number
        ]
        assert all(left <= x <= right and top <= rank <= bottom for x, rank in own)
    for (upper, above), (lower, below) in pairwise(zip(graph.frames, layout.frames, strict=True)):
        if upper.block == lower.block:
            assert above[1][1] < below[0][1]


def test_repetitions_that_are_alike_and_neighbours_are_drawn_once() -> None:
    names = ("stem", *(f"b.{n}.{layer}" for n in range(6) for layer in ("conv", "add")))
    sources = ((-1,), *(s for n in range(6) for s in ((2 * n,), (2 * n, 2 * n + 1))))
    keys = (0, *(key for n in range(6) for key in (n == 3, 0)))
    graph = operator_graph(names, sources, [Repeat("b", 1, 2, 6)], keys)
    assert [(frame.label, frame.count) for frame in graph.frames] == [
        ("b.0-2", 3),
        ("b.3", 1),
        ("b.4-5", 2),
    ]
    assert [node.label for node in graph.nodes] == ["input", "stem", *["conv", "add"] * 3]
    # From the stem, and from each repetition that is drawn to the next, by both ways.
    assert set(graph.edges) == {
        *((0, 1), (1, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 5), (5, 6), (5, 7), (6, 7))
    }


def test_an_edge_too_long_for_the_layout_is_drawn_straight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layers, "_MAX_BENDS", 3)
    names = [f"l{n}" for n in range(10)]
    sources = [(n - 1,) for n in range(9)] + [(8, 0, 5)]
    layout = layered(operator_graph(names, sources, [], names))
    lengths = sorted(len(path) for path in layout.edges)
    assert lengths == [2] * 11 + [5]


@pytest.mark.parametrize("name", ["resnet-18", "inception-v3", "llama-7b", "densenet-121"])
def test_a_networks_longest_path_is_one_column_and_no_edges_cross(name: str) -> None:
    network = ho.load(name)
    names = [layer.name for layer in network.layers]
    for keys in (layer_shapes(network), range(len(names))):
        graph = operator_graph(names, network.sources, network.repeats, keys)
        layout = layered(graph)
        main = layers._longest_path(graph)
        assert len({layout.nodes[node][0] for node in main}) == 1
        assert len({rank for _, rank in (layout.nodes[node] for node in main)}) == len(main)
        segments = [pair for path in layout.edges for pair in pairwise(path)]
        beside = [sorted(own) for own in _by_rank(segments)]
        for row in beside:
            assert all(one[1] <= other[1] for one, other in pairwise(row) if one[0] < other[0])


def _by_rank(segments: list[tuple[Point, Point]]) -> list[list[tuple[float, float]]]:
    by_rank: dict[int, list[tuple[float, float]]] = {}
    for (left, above), (right, _) in segments:
        by_rank.setdefault(above, []).append((left, right))
    return list(by_rank.values())
