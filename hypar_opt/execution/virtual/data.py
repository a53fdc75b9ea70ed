"""A step's random numbers: inputs, weights, targets, and errors of outputs without a loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.workload.operators.maps import TokenMap

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True, eq=False)
class StepData:
    """The data that a step is given: whole arrays, from which each device takes its part.

    Parameters
    ----------
    inputs
        ``(images, channels, height, width)``, ``(images, tokens, features)``; or ids of tokens,
        ``(images, tokens)``. Keyed by what `Network.sources` has for them, and by the position of
        an embedding that reads ids of its own.
    weights, biases, targets, errors
        Keyed by position in `Network.layers`; shared weights by their owner's.
    """

    inputs: Mapping[int, Array]
    weights: Mapping[int, Array]
    biases: Mapping[int, Array]
    targets: Mapping[int, Array]
    errors: Mapping[int, Array]

    def part(self, number: int, count: int) -> StepData:
        """Return one of a number of micro-batches, of equally many images."""

        def micro_batch(array: Array) -> Array:
            size = len(array) // count
            return array[number * size : (number + 1) * size]

        inputs, targets, errors = (
            {position: micro_batch(array) for position, array in whole.items()}
            for whole in (self.inputs, self.targets, self.errors)
        )
        return StepData(inputs, self.weights, self.biases, targets, errors)


def random_data(network: Network, workload: Workload, seed: int) -> StepData:
    """Return random numbers for a network and a batch, scaled so that values stay near one."""
    rng = np.random.default_rng(seed)
    batch = workload.batch
    input_map = network.input.feature_map()
    vocabulary = getattr(network.input, "vocabulary", None)
    if vocabulary is None:
        network_input: Array = rng.standard_normal((batch, *input_map))
    else:
        rows = [
            getattr(layer, "vocabulary", vocabulary)
            for layer, _, reads in _layers(network)
            if layer.reads_ids and reads
        ]
        network_input = rng.integers(min(rows, default=1), size=(batch, input_map.positions))
    read = {source for sources in network.sources for source in sources}
    weights, targets, errors, inputs = {}, {}, {}, {-1: network_input}
    for position, (layer, maps, _) in enumerate(_layers(network)):
        tensors = workload.layers[position]
        if tensors.weight and layer.shares_weights_with is None:
            weights[position] = _weights(tensors, rng)
        if getattr(layer, "ids", None):
            words = getattr(layer, "vocabulary", 1)
            inputs[position] = rng.integers(words, size=(batch, maps.output.positions))
        if getattr(layer, "loss", None) == "softmax":
            positions = (batch, maps.output.positions)
            classes = getattr(layer, "classes", None) or maps.output.channels
            targets[position] = rng.integers(classes, size=positions)
        elif position not in read:
            over = maps.pooled
            extent = (over.tokens, over.channels) if isinstance(over, TokenMap) else over
            errors[position] = rng.standard_normal((batch, *extent))
    # From separate streams, so that other numbers equal those of a network without these.
    rng = np.random.default_rng([seed, 2])
    for source in range(-2, -1 - len(network.input_names), -1):
        inputs[source] = rng.standard_normal((batch, *network.map_of(source)))
    rng = np.random.default_rng([seed, 1])
    biases = {
        position: rng.normal(0.0, 0.1, layer.bias_shape(maps))
        for position, (layer, maps, _) in enumerate(_layers(network))
        if layer.has_bias
    }
    return StepData(inputs, weights, biases, targets, errors)


def _layers(network: Network) -> Iterator[tuple[Operator, LayerMaps, tuple[int, ...]]]:
    yield from zip(network.layers, network.maps(), network.sources, strict=True)


def _weights(tensors: LayerTensors, rng: np.random.Generator) -> Array:
    fan_in = tensors.operator.fan_in(tensors.sizes)
    if fan_in:
        return rng.normal(0.0, 1.0 / math.sqrt(fan_in), tensors.weight)
    scale = rng.normal(1.0, 0.1, tensors.weight)
    scale[1:] -= 1.0  # the shift
    return scale
