"""The layer graph, on which the partition problem is stated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


def layer_graph(network: Network) -> nx.DiGraph[str]:
    """Return the layers of a network as a directed graph.

    A node is a layer's name; it carries ``layer`` (its description) and ``maps`` (what
    it reads and writes for one image or sequence). An edge leads from a layer to one that reads
    its output and carries ``boundary``, the map that crosses it, after pooling. Nodes are in
    topological order.
    """
    graph: nx.DiGraph[str] = nx.DiGraph(name=network.name)
    layers, all_maps = network.layers, list(network.maps())
    for layer, maps in zip(layers, all_maps, strict=True):
        graph.add_node(layer.name, layer=layer, maps=maps)
    for layer, reads in zip(layers, network.sources, strict=True):
        for source in reads:
            if source >= 0:
                boundary = all_maps[source].pooled
                graph.add_edge(layers[source].name, layer.name, boundary=boundary)
    return graph
