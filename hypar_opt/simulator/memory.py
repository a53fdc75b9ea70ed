"""The memory of a training step as a device holds it, tensor by tensor.

Source: docs/decisions/0029-memory-of-a-device.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.frozen import FrozenDict
from hypar_opt.plan.problem import OPTIMIZERS
from hypar_opt.sharding.layouts import BATCH as BY_BATCH
from hypar_opt.sharding.layouts import CHANNEL, SHUFFLED
from hypar_opt.sharding.program import Program
from hypar_opt.simulator.device_memory import DeviceMemory, LayerMemory, Moment
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.step import recomputed
from hypar_opt.workload.layer_tensors import Boundary, Extent, Shape
from hypar_opt.workload.operators.axes import BATCH, Axes

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.plan.plan import Plan
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.workload.operators.saved import Saved
    from hypar_opt.workload.tensors import Workload

SINGLE = 4
"""Bytes of a number in single precision."""

_INPUT = -1
"""The network's input, among the layers whose outputs tensors are."""


class WeightBytes(NamedTuple):
    """Bytes of each weight, of its gradient and of the optimizer's state for it."""

    weight: int
    gradient: int
    state: int

    @classmethod
    def of(
        cls, element_bytes: int, optimizer: str | int, gradient_bytes: int | None = None
    ) -> WeightBytes:
        """Return them for a precision: below 4 bytes an element the training is mixed.

        Gradients and state then are in single precision, with a copy of the weights among the
        state: 2 + 4 + 12 bytes with Adam.

        Parameters
        ----------
        optimizer
            A name, or the bytes of its state for a weight.

        Source: Micikevicius et al., "Mixed precision training", ICLR 2018; Korthikanti et al.,
        MLSys 2023, figure 1, has 18 bytes, Rajbhandari et al., "ZeRO", SC20, 16.
        """
        exact = max(SINGLE, element_bytes)
        elements = OPTIMIZERS.get(optimizer) if isinstance(optimizer, str) else None
        copy = element_bytes < SINGLE
        state = int(optimizer) if elements is None else exact * (elements + copy)
        return cls(element_bytes, gradient_bytes or exact, state)


def memory_of(
    plan: Plan,
    workload: Workload,
    rows: Rows,
    options: RunOptions,
    accelerator: Accelerator | None = None,
    weight_bytes: WeightBytes | None = None,
) -> DeviceMemory:
    """Return the bytes that the fullest accelerator holds in a plan's step.

    Parameters
    ----------
    workload
        The tensors of one micro-batch.
    rows : (levels, nodes)
        The choices of all the workload's nodes.
    options
        What is computed again and what is sharded, and whether shares are exact.
    accelerator
        Attention is fused unless it says otherwise.
    weight_bytes
        None for those of the plan's optimizer.
    """
    each = weight_bytes or WeightBytes.of(plan.element_bytes, plan.constraints.optimizer)
    if plan.inference:
        each = WeightBytes(each.weight, 0, 0)
    fused = accelerator is None or accelerator.attention != "unfused"
    count = _Count(Program(workload, rows, plan.hierarchy), plan, options, fused=fused)
    saved, again = count.saved()
    live = count.live()
    held = count.weights(each)
    layers, moments = [], []
    for position, name in enumerate(plan.layers):
        node = workload.shared + position
        moments.append(
            Moment(name, again.get(node, 0), *count.while_running(node, each), live[node])
        )
        layers.append(LayerMemory(name, *held[node], saved.get(node, 0), moments[-1].total))
    # Among equal layers the last: backward it comes first, when all that is saved is there.
    moment = max(reversed(moments), key=lambda own: own.total)
    return DeviceMemory(
        plan=plan,
        layers=tuple(layers),
        moment=moment,
        reserve=int(accelerator.reserve or 0) if accelerator else 0,
        capacity=int(accelerator.dram_capacity) if accelerator else None,
        options=FrozenDict(options.of_training),
    )


class _Tensor(NamedTuple):
    """A tensor that a layer saves: its key, equal where it is the same one, and its bytes."""

    key: Hashable
    bytes: int


