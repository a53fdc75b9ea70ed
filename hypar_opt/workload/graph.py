"""The layer graph, on which the partitioning problem is stated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.checked import checked

if TYPE_CHECKING:
    from collections.abc import Sequence

    import networkx as nx

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps, Map


Edge = tuple[int, int, "Map", int]


@dataclass(frozen=True)
class LayerGraph:
    """Layers, their maps, and the edges between them, which determine all tensors.

    Parameters
    ----------
    names, layers, maps
        In topological order.
    edges
        Each edge's source and target position, the map that crosses it, and the number of that
        input of the target; sorted.
    """

    names: tuple[str, ...]
    layers: tuple[Operator, ...]
    maps: tuple[LayerMaps, ...]
    edges: tuple[Edge, ...]

    @classmethod
    def of_network(cls, network: Network) -> LayerGraph:
        """Return a network's graph without networkx, whose import takes longer than a solve."""
        maps = tuple(network.maps())
        edges = [
            (source, target, maps[source].pooled, number)
            for target, reads in enumerate(network.sources)
            for number, source in enumerate(reads)
            if source >= 0
        ]
        names = tuple(layer.name for layer in network.layers)
        return cls(names, network.layers, maps, _by_operand(edges, maps))

    @classmethod
    def of(cls, graph: nx.DiGraph[str]) -> LayerGraph:
        """Return the graph of a networkx graph, as `layer_graph` makes it.

        Raises
        ------
        ValueError
            If the graph's nodes are not in topological order.
        """
        # Solvers see positions, never names.
        position = {name: index for index, name in enumerate(graph)}
        edges = {}
        for source, target, data in graph.edges(data=True):
            if position[source] >= position[target]:
                raise ValueError(f"{source!r} should stand before {target!r}, which reads it")
            edges[position[source], position[target]] = data["boundary"], data.get("input", 0)
        nodes = [data for _, data in graph.nodes(data=True)]
        maps = tuple(data["maps"] for data in nodes)
        operands = _by_operand([(*ends, *edge) for ends, edge in edges.items()], maps)
        return cls(tuple(graph), tuple(data["layer"] for data in nodes), maps, operands)


def _by_operand(edges: Sequence[Edge], maps: Sequence[LayerMaps]) -> tuple[Edge, ...]:
    """Return sorted edges, one per operand if a layer reads concatenated operands."""
    expanded: list[Edge] = []
    for source, target, crossing, number in edges:
        operands = maps[target].inputs
        if len(operands) == 1 or operands[number] == crossing:
            expanded.append((source, target, crossing, number))
        else:
            expanded += ((source, target, over, n) for n, over in enumerate(operands))
    return tuple(sorted(expanded, key=lambda edge: (*edge[:2], edge[3])))


@checked
def layer_graph(network: Network) -> nx.DiGraph[str]:
    """Return the layers of a network as a directed graph.

    A node is a layer's name, with the attributes ``layer`` (its description) and ``maps`` (its
    inputs and output for one image or sequence). An edge leads from a layer to a reader of its
    output, with the attributes ``boundary``, the map that crosses it, after pooling, and
    ``input``, the number of the reader's input that it is. Nodes are in topological order.
    """
    # Imported late: only users of this function need it.
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph(name=network.name)
    layers, all_maps = network.layers, list(network.maps())
    for layer, maps in zip(layers, all_maps, strict=True):
        graph.add_node(layer.name, layer=layer, maps=maps)
    for layer, reads in zip(layers, network.sources, strict=True):
        for number, source in enumerate(reads):
            if source >= 0:
                boundary = all_maps[source].pooled
                graph.add_edge(layers[source].name, layer.name, boundary=boundary, input=number)
    return graph
