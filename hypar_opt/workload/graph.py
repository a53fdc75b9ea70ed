"""The layer graph, on which the partition problem is stated."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import networkx as nx

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


def layer_graph(network: Network) -> nx.DiGraph[str]:
    """Return the weighted layers of a network as a directed graph.

    A node is a layer's name; it carries ``layer`` (its description) and ``maps`` (what
    it reads and writes for one image). An edge leads from a layer to one that reads its
    output and carries ``boundary``, the feature map of one image that crosses it, after
    pooling. Nodes are in topological order. The file format describes chains; code that
    takes the graph uses only its nodes and edges, and so does not assume a chain.
    """
    graph: nx.DiGraph[str] = nx.DiGraph(name=network.name)
    for layer, maps in zip(network.layers, network.maps(), strict=True):
        graph.add_node(layer.name, layer=layer, maps=maps)
    # A networkx graph iterates in the order of insertion: consecutive nodes are neighbours.
    for source, target in pairwise(graph):
        graph.add_edge(source, target, boundary=graph.nodes[source]["maps"].pooled)
    return graph
