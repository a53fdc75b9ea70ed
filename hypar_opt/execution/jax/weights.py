"""The stored arrays of a step: weights, inputs and targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.axes import split_by
from hypar_opt.execution.jax.maps import BETWEEN
from hypar_opt.execution.jax.tensors import StoredTensor
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.layouts import BATCH, CHANNEL, EXPERT, SHUFFLED, WHOLE
from hypar_opt.workload.operands import operands_of
from hypar_opt.workload.operators.maps import ExpertMap

if TYPE_CHECKING:
    from hypar_opt.execution.jax.axes import StoredAxis
    from hypar_opt.execution.jax.tensors import ShardedNetwork
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.sharding.conversions import Layouts

_ENDS = {"i": 0, "t": 0, "o": 1, "g": 1, "c": 1, "x": 2}
"""The end of the weights, inputs, outputs or experts, that a choice splits, by its axis."""


@dataclass(frozen=True)
class StoredWeights:
    """The weights of a layer, or of several.

    Parameters
    ----------
    reduced
        The levels over which the gradient is all-reduced.
    summed
        The number of terms that each output sums, which scales random values; 0 for scale and
        shift, None for a bias.
    shard
        What devices that have the same of them share out across each of these levels, of `SHARDED`.
    """

    tensor: StoredTensor
    reduced: tuple[int, ...]
    summed: int | None
    shard: tuple[str, ...]

    def over(self, *words: str) -> tuple[int, ...]:
        """Return the levels across which one of some words is shared out."""
        pairs = zip(self.reduced, self.shard, strict=True)
        return tuple(level for level, word in pairs if word in words)

    @property
    def scattered(self) -> tuple[int, ...]:
        """The levels across which the gradient is scattered, the first over the largest shards."""
        return self.over("weights") + self.over("gradients") + self.over("state")

    @property
    def part(self) -> tuple[int, ...]:
        """Return the shape of a device's part."""
        whole = zip(self.tensor.shape, self.tensor.levels, strict=True)
        return tuple(size if level is None else 1 for size, level in whole)

    def shards(self, stored: NDArray[Any], hierarchy: Hierarchy) -> NDArray[Any]:
        """Return the shards of a stored array's parts, one device after the other, in one row."""
        rows, levels = [], self.over("weights")
        for place, number in self._places(hierarchy, levels):
            part = stored[_index(place)].reshape(-1)
            rows.append(np.split(part, hierarchy.parts(levels))[number])
        return np.concatenate(rows)

    def joined(
        self, shards: NDArray[Any], hierarchy: Hierarchy, levels: Sequence[int]
    ) -> NDArray[Any]:
        """Return the stored array whose parts have shards over some levels, in such a row."""
        stored = np.empty(self.tensor.shape, shards.dtype)
        parts: dict[Place, dict[int, NDArray[Any]]] = {}
        rows = np.split(shards, hierarchy.accelerators)
        for row, (place, number) in zip(rows, self._places(hierarchy, levels), strict=True):
            parts.setdefault(place, {})[number] = row
        for place, pieces in parts.items():
            row = np.concatenate([pieces[number] for number in sorted(pieces)])
            stored[_index(place)] = row.reshape(stored[_index(place)].shape)
        return stored

    def _places(self, hierarchy: Hierarchy, levels: Sequence[int]) -> Iterator[tuple[Place, int]]:
        """Yield where each device's part is in the stored array, and the number of its shard."""
        for digits in np.ndindex(*hierarchy.sizes):
            number = 0
            for level in levels:
                number = number * hierarchy.sizes[level] + digits[level]
            split = self.tensor.levels
            yield tuple(None if level is None else digits[level] for level in split), number


Place = tuple[int | None, ...]
"""Indices of the dimensions of a stored array that levels split; None for the others."""


def _index(place: Place) -> tuple[slice | int, ...]:
    return tuple(slice(None) if index is None else index for index in place)


@dataclass(frozen=True)
class StepInput:
    """An input, or the targets of an output.

    Parameters
    ----------
    below
        The exclusive bound of integers; None for real numbers.
    labels
        The axis that the integers index: a stored label is a stored position.
    sequence
        The layer whose own ids it has; or the source below zero that is it.
    """

    tensor: StoredTensor
    below: int | None = None
    labels: StoredAxis | None = None
    sequence: int = -1

    def stored(self, array: NDArray[Any], micro_batches: int = 1) -> NDArray[Any]:
        """Return an array, given in the network's order, as stored: by micro-batch, if several."""
        if micro_batches > 1:
            return np.stack([self.stored(part) for part in np.split(array, micro_batches)])
        if self.labels is not None:
            array = np.argsort(self.labels.order.ravel())[array]
        return self.tensor.stored(array)