@dataclass(frozen=True)
class _Count:
    """The elements of tensors on the accelerator that has most of each."""

    program: Program
    plan: Plan
    options: RunOptions
    fused: bool

    @property
    def _workload(self) -> Workload:
        return self.program.workload

    @property
    def _layers(self) -> range:
        return range(self._workload.shared, len(self._workload.nodes))

    def _map(self, extent: Extent, layouts: Layouts) -> int:
        """Return the bytes of a feature map in some layouts."""
        images = self.program.parts(layouts, BY_BATCH)
        channels = self.program.parts(layouts, CHANNEL, SHUFFLED)
        if self.options.exact_shares:
            elements = _up(extent.elements, images * channels)
        else:
            each = extent.elements // (extent.batch * extent.channels)
            elements = each * _up(extent.batch, images) * _up(extent.channels, channels)
        return self.plan.element_bytes * elements

    def _parts(self, node: int) -> dict[str, int]:
        """Return into how many parts a node's choices split each axis."""
        parts: dict[str, int] = {}
        choices = self._workload.choices_of_nodes[node]
        for row, size in zip(self.program.rows, self.program.hierarchy.sizes, strict=True):
            choice = choices[row[node]]
            axis = choice.axis if choice else BATCH
            parts[axis] = parts.get(axis, 1) * size
        return parts

    def _elements(self, node: int, axes: Axes) -> int:
        """Return the elements of a tensor with some of a node's axes; 0 for none."""
        sizes, parts = self._workload.nodes[node].sizes, self._parts(node)
        own = [axis for axis in axes if axis in sizes]
        if not own:
            return 0
        if self.options.exact_shares:
            return _up(prod(sizes[axis] for axis in own), prod(parts.get(axis, 1) for axis in own))
        return prod(_up(sizes[axis], parts.get(axis, 1)) for axis in own)

    def weights(self, each: WeightBytes) -> dict[int, tuple[int, int, int]]:
        """Return the bytes of weights, gradients and state by layer; shared ones', of a user."""
        shard = self.options.shard
        sharded = (shard == "weights", shard in ("weights", "gradients"), shard != "none")
        held: dict[int, list[int]] = {node: [0, 0, 0] for node in self._layers}
        users = self._workload.weight_users
        for node, stored in enumerate(self._workload.stored):
            if not stored:
                continue
            own = self._elements(node, self._workload.nodes[node].operator.contraction.weight)
            replicas = self._parts(node).get(BATCH, 1)
            layer = min(users[node]) if node in users else node
            for n, (size, split) in enumerate(zip(each, sharded, strict=True)):
                held[layer][n] += size * (_up(own, replicas) if split else own)
        return {node: (own[0], own[1], own[2]) for node, own in held.items()}

    def while_running(self, node: int, each: WeightBytes) -> tuple[int, int]:
        """Return the bytes of a layer's gathered weights and gradients, and of its loss."""
        layer, shard = self._workload.nodes[node], self.options.shard
        gathered = 0
        if self._parts(node).get(BATCH, 1) > 1 and not layer.operator.reads_ids:
            own = self._elements(node, layer.operator.contraction.weight)
            training = bool(each.gradient) and shard in ("weights", "gradients")
            gathered = own * each.weight * ((shard == "weights") + training)
        if self.plan.inference:
            return gathered, 0
        # Single precision needs no copy.
        singles = self._saves(node).singles
        singles -= bool(singles) and self.plan.element_bytes >= SINGLE
        logits = self._map(_extent(layer.pooled), self.program.stored[node])
        return gathered, singles * SINGLE * logits // self.plan.element_bytes

    def _saves(self, node: int) -> Saved:
        return self._workload.nodes[node].operator.saves(fused=self.fused)

    def live(self) -> dict[int, int]:
        """Return the bytes of errors between layers that exist while each layer runs backward.

        A tensor's error exists from its last reader's pass to its writer's; in inference a feature
        map from its writer's pass to its last reader's.
        """
        last: dict[int, int] = {}
        for node in self._layers:
            for writer, _ in self._reads(node):
                # The error of logits is the loss's own.
                last[writer] = node - bool(self._saves(node).singles)
        found = dict.fromkeys(self._layers, 0)
        for writer, reader in last.items():
            if writer != _INPUT:
                size = self._stored(writer)
                for node in range(writer, reader + 1):
                    found[node] += size
        for node in self._layers:
            # Backward the error of scores that are written is, too.
            if not (self.fused or self.plan.inference):
                inner = self._workload.nodes[node].operator.inner
                found[node] += self.plan.element_bytes * self._elements(node, inner)
        return found

    def saved(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the bytes saved at each layer, and those that its backward pass computes again.

        A tensor is of the first layer that saves it.
        """
        if self.plan.inference:
            return {}, {}
        again = recomputed(
            self.plan.network.description, self._workload, self.options, fused=self.fused
        )
        segment = self._segments(again)
        kept: dict[Hashable, tuple[int, int]] = {}
        dropped: dict[int, dict[Hashable, int]] = {}
        for node in self._layers:
            inside = segment.get(node)
            for read in self._reads(node):
                # A block keeps what it starts from, whatever its layers read of it backward.
                starts = inside is not None and segment.get(read[0]) != inside
                if starts or (inside is None and self._saves(node).inputs):
                    _keep(kept, node, _Tensor(*read))
                elif inside is not None and self._saves(node).inputs:
                    _drop(dropped, inside, _Tensor(*read))
            for tensor, is_own in self._written(node):
                if inside is not None:
                    _drop(dropped, inside, tensor)
                elif is_own and node in again:
                    _drop(dropped, node, tensor)
                else:
                    _keep(kept, node, tensor)
        saved: dict[int, int] = {}
        for first, size in kept.values():
            saved[first] = saved.get(first, 0) + size
        moments = {
            place: sum(size for key, size in tensors.items() if key not in kept)
            for place, tensors in dropped.items()
        }
        return saved, {node: moments.get(segment.get(node, node), 0) for node in self._layers}

    def _segments(self, again: Mapping[int, bool]) -> dict[int, int]:
        """Return the first node of the repetition of a block that each layer is computed with."""
        if not any(again.values()):
            return {}
        shared = self._workload.shared
        blocks = self.plan.network.description.repeats
        if not blocks:
            return dict.fromkeys(again, shared)
        return {
            shared + first + n: shared + first
            for block in blocks
            for first in range(block.first, block.first + block.length * block.count, block.length)
            for n in range(block.length)
        }

    def _reads(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield the writer of each of a layer's inputs, and the input's bytes as they are kept.

        Ids, which have no error, are left out.
        """
        workload = self._workload
        position = node - workload.shared
        layer = workload.nodes[node]
        shapes = (layer.input, *layer.others)
        for number, source in enumerate(self.plan.network.description.sources[position]):
            if source < 0 and layer.operator.reads_ids:
                continue
            if source < 0:
                yield _INPUT, self._map(_extent(shapes[number]), self.program.read[node])
                continue
            writer = source + workload.shared
            boundary = workload.boundary_between[writer, node]
            read = self._map(workload.extents[boundary], self.program.read_over(boundary))
            yield writer, min(read, self._stored(writer))

    def _stored(self, writer: int) -> int:
        """Return the bytes of a layer's output as it is stored for its readers."""
        workload, node = self._workload, writer
        if writer in workload.boundary_into_shared:
            node = workload.boundaries[workload.boundary_into_shared[writer]].target
        return self._map(_extent(workload.nodes[writer].pooled), self.program.stored[node])

    def _written(self, node: int) -> Iterator[tuple[_Tensor, bool]]:
        """Yield what a layer saves besides its inputs, and whether it is a tensor of its own."""
        saves, layer = self._saves(node), self._workload.nodes[node]
        output = self._map(_extent(layer.output), self.program.stored[node])
        if saves.output:
            if layer.operator.fused_pool is not None:
                yield _Tensor((node, "before pool"), output), False
            else:
                yield _Tensor(node, self._stored(node)), False
        if saves.before_activation:
            yield _Tensor((node, "before activation"), output), False
        for number, own in enumerate(saves.own):
            each = own.elements * self.plan.element_bytes + own.bytes
            yield _Tensor((node, number), each * self._elements(node, own.axes)), True


def _keep(kept: dict[Hashable, tuple[int, int]], node: int, tensor: _Tensor) -> None:
    first, size = kept.get(tensor.key, (node, tensor.bytes))
    kept[tensor.key] = first, min(size, tensor.bytes)


def _drop(dropped: dict[int, dict[Hashable, int]], place: int, tensor: _Tensor) -> None:
    tensors = dropped.setdefault(place, {})
    tensors[tensor.key] = min(tensors.get(tensor.key, tensor.bytes), tensor.bytes)


def _extent(shape: Shape) -> Extent:
    return Boundary(0, 0, shape).extent


def _up(size: int, parts: int) -> int:
    return -(-size // parts)
