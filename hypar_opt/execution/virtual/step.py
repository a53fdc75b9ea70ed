"""A plan's training step on virtual devices: micro-batches, and the reduction of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.execution.virtual.fabric import Blocks, Fabric
from hypar_opt.execution.virtual.micro_batch import MicroBatch
from hypar_opt.execution.virtual.trained_weights import TrainedWeights
from hypar_opt.sharding.passes import TRAINING, Phase

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.data import StepData
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.sharding.conversions import Layouts

Progress = Callable[[int, int], None]


@dataclass
class StepRecord:
    """The record of a step: each layer's output, the gradients, the loss, and the exchanges.

    Parameters
    ----------
    outputs
        The layouts and the devices' parts of each layer's output, one micro-batch after the other.
    gradients
        What devices keep of the gradient of each layer that keeps weights: their parts, or flat
        shards of them.
    weights
        The same of its weights after a step of gradient descent, if anything is sharded.
    bias_gradients
        The devices' parts of the gradient of each layer's bias, which moved on ``bias_fabric``: no
        plan counts what moves there.
    """

    fabric: Fabric
    bias_fabric: Fabric
    outputs: dict[int, tuple[Layouts, Blocks]] = field(default_factory=dict)
    gradients: dict[int, Blocks] = field(default_factory=dict)
    weights: dict[int, Blocks] = field(default_factory=dict)
    bias_gradients: dict[int, Blocks] = field(default_factory=dict)
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

    def run(self) -> StepRecord:
        """Run the step, and return its record."""
        division, trains = self.division, Phase.BACKWARD in self.phases
        program, repeats = division.program, division.program.workload.repeats
        count = repeats.micro_batches
        per_micro_batch = len(division.network.layers) * (2 if trains else 1)
        arguments = program.hierarchy, repeats.reduced, repeats.holders
        record = StepRecord(Fabric(*arguments), Fabric(*arguments))
        weights = TrainedWeights(
            *(division, record.fabric, division.weights(self.data.weights)),
            *(program.gradient_steps, repeats.shard),
        )
        biases = TrainedWeights(
            *(division, record.bias_fabric, division.biases(self.data.biases)),
            *(program.bias_steps, lambda *_: "none"),
        )
        outputs: list[dict[int, tuple[Layouts, Blocks]]] = []
        for number in range(count):
            passes = MicroBatch(
                division, record.fabric, weights, biases, self.data.part(number, count)
            )
            done = partial(self._report, number * per_micro_batch, count * per_micro_batch)
            passes.forward(done)
            if trains:
                passes.backward(done)
            outputs.append(passes.outputs)
            record.loss += passes.loss
        record.outputs = _concatenated(outputs)
        if trains:
            record.gradients = weights.reduced()
            record.bias_gradients = biases.reduced()
            if repeats.sharded:
                record.weights = weights.updated(record.gradients)
        return record

    def _report(self, before: int, total: int, done: int) -> None:
        self.progress(before + done, total)


def _concatenated(
    outputs: Sequence[dict[int, tuple[Layouts, Blocks]]],
) -> dict[int, tuple[Layouts, Blocks]]:
    """Return the outputs of several micro-batches, concatenated."""
    if len(outputs) == 1:
        return outputs[0]
    joined = {}
    for position, (layouts, _) in outputs[0].items():
        of_devices = zip(*(output[position][1] for output in outputs), strict=True)
        joined[position] = layouts, [np.concatenate(parts) for parts in of_devices]
    return joined