def trained_of(sharded: ShardedNetwork) -> dict[str, StoredWeights]:
    """Return everything that a step trains, by name: weights, then biases."""
    return weights_of(sharded) | biases_of(sharded)


def weights_of(sharded: ShardedNetwork) -> dict[str, StoredWeights]:
    """Return the weights, by the layer that they are named after."""
    stored = {}
    owners = {
        sharded.owner(users[0] - sharded.shared): node
        for node, users in sharded.program.workload.weight_users.items()
    }
    for position, layer in enumerate(sharded.network.layers):
        node = owners.get(position, position + sharded.shared)
        if not sharded.program.workload.stored[node]:
            continue
        sizes = layer.sizes(sharded.layer_maps[position])
        axes = [axis for axis in layer.axes.weight if axis in sizes and axis != "g"]
        dims: dict[str, StoredAxis | int] = {axis: sizes[axis] for axis in axes}
        if "x" in dims:
            dims["x"] = sharded.experts(position)
        if "i" in dims and "g" not in sizes:
            dims["i"] = sharded.rows(position) if layer.reads_ids else sharded.read(position)
        if "t" in dims:
            dims["t"] = sharded.tokens(position)
        dims |= {axis: sharded.written(position) for axis in ("o", "c", "X") if axis in dims}
        ends = _split_ends(sharded, node)
        split = [ends[_ENDS[axis]] if axis in _ENDS else () for axis in axes]
        tensor = StoredTensor(tuple(dims.values()), tuple(split))
        reduced = tuple(sorted(step.level for step in sharded.program.gradient_steps(node)))
        repeats = sharded.program.workload.repeats
        shard = tuple(repeats.shard(node, level) for level in reduced)
        stored[layer.name] = StoredWeights(tensor, reduced, layer.fan_in(sizes), shard)
    return stored


def biases_of(sharded: ShardedNetwork) -> dict[str, StoredWeights]:
    """Return the biases of layers, by name: ``bias of fc1``.

    Their gradients are all-reduced also where those of weights are sharded.
    """
    stored = {}
    for position, layer in enumerate(sharded.network.layers):
        if layer.has_bias:
            node, program = position + sharded.shared, sharded.program
            layouts = program.bias_layouts(node)
            dims, split = [sharded.written(position)], [split_by(layouts, CHANNEL)]
            if isinstance(sharded.layer_maps[position].output, ExpertMap):
                dims.insert(0, sharded.experts(position))
                split.insert(0, split_by(layouts, EXPERT))
            tensor = StoredTensor(tuple(dims), tuple(split))
            reduced = tuple(sorted(step.level for step in program.bias_steps(node)))
            stored[bias_of(layer.name)] = StoredWeights(
                tensor, reduced, None, ("none",) * len(reduced)
            )
    return stored


def bias_of(name: str) -> str:
    """Return the name of a layer's bias among the weights of a step."""
    return f"bias of {name}"


