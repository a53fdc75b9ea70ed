"""The tensors of one training step, for a batch, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.frozen import Frozen, derived
from hypar_opt.workload.graph import LayerGraph
from hypar_opt.workload.layer_tensors import Boundary, LayerTensors, Shape, tensors_of
from hypar_opt.workload.operators.axes import BATCH
from hypar_opt.workload.shared import shared_weights, weight_owners, with_shared_tensors

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    import networkx as nx

    from hypar_opt.workload.network import Network

MAX_CHOICES = 3
"""The largest number of choices of a kind of layer; each is a column of a cost table."""

MAX_LAYERS_KEPT = 4096
"""Layers of a network whose tensors are kept for the next call with it."""


class Lacking(NamedTuple):
    """Which tensors lack the axis that a choice halves: each ``(choices, layers)`` bool.

    Such a tensor is not split but replicated, or left as partial sums, on both sides: at each
    level that makes the choice its number of copies in the array doubles.
    """

    input: NDArray[np.bool_]
    weight: NDArray[np.bool_]
    output: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)  # compared as itself: what is derived of one is kept
class Workload:
    """All layers and boundaries of a network for one batch, in topological order.

    Parameters
    ----------
    nodes
        First what several layers share (``hypar_opt.workload.shared``), then the layers.
    shared
        The number of nodes that are no layers.
    replicas
        Whether nodes may be whole, that is neither split by batch nor by channel.
    """

    batch: int
    nodes: tuple[LayerTensors, ...]
    boundaries: tuple[Boundary, ...]
    shared: int = 0
    replicas: bool = False

    __setstate__ = Frozen.__setstate__  # a copy's arrays, too; those given are tuples

    @classmethod
    def of(cls, graph: nx.DiGraph[str], batch: int, *, shared_tensors: bool = False) -> Workload:
        """Return the tensors of a layer graph for a batch size.

        Parameters
        ----------
        shared_tensors
            Make a node of each tensor that several layers read, and let nodes be whole. Shared
            weights are a node always.

        Raises
        ------
        ValueError
            If the graph's nodes are not in topological order.
        """
        return cls._of_layers(LayerGraph.of(graph), batch, shared_tensors=shared_tensors)

    @classmethod
    def of_network(cls, network: Network, batch: int, *, shared_tensors: bool = False) -> Workload:
        """Return a network's tensors; the parameters are those of `of`."""
        return cls._of_layers(LayerGraph.of_network(network), batch, shared_tensors=shared_tensors)

    @classmethod
    def _of_layers(cls, graph: LayerGraph, batch: int, *, shared_tensors: bool) -> Workload:
        owners = weight_owners(graph)
        layers = list(_layers(graph, batch, owners))
        edges = [
            Boundary(source, target, (batch, *crossing)) for source, target, crossing in graph.edges
        ]
        position = {name: index for index, name in enumerate(graph.names)}
        nodes = []
        for owner in dict.fromkeys(owners.values()):
            users = [position[name] for name, other in owners.items() if other == owner]
            nodes.append((shared_weights(layers[position[owner]]), users))
        own = [node for node, _ in nodes]
        if shared_tensors:
            own, edges = with_shared_tensors(graph, batch, own, edges)
        shift = len(own)
        # What is shared comes first, so that ties, which are compared from the last position
        # back, are decided by the layers.
        boundaries = [
            Boundary(n, user + shift, layer.weight, weights=True)
            for n, (layer, users) in enumerate(nodes)
            for user in users
        ]
        # Ends below zero count from the last shared node: the shift makes them positions too.
        boundaries += [
            Boundary(edge.source + shift, edge.target + shift, edge.shape) for edge in edges
        ]
        # `CostTable.is_chain` and the chain solvers need a chain's edges in the order of its
        # layers.
        boundaries.sort(key=lambda b: (b.target, b.source))
        return cls(batch, (*own, *layers), tuple(boundaries), shift, shared_tensors)

    @property
    def layers(self) -> tuple[LayerTensors, ...]:
        """The layers, whose choices are a plan's."""
        return self.nodes[self.shared :]

    # Sizes are Python integers: a product of sizes up to 2^31 - 1 may exceed int64.
    @derived
    def weights(self) -> tuple[int, ...]:
        """Elements of each node's W as its passes read it; shared weights are their users'."""
        return tuple(0 if n < self.shared else _count(x.weight) for n, x in enumerate(self.nodes))

    @derived
    def stored(self) -> tuple[int, ...]:
        """Elements of the W that each node keeps, and of the dW that it reduces."""
        return tuple(0 if node.tied else _count(node.weight) for node in self.nodes)

    @derived
    def inputs(self) -> tuple[int, ...]:
        """Elements of each node's inputs, as it reads them."""
        return tuple(
            sum(map(_count, (node.input, *node.others))) if n >= self.shared else 0
            for n, node in enumerate(self.nodes)
        )

    @derived
    def outputs(self) -> tuple[int, ...]:
        """Elements of each node's output before pooling; a shared tensor is its writer's."""
        return tuple(0 if n < self.shared else _count(x.output) for n, x in enumerate(self.nodes))

    @derived
    def pooled(self) -> tuple[int, ...]:
        """Elements of each node's output after pooling (F, and E)."""
        return tuple(0 if n < self.shared else _count(x.pooled) for n, x in enumerate(self.nodes))

    @derived
    def boundary_sizes(self) -> tuple[int, ...]:
        """Elements of each boundary tensor (A)."""
        return tuple(math.prod(boundary.shape) for boundary in self.boundaries)

    @derived
    def ends(self) -> NDArray[np.intp]:
        """Each boundary's source and target node: ``(boundaries, 2)``."""
        pairs = [(boundary.source, boundary.target) for boundary in self.boundaries]
        # The reshape keeps two columns where a network of one layer has no boundary.
        return np.array(pairs, np.intp).reshape(-1, 2)

    @derived
    def trick(self) -> tuple[int, ...]:
        """Each node's choice under the "one weird trick", by its kind; shared weights' by users."""
        trick = [
            [choice.word for choice in node.operator.splits].index(node.operator.trick)
            for node in self.nodes
        ]
        for node, users in self.weight_users.items():
            columns = {trick[user] for user in users}
            trick[node] = columns.pop() if len(columns) == 1 else trick[node]
        return tuple(trick)

    def lacking(self, columns: int) -> Lacking:
        """Return which tensors lack the axis that a choice halves, for the first ``columns``.

        Where a kind of layer has fewer choices the entries are False; see `forbidden`.
        """
        return Lacking(*(tensor[:columns] for tensor in self._axes[0]))

    def halves_batch(self, columns: int) -> NDArray[np.bool_]:
        """Return which choices halve the batch: ``(columns, nodes)``; True for forbidden ones."""
        return self._axes[1][:columns]

    def whole(self, columns: int) -> NDArray[np.bool_]:
        """Return which choices halve nothing: ``(columns, nodes)``."""
        return self._whole[:columns]

    @derived
    def _whole(self) -> NDArray[np.bool_]:
        whole = np.zeros((MAX_CHOICES, len(self.nodes)), bool)
        for position, node in enumerate(self.nodes):
            for column, choice in enumerate(node.operator.splits[:MAX_CHOICES]):
                whole[column, position] = not choice.axis
        return whole

    def replica_boundaries(self, columns: int) -> NDArray[np.bool_]:
        """Return the boundaries whose exchanges at a level are repeated by replicas below it.

        They lead from a node that may be whole: ``(boundaries,)``.
        """
        return self._coupled[columns]

    def has_replicas(self, columns: int) -> bool:
        """Return whether any boundary is `replica_boundaries`."""
        return self._couples[columns]

    @derived
    def _coupled(self) -> tuple[NDArray[np.bool_], ...]:
        replica_boundaries = []
        for columns in range(MAX_CHOICES + 1):
            may_be_whole: NDArray[np.bool_] = np.any(self.whole(columns), axis=0)
            replica_boundaries.append(may_be_whole[self.ends[:, 0]] & self.replicas)
        return tuple(replica_boundaries)

    @derived
    def _couples(self) -> tuple[bool, ...]:
        return tuple(bool(replica_boundaries.any()) for replica_boundaries in self._coupled)

    @derived
    def _axes(self) -> tuple[Lacking, NDArray[np.bool_]]:
        shape = (MAX_CHOICES, len(self.nodes))
        lacking = Lacking(*np.zeros((3, *shape), bool))
        # A choice that a kind does not have reads as data parallelism's, and charges nothing: the
        # constraints forbid it, but the arrays of all layers have the same columns.
        halves_batch = np.ones(shape, bool)
        alike: dict[Hashable, list[int]] = {}
        for position, node in enumerate(self.nodes):
            alike.setdefault((node.operator.contraction, node.operator.splits), []).append(position)
        for positions in alike.values():
            operator = self.nodes[positions[0]].operator
            for column, choice in enumerate(operator.splits[:MAX_CHOICES]):
                for tensor, axes in zip(lacking, operator.contraction, strict=True):
                    # A tensor that a layer does not have lacks nothing.
                    tensor[column, positions] = bool(axes) and choice.axis not in axes
                halves_batch[column, positions] = choice.axis == BATCH
        return lacking, halves_batch

    def forbidden(self, columns: int) -> NDArray[np.bool_]:
        """Return which choices a node does not have: ``(nodes, columns)``."""
        forbidden: NDArray[np.bool_] = np.arange(columns) >= self._choices[:, None]
        return forbidden

    @derived
    def _choices(self) -> NDArray[np.intp]:
        """The number of each node's choices: ``(nodes,)``."""
        kept = [node.operator.splits for node in self.nodes]
        if not self.replicas:
            kept = [tuple(choice for choice in splits if choice.axis) for splits in kept]
        return np.array([len(splits) for splits in kept])

    @derived
    def elements(self) -> int:
        """Elements of all tensors together: an upper bound on any sum of tensor sizes."""
        parts = (self.weights, self.inputs, self.outputs, self.pooled, self.boundary_sizes)
        statistics = (sum(node.statistics) for node in self.nodes)
        return sum(map(sum, parts)) + sum(statistics)

    @derived
    def shuffles(self) -> NDArray[np.bool_]:
        """Which nodes reorder the channels that they read: ``(nodes,)``."""
        return np.array([node.operator.shuffles for node in self.nodes], bool)

    @derived
    def weight_users(self) -> Mapping[int, Sequence[int]]:
        """The nodes of shared weights, and the nodes that use each."""
        users: dict[int, list[int]] = {}
        for boundary in self.boundaries:
            if boundary.weights:
                users.setdefault(boundary.source, []).append(boundary.target)
        return users

    @derived
    def tensor_writers(self) -> Mapping[int, int]:
        """The nodes of tensors that several layers read, and the node that writes each."""
        shared = (b for b in self.boundaries if b.target < self.shared)
        return {boundary.target: boundary.source for boundary in shared}

    @derived
    def boundary_into_shared(self) -> Mapping[int, int]:
        """For every node whose output several layers read, the boundary to its shared node."""
        return {
            boundary.source: number
            for number, boundary in enumerate(self.boundaries)
            if boundary.target < self.shared
        }

    @derived
    def boundary_between(self) -> Mapping[tuple[int, int], int]:
        """The boundary over which a layer's node reads what another's writes: writer, reader."""
        writers = self.tensor_writers
        return {
            (writers.get(boundary.source, boundary.source), boundary.target): number
            for number, boundary in enumerate(self.boundaries)
            if boundary.target >= self.shared and not boundary.weights
        }

    @derived
    def is_weight_boundary(self) -> NDArray[np.bool_]:
        """Which boundaries lead from shared weights to their users: ``(boundaries,)``."""
        return np.array([boundary.weights for boundary in self.boundaries], bool)


