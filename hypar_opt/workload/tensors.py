"""The tensors of one training step, for a batch, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.workload.graph import layer_graph
from hypar_opt.workload.operators.axes import BATCH
from hypar_opt.workload.operators.maps import FeatureMap, LayerMaps
from hypar_opt.workload.shared import SharedTensor, SharedWeights

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    import networkx as nx

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import Map

Shape = tuple[int, ...]

MOST_CHOICES = 3
"""The largest number of choices of a kind of layer; each is a column of a cost table."""


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of layer l: ``(batch, channels, height, width)``, of images.

    Of tokens ``(batch, tokens, features)``, and of a vector ``(batch, features)``.

    Source: section 3.1; docs/model.md: no biases, and the next layer reads pooled maps.
    """

    name: str
    kind: str
    operator: Operator
    """The layer, which declares its tensors' axes and the axis that each choice halves."""
    sizes: Mapping[str, int]
    """The size of every axis, including the batch's ``b``."""
    input: Shape
    """F_l as this layer reads it: flattened, if it is fully-connected; of several the first."""
    output: Shape
    """F_{l+1} before pooling: the extent of model parallelism's partial sums."""
    pooled: Shape
    """F_{l+1} after pooling: what the next layer reads."""
    others: tuple[Shape, ...] = ()
    """Further inputs."""
    statistics: tuple[int, int] = (0, 0)
    """Elements that a split of channels all-reduces beside its tensors, forward and backward."""
    tied: bool = False
    """Whether its weights are another layer's too: a node of their own has their gradient."""

    @property
    def weight(self) -> Shape:
        """W_l: ``(kernel height, width, input, output channels)``, or ``(input, output)``.

        Of a grouped convolution the channels of a group, behind the number of groups; empty
        without weights.
        """
        return self._shape(self.operator.contraction.weight)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one pass (forward, backward or gradient), whole batch."""
        return self.operator.macs(self.sizes)

    @property
    def gradient(self) -> Shape:
        """dW_l: as large as the weights."""
        return self.weight

    @property
    def input_error(self) -> Shape:
        """E_l: as large as the feature map that is read."""
        return self.input

    @property
    def error(self) -> Shape:
        """E_{l+1} as it arrives from the next layer: as large as the pooled feature map."""
        return self.pooled

    @property
    def output_error(self) -> Shape:
        """E_{l+1} before pooling, propagated back through the pool."""
        return self.output

    def word(self, column: int) -> str | None:
        """Return what its kind calls a choice; None where it has fewer."""
        choices = self.operator.splits
        return choices[column].word if column < len(choices) else None

    def _shape(self, axes: Sequence[str]) -> Shape:
        return tuple(self.sizes[axis] for axis in axes if axis in self.sizes)


class Lacking(NamedTuple):
    """Which tensors lack the axis that a choice halves: each ``(choices, layers)`` bool.

    Such a tensor is not split but replicated, or left as partial sums, on both sides: at each
    level that makes the choice its number of copies in the array doubles.
    """

    input: NDArray[np.bool_]
    weight: NDArray[np.bool_]
    output: NDArray[np.bool_]


@dataclass(frozen=True)
class Boundary:
    """The tensor on an edge between two positions in `Workload.nodes`."""

    source: int
    target: int
    shape: Shape
    weights: bool = False
    """Whether it leads from shared weights to a layer that uses them."""


@dataclass(frozen=True, eq=False)  # compared as itself: what is derived of one is kept
class Workload:
    """All layers and boundaries of a network for one batch, in topological order.

    Parameters
    ----------
    nodes
        First what several layers share (``hypar_opt.workload.shared``), then the layers.
    shared
        The number of nodes that are no layers.
    """

    batch: int
    nodes: tuple[LayerTensors, ...]
    boundaries: tuple[Boundary, ...]
    shared: int = 0

    @classmethod
    def of(cls, graph: nx.DiGraph[str], batch: int, *, shared_tensors: bool = False) -> Workload:
        """Return the tensors of a layer graph for a batch size.

        Parameters
        ----------
        shared_tensors
            Make a node of each tensor that several layers read. Shared weights are one always.

        Raises
        ------
        ValueError
            If the graph's nodes are not in topological order.
        """
        # Solvers see positions and never names.
        position = {name: index for index, name in enumerate(graph)}
        for source, target in graph.edges:
            if position[source] >= position[target]:
                raise ValueError(f"{source!r} should stand before {target!r}, which reads it")
        owners = _owners(graph)
        layers = list(_layers(graph, batch, owners))
        edges = [
            Boundary(position[u], position[v], (batch, *data["boundary"]))
            for u, v, data in graph.edges(data=True)
        ]
        nodes = []
        for owner in dict.fromkeys(owners.values()):
            users = [position[name] for name, other in owners.items() if other == owner]
            nodes.append((_shared_weights(layers[position[owner]]), users))
        own = [node for node, _ in nodes]
        if shared_tensors:
            own, edges = _with_shared_tensors(graph, batch, own, edges)
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
        return cls(batch, (*own, *layers), tuple(boundaries), shift)

    @property
    def layers(self) -> tuple[LayerTensors, ...]:
        """The layers, whose choices are a plan's."""
        return self.nodes[self.shared :]

    # Sizes are Python integers: a product of sizes up to 2^31 - 1 may exceed int64.
    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Elements of each node's W as its passes read it; shared weights are their users'."""
        return tuple(0 if n < self.shared else _count(x.weight) for n, x in enumerate(self.nodes))

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """Elements of the W that each node keeps, and of the dW that it reduces."""
        return tuple(0 if node.tied else _count(node.weight) for node in self.nodes)

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Elements of each node's inputs, as it reads them."""
        return tuple(
            sum(map(_count, (node.input, *node.others))) if n >= self.shared else 0
            for n, node in enumerate(self.nodes)
        )

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Elements of each node's output before pooling; a shared tensor is its writer's."""
        return tuple(0 if n < self.shared else _count(x.output) for n, x in enumerate(self.nodes))

    @cached_property
    def pooled(self) -> tuple[int, ...]:
        """Elements of each node's output after pooling (F, and E)."""
        return tuple(0 if n < self.shared else _count(x.pooled) for n, x in enumerate(self.nodes))

    @cached_property
    def boundary_sizes(self) -> tuple[int, ...]:
        """Elements of each boundary tensor (A)."""
        return tuple(math.prod(boundary.shape) for boundary in self.boundaries)

    @cached_property
    def ends(self) -> NDArray[np.intp]:
        """Each boundary's source and target node: ``(boundaries, 2)``."""
        pairs = [(boundary.source, boundary.target) for boundary in self.boundaries]
        # The reshape keeps two columns where a network of one layer has no boundary.
        return np.array(pairs, np.intp).reshape(-1, 2)

    @cached_property
    def trick(self) -> tuple[int, ...]:
        """Each node's choice under the "one weird trick", by its kind."""
        return tuple(
            [choice.word for choice in node.operator.splits].index(node.operator.trick)
            for node in self.nodes
        )

    def lacking(self, columns: int) -> Lacking:
        """Return which tensors lack the axis that a choice halves, for the first ``columns``.

        Where a kind of layer has fewer choices the entries are False; see `forbidden`.
        """
        return Lacking(*(tensor[:columns] for tensor in self._axes[0]))

    def halves_batch(self, columns: int) -> NDArray[np.bool_]:
        """Return which choices halve the batch: ``(columns, nodes)``; True for forbidden ones."""
        return self._axes[1][:columns]

    @cached_property
    def _axes(self) -> tuple[Lacking, NDArray[np.bool_]]:
        shape = (MOST_CHOICES, len(self.nodes))
        lacking = Lacking(*np.zeros((3, *shape), bool))
        # A choice that a kind does not have reads as data parallelism's, and charges nothing: the
        # constraints forbid it, but the arrays of all layers have the same columns.
        halves_batch = np.ones(shape, bool)
        alike: dict[Hashable, list[int]] = {}
        for position, node in enumerate(self.nodes):
            alike.setdefault((node.operator.contraction, node.operator.splits), []).append(position)
        for positions in alike.values():
            operator = self.nodes[positions[0]].operator
            for column, choice in enumerate(operator.splits[:MOST_CHOICES]):
                for tensor, axes in zip(lacking, operator.contraction, strict=True):
                    # A tensor that a layer does not have lacks nothing.
                    tensor[column, positions] = bool(axes) and choice.axis not in axes
                halves_batch[column, positions] = choice.axis == BATCH
        return lacking, halves_batch

    def forbidden(self, columns: int) -> NDArray[np.bool_]:
        """Return which choices a node does not have: ``(nodes, columns)``."""
        forbidden: NDArray[np.bool_] = np.arange(columns) >= self._choices[:, None]
        return forbidden

    @cached_property
    def _choices(self) -> NDArray[np.intp]:
        """The number of each node's choices: ``(nodes,)``."""
        return np.array([len(node.operator.splits) for node in self.nodes])

    @cached_property
    def elements(self) -> int:
        """Elements of all tensors together: an upper bound on any sum of tensor sizes."""
        parts = (self.weights, self.inputs, self.outputs, self.pooled, self.boundary_sizes)
        statistics = (sum(node.statistics) for node in self.nodes)
        return sum(map(sum, parts)) + sum(statistics)

    @cached_property
    def shuffles(self) -> NDArray[np.bool_]:
        """Which nodes reorder the channels that they read: ``(nodes,)``."""
        return np.array([node.operator.shuffles for node in self.nodes], bool)

    @cached_property
    def weight_users(self) -> dict[int, list[int]]:
        """The nodes of shared weights, and the nodes that use each."""
        users: dict[int, list[int]] = {}
        for boundary in self.boundaries:
            if boundary.weights:
                users.setdefault(boundary.source, []).append(boundary.target)
        return users

    @cached_property
    def leads_weights(self) -> NDArray[np.bool_]:
        """Which boundaries lead from shared weights to their users: ``(boundaries,)``."""
        return np.array([boundary.weights for boundary in self.boundaries], bool)


