"""The passes of a micro-batch on virtual devices, exchange by exchange, as in its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.execution.virtual.arithmetic import arithmetic_of
from hypar_opt.execution.virtual.arithmetic.losses import SoftmaxLoss
from hypar_opt.execution.virtual.epilogue import Epilogue
from hypar_opt.execution.virtual.fabric import Blocks, Source
from hypar_opt.execution.virtual.halos import with_halos, without_halos
from hypar_opt.execution.virtual.recomputation import Recomputation
from hypar_opt.sharding.conversions import Layouts, backward, dual
from hypar_opt.sharding.layouts import CHANNEL, PARTIAL, WHOLE
from hypar_opt.sharding.passes import Phase
from hypar_opt.workload.operands import operands_of
from hypar_opt.workload.repeats import EPILOGUE, PASS

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.arithmetic.base import Arithmetic
    from hypar_opt.execution.virtual.data import StepData
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.execution.virtual.fabric import Fabric
    from hypar_opt.execution.virtual.shards import Array, DividedTensor
    from hypar_opt.execution.virtual.trained_weights import TrainedWeights

Done = Callable[[int], None]
"""Called with the number of layers done."""


class _Operands(NamedTuple):
    """The inputs of a layer's forward pass, to rerun it without exchanges."""

    reads: Sequence[tuple[Array, ...]]
    sums: Sequence[Array | None]


