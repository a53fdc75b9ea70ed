"""A plan's training step on virtual devices, exchange by exchange, as in its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.execution.virtual.arithmetic import arithmetic_of
from hypar_opt.execution.virtual.arithmetic.losses import SoftmaxLoss
from hypar_opt.execution.virtual.epilogue import Epilogue
from hypar_opt.execution.virtual.fabric import Blocks, Fabric, Source
from hypar_opt.sharding.conversions import Layouts, backward, dual
from hypar_opt.sharding.layouts import CHANNEL, PARTIAL, WHOLE
from hypar_opt.sharding.passes import TRAINING, Phase

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.arithmetic.base import Arithmetic
    from hypar_opt.execution.virtual.data import StepData
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.execution.virtual.shards import Array, DividedTensor

Progress = Callable[[int, int], None]


@dataclass
class StepRecord:
    """The record of a step: each layer's output, the gradients, the loss, and the exchanges.

    Parameters
    ----------
    outputs
        The layouts and the devices' parts of each layer's output.
    gradients
        The devices' parts of the gradient of each layer that keeps weights.
    """

    fabric: Fabric
    outputs: dict[int, tuple[Layouts, Blocks]] = field(default_factory=dict)
    gradients: dict[int, Blocks] = field(default_factory=dict)
    loss: float = 0.0


class TrainingStep:
    """One step of all devices, in lockstep: each computes, then all exchange."""

    def __init__(
        self,
        division: Division,
        data: StepData,
        phases: Sequence[Phase] = TRAINING,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.division, self.data, self.phases, self.progress = division, data, phases, progress
        self.program, self.network = division.program, division.network
        self.fabric = Fabric(division.program.hierarchy)
        self.record = StepRecord(self.fabric)
        self.devices = self.fabric.devices
        self._arithmetic: dict[int, list[Arithmetic]] = {}
        self._epilogues: dict[int, list[Epilogue]] = {}
        self._stored: dict[int, Blocks] = {}
        self._errors: dict[int, Blocks] = {}
        self._weights = division.weights(data.weights)
        self._shared_gradients: Mapping[int, Blocks] = {
            node: [np.zeros_like(block) for block in self._weights[node]]
            for node in self.program.workload.weight_users
        }

    def run(self) -> StepRecord:
        """Run the step, and return its record."""
        layers = range(len(self.network.layers))
        passes = 2 if Phase.BACKWARD in self.phases else 1
        for position in layers:
            self._forward(position)
            self.progress(position + 1, passes * len(layers))
        if Phase.BACKWARD in self.phases:
            for position in reversed(layers):
                self._backward(position)
                self.progress(2 * len(layers) - position, passes * len(layers))
            for node, blocks in self._shared_gradients.items():
                owner = self.division.owner(node)
                self.record.gradients[owner] = self._all_reduced(node, blocks)
        return self.record

    def _forward(self, position: int) -> None:
        program, node = self.program, position + self.division.shared
        layer, phase = self.network.layers[position], Phase.FORWARD
        reads = [
            self._read(position, source)
            for source in self.network.sources[position]
            if not layer.reads_ids
        ]
        of_device = list(zip(*reads, strict=True)) or [()] * len(self.devices)
        shards = (self.division.shard(position, device, self.data) for device in self.devices)
        layers = [arithmetic_of(layer)(shard) for shard in shards]
        self._arithmetic[position] = layers
        partial_sums = [one.sums(read) for one, read in zip(layers, of_device, strict=True)]
        sums = self._sums(position, phase, partial_sums)
        outputs = [
            one.forward(read, self._used_weights(position, device), numbers)
            for device, (one, read, numbers) in enumerate(zip(layers, of_device, sums, strict=True))
        ]
        written, tensor = program.written[node], self.division.output_tensor(position)
        steps, whose = program.output_steps(node), Source(phase, node, None)
        outputs, layouts = self.fabric.convert(tensor, outputs, written, steps, whose)
        self._epilogues[position] = [
            Epilogue(layer, self.division.maps[position]) for _ in self.devices
        ]
        blocks = [e.forward(b) for e, b in zip(self._epilogues[position], outputs, strict=True)]
        self._stored[node] = blocks
        self.record.outputs[position] = layouts, blocks
        self._add_loss(position, layouts, blocks)
        boundary = program.workload.boundary_into_shared.get(node)
        if boundary is not None:
            shared = program.workload.boundaries[boundary].target
            self._stored[shared] = self._across(boundary, phase, tensor, blocks)

    def _read(self, position: int, source: int) -> Blocks:
        """Return what each device reads of a layer's input."""
        program, node = self.program, position + self.division.shared
        tensor = self.division.tensor(source, position)
        if source < 0:
            # Each reader has the network's input in its own layout.
            number = self.network.sources[position].index(source)
            layouts = program.read_as(node, number)
            return [tensor.part_of(self.data.input, layouts, device) for device in self.devices]
        boundary = self.division.boundary(source, position)
        stored = program.workload.boundaries[boundary].source
        return self._across(boundary, Phase.FORWARD, tensor, self._stored[stored])

    def _across(self, boundary: int, phase: Phase, tensor: DividedTensor, blocks: Blocks) -> Blocks:
        """Convert a tensor for the node that reads it, or its error for the one that wrote it."""
        program, edge = self.program, self.program.workload.boundaries[boundary]
        steps, before = program.input_steps(boundary), program.stored[edge.source]
        if phase is Phase.BACKWARD:
            steps, before = backward(steps), dual(program.read_over(boundary))
        whose = Source(phase, edge.target, boundary)
        return self.fabric.convert(tensor, blocks, before, steps, whose)[0]

    def _sums(self, position: int, phase: Phase, sums: list[Array | None]) -> list[Array | None]:
        """Return the sums over channels, all-reduced over the levels that split the channels."""
        node = position + self.division.shared
        parts = [numbers for numbers in sums if numbers is not None]
        if not parts:
            return sums
        combine = self._arithmetic[position][0].combine if phase is Phase.FORWARD else np.add
        steps = self.program.statistics_steps(node)
        return list(self.fabric.all_reduce(parts, steps, Source(phase, node, None), combine))

    def _used_weights(self, position: int, device: int) -> Array | None:
        """Return the weights that a device uses: its own, or its slice of shared weights."""
        node = self.division.weight_node(position)
        if node is None:
            return None
        stored = self._weights[node][device]
        if self.division.is_idle(position, device):
            # Of the shape that its counterpart's have: it has no images to use them on.
            return np.zeros_like(self._weights[node][self._counterpart(device)])
        where = self.division.use(position, device)
        if where is None:
            return stored
        indices, transposes = where
        slice_: Array = stored[np.ix_(*indices)]
        return slice_.T if transposes else slice_

    def _counterpart(self, device: int) -> int:
        """Return the device with the same place in the other of two groups."""
        return (device + len(self.devices) // 2) % len(self.devices)

    def _add_loss(self, position: int, layouts: Layouts, blocks: Blocks) -> None:
        """Add a layer's part of the loss; exchanging scalars is not counted."""
        copies = self.program.parts(layouts, WHOLE, CHANNEL)
        losses = [a.loss for a in self._arithmetic[position] if isinstance(a, SoftmaxLoss)]
        if losses:
            self.record.loss += sum(losses) / copies
        elif position in self.data.errors:
            tensor = self.division.output_tensor(position)
            copies = self.program.parts(layouts, WHOLE)
            whole = self.data.errors[position]
            products = (
                float((tensor.part_of(whole, layouts, device) * block).sum())
                for device, block in enumerate(blocks)
            )
            self.record.loss += sum(products) / copies

    def _backward(self, position: int) -> None:
        program, node = self.program, position + self.division.shared
        phase, tensor = Phase.BACKWARD, self.division.output_tensor(position)
        error = self._arrived(position)
        error = [t.backward(e) for t, e in zip(self._epilogues.pop(position), error, strict=True)]
        steps, whose = backward(program.output_steps(node)), Source(phase, node, None)
        layouts = dual(program.stored[node])
        error, _ = self.fabric.convert(tensor, error, layouts, steps, whose)
        layers = self._arithmetic[position]
        sums = self._sums(
            position, phase, [a.error_sums(e) for a, e in zip(layers, error, strict=True)]
        )
        results = [a.backward(e, s) for a, e, s in zip(layers, error, sums, strict=True)]
        del self._arithmetic[position]
        for number, source in enumerate(self.network.sources[position]):
            if source >= 0:
                self._send_back(position, source, [errors[number] for errors, _ in results])
        gradients = [gradient for _, gradient in results if gradient is not None]
        if gradients:
            self._keep_gradient(position, gradients)

    def _arrived(self, position: int) -> Blocks:
        """Return the error of a layer's output, in the dual of the layouts that it is stored in."""
        program, node = self.program, position + self.division.shared
        layouts, tensor = dual(program.stored[node]), self.division.output_tensor(position)
        within = self.program.hierarchy.within
        addends = [level for level, layout in enumerate(layouts) if layout == PARTIAL]
        # One replica has the error and the others zeros, so that they add up to it.
        counts = [not within(device, addends) for device in self.devices]
        if position in self.data.targets:
            blocks = zip(self._stored[node], counts, strict=True)
            return [np.full_like(block, one) for block, one in blocks]
        if position in self.data.errors:
            whole = self.data.errors[position]
            return [
                tensor.part_of(whole, layouts, device) * counts[device] for device in self.devices
            ]
        boundary = self.program.workload.boundary_into_shared.get(node)
        if boundary is None:
            return self._errors.pop(node)
        shared = program.workload.boundaries[boundary].target
        return self._across(boundary, Phase.BACKWARD, tensor, self._errors.pop(shared))

    def _send_back(self, position: int, source: int, error: Blocks) -> None:
        """Convert the error of an input for the layer that wrote it, and add it to that layer's."""
        boundary = self.division.boundary(source, position)
        tensor = self.division.tensor(source, position)
        blocks = self._across(boundary, Phase.BACKWARD, tensor, error)
        stored = self.program.workload.boundaries[boundary].source
        if stored in self._errors:
            blocks = [a + b for a, b in zip(self._errors[stored], blocks, strict=True)]
        self._errors[stored] = blocks

    def _keep_gradient(self, position: int, gradients: Blocks) -> None:
        node = self.division.weight_node(position)
        assert node is not None
        if node >= self.division.shared:
            idle = [self.division.is_idle(position, device) for device in self.devices]
            kept = zip(gradients, self._weights[node], idle, strict=True)
            gradients = [np.zeros_like(w) if none else g for g, w, none in kept]
            self.record.gradients[position] = self._all_reduced(node, gradients)
            return
        for device, gradient in enumerate(gradients):
            use = self.division.use(position, device)
            assert use is not None
            indices, transposes = use
            part = gradient.T if transposes else gradient
            self._shared_gradients[node][device][np.ix_(*indices)] += part

    def _all_reduced(self, node: int, gradients: Blocks) -> Blocks:
        steps, whose = self.program.gradient_steps(node), Source(Phase.GRADIENT, node, None)
        reduced = self.fabric.all_reduce([one.reshape(-1) for one in gradients], steps, whose)
        return [r.reshape(g.shape) for r, g in zip(reduced, gradients, strict=True)]