def workload_of(network: Network, batch: int, *, shared_tensors: bool = False) -> Workload:
    """Return a network's tensors for a batch; the parameters are those of `Workload.of`."""
    return Workload.of(layer_graph(network), batch, shared_tensors=shared_tensors)


def describe(network: Network, batch: int) -> dict[str, Any]:
    """Return the tensors of a network's layers as plain data: shapes and counts of a batch."""
    workload = workload_of(network, batch)
    first = workload.shared
    layers = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "input": layer.input,
            "weight": layer.weight,
            "output": layer.output,
            "pooled": layer.pooled,
            "weights": weights,
            "feature_map": elements,
            "macs": layer.macs,
        }
        for layer, weights, elements in zip(
            workload.layers, workload.weights[first:], workload.pooled[first:], strict=True
        )
    ]
    parameters = (
        layer.parameters(maps) - (layer.weights(maps) if layer.shares_weights_with else 0)
        for layer, maps in zip(network.layers, network.maps(), strict=True)
    )
    total = {
        "weights": sum(workload.stored),
        "feature_map": sum(workload.pooled),
        "macs": sum(layer.macs for layer in workload.layers),
        "parameters": sum(parameters),
    }
    head = {"name": network.name, "source": network.source, "digest": network.digest()}
    return {**head, "batch": workload.batch, "layers": layers, "total": total}