class MicroBatch:
    """The passes of all devices over one micro-batch, exchange by exchange, as in the program.

    Parameters
    ----------
    data
        The data of the micro-batch.
    """

    def __init__(
        self,
        division: Division,
        fabric: Fabric,
        weights: TrainedWeights,
        biases: TrainedWeights,
        data: StepData,
    ) -> None:
        self.division, self.fabric, self.weights, self.data = division, fabric, weights, data
        self.biases = biases
        self.program, self.network = division.program, division.network
        self.devices = fabric.devices
        self.outputs: dict[int, tuple[Layouts, Blocks]] = {}
        self.loss = 0.0
        self._arithmetic: dict[int, list[Arithmetic]] = {}
        self._epilogues: dict[int, list[Epilogue]] = {}
        self._stored: dict[int, Blocks] = {}
        self._errors: dict[int, Blocks] = {}
        self._used: dict[int, list[Array | None]] = {}
        self._kept: dict[int, _Operands] = {}
        self._products: dict[int, Blocks] = {}
        self._again = Recomputation(division)
        self._converted: set[int] = set()
        self._shared_gradients: Mapping[int, Blocks] = {
            node: weights.zeros(node) for node in self.program.workload.weight_users
        }

    def forward(self, done: Done) -> None:
        """Run the forward passes of all layers."""
        for position in range(len(self.network.layers)):
            layouts, blocks = self._forward(position)
            self.outputs[position] = layouts, blocks
            self._add_loss(position, layouts, blocks)
            self._release(position, self._used[position])
            self._drop_converted(position)
            self._forget(position)
            done(position + 1)

    def backward(self, done: Done) -> None:
        """Run the backward passes, and hand each gradient to the weights."""
        layers = len(self.network.layers)
        for position in reversed(range(layers)):
            self._restore(position)
            self._backward(position)
            done(2 * layers - position)
        for node, blocks in self._shared_gradients.items():
            self.weights.add(node, blocks)

    def _forward(
        self, position: int, phase_of_use: Phase = Phase.FORWARD
    ) -> tuple[Layouts, Blocks]:
        """Run a layer's forward pass, and return its output, before it is stored for readers.

        Parameters
        ----------
        phase_of_use
            The pass for which its weights are gathered.
        """
        program, node, phase = self.program, position + self.division.shared, Phase.FORWARD
        of_device = self._all_read(position)
        layers = self._arithmetic[position] = self._layers(position)
        partial_sums = [one.sums(read) for one, read in zip(layers, of_device, strict=True)]
        sums = self._sums(position, phase, partial_sums)
        self._used[position] = self._weights(position, phase_of_use)
        outputs = self._computed(position, _Operands(of_device, sums))
        written, tensor = program.written[node], self.division.unpooled(position)
        steps, whose = program.output_steps(node), Source(phase, node, None)
        outputs, layouts = self.fabric.convert(tensor, outputs, written, steps, whose)
        if self._again.again(position) == EPILOGUE:
            self._products[position] = outputs
        if self._again.alone(position):
            self._kept[position] = _Operands(of_device, sums)
        again = phase_of_use is Phase.BACKWARD
        return layouts, self._finished_output(position, outputs, again=again)

    def _all_read(self, position: int) -> list[tuple[Array, ...]]:
        """Return what each device reads of all of a layer's operands, halos included."""
        layer, node = self.network.layers[position], position + self.division.shared
        reads = [
            self._read(position, number)
            for number in range(len(operands_of(self.network)[position]))
            if not layer.reads_ids
        ]
        if halos := self.program.halos(node):
            reads[0] = with_halos(self.fabric, reads[0], halos, Source(Phase.FORWARD, node, None))
        return list(zip(*reads, strict=True)) or [()] * len(self.devices)

    def _finished_output(self, position: int, outputs: Blocks, *, again: bool) -> Blocks:
        """Return a layer's output after its epilogue, and store it for its readers.

        Parameters
        ----------
        again
            Whether this is a recomputation.
        """
        program, node, phase = self.program, position + self.division.shared, Phase.FORWARD
        layer = self.network.layers[position]
        biases: Sequence[Array | None] = [None] * len(self.devices)
        if layer.has_bias:
            biases = self._one_of(self.biases.used(node, node, phase), program.stored[node])
        self._epilogues[position] = [
            Epilogue(layer, self.division.maps[position], bias) for bias in biases
        ]
        blocks = [e.forward(b) for e, b in zip(self._epilogues[position], outputs, strict=True)]
        if self._again.read_by(position):  # no views of what is dropped
            blocks = [block.copy() for block in blocks]
        self._stored[node] = blocks
        boundary = program.workload.boundary_into_shared.get(node)
        if boundary is not None and (not again or self._again.stored_again(position)):
            shared = program.workload.boundaries[boundary].target
            tensor = self.division.output_tensor(position)
            self._stored[shared] = self._across(boundary, phase, tensor, blocks)
            if shared in self._again.converted:  # may be dropped: no view of what the writer keeps
                self._stored[shared] = [block.copy() for block in self._stored[shared]]
        return blocks

    def _layers(self, position: int) -> list[Arithmetic]:
        layer = self.network.layers[position]
        shards = (self.division.shard(position, device, self.data) for device in self.devices)
        return [arithmetic_of(layer)(shard) for shard in shards]

    def _computed(self, position: int, operands: _Operands) -> Blocks:
        """Return what each device computes of a layer's output."""
        inputs = zip(self._arithmetic[position], *operands, self._used[position], strict=True)
        return [one.forward(read, weights, sums) for one, read, sums, weights in inputs]

    def _forget(self, position: int) -> None:
        """Drop what the backward pass recomputes, once no forward pass reads it."""
        if self._again.alone(position):
            del self._arithmetic[position]
        for layer in self._again.ending_at(position):
            word = self._again.again(layer)
            if word is not None:
                del self._arithmetic[layer], self._used[layer]
            if word in (PASS, EPILOGUE):
                del self._epilogues[layer]
            for node in self._again.dropped(layer):
                self._stored.pop(node, None)

    def _drop_converted(self, position: int) -> None:
        """Drop tensors that are gathered again, after the last forward pass that reads them.

        Who reads it still reads no numbers.
        """
        for node in self._again.last_read_by(position):
            for block in self._stored[node]:
                block.fill(np.nan)

    def _convert_again(self, position: int) -> None:
        """Gather again the shared tensors that a layer's backward pass reads."""
        for node in self._again.read_by(position) - self._converted:
            self._converted.add(node)
            (boundary, writer) = self._again.converted[node]
            tensor = self.division.output_tensor(writer)
            written = self._stored[writer + self.division.shared]
            fresh = self._across(boundary, Phase.FORWARD, tensor, written)
            for old, new in zip(self._stored[node], fresh, strict=True):
                old[...] = new

    def _restore(self, position: int) -> None:
        """Restore what a layer's backward pass needs: weights, and recomputed results."""
        phase = Phase.BACKWARD
        self._convert_again(position)
        for layer in self._again.ending_at(position):
            self._run_again(layer)
        if self._again.again(position) is not None:
            return  # its weights were gathered to run it again
        if self._gathers(position):
            fresh = self._weights(position, phase)
            for old, new in zip(self._used[position], fresh, strict=True):
                if old is not None:
                    old[...] = new
        if self._again.alone(position):
            self._arithmetic[position] = self._layers(position)
            self._computed(position, self._kept.pop(position))

    def _run_again(self, position: int) -> None:
        """Recompute one layer of a group that is recomputed together."""
        word, phase = self._again.again(position), Phase.BACKWARD
        if word == PASS:
            self._forward(position, phase)
        elif word is not None:
            self._arithmetic[position] = self._layers(position)
            self._used[position] = self._weights(position, phase)
            reads = self._all_read(position)
            self._computed(position, _Operands(reads, [None] * len(self.devices)))
        if word == EPILOGUE:
            self._finished_output(position, self._products.pop(position), again=True)

    def _weights(self, position: int, phase: Phase) -> list[Array | None]:
        """Return the weights that each device uses: gathered where they are sharded."""
        node = self.division.weight_node(position)
        if node is None:
            return [None] * len(self.devices)
        blocks = self.weights.used(node, position + self.division.shared, phase)
        return [self._own_weights(position, device, blocks) for device in self.devices]

    def _gathers(self, position: int) -> bool:
        """Return whether a layer's weights are gathered for each of its passes."""
        node = self.division.weight_node(position)
        return node is not None and self.weights.sharded(node)

    def _release(self, position: int, used: Sequence[Array | None]) -> None:
        """Drop gathered weights after a forward pass: who reads them still reads no numbers."""
        for weights in used if self._gathers(position) else ():
            if weights is not None:
                weights.fill(np.nan)

    def _read(self, position: int, number: int) -> Blocks:
        """Return what each device reads of one of a layer's operands."""
        program, division = self.program, self.division
        operand, tensor = (
            operands_of(self.network)[position][number],
            division.operand(position, number),
        )
        if operand.source < 0:
            # Each reader has the network's inputs in its own layouts.
            layouts = program.read_as(position + division.shared, number)
            whole = self.data.inputs[operand.source]
            if operand.channels:
                whole = whole[..., slice(*operand.channels)]
            parts = [
                division.input_part(whole, tensor, position, layouts, device)
                for device in self.devices
            ]
            return self._one_of(parts, layouts)
        boundary = division.boundary(position, number)
        blocks = self._stored[program.workload.boundaries[boundary].source]
        if operand.channels:
            there = self._feature_positions(position, number)
            blocks = [block[..., channels] for block, channels in zip(blocks, there, strict=True)]
        return self._across(boundary, Phase.FORWARD, tensor, blocks)

    def _feature_positions(self, position: int, number: int) -> list[slice]:
        """Return an operand's positions among the features of its source that each device has."""
        edge = self.program.workload.boundaries[self.division.boundary(position, number)]
        layouts = self.program.stored[edge.source]
        return [self.division.within(position, number, layouts, n) for n in self.devices]

    def _across(self, boundary: int, phase: Phase, tensor: DividedTensor, blocks: Blocks) -> Blocks:
        """Convert a tensor for its reader, or its error for its writer."""
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

    def _own_weights(self, position: int, device: int, blocks: Blocks) -> Array:
        """Return the weights that a device uses: its own, or its slice of shared weights."""
        stored = blocks[device]
        if self.division.is_idle(position, device):
            # In the shape of its counterpart's; an idle device has no images to use them on.
            busy = self.division.busy(position, device)
            return np.zeros_like(self._own_weights(position, busy, blocks))
        where = self.division.use(position, device)
        if where is None:
            return stored
        indices, transposes = where
        slice_: Array = stored[np.ix_(*indices)]
        return slice_.T if transposes else slice_

    def _add_loss(self, position: int, layouts: Layouts, blocks: Blocks) -> None:
        """Add a layer's part of the loss; exchanging scalars is not counted."""
        copies = self.program.parts(layouts, WHOLE, CHANNEL)
        losses = [a.loss for a in self._arithmetic[position] if isinstance(a, SoftmaxLoss)]
        if losses:
            self.loss += sum(losses) / copies
        elif position in self.data.errors:
            tensor = self.division.output_tensor(position)
            copies = self.program.parts(layouts, WHOLE)
            whole = self.data.errors[position]
            products = (
                float((tensor.part_of(whole, layouts, device) * block).sum())
                for device, block in enumerate(blocks)
            )
            self.loss += sum(products) / copies

    def _backward(self, position: int) -> None:
        program, node = self.program, position + self.division.shared
        phase, tensor = Phase.BACKWARD, self.division.unpooled(position)
        error = self._arrived(position)
        epilogues = self._epilogues.pop(position)
        error = [t.backward(e) for t, e in zip(epilogues, error, strict=True)]
        of_bias = [t.bias_gradient for t in epilogues if t.bias_gradient is not None]
        if of_bias:
            self.biases.add(node, of_bias)
        steps, whose = backward(program.output_steps(node)), Source(phase, node, None)
        layouts = dual(program.stored[node])
        error, _ = self.fabric.convert(tensor, error, layouts, steps, whose)
        layers = self._arithmetic[position]
        sums = self._sums(
            position, phase, [a.error_sums(e) for a, e in zip(layers, error, strict=True)]
        )
        results = [a.backward(e, s) for a, e, s in zip(layers, error, sums, strict=True)]
        del self._arithmetic[position], self._used[position]
        if halos := program.halos(node):
            first = [errors[0] for errors, _ in results]
            first = without_halos(self.fabric, first, halos, Source(phase, node, None))
            results = [([error], of) for error, (_, of) in zip(first, results, strict=True)]
        for number, operand in enumerate(operands_of(self.network)[position]):
            if operand.source >= 0:
                self._send_back(position, number, [errors[number] for errors, _ in results])
        gradients = [gradient for _, gradient in results if gradient is not None]
        if gradients:
            self._keep_gradient(position, gradients)

    def _arrived(self, position: int) -> Blocks:
        """Return the error of a layer's output, in the dual of its stored layouts."""
        program, node = self.program, position + self.division.shared
        layouts, tensor = dual(program.stored[node]), self.division.output_tensor(position)
        if position in self.data.targets:
            return self._one_of([np.ones_like(block) for block in self._stored[node]], layouts)
        if position in self.data.errors:
            whole = self.data.errors[position]
            parts = [tensor.part_of(whole, layouts, device) for device in self.devices]
            return self._one_of(parts, layouts)
        boundary = self.program.workload.boundary_into_shared.get(node)
        if boundary is None:
            return self._errors.pop(node)
        shared = program.workload.boundaries[boundary].target
        return self._across(boundary, Phase.BACKWARD, tensor, self._errors.pop(shared))

    def _one_of(self, blocks: Blocks, layouts: Layouts) -> Blocks:
        """Return replicas as addends if layouts need these: one is kept, others become zeros."""
        addends = [level for level, layout in enumerate(layouts) if layout == PARTIAL]
        within = self.program.hierarchy.within
        return [block * (not within(n, addends)) for n, block in enumerate(blocks)]

    def _send_back(self, position: int, number: int, error: Blocks) -> None:
        """Convert the error of an operand for its writer, and add it to that layer's."""
        boundary = self.division.boundary(position, number)
        tensor = self.division.operand(position, number)
        stored = self.program.workload.boundaries[boundary].source
        if not self.program.workload.has_error[boundary]:
            zeros = [np.zeros_like(block) for block in self._stored[stored]]
            self._errors.setdefault(stored, zeros)  # nothing is exchanged
            return
        blocks = self._across(boundary, Phase.BACKWARD, tensor, error)
        if operands_of(self.network)[position][number].channels:
            parts = list(zip(self._feature_positions(position, number), blocks, strict=True))
            blocks = [np.zeros_like(block) for block in self._stored[stored]]
            for whole, (channels, part) in zip(blocks, parts, strict=True):
                whole[..., channels] = part
        if stored in self._errors:
            blocks = [a + b for a, b in zip(self._errors[stored], blocks, strict=True)]
        self._errors[stored] = blocks

    def _keep_gradient(self, position: int, gradients: Blocks) -> None:
        node = self.division.weight_node(position)
        assert node is not None
        if node >= self.division.shared:
            idle = [self.division.is_idle(position, device) for device in self.devices]
            if any(idle):
                triples = zip(gradients, self.weights.zeros(node), idle, strict=True)
                gradients = [zeros if none else g for g, zeros, none in triples]
            self.weights.add(node, gradients)
            return
        for device, gradient in enumerate(gradients):
            if self.division.is_idle(position, device):
                continue
            use = self.division.use(position, device)
            assert use is not None
            indices, transposes = use
            part = gradient.T if transposes else gradient
            self._shared_gradients[node][device][np.ix_(*indices)] += part
