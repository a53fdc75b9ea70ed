"""The tensors of one training step, for a batch, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.workload.graph import layer_graph
from hypar_opt.workload.parallelism import DATA, MODEL

if TYPE_CHECKING:
    import networkx as nx

    from hypar_opt.workload.network import Conv, FeatureMap, FullyConnected, Network

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of layer l: shapes as ``(batch, channels, height, width)``.

    A fully-connected layer reads and writes ``(batch, features)``.

    Source: section 3.1; docs/model.md: no biases, and the next layer reads pooled maps.
    """

    name: str
    kind: str
    input: Shape
    """F_l, as this layer reads it."""
    weight: Shape
    """W_l: ``(kernel height, kernel width, input, output channels)``, or ``(input, output)``."""
    output: Shape
    """F_{l+1} before pooling: the extent of model parallelism's partial sums."""
    pooled: Shape
    """F_{l+1} after pooling: what the next layer reads."""
    macs: int
    """Multiply-accumulates of one pass (forward, backward or gradient) over the batch."""

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
        """E_{l+1} before pooling, once led back through the pool."""
        return self.output

    @property
    def input_channels(self) -> int:
        """What model parallelism splits: input channels, or input features."""
        return self.weight[-2]

    @property
    def output_channels(self) -> int:
        """What output parallelism splits: output channels, or units."""
        return self.weight[-1]


@dataclass(frozen=True)
class Boundary:
    """The tensor on an edge of the layer graph, between two positions in `Workload.layers`."""

    source: int
    target: int
    shape: Shape


@dataclass(frozen=True)
class Workload:
    """All layers and boundaries of a network for one batch, in topological order."""

    batch: int
    layers: tuple[LayerTensors, ...]
    boundaries: tuple[Boundary, ...]

    @classmethod
    def of(cls, graph: nx.DiGraph[str], batch: int) -> Workload:
        """Give the layer graph a batch size.

        Raises
        ------
        ValueError
            If the graph's nodes do not stand in topological order.
        """
        position = {name: place for place, name in enumerate(graph)}
        for source, target in graph.edges:
            if position[source] >= position[target]:
                raise ValueError(f"{source!r} should stand before {target!r}, which reads it")
        layers = tuple(
            _layer(graph.nodes[n]["layer"], graph.nodes[n]["maps"], batch) for n in position
        )
        boundaries = [
            Boundary(position[u], position[v], (batch, *data["boundary"]))
            for u, v, data in graph.edges(data=True)
        ]
        return cls(batch, layers, tuple(sorted(boundaries, key=lambda b: (b.target, b.source))))

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
        """Each boundary's source and target, ``(boundaries, 2)``."""
        pairs = [(boundary.source, boundary.target) for boundary in self.boundaries]
        return np.array(pairs, np.intp).reshape(-1, 2)

    @cached_property
    def trick(self) -> tuple[int, ...]:
        """Each layer's choice under the "one weird trick", by its kind."""
        return tuple(MODEL if layer.kind == "fc" else DATA for layer in self.layers)

    @cached_property
    def elements(self) -> int:
        """Elements of all tensors together: what no sum of sizes exceeds."""
        parts = (self.weights, self.inputs, self.outputs, self.pooled, self.boundary_sizes)
        return sum(map(sum, parts))


def workload_of(network: Network, batch: int) -> Workload:
    """Return a network's tensors for a batch."""
    return Workload.of(layer_graph(network), batch)


def describe(network: Network, batch: int) -> dict[str, Any]:
    """Return what is known of a network's layers as plain data; counts are the batch's."""
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


def _layer(
    layer: Conv | FullyConnected, maps: tuple[FeatureMap, FeatureMap, FeatureMap], batch: int
) -> LayerTensors:
    read, output, pooled = maps
    if layer.kind == "fc":
        weight: Shape = (read.elements, layer.units)
        vector = (batch, layer.units)
        macs = batch * math.prod(weight)
        return LayerTensors(
            layer.name, layer.kind, (batch, read.elements), weight, vector, vector, macs
        )
    weight = (*layer.kernel, read.channels, layer.filters)
    macs = batch * math.prod(weight) * output.height * output.width
    return LayerTensors(
        layer.name, layer.kind, (batch, *read), weight, (batch, *output), (batch, *pooled), macs
    )
