"""The division of a network's tensors and weights among the devices of a plan."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.execution.index_labels import contiguous_labels, labels_of, place_labels
from hypar_opt.execution.ties import Axis
from hypar_opt.execution.virtual.arithmetic.base import Extents, Group, LayerShard
from hypar_opt.execution.virtual.halos import Piece
from hypar_opt.execution.virtual.shards import (
    SLOT,
    DividedAxis,
    DividedTensor,
    by_place_of,
    indices_of_axes,
    split_of,
)
from hypar_opt.execution.virtual.weights import HeldIndices, held_weights, within
from hypar_opt.sharding.layouts import (
    BATCH,
    CHANNEL,
    COLUMN,
    EXPERT,
    PARTIAL,
    ROW,
    TOKEN,
    is_split,
    side_of,
)
from hypar_opt.sharding.program import HALO_AXES, Program
from hypar_opt.workload.operands import operands_of
from hypar_opt.workload.operators.maps import ExpertMap, FeatureMap

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.data import StepData
    from hypar_opt.execution.virtual.shards import Array, Indices
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.layouts import Layout
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.maps import Map

Ends = tuple[int, int]
"""The first channel of a range, and its exclusive end."""

_NONE, _ONE = np.zeros(0, np.intp), np.zeros(1, np.intp)


class Division:
    """Each device's parts of all tensors.

    Parameters
    ----------
    groups
        The images that each layer's batch norm normalises together; by default a device's own.
    """

    def __init__(
        self,
        network: Network,
        program: Program,
        groups: Mapping[int, Sequence[Group]] | None = None,
    ) -> None:
        self.network, self.program = network, program
        self.shared = program.workload.shared
        self.maps = list(network.maps())
        self.labels = labels_of(network, program)
        self.hierarchy = program.hierarchy
        images = contiguous_labels(program, program.workload.batch, BATCH)
        self.images = DividedAxis(self.hierarchy, images)
        self._places: dict[tuple[Layout, int], DividedAxis] = {}
        self._groups = groups
        self._tensors: dict[tuple[int, int | None, Ends | None], DividedTensor] = {}

    # Tensors

    def tensor(
        self, source: int, reader: int | None = None, channels: Ends | None = None
    ) -> DividedTensor:
        """Return a layer's output, or an input of the network, as a reader splits it.

        Parameters
        ----------
        channels
            The channels of an operand; all by default.
        """
        shuffle = reader if reader is not None and self.network.layers[reader].shuffles else None
        key = source, shuffle, channels
        if key not in self._tensors:
            over = self.network.map_of(source)
            shuffled = None if shuffle is None else self.labels.shuffled(self.network, shuffle)
            labels = self.labels.of[Axis(source)][slice(*channels or (None,))]
            self._tensors[key] = self._divided(over, DividedAxis(self.hierarchy, labels, shuffled))
        return self._tensors[key]

    def operand(self, position: int, number: int) -> DividedTensor:
        """Return the tensor of one of a layer's operands."""
        source, channels = operands_of(self.network)[position][number]
        return self.tensor(source, position, channels)

    def within(self, position: int, number: int, layouts: Layouts, device: int) -> slice:
        """Return an operand's positions among the features of its source that a device has.

        For an operand that is a part of its source's output.
        """
        source, channels = operands_of(self.network)[position][number]
        assert channels is not None
        features = self.tensor(source).channels.indices(split_of(layouts, CHANNEL), device)
        return slice(*np.searchsorted(features, channels).tolist())

    def _divided(self, over: Map, channels: DividedAxis) -> DividedTensor:
        axes = {BATCH: self.images}
        if isinstance(over, FeatureMap):
            axes[CHANNEL] = channels
            return DividedTensor(axes | dict(zip((ROW, COLUMN), self.places(over), strict=True)))
        if isinstance(over, ExpertMap):
            axes[EXPERT] = self.along(EXPERT, over.experts)
        axes[TOKEN] = self.along(TOKEN, over.tokens)
        if isinstance(over, ExpertMap):
            axes[SLOT] = self.along(SLOT, over.slots)
        return DividedTensor(axes | {CHANNEL: channels})

    def places(self, over: Map) -> tuple[DividedAxis, ...]:
        """Return the rows and columns of images; nothing for other maps."""
        if not isinstance(over, FeatureMap):
            return ()
        return self.along(ROW, over.height), self.along(COLUMN, over.width)

    def along(self, layout: Layout, count: int) -> DividedAxis:
        """Return an axis of ``count`` rows, tokens or experts.

        Contiguous on each device, but for tokens that are mirrored.
        """
        key = layout, count
        if key not in self._places:
            labels = place_labels(self.program, count, layout)
            self._places[key] = DividedAxis(self.hierarchy, labels)
        return self._places[key]

    def unpooled(self, position: int) -> DividedTensor:
        """Return a layer's output before its fused pool."""
        if self.network.layers[position].fused_pool is None:
            return self.output_tensor(position)
        channels = self.output_tensor(position).channels
        return self._divided(self.maps[position].output, channels)

    def input_part(
        self, whole: Array, tensor: DividedTensor, position: int, layouts: Layouts, device: int
    ) -> Array:
        """Return a device's part of a network's input, halos included."""
        borders = self.program.workload.nodes[position + self.shared].borders
        around = [slice(None), slice(None)]
        for layout, axis in HALO_AXES:
            levels = tuple(level for level, candidate in enumerate(layouts) if candidate == layout)
            border = borders.get(axis)
            if levels and border and border.halo:
                group = self.hierarchy.group(device, levels)
                part = Piece(group.index(device), len(group), border.before, border.behind)
                around.append(part.within(whole.shape[len(around)]))
            else:
                around.append(slice(None))
        cut = {layout for (layout, _), span in zip(HALO_AXES, around[2:], strict=True) if span.stop}
        if not cut:
            return tensor.part_of(whole, layouts, device)
        block, axes = whole[tuple(around)], {BATCH: self.images, CHANNEL: tensor.channels}
        for (layout, _), size in zip(HALO_AXES, block.shape[2:], strict=True):
            # Mark axes that are already cut: no level splits an axis of this name.
            name = f"cut {layout}" if layout in cut else layout
            axes[name] = self.along(name, size)
        return DividedTensor(axes).part_of(block, layouts, device)

    def output_tensor(self, position: int) -> DividedTensor:
        """Return a layer's output as stored: split as its only reader does, if it has one."""
        readers = self._readers[position]
        return self.tensor(position, readers[0] if len(readers) == 1 else None)

    @cached_property
    def _readers(self) -> list[list[int]]:
        readers: list[list[int]] = [[] for _ in self.network.layers]
        for position, sources in enumerate(self.network.sources):
            for source in sources:
                if source >= 0:
                    readers[source].append(position)
        return readers

    def boundary(self, position: int, number: int) -> int:
        """Return the boundary that one of a layer's operands is."""
        return self.program.workload.boundary_of_input[position + self.shared, number]

    # Layers

    def shard(self, position: int, device: int, data: StepData) -> LayerShard:
        """Return the part of a layer that a device computes."""
        layer, node = self.network.layers[position], position + self.shared
        read, written = self.program.read[node], self.program.written[node]
        output = self.tensor(position)
        by_channel = split_of(written, CHANNEL)
        images = self.images.indices(split_of(written, BATCH), device)
        over = self.maps[position].output
        tokens = _ONE
        if over.tokens:
            tokens = self.along(TOKEN, over.tokens).indices(split_of(written, TOKEN), device)
        sources = self.network.sources[position]
        channels = _NONE
        if sources and not layer.reads_ids:
            tensor = self.operand(position, 0)
            channels = tensor.channels.indices(split_of(read, CHANNEL), device)
        data_slice = None
        source = sources[0] if sources else position
        if layer.reads_ids and source in data.inputs:
            data_slice = data.inputs[source][np.ix_(images, tokens)]
        elif position in data.targets:
            data_slice = data.targets[position][images]
            data_slice = (
                data_slice[:, tokens] if over.tokens else self._pixels(data_slice, node, device)
            )
        groups: list[Group] = [(np.arange(len(images)),)] if len(images) else []
        if self._groups is not None and position in self._groups:
            groups = list(self._groups[position])
        return LayerShard(
            layer,
            self.maps[position],
            self.images.size * self.program.workload.repeats.micro_batches,
            len(images),
            channels,
            output.channels.indices(by_channel, device),
            self._rows(position, device),
            groups,
            data_slice,
            tokens,
            self.extents(position, device),
            self._experts(position, device),
        )

    def extents(self, position: int, device: int) -> Extents | None:
        """Return the rows and columns that a device has; None if there are no images."""
        maps, node = self.maps[position], position + self.shared
        places = self.places(maps.output)
        if not (places and isinstance(maps.input, FeatureMap)):
            return None
        by_place = by_place_of(self.program.read[node])
        rows, columns = map(len, indices_of_axes(places, by_place, device))
        top, left = (not self.hierarchy.within(device, levels) for levels, _ in by_place)
        return Extents((rows, columns), (top, left))

    def _pixels(self, of_images: Array, node: int, device: int) -> Array:
        """Return a device's part of an array with one number per pixel: ``(images, pixels)``."""
        places = self.places(self.maps[node - self.shared].output)
        if not places:
            return of_images
        by_place = by_place_of(self.program.read[node])
        rows, columns = indices_of_axes(places, by_place, device)
        numbers = of_images.reshape(len(of_images), *(axis.size for axis in places))
        return numbers[:, rows][:, :, columns].reshape(len(of_images), len(rows) * len(columns))

    def _experts(self, position: int, device: int, among: Container[int] | None = None) -> Indices:
        """Return the experts whose slots, or weights, a device has in a layer."""
        maps, node = self.maps[position], position + self.shared
        ends = (maps.input, self.program.read[node]), (maps.output, self.program.written[node])
        for over, layouts in ends:
            if isinstance(over, ExpertMap):
                split, _ = split_of(layouts, EXPERT)
                return self.along(EXPERT, over.experts).indices((_among(split, among), ()), device)
        return _NONE

    def _rows(self, position: int, device: int, among: Container[int] | None = None) -> Indices:
        """Return the rows of an embedding's table that a device has."""
        axis, written = Axis(position, rows=True), self.program.written[position + self.shared]
        if axis in self.labels.of:
            split = split_of(written, PARTIAL)[0]
            labels = DividedAxis(self.hierarchy, self.labels.of[axis])
            return labels.indices((_among(split, among), ()), device)
        if not self.network.layers[position].reads_ids:
            return _NONE
        places = self.along(TOKEN, self.maps[position].output.tokens)
        return places.indices(split_of(written, TOKEN), device)

    def is_idle(self, position: int, device: int) -> bool:
        """Return whether a layer is wholly in another part of H1 than a device."""
        return self.busy(position, device) != device

    def busy(self, position: int, device: int) -> int:
        """Return the counterpart of a device in the part of H1 that has all of a layer.

        If no part has all of it, the device itself.
        """
        written = self.program.written[position + self.shared]
        side = side_of(written[0]) if written else None
        stride = self.hierarchy.stride(0)
        return device if side is None else device % stride + side * stride

    # Weights

    def weight_node(self, position: int) -> int | None:
        """Return the node that keeps a layer's weights: its own, or that of shared weights."""
        node = position + self.shared
        if not self.program.workload.nodes[node].weight:
            return None
        return self._shared_weights.get(node, node)

    @cached_property
    def _shared_weights(self) -> dict[int, int]:
        users = self.program.workload.weight_users
        return {user: node for node, layers in users.items() for user in layers}

    def owner(self, node: int) -> int:
        """Return the layer that shared weights are named after."""
        users = [user - self.shared for user in self.program.workload.weight_users[node]]
        return next(u for u in users if self.network.layers[u].shares_weights_with is None)

    def weights(self, whole: Mapping[int, Array]) -> dict[int, list[Array]]:
        """Return the devices' parts of all weights, by node."""
        parts = {}
        for position, array in whole.items():
            node = self.weight_node(position)
            if node is not None:
                devices = range(self.hierarchy.accelerators)
                parts[node] = [array[np.ix_(*self.stored(position, d))] for d in devices]
        return parts

    def stored(self, position: int, device: int) -> HeldIndices:
        """Return the elements of a layer's weights that a device keeps."""
        node = self.weight_node(position)
        assert node is not None
        if node >= self.shared:
            return self._held_weights(position, device)
        # The levels at which all users split the weights in the same way.
        layouts = self.program.weights(node)
        users = [user - self.shared for user in self.program.workload.weight_users[node]]
        idle = all(self.is_idle(user, device) for user in users)
        among = {n for n, one in enumerate(layouts) if is_split(one)}
        return self._held_weights(position, device, among, idle=idle)

    def biases(self, whole: Mapping[int, Array]) -> dict[int, list[Array]]:
        """Return the devices' parts of all biases, by node."""
        devices = range(self.hierarchy.accelerators)
        return {
            position + self.shared: [bias[np.ix_(*self.bias_held(position, d))] for d in devices]
            for position, bias in whole.items()
        }

    def bias_held(self, position: int, device: int) -> HeldIndices:
        """Return the elements of a layer's bias that a device keeps, those of experts by expert."""
        layouts = self.program.bias_layouts(position + self.shared)
        tensor = self.output_tensor(position)
        channels = tensor.channels.indices(split_of(layouts, CHANNEL), device)
        if not isinstance(self.maps[position].output, ExpertMap):
            return (channels,)
        return tensor.indices(layouts, device)[1], channels

    def use(self, position: int, device: int) -> tuple[HeldIndices, bool] | None:
        """Return a layer's weights as indices into shared weights, and whether it transposes them.

        None for a layer that shares no weights.
        """
        node = self.weight_node(position)
        if node is None or node >= self.shared:
            return None
        owner = self.owner(node)
        layer = self.network.layers[position]
        transposes = self.network.layers[owner].reads_ids and not layer.reads_ids
        indices, name = self._held_weights(position, device), layer.name
        used = indices[::-1] if transposes else indices
        return within(self.stored(owner, device), used, name), transposes

    def _held_weights(
        self,
        position: int,
        device: int,
        among: Container[int] | None = None,
        *,
        idle: bool | None = None,
    ) -> HeldIndices:
        """Return the elements of its weights that a layer needs.

        Parameters
        ----------
        among
            The only levels that may split them.
        idle
            Whether the device needs none; by default whether it is idle in the layer.
        """
        layer, node = self.network.layers[position], position + self.shared
        if self.is_idle(position, device) if idle is None else idle:
            return (_NONE,) * len(self.program.workload.layers[position].weight)
        by_channel, _ = split_of(self.program.written[node], CHANNEL)
        written = self.tensor(position).channels.indices((_among(by_channel, among), ()), device)
        sources, read = self.network.sources[position], _NONE
        if sources and not layer.reads_ids:
            split, _ = split_of(self.program.read[node], CHANNEL)
            of_read = self.operand(position, 0).channels
            read = of_read.indices((_among(split, among), ()), device)
        return held_weights(
            self.program.workload.layers[position],
            read,
            written,
            self._rows(position, device, among),
            self._experts(position, device, among),
            self.maps[position].input.channels,
        )


def _among(levels: tuple[int, ...], those: Container[int] | None) -> tuple[int, ...]:
    return levels if those is None else tuple(level for level in levels if level in those)
