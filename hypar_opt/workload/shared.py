"""Shared tensors and shared weights: nodes of the optimisation that are not layers.

A tensor with several readers is stored once, in one layout: its writer converts to that layout, and
each reader from it. Weights that several layers use are stored once, too. The layout of either is a
choice, and the cheapest for the layers' choices is taken.

Source: docs/decisions/0010-graphs.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.layer_tensors import Boundary, LayerTensors, tensors_of
from hypar_opt.workload.operators.axes import (
    BATCH,
    DATA_CHOICE,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    Choice,
    Contraction,
)
from hypar_opt.workload.operators.base import Operator
from hypar_opt.workload.operators.kernels import NOTHING_RUNS, Fused, PassesKernels
from hypar_opt.workload.operators.maps import FeatureMap, LayerMaps, Map
from hypar_opt.workload.operators.weightless import WITH_EXPERTS, Weightless

if TYPE_CHECKING:
    from hypar_opt.workload.graph import LayerGraph


class SharedTensor(Weightless):
    """A tensor that several layers read, split by batch or by channel, or whole."""

    kind: Literal["tensor"] = "tensor"

    choices: ClassVar[Mapping[str, Choice]] = WITH_EXPERTS

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        return NOTHING_RUNS


class SharedWeights(Operator):
    """Weights that several layers use: replicated, or split as all these layers split them.

    They are whole if any user takes data parallelism: a user that splits them slices its part, at
    no cost, and the gradients of all users are added before the all-reduce. Users split them by
    feature under `model` and by word of the vocabulary under `output`.
    """

    kind: Literal["weights"] = "weights"

    contraction: ClassVar[Contraction] = Contraction(FrozenDict(), ("i", "o"), ())
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(
        data=DATA_CHOICE, model=OUTPUT_CHANNELS, output=INPUT_CHANNELS
    )
    trick: ClassVar[str] = "data"

    def maps(self, *reads: Map) -> LayerMaps:
        """Return maps of size one: weights are not a feature map."""
        return LayerMaps(reads[0], FeatureMap(1), FeatureMap(1))

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        assert isinstance(maps.input, FeatureMap)
        return {"i": maps.input.channels, "o": maps.input.height}

    def macs(self, sizes: Mapping[str, int]) -> int:  # noqa: ARG002
        return 0  # its users' are counted

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        return NOTHING_RUNS


def weight_owners(graph: LayerGraph) -> dict[str, str]:
    """Return, for each layer that shares weights, the layer that the weights are named after."""
    shared = {
        name: layer.shares_weights_with
        for name, layer in zip(graph.names, graph.layers, strict=True)
    }
    owners = {name: owner for name, owner in shared.items() if owner is not None}
    return owners | {owner: owner for owner in owners.values()}


def shared_weights(owner: LayerTensors) -> LayerTensors:
    """Return the node of weights that several layers use."""
    # A map with the sizes that `output` and `model` split, so that nodes are built like layers.
    sizes = (owner.sizes[owner.operator.splits[word].axis] for word in ("output", "model"))
    maps = LayerMaps(FeatureMap(*sizes), FeatureMap(1), FeatureMap(1))
    node = SharedWeights(name=f"weights of {owner.name}")
    return tensors_of(node, maps, owner.sizes[BATCH])


def with_shared_tensors(
    graph: LayerGraph,
    batch: int,
    shared: list[LayerTensors],
    edges: list[Boundary],
    crossing: Collection[int],
) -> tuple[list[LayerTensors], list[Boundary]]:
    """Return the shared nodes, adding one per tensor with several readers, and edges through them.

    Negative ends of edges are shared nodes, -1 the last of them.

    Parameters
    ----------
    crossing
        Writers whose output becomes a node even with a single reader.
    """
    readers: dict[int, list[Boundary]] = {}
    for edge in edges:
        readers.setdefault(edge.source, []).append(edge)
    several = [
        source
        for source, read in readers.items()
        if source in crossing or len({e.target for e in read}) > 1
    ]
    through = {source: n - len(several) for n, source in enumerate(several)}
    by_map: dict[Map, LayerTensors] = {}
    nodes = list(shared)
    for source in several:
        pooled = graph.maps[source].pooled
        if pooled not in by_map:
            node = SharedTensor(name="output")
            by_map[pooled] = tensors_of(node, node.maps(pooled), batch)
        nodes.append(by_map[pooled].renamed(f"output of {graph.names[source]}"))
    into = [
        Boundary(source, node, (batch, *graph.maps[source].pooled))
        for source, node in through.items()
    ]
    out = [
        edge._replace(source=through[edge.source]) if edge.source in through else edge
        for edge in edges
    ]
    return nodes, into + out
