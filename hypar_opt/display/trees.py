"""Trees of switches as figures draw them: the accelerators in a row."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import networkx as nx

from hypar_opt.hardware.interconnect import Interconnect


class TreePlace(NamedTuple):
    """The place of a node, above the lowest leaf by ``height``."""

    column: float
    height: int


def tree_places(interconnect: Interconnect) -> dict[Hashable, TreePlace] | None:
    """Return each node's place, a switch's above the middle of its children.

    None unless the graph is a tree whose leaves are the accelerators.
    """
    graph: nx.Graph[Any] = nx.Graph(interconnect.graph)
    degrees = [graph.degree[number] for number in range(interconnect.accelerators)]
    if not nx.is_tree(graph) or max(degrees) > 1:
        return None
    # Removing the leaves again and again leaves the tree's centre, the root of an H tree.
    core = graph.copy()
    while len(core) > 2:
        core.remove_nodes_from([node for node, degree in core.degree if degree <= 1])
    root = min(core, key=lambda node: isinstance(node, int))
    depth = nx.single_source_shortest_path_length(graph, root)
    places: dict[Hashable, TreePlace] = {}
    leaves = 0
    for node in nx.dfs_postorder_nodes(graph, root):
        below = [places[other] for other in graph[node] if depth[other] > depth[node]]
        if below:
            columns, height = (
                [child.column for child in below],
                1 + max(child.height for child in below),
            )
            column = (min(columns) + max(columns)) / 2
        else:
            column, height = float(leaves), 0
            leaves += 1
        places[node] = TreePlace(column, height)
    return places
