"""The tensors of one training step, for a batch, exactly."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.frozen import Frozen, derived, derived_from
from hypar_opt.workload.graph import LayerGraph
from hypar_opt.workload.layer_tensors import (
    Boundary,
    Extent,
    LayerTensors,
    Shape,
    drop_unaligned_splits,
    memoised,
    tensors_of,
)
from hypar_opt.workload.layouts import FIRST_SPLIT, Layouts, choices_of_nodes, layouts_of
from hypar_opt.workload.operands import with_split_outputs
from hypar_opt.workload.operators.axes import EXPERTS
from hypar_opt.workload.operators.words import words_of
from hypar_opt.workload.parallelism import PAPERS_CHOICES
from hypar_opt.workload.repeats import SINGLE_PASS, Repeats
from hypar_opt.workload.shared import shared_weights, weight_owners, with_shared_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import networkx as nx

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.axes import Choice
    from hypar_opt.workload.operators.maps import Load

_of_tensors = derived_from("single_pass")

MAX_LAYERS_KEPT = 4096
"""The largest number of layers of a network whose workload is cached."""


@dataclass(frozen=True, eq=False)  # compared by identity: derived data are cached by workload
class Workload:
    """All layers and boundaries of a network for one batch, in topological order.

    Parameters
    ----------
    nodes
        First shared tensors and weights (``hypar_opt.workload.shared``), then the layers.
    shared
        The number of nodes that are not layers.
    replicas
        Whether nodes may be whole: split neither by batch nor by channel.
    choices
        The choices that a problem offers: each is a column of a cost table.
    repeats
        How often a step repeats the passes and collectives of these tensors.
    single_pass
        The workload of the same tensors in a step that repeats nothing; None if this is it.
    """

    batch: int
    nodes: tuple[LayerTensors, ...]
    boundaries: tuple[Boundary, ...]
    shared: int = 0
    replicas: bool = False
    choices: tuple[str, ...] = PAPERS_CHOICES
    repeats: Repeats = SINGLE_PASS
    single_pass: Workload | None = None

    __setstate__ = Frozen.__setstate__  # a copy's arrays, too; those given are tuples

    @classmethod
    def of(
        cls,
        graph: nx.DiGraph[str],
        batch: int,
        choices: Sequence[str] = PAPERS_CHOICES,
        *,
        shared_tensors: bool = False,
    ) -> Workload:
        """Return the tensors of a layer graph for a batch size.

        Parameters
        ----------
        choices
            Those of the problem.
        shared_tensors
            Whether tensors with several readers are nodes, and nodes may be whole. Shared weights
            always are nodes.

        Raises
        ------
        ValueError
            If the graph's nodes are not in topological order.
        """
        return cls._of_layers(LayerGraph.of(graph), batch, choices, shared_tensors=shared_tensors)

    @classmethod
    def of_network(
        cls,
        network: Network,
        batch: int,
        choices: Sequence[str] = PAPERS_CHOICES,
        *,
        shared_tensors: bool = False,
        crossing: Sequence[int] = (),
    ) -> Workload:
        """Return a network's tensors; the parameters are those of `of`.

        Parameters
        ----------
        crossing
            The positions of layers whose outputs are shared tensors even with one reader, as they
            cross stages.
        """
        graph = LayerGraph.of_network(network)
        return cls._of_layers(
            graph, batch, choices, shared_tensors=shared_tensors, crossing=crossing
        )

    @classmethod
    def _of_layers(
        cls,
        graph: LayerGraph,
        batch: int,
        choices: Sequence[str],
        *,
        shared_tensors: bool,
        crossing: Sequence[int] = (),
    ) -> Workload:
        owners = weight_owners(graph)
        tied = [name in owners for name in graph.names]
        unnamed = memoised(
            lambda layer, maps, tied: tensors_of(layer, maps, batch, tied=tied),
            zip(graph.layers, graph.maps, tied, strict=True),
        )
        layers = [layer.renamed(name) for layer, name in zip(unnamed, graph.names, strict=True)]
        edges = [
            Boundary(source, target, (batch, *crossing), input=number)
            for source, target, crossing, number in graph.edges
        ]
        position = {name: index for index, name in enumerate(graph.names)}
        nodes = []
        for owner in dict.fromkeys(owners.values()):
            users = [position[name] for name, other in owners.items() if other == owner]
            nodes.append((shared_weights(layers[position[owner]]), users))
        shared = [node for node, _ in nodes]
        if shared_tensors:
            shared, edges = with_shared_tensors(graph, batch, shared, edges, crossing)
        shift = len(shared)
        # Shared nodes come first, so that ties, which are compared from the last position back, are
        # decided by the layers.
        boundaries = [
            Boundary(n, user + shift, layer.weight, weights=True)
            for n, (layer, users) in enumerate(nodes)
            for user in users
        ]
        # Ends below zero count from the last shared node: the shift makes them positions too.
        boundaries += [
            edge._replace(source=edge.source + shift, target=edge.target + shift) for edge in edges
        ]
        # `CostTable.is_chain` and chain solvers need a chain's edges in the order of its layers.
        boundaries.sort(key=lambda b: (b.target, b.source))
        complete = with_split_outputs(
            drop_unaligned_splits((*shared, *layers), boundaries), boundaries
        )
        return cls(batch, tuple(complete), tuple(boundaries), shift, shared_tensors, tuple(choices))

    @property
    def layers(self) -> tuple[LayerTensors, ...]:
        """The layers: the nodes whose choices make up a plan."""
        return self.nodes[self.shared :]

    # Sizes are Python integers: a product of sizes up to 2^31 - 1 may exceed int64.
    @_of_tensors
    def weights(self) -> tuple[int, ...]:
        """Elements of each node's W as its passes read it; shared weights are their users'."""
        return tuple(0 if n < self.shared else _count(x.weight) for n, x in enumerate(self.nodes))

    @_of_tensors
    def stored(self) -> tuple[int, ...]:
        """Elements of the W that each node stores, and of the dW that it reduces."""
        return tuple(0 if node.tied else _count(node.weight) for node in self.nodes)

    @_of_tensors
    def inputs(self) -> tuple[int, ...]:
        """Elements of each node's inputs, as it reads them."""
        return tuple(map(sum, zip(*self.operand_sizes, strict=True)))

    @_of_tensors
    def operand_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Elements of each node's operands: ``(operands, nodes)``.

        Inputs beyond the operands of a kind count towards the last one.
        """
        sizes = [[0] * len(self.nodes) for _ in range(self.operands)]
        for position in range(self.shared, len(self.nodes)):
            node = self.nodes[position]
            last = max(1, len(node.operator.axes.inputs)) - 1
            for number, shape in enumerate((node.input, *node.further_inputs)):
                sizes[min(number, last)][position] += _count(shape)
        return tuple(map(tuple, sizes))

    @_of_tensors
    def operands(self) -> int:
        """The largest number of operands of a kind of layer."""
        return max(1, *(len(node.operator.axes.inputs) for node in self.nodes))

    @_of_tensors
    def operand(self) -> NDArray[np.intp]:
        """The number of the target's operand that each boundary is: ``(boundaries,)``."""
        numbers = [edge.input for edge in self.boundaries]
        return np.array(numbers, np.intp).clip(max=self.operands - 1)

    @_of_tensors
    def outputs(self) -> tuple[int, ...]:
        """Elements of each node's output before pooling; a shared tensor is its writer's."""
        return tuple(0 if n < self.shared else _count(x.output) for n, x in enumerate(self.nodes))

    @_of_tensors
    def pooled(self) -> tuple[int, ...]:
        """Elements of each node's output after pooling (F, and E)."""
        return tuple(0 if n < self.shared else _count(x.pooled) for n, x in enumerate(self.nodes))

    @derived
    def max_repeats(self) -> int:
        """An upper bound on how often a step repeats any one pass or collective."""
        return self.repeats.upper_bound(self.users)

    @_of_tensors
    def users(self) -> list[int]:
        """How many layers use each node's weights."""
        return [len(self.weight_users.get(node, (node,))) for node in range(len(self.nodes))]

    @_of_tensors
    def boundary_sizes(self) -> tuple[int, ...]:
        """Elements of each boundary tensor (A)."""
        return tuple([extent.elements for extent in self.extents])

    @_of_tensors
    def extents(self) -> tuple[Extent, ...]:
        """The size of each boundary tensor, and of its batch and channels."""
        edges = {(edge.shape, edge.weights): edge for edge in self.boundaries}
        extents = {kind: edge.extent for kind, edge in edges.items()}
        return tuple([extents[edge.shape, edge.weights] for edge in self.boundaries])

    @_of_tensors
    def is_chain(self) -> bool:
        """Whether all nodes are one chain, in their order."""
        return [(edge.source, edge.target) for edge in self.boundaries] == [
            *itertools.pairwise(range(len(self.nodes)))
        ]

    @_of_tensors
    def ends(self) -> NDArray[np.intp]:
        """Each boundary's source and target node: ``(boundaries, 2)``."""
        pairs = [(boundary.source, boundary.target) for boundary in self.boundaries]
        # The reshape keeps two columns where a network of one layer has no boundary.
        return np.array(pairs, np.intp).reshape(-1, 2)

    @_of_tensors
    def choices_of_nodes(self) -> tuple[tuple[Choice | None, ...], ...]:
        """The axis that each node splits under each choice; None for a choice that it lacks."""
        return choices_of_nodes(self.nodes, self.choices, may_be_whole=self.replicas)

    @_of_tensors
    def split_sizes(self) -> NDArray[np.object_]:
        """The size of the axis that each choice splits, ``(choices, nodes)``; 0 for none."""
        sizes = [
            [node.split_size(c) if c else 0 for c in choices]
            for node, choices in zip(self.nodes, self.choices_of_nodes, strict=True)
        ]
        return np.array(sizes, object).T

    @_of_tensors
    def loads(self) -> tuple[Load, ...]:
        """The distinct uneven loads of experts."""
        return tuple(dict.fromkeys(node.load for node in self.nodes if len({*node.load}) > 1))

    @_of_tensors
    def split_loads(self) -> NDArray[np.int64]:
        """The number in `loads`, from 1, of the axis that each choice splits; 0 if even.

        ``(choices, nodes)``.
        """
        numbers = {load: number for number, load in enumerate(self.loads, 1)}
        loads = [
            [
                numbers.get(node.load, 0) if choice and choice.axis == EXPERTS.axis else 0
                for choice in choices
            ]
            for node, choices in zip(self.nodes, self.choices_of_nodes, strict=True)
        ]
        return np.array(loads, np.int64).T

    @_of_tensors
    def words(self) -> tuple[tuple[str | None, ...], ...]:
        """Each node's words for the problem's choices; None for a choice that its kind lacks."""
        return tuple(words_of(node, self.choices) for node in self.nodes)

    @_of_tensors
    def baselines(self) -> Mapping[str, tuple[int, ...]]:
        """Each node's choice under the paper's baselines; shared weights follow their users."""
        trick = [self.choices.index(node.operator.trick) for node in self.nodes]
        for node, users in self.weight_users.items():
            columns = {trick[user] for user in users}
            trick[node] = columns.pop() if len(columns) == 1 else trick[node]
        count = len(self.nodes)
        uniform = {word: (self.choices.index(word),) * count for word in PAPERS_CHOICES}
        return uniform | {"trick": tuple(trick)}

    @_of_tensors
    def layouts(self) -> Layouts:
        """The layouts of nodes' operands and outputs."""
        return layouts_of(self.nodes, self.choices_of_nodes, self.operands)

    @_of_tensors
    def reads_whole(self) -> bool:
        """Whether any choice needs an input whole."""
        return bool((self.layouts.inputs == 0).any())

    @_of_tensors
    def lacks_every_axis(self) -> bool:
        """Whether every choice splits an axis that some tensor lacks: each level adds copies."""
        tensors = (*self.layouts.inputs, self.layouts.weight, self.layouts.output)
        return any(bool((tensor < FIRST_SPLIT).all(axis=0).any()) for tensor in tensors)

    @_of_tensors
    def replica_boundaries(self) -> NDArray[np.bool_]:
        """The boundaries whose exchange at a level is repeated by replicas below it.

        Their source may be whole: ``(boundaries,)``.
        """
        may_be_whole: NDArray[np.bool_] = np.any(self.layouts.whole, axis=0)
        return may_be_whole[self.ends[:, 0]]

    @_of_tensors
    def has_replicas(self) -> bool:
        """Whether replicas or partial sums repeat exchanges below a level."""
        whole, layouts = self.layouts.whole, self.layouts
        has_statistics = [any(node.statistics) for node in self.nodes]
        summed = (layouts.output < FIRST_SPLIT) | (
            layouts.statistics < FIRST_SPLIT
        ) & has_statistics
        sums = whole.any(axis=0) & (summed & ~whole).any(axis=0)
        passed = layouts.addends.any()
        return bool(self.replica_boundaries.any() or sums.any() or passed)

    @_of_tensors
    def forbidden(self) -> NDArray[np.bool_]:
        """The choices that each node lacks: ``(nodes, choices)``."""
        lacking = [[choice is None for choice in choices] for choices in self.choices_of_nodes]
        return np.array(lacking, bool)

    @_of_tensors
    def elements(self) -> int:
        """Elements of all tensors together: an upper bound on any sum of tensor sizes."""
        parts = (self.weights, self.inputs, self.outputs, self.pooled, self.boundary_sizes)
        statistics = (sum(node.statistics) for node in self.nodes)
        return sum(map(sum, parts)) + sum(statistics)

    @_of_tensors
    def readers(self) -> frozenset[int]:
        """The nodes that read another node's output."""
        return frozenset(edge.target for edge in self.boundaries if not edge.weights)

    @_of_tensors
    def ends_at_shared_tensors(self) -> tuple[NDArray[np.intp], ...]:
        """The boundaries with a shared tensor at one end, and which end: 0 source, 1 target.

        The other end is a layer.
        """
        shared = (self.ends < self.shared) & ~self.is_weight_boundary[:, None]
        return np.nonzero(shared)

    @_of_tensors
    def weight_users(self) -> Mapping[int, Sequence[int]]:
        """The nodes of shared weights, and the nodes that use each."""
        users: dict[int, list[int]] = {}
        for boundary in self.boundaries:
            if boundary.weights:
                users.setdefault(boundary.source, []).append(boundary.target)
        return users

    @_of_tensors
    def tensor_writers(self) -> Mapping[int, int]:
        """The nodes of tensors that several layers read, and the node that writes each."""
        shared = (b for b in self.boundaries if b.target < self.shared)
        return {boundary.target: boundary.source for boundary in shared}

    @_of_tensors
    def boundary_into_shared(self) -> Mapping[int, int]:
        """For each node with a shared output, the boundary to its shared tensor."""
        return {
            boundary.source: number
            for number, boundary in enumerate(self.boundaries)
            if boundary.target < self.shared
        }

    @_of_tensors
    def boundaries_read(self) -> Sequence[Sequence[int]]:
        """The boundaries whose tensors each node reads, without shared weights."""
        read: list[list[int]] = [[] for _ in self.nodes]
        for number, boundary in enumerate(self.boundaries):
            if not boundary.weights:
                read[boundary.target].append(number)
        return read

    @_of_tensors
    def boundary_of_input(self) -> Mapping[tuple[int, int], int]:
        """The boundary of each operand, by the layer's node and the operand's number."""
        return {
            (boundary.target, boundary.input): number
            for number, boundary in enumerate(self.boundaries)
            if boundary.target >= self.shared and not boundary.weights
        }

    @_of_tensors
    def has_error(self) -> NDArray[np.bool_]:
        """Whether an error is sent back across each boundary: ``(boundaries,)``.

        A discrete choice, such as a router's top-k, has no derivative.
        """
        targets = (self.nodes[boundary.target].operator for boundary in self.boundaries)
        pairs = zip(self.boundaries, targets, strict=True)
        return np.array(
            [boundary.input not in reader.zero_error_inputs for boundary, reader in pairs], bool
        )

    @_of_tensors
    def is_weight_boundary(self) -> NDArray[np.bool_]:
        """Whether each boundary leads from shared weights to a user: ``(boundaries,)``."""
        return np.array([boundary.weights for boundary in self.boundaries], bool)


def workload_of(
    network: Network,
    batch: int,
    choices: Sequence[str] = PAPERS_CHOICES,
    *,
    shared_tensors: bool = False,
    crossing: tuple[int, ...] = (),
) -> Workload:
    """Return a network's tensors for a batch; parameters as for `Workload.of_network`."""
    # Workloads are frozen and cache much derived data, so the last few of small networks are kept.
    factory = _cached_workload if len(network.layers) <= MAX_LAYERS_KEPT else Workload.of_network
    chosen = tuple(choices)
    return factory(network, batch, chosen, shared_tensors=shared_tensors, crossing=crossing)


@lru_cache(maxsize=16)
def _cached_workload(
    network: Network,
    batch: int,
    choices: tuple[str, ...],
    *,
    shared_tensors: bool,
    crossing: tuple[int, ...],
) -> Workload:
    return Workload.of_network(
        network, batch, choices, shared_tensors=shared_tensors, crossing=crossing
    )


def _count(shape: Shape) -> int:
    """Return the elements of a tensor; 0 for one without a shape."""
    return int(math.prod(shape)) if shape else 0