def workload_of(network: Network, batch: int, *, shared_tensors: bool = False) -> Workload:
    """Return a network's tensors for a batch; the parameters are those of `Workload.of`."""
    # Workloads are frozen, and much is derived of one and kept: of small networks the last few are.
    made = _kept if len(network.layers) <= MAX_LAYERS_KEPT else Workload.of_network
    return made(network, batch, shared_tensors=shared_tensors)


@lru_cache(maxsize=16)
def _kept(network: Network, batch: int, *, shared_tensors: bool) -> Workload:
    return Workload.of_network(network, batch, shared_tensors=shared_tensors)


def _layers(graph: LayerGraph, batch: int, owners: Mapping[str, str]) -> Iterator[LayerTensors]:
    """Yield the tensors of a graph's layers; repetitions of a block share theirs."""
    made: dict[Hashable, LayerTensors] = {}
    for name, layer, maps in zip(graph.names, graph.layers, graph.maps, strict=True):
        tied = name in owners
        described = [value for key, value in vars(layer).items() if key not in ("name", "inputs")]
        key = (type(layer), maps, tied, *described)
        if key not in made:
            made[key] = tensors_of(layer, maps, batch, tied=tied)
        yield replace(made[key], name=name, operator=layer)


def _count(shape: Shape) -> int:
    """Return the elements of a tensor; none of one without a shape."""
    return math.prod(shape) if shape else 0