def _layers(
    graph: nx.DiGraph[str], batch: int, owners: Mapping[str, str]
) -> Iterator[LayerTensors]:
    """Yield the tensors of a graph's layers; repetitions of a block share theirs."""
    made: dict[Hashable, LayerTensors] = {}
    for name, data in graph.nodes(data=True):
        layer, maps, tied = data["layer"], data["maps"], name in owners
        described = [value for key, value in vars(layer).items() if key not in ("name", "inputs")]
        key = (type(layer), maps, tied, *described)
        if key not in made:
            made[key] = _layer(layer, maps, batch, tied=tied)
        yield replace(made[key], name=name, operator=layer)


def _layer(layer: Operator, maps: LayerMaps, batch: int, *, tied: bool = False) -> LayerTensors:
    contraction = layer.contraction
    sizes = {BATCH: batch, **layer.sizes(maps)}

    def shape(axes: tuple[str, ...], over: Map) -> Shape:
        if not axes:
            return ()
        # Without axes of height and width a map is a vector: a fully-connected layer flattens what
        # it reads.
        is_vector = not over.tokens and sum(axis in sizes for axis in axes) < 3
        return (batch, over.elements) if is_vector else (batch, *over)

    return LayerTensors(
        name=layer.name,
        kind=layer.kind,
        operator=layer,
        sizes=sizes,
        input=shape(contraction.input, maps.input),
        output=shape(contraction.output, maps.output),
        pooled=shape(contraction.output, maps.pooled),
        others=tuple((batch, *other) for other in maps.others),
        statistics=(
            layer.statistics.forward * batch * maps.output.positions,
            layer.statistics.backward * batch * maps.output.positions,
        ),
        tied=tied,
    )


def _count(shape: Shape) -> int:
    """Return the elements of a tensor; none of one without a shape."""
    return math.prod(shape) if shape else 0


def _owners(graph: nx.DiGraph[str]) -> dict[str, str]:
    """Return, for each layer whose weights several share, the one that they are called after."""
    shared = {name: graph.nodes[name]["layer"].shares_weights_with for name in graph}
    owners = {name: owner for name, owner in shared.items() if owner is not None}
    return owners | {owner: owner for owner in owners.values()}


def _shared_weights(owner: LayerTensors) -> LayerTensors:
    """Return the node of weights that several layers use."""
    # A map of these sizes, so that a node is made as a layer is.
    maps = LayerMaps(FeatureMap(owner.sizes["i"], owner.sizes["o"]), FeatureMap(1), FeatureMap(1))
    node = SharedWeights(name=f"weights of {owner.name}")
    return _layer(node, maps, owner.sizes[BATCH])


def _with_shared_tensors(
    graph: nx.DiGraph[str], batch: int, own: list[LayerTensors], edges: list[Boundary]
) -> tuple[list[LayerTensors], list[Boundary]]:
    """Return the shared nodes with the tensors of several readers, and edges through these.

    An edge's end below zero is a shared node: -1 the last of them.
    """
    readers: dict[int, list[Boundary]] = {}
    for edge in edges:
        readers.setdefault(edge.source, []).append(edge)
    names = list(graph)
    several = [source for source, read in readers.items() if len(read) > 1]
    through = {source: n - len(several) for n, source in enumerate(several)}
    alike: dict[Map, LayerTensors] = {}
    nodes = list(own)
    for source in several:
        pooled = graph.nodes[names[source]]["maps"].pooled
        if pooled not in alike:
            node = SharedTensor(name="output")
            alike[pooled] = _layer(node, node.maps(pooled), batch)
        nodes.append(replace(alike[pooled], name=f"output of {names[source]}"))
    into = [Boundary(source, node, readers[source][0].shape) for source, node in through.items()]
    out = [
        Boundary(through.get(edge.source, edge.source), edge.target, edge.shape) for edge in edges
    ]
    return nodes, into + out
