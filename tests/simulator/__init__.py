"""Graphs and programs for the simulator's tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import networkx as nx
from hypothesis import strategies as st

from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.tasks import (
    FOREGROUND,
    GRADIENT_STREAM,
    ComputeTask,
    ExchangeKind,
    ExchangeTask,
    Task,
)

LAYERS = ("conv1", "conv2", "fc1")


def wired(
    edges: Iterable[tuple[Any, Any, float] | tuple[Any, Any, float, float]],
    *,
    latency: float = 0,
    full_duplex: bool = True,
) -> Interconnect:
    """Return the interconnect of links, of bytes a second and perhaps a latency of their own."""
    graph: nx.Graph[Any] = nx.Graph()
    for source, target, bandwidth, *own_latency in edges:
        graph.add_edge(
            source,
            target,
            bytes_per_second=Fraction(bandwidth),
            latency=Fraction(*own_latency or [latency]),
            full_duplex=full_duplex,
        )
    return Interconnect(graph)


def fat_tree(levels: int, *, latency: float = 0) -> Interconnect:
    """Return a binary tree whose links double in bandwidth, 8 bytes a second at the leaves."""
    edges: list[tuple[Any, Any, float]] = []
    below: list[Any] = list(range(2**levels))
    bandwidth = 8
    while len(below) > 1:
        above = [f"s{len(below)}.{index}" for index in range(len(below) // 2)]
        edges += [(node, above[index // 2], bandwidth) for index, node in enumerate(below)]
        below, bandwidth = above, 2 * bandwidth
    return wired(edges, latency=latency)


def torus(
    rows: int, columns: int, *, latency: float = 0, full_duplex: bool = False
) -> Interconnect:
    """Return a torus numbered row by row, 8 bytes a second a link."""
    edges = [
        (row * columns + column, below % rows * columns + right % columns, 8)
        for row in range(rows)
        for column in range(columns)
        for below, right in ((row + 1, column), (row, column + 1))
        if (below % rows, right % columns) != (row, column)
    ]
    return wired(edges, latency=latency, full_duplex=full_duplex)


def ring(accelerators: int, *, latency: float = 0) -> Interconnect:
    return torus(1, accelerators, latency=latency, full_duplex=True)


def exchange(
    interconnect: Interconnect,
    level: int,
    bytes: float,  # noqa: A002
    *,
    background: bool = False,
) -> ExchangeTask:
    """Return an exchange between the parts of a level, H1 being the most significant digit."""
    kind = ExchangeKind.GRADIENTS if background else ExchangeKind.PARTIAL_SUMS
    phase = Phase.GRADIENT if background else Phase.FORWARD
    digits = (interconnect.levels - 1 - level,)
    rounds = interconnect.between(digits[0])
    return ExchangeTask("fc1", phase, kind, (level,), digits, bytes, rounds, stream=int(background))


def all_reduce(
    interconnect: Interconnect,
    bytes: float,  # noqa: A002
    levels: Sequence[int] = (),
) -> ExchangeTask:
    """Return a ring over some levels, or all."""
    levels = tuple(levels) or tuple(range(interconnect.levels))
    digits = tuple(interconnect.levels - 1 - level for level in levels)
    return ExchangeTask(
        "fc1",
        Phase.GRADIENT,
        ExchangeKind.GRADIENTS,
        levels,
        digits,
        bytes,
        interconnect.around([digits], times=2),
    )


@st.composite
def random_interconnects(
    draw: st.DrawFn, *, latencies: Sequence[float] = (0,), cycles: bool = True
) -> Interconnect:
    """Draw a connected graph of 2 to 9 accelerators and up to two switches, links unequal."""
    nodes: list[Any] = [*range(draw(st.sampled_from([2, 3, 4, 6, 8, 9])))]
    nodes += draw(st.sampled_from([[], ["a"], ["a", "b"]]))
    nodes = draw(st.permutations(nodes))
    pairs = {
        frozenset((nodes[index], nodes[draw(st.integers(0, index - 1))]))
        for index in range(1, len(nodes))
    }
    pairs |= {
        frozenset(pair)
        for pair in draw(st.lists(st.tuples(*[st.sampled_from(nodes)] * 2), max_size=8 * cycles))
        if pair[0] != pair[1]
    }
    graph: nx.Graph[Any] = nx.Graph()
    for pair in sorted(pairs, key=lambda pair: sorted(map(str, pair))):
        source, target = sorted(pair, key=str)
        graph.add_edge(
            source,
            target,
            bytes_per_second=Fraction(draw(st.integers(1, 9))),
            latency=Fraction(draw(st.sampled_from(list(latencies)))),
            full_duplex=draw(st.booleans()),
        )
    return Interconnect(graph)


@st.composite
def programs(draw: st.DrawFn, interconnect: Interconnect) -> list[Task]:
    """Draw up to ten tasks; every exchange of gradients is in the background."""
    return [
        draw(st.one_of(computations(), exchanges(interconnect)))
        for _ in range(draw(st.integers(1, 10)))
    ]


def computations() -> st.SearchStrategy[Task]:
    seconds = st.integers(0, 40).map(lambda eighths: eighths / 8)
    return st.builds(ComputeTask, st.sampled_from(LAYERS), st.sampled_from(list(Phase)), seconds)


@st.composite
def exchanges(draw: st.DrawFn, interconnect: Interconnect) -> Task:
    levels = interconnect.levels
    chosen = tuple(sorted(draw(st.sets(st.integers(0, levels - 1), min_size=1))))
    times = draw(st.sampled_from([1, 2]))
    digits = tuple(levels - 1 - level for level in chosen)
    rings = draw(st.sampled_from(["none", "one", "of each digit"]))
    if rings == "none":
        chosen, digits = chosen[:1], digits[:1]
        rounds = interconnect.between(digits[0], times)
    else:
        of_each = [digits] if rings == "one" else [[digit] for digit in digits]
        rounds = interconnect.around(of_each, times, at_once=rings != "one")
    kind = draw(st.sampled_from(list(ExchangeKind)))
    return ExchangeTask(
        draw(st.sampled_from(LAYERS)),
        draw(st.sampled_from(list(Phase))),
        kind,
        chosen,
        digits,
        draw(st.integers(1, 500)),
        rounds,
        stream=GRADIENT_STREAM if kind is ExchangeKind.GRADIENTS else FOREGROUND,
    )