def split_ends(sharded: ShardedNetwork, node: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the levels that split the inputs and those that split the outputs of weights.

    Shared weights are split by the choices of the layer that they are named after.
    """
    inputs, outputs, _ = _split_ends(sharded, node)
    return inputs, outputs


def _split_ends(sharded: ShardedNetwork, node: int) -> tuple[tuple[int, ...], ...]:
    """Return the levels that split inputs, outputs and experts of weights."""
    ends: list[list[int]] = [[], [], []]
    workload = sharded.program.workload
    users = workload.weight_users.get(node)
    named = node if users is None else sharded.owner(users[0] - sharded.shared) + sharded.shared
    layer = workload.nodes[named].operator
    for level, row in enumerate(sharded.program.rows):
        choice = workload.choices_of_nodes[named][row[node]]
        if choice is None or choice.axis not in layer.axes.weight:
            continue
        if choice.axis not in _ENDS:
            raise HyparError(
                f"layer {workload.nodes[named].name!r}: {choice.word!r} has no program in JAX"
            )
        ends[_ENDS[choice.axis]].append(level)
    return tuple(map(tuple, ends))


def inputs_of(sharded: ShardedNetwork) -> tuple[dict[str, StepInput], dict[tuple[int, int], str]]:
    """Return the network's inputs as each layer reads them, by name, and the names.

    Whole at the levels at which operands of one, side by side, are read differently. Names are by
    layer and by the source that it reads, or again the layer where it has ids of its own.
    """
    inputs: dict[str, StepInput] = {}
    names: dict[tuple[int, int], str] = {}
    network = sharded.network
    read = [
        (position, source)
        for position, (layer, reads) in enumerate(zip(network.layers, network.sources, strict=True))
        for source in (*reads, *[position] * (getattr(layer, "ids", None) is not None))
        if source < 0 or source == position
    ]
    for position, source in read:
        layer, node = network.layers[position], position + sharded.shared
        operands = enumerate(operands_of(network)[position])
        numbers = [n for n, operand in operands if operand.source == source] or [0]
        columns = zip(*(sharded.program.read_as(node, n) for n in numbers), strict=True)
        layouts = tuple(at[0] if len({*at}) == 1 else WHOLE for at in columns)
        # The halos of its parts are cut out of the whole image.
        cut = {halo.layout for halo in sharded.halos(position)}
        layouts = tuple(WHOLE if layout in cut else layout for layout in layouts)
        if layer.reads_ids:
            of = layer if source >= 0 else network.input
            below = getattr(of, "vocabulary", None)
            rows = sharded.rows(position)
            dims, split = _tensor(sharded, source, rows, sharded.program.written[node])
            one = StepInput(StoredTensor(dims[:-1], split[:-1]), below, rows, source)
        elif SHUFFLED in layouts:
            raise HyparError(f"layer {layer.name!r}: a shuffle of the input has no program in JAX")
        else:
            channels = sharded.split.axes[-source]
            one = StepInput(_tensor(sharded, source, channels, layouts), sequence=source)
        same = (name for name, other in inputs.items() if other == one)
        plain = "input" if source in (-1, position) else f"input {network.source_names[source]}"
        free = f"{plain} of {layer.name}" if source == position or plain in inputs else plain
        name = next(same, free)
        inputs[name] = one
        names[position, source] = name
    return inputs, names


def targets_of(sharded: ShardedNetwork) -> dict[str, StepInput]:
    """Return the targets of each layer that ends the network."""
    targets = {}
    for position in ends_of(sharded):
        labels = sharded.written(position)
        layouts = sharded.program.stored[position + sharded.shared]
        one = StepInput(_tensor(sharded, position, labels, layouts))
        if is_softmax(sharded, position):
            # One label per position replaces the channels' values.
            dims, split = one.tensor
            layer = sharded.network.layers[position]
            below = getattr(layer, "classes", None) or labels.size
            one = StepInput(StoredTensor(dims[:-1], split[:-1]), below, labels)
        targets[sharded.network.layers[position].name] = one
    return targets


def ends_of(sharded: ShardedNetwork) -> Iterator[int]:
    """Yield the layers whose output no layer reads."""
    read = {source for reads in sharded.network.sources for source in reads}
    yield from (n for n in range(len(sharded.network.layers)) if n not in read)


def is_softmax(sharded: ShardedNetwork, position: int) -> bool:
    """Whether a layer ends in a softmax and its loss."""
    return getattr(sharded.network.layers[position], "loss", None) == "softmax"


def stored_tensors(sharded: ShardedNetwork) -> Mapping[str, StoredTensor]:
    """Return each layer's output as stored for its readers."""
    writers = sharded.program.workload.tensor_writers
    shared = {writer: node for node, writer in writers.items()}
    tensors = {}
    for position, layer in enumerate(sharded.network.layers):
        node = position + sharded.shared
        layouts, written = sharded.program.stored[shared.get(node, node)], sharded.written(position)
        tensors[layer.name] = _tensor(sharded, position, written, layouts)
    return tensors


def _tensor(
    sharded: ShardedNetwork, source: int, channels: StoredAxis, layouts: Layouts
) -> StoredTensor:
    """Return a layer's output, or an input of the network, in some layouts."""
    places = sharded.places(source)
    between = (split_by(layouts, layout) for layout in BETWEEN[len(places)])
    split = (split_by(layouts, BATCH), *between, *[()] * (len(places) == 3))
    return StoredTensor((sharded.batch, *places, channels), (*split, split_by(layouts, CHANNEL)))


COLLECTIVES = {
    StepKind.SLICE: "keep_part",
    StepKind.REDUCE_SCATTER: "reduce_scatter",
    StepKind.ALL_TO_ALL: "all_to_all",
    StepKind.ALL_GATHER: "all_gather",
    StepKind.PAD: "padded",
}
"""The functions of `hypar_opt.execution.jax.operations` for a conversion's steps."""
