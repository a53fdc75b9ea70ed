"""The tensors of one training step, for a batch, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.workload.graph import layer_graph
from hypar_opt.workload.operators.axes import BATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import networkx as nx

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import LayerMaps, Operator

Shape = tuple[int, ...]

MOST_CHOICES = 3
"""The largest number of choices of a kind of layer; each is a column of a cost table."""


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of layer l: shapes as ``(batch, channels, height, width)``.

    A fully-connected layer reads and writes ``(batch, features)``.

    Source: section 3.1; docs/model.md: no biases, and the next layer reads pooled maps.
    """

    name: str
    kind: str
    operator: type[Operator]
    """Its class, which declares its tensors' axes and the axis that each choice halves."""
    sizes: Mapping[str, int]
    """The size of every axis, including the batch's ``b``."""
    pooled: Shape
    """F_{l+1} after pooling: what the next layer reads."""

    @property
    def input(self) -> Shape:
        """F_l as this layer reads it: flattened, if it is fully-connected."""
        return self._shape(self.operator.contraction.input)

    @property
    def weight(self) -> Shape:
        """W_l: ``(kernel height, width, input, output channels)``, or ``(input, output)``."""
        return self._shape(self.operator.contraction.weight)

    @property
    def output(self) -> Shape:
        """F_{l+1} before pooling: the extent of model parallelism's partial sums."""
        return self._shape(self.operator.contraction.output)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one pass (forward, backward or gradient), whole batch."""
        return math.prod(self._shape(self.operator.contraction.iterated))

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

    @property
    def input_channels(self) -> int:
        """Input channels, or input features."""
        return self.input[1]

    @property
    def output_channels(self) -> int:
        """Output channels, or units."""
        return self.output[1]

    def word(self, column: int) -> str | None:
        """Return what its kind calls a choice; None where it has fewer."""
        choices = self.operator.choices
        return choices[column].word if column < len(choices) else None

    def _shape(self, axes: Sequence[str]) -> Shape:
        return tuple(self.sizes[axis] for axis in axes)


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
    """The tensor on an edge of the layer graph, between two positions in `Workload.layers`."""

    source: int
    target: int
    shape: Shape


@dataclass(frozen=True, eq=False)  # compared as itself: what is derived of one is kept
class Workload:
    """All layers and boundaries of a network for one batch, in topological order."""

    batch: int
    layers: tuple[LayerTensors, ...]
    boundaries: tuple[Boundary, ...]

    @classmethod
    def of(cls, graph: nx.DiGraph[str], batch: int) -> Workload:
        """Return the tensors of a layer graph for a batch size.

        Raises
        ------
        ValueError
            If the graph's nodes are not in topological order.
        """
        # Solvers see positions and never names.
        position = {name: index for index, name in enumerate(graph)}
        for source, target in graph.edges:
            # Every cost table takes its edges from an earlier layer to a later one.
            if position[source] >= position[target]:
                raise ValueError(f"{source!r} should stand before {target!r}, which reads it")
        layers = tuple(
            _layer(graph.nodes[n]["layer"], graph.nodes[n]["maps"], batch) for n in position
        )
        boundaries = [
            Boundary(position[u], position[v], (batch, *data["boundary"]))
            for u, v, data in graph.edges(data=True)
        ]
        # `CostTable.is_chain` and the chain solvers need a chain's edges in the order of its
        # layers.
        return cls(batch, layers, tuple(sorted(boundaries, key=lambda b: (b.target, b.source))))

    # Sizes are Python integers: a product of sizes up to 2^31 - 1 may exceed int64.
    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Elements of each layer's W (and dW)."""
        return tuple(math.prod(layer.weight) for layer in self.layers)

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Elements of each layer's input, as it reads it."""
        return tuple(math.prod(layer.input) for layer in self.layers)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Elements of each layer's output before pooling."""
        return tuple(math.prod(layer.output) for layer in self.layers)

    @cached_property
    def pooled(self) -> tuple[int, ...]:
        """Elements of each layer's output after pooling (F, and E)."""
        return tuple(math.prod(layer.pooled) for layer in self.layers)

    @cached_property
    def boundary_sizes(self) -> tuple[int, ...]:
        """Elements of each boundary tensor (A)."""
        return tuple(math.prod(boundary.shape) for boundary in self.boundaries)

    @cached_property
    def ends(self) -> NDArray[np.intp]:
        """Each boundary's source and target layer: ``(boundaries, 2)``."""
        pairs = [(boundary.source, boundary.target) for boundary in self.boundaries]
        # The reshape keeps two columns where a network of one layer has no boundary.
        return np.array(pairs, np.intp).reshape(-1, 2)

    @cached_property
    def trick(self) -> tuple[int, ...]:
        """Each layer's choice under the "one weird trick", by its kind."""
        return tuple(
            [choice.word for choice in layer.operator.choices].index(layer.operator.trick)
            for layer in self.layers
        )

    def lacking(self, columns: int) -> Lacking:
        """Return which tensors lack the axis that a choice halves, for the first ``columns``.

        Where a kind of layer has fewer choices the entries are False; see `forbidden`.
        """
        return Lacking(*(tensor[:columns] for tensor in self._axes[0]))

    def halves_batch(self, columns: int) -> NDArray[np.bool_]:
        """Return which choices halve the batch: ``(columns, layers)``; True for forbidden ones."""
        return self._axes[1][:columns]

    @cached_property
    def _axes(self) -> tuple[Lacking, NDArray[np.bool_]]:
        shape = (MOST_CHOICES, len(self.layers))
        lacking = Lacking(*np.zeros((3, *shape), bool))
        # A choice that a kind does not have reads as data parallelism's, and charges nothing: the
        # constraints forbid it, but the arrays of all layers have the same columns.
        halves_batch = np.ones(shape, bool)
        for position, layer in enumerate(self.layers):
            for column, choice in enumerate(layer.operator.choices[:MOST_CHOICES]):
                for tensor, axes in zip(lacking, layer.operator.contraction, strict=True):
                    tensor[column, position] = choice.axis not in axes
                halves_batch[column, position] = choice.axis == BATCH
        return lacking, halves_batch

    def forbidden(self, columns: int) -> NDArray[np.bool_]:
        """Return which choices a layer's kind does not have: ``(layers, columns)``."""
        counts = np.array([len(layer.operator.choices) for layer in self.layers])
        forbidden: NDArray[np.bool_] = np.arange(columns) >= counts[:, None]
        return forbidden

    @cached_property
    def elements(self) -> int:
        """Elements of all tensors together: an upper bound on any sum of tensor sizes."""
        parts = (self.weights, self.inputs, self.outputs, self.pooled, self.boundary_sizes)
        return sum(map(sum, parts))


def workload_of(network: Network, batch: int) -> Workload:
    """Return a network's tensors for a batch."""
    return Workload.of(layer_graph(network), batch)


def describe(network: Network, batch: int) -> dict[str, Any]:
    """Return the tensors of a network's layers as plain data: shapes and counts of a batch."""
    workload = workload_of(network, batch)
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
            workload.layers, workload.weights, workload.pooled, strict=True
        )
    ]
    total = {
        "weights": sum(workload.weights),
        "feature_map": sum(workload.pooled),
        "macs": sum(layer.macs for layer in workload.layers),
    }
    head = {"name": network.name, "source": network.source, "digest": network.digest()}
    return {**head, "batch": workload.batch, "layers": layers, "total": total}


def _layer(layer: Operator, maps: LayerMaps, batch: int) -> LayerTensors:
    operator = type(layer)
    # A fully-connected layer's output has no height and width, so its pooled map has none.
    written = len(operator.contraction.output)
    return LayerTensors(
        name=layer.name,
        kind=layer.kind,
        operator=operator,
        sizes={BATCH: batch, **layer.sizes(maps)},
        pooled=(batch, *maps.pooled)[:written],
    )
