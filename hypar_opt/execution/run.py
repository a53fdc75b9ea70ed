"""A plan's step on virtual devices in numpy, compared with its program and with one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.execution.result import ExchangeRow, largest_difference
from hypar_opt.execution.virtual.checks import (
    MAX_MEMORY,
    check_division,
    check_layers,
    check_limits,
    notes_of,
)
from hypar_opt.execution.virtual.data import random_data
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.fabric import Purpose, Source
from hypar_opt.execution.virtual.norm_groups import norm_groups
from hypar_opt.execution.virtual.step import Progress, StepRecord, TrainingStep
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.plan.costs import json_number
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.layouts import PARTIAL
from hypar_opt.sharding.passes import INFERENCE, TRAINING, Phase
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.data import StepData
    from hypar_opt.execution.virtual.fabric import Blocks
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


class Compared(NamedTuple):
    """The devices' bytes and numbers, compared with the program and one device: `RunResult`."""

    exchanges: tuple[ExchangeRow, ...]
    bias_bytes: tuple[int | float, ...]
    notes: tuple[str, ...]
    loss: float
    reference_loss: float
    values: float
    gradients: float | None


def run_program(
    network: Network,
    program: Program,
    *,
    seed: int = 0,
    element_bytes: Fraction = Fraction(4),
    inference: bool = False,
    scaled: bool = False,
    max_memory: int = MAX_MEMORY,
    data: StepData | None = None,
    progress: Progress = lambda done, total: None,
) -> Compared:
    """Run one step of a program on virtual devices, and on one.

    Parameters
    ----------
    program
        The program of the network's workload, with shared tensors as nodes.
    scaled
        Whether the network is scaled down already, for messages.
    max_memory
        The most bytes of memory that the run may take.
    data
        By default random numbers, as `step_data` returns them.

    Raises
    ------
    RefusedError
        If a kind of layer cannot be run, a split would be uneven, or memory is short.
    """
    check_layers(network)
    check_limits(network, program, max_memory=max_memory, scaled=scaled)
    division = Division(network, program)
    check_division(division, scaled=scaled)
    phases = INFERENCE if inference else TRAINING
    count, whole = program.workload.repeats.micro_batches, whole_batch(network, program)
    data = random_data(network, whole, seed) if data is None else data
    alone = Division(network, Program(whole, (), Hierarchy(())), norm_groups(division))
    layers = len(network.layers) * len(phases[:2])
    total = (1 + count) * layers
    one = TrainingStep(alone, data, phases, lambda done, _: progress(done, total)).run()
    step = TrainingStep(division, data, phases, lambda done, _: progress(layers + done, total))
    record = step.run()
    return Compared(
        exchange_rows(program, record.fabric.received, element_bytes, phases),
        by_level(
            (
                (purpose.level, n * element_bytes)
                for purpose, n in record.bias_fabric.received.items()
            ),
            program.hierarchy.levels,
        ),
        notes_of(network),
        record.loss,
        one.loss,
        _difference_of_values(division, record, one),
        None if inference else _difference_of_gradients(division, data, record, one),
    )


def step_data(network: Network, program: Program, seed: int) -> StepData:
    """Return the random data of a step, for the whole batch."""
    return random_data(network, whole_batch(network, program), seed)


def outputs_alone(network: Network, program: Program, data: StepData) -> dict[int, Array]:
    """Return each layer's output on one device that has the whole batch, by position.

    Its batch norms take the statistics of the whole batch.
    """
    whole = Program(whole_batch(network, program), (), Hierarchy(()))
    record = TrainingStep(Division(network, whole), data, INFERENCE).run()
    return {position: blocks[0] for position, (_, blocks) in record.outputs.items()}


def whole_batch(network: Network, program: Program) -> Workload:
    """Return the workload of one device, which repeats and shards nothing."""
    count = program.workload.repeats.micro_batches
    return workload_of(
        *(network, count * program.workload.batch, program.workload.choices),
        shared_tensors=program.workload.replicas,
    )


def by_level(moved: Iterable[tuple[int, int | Fraction]], levels: int) -> tuple[int | float, ...]:
    """Return the total bytes of each level, H1 first; empty if nothing moves."""
    sums = [Fraction()] * levels
    for level, size in moved:
        sums[level] += size
    return tuple(map(json_number, sums)) if any(sums) else ()


def exchange_rows(
    program: Program,
    received: Mapping[Purpose, int],
    element_bytes: Fraction,
    phases: tuple[Phase, ...] = TRAINING,
) -> tuple[ExchangeRow, ...]:
    """Return the bytes that devices received and those of the program, in program order."""
    modelled: Counter[Purpose] = Counter()
    for exchange in exchanges_of_step(program, phases):
        phase, kind, tensor, level, *_ = exchange
        assert kind is not None  # as in the readings of a run
        source = Source(phase, exchange.node, exchange.boundary, tensor == "weights")
        modelled[Purpose(source, kind, level)] += exchange.elements
    rows = []
    for purpose in dict.fromkeys((*modelled, *received)):
        counted = received.get(purpose, 0)
        if not modelled[purpose] and not counted:
            continue
        source = purpose.source
        rows.append(
            ExchangeRow(
                phase=source.phase.value,
                kind=purpose.kind.value,
                level=purpose.level + 1,
                layer=program.workload.nodes[source.node].name,
                tensor=_tensor(program, purpose),
                modelled=json_number(modelled[purpose] * element_bytes),
                counted=json_number(counted * element_bytes),
            )
        )
    return tuple(rows)


def _tensor(program: Program, purpose: Purpose) -> str:
    boundary = purpose.source.boundary
    if boundary is not None:
        source = program.workload.boundaries[boundary].source
        return f"input from {program.workload.nodes[source].name}"
    if purpose.source.weights:
        return "weights"
    if purpose.source.phase is Phase.GRADIENT:
        return "gradient"
    if purpose.kind is StepKind.HALO:
        return "borders of images"
    return "statistics" if purpose.kind is StepKind.ALL_REDUCE else "output"


def _difference_of_values(division: Division, record: StepRecord, one: StepRecord) -> float:
    wholes = {position: blocks[0] for position, (_, blocks) in one.outputs.items()}
    count = division.program.workload.repeats.micro_batches

    def pairs(position: int) -> Iterator[tuple[Array, Array]]:
        layouts, blocks = record.outputs[position]
        tensor, micro_batches = division.output_tensor(position), np.split(wholes[position], count)
        addends = [level for level, layout in enumerate(layouts) if layout == PARTIAL]
        for device in range(len(blocks)):
            parts = [tensor.part_of(micro_batch, layouts, device) for micro_batch in micro_batches]
            group = division.hierarchy.group(device, addends)
            yield np.concatenate(parts), sum(map(blocks.__getitem__, group[1:]), blocks[group[0]])

    return largest_difference((whole, pairs(position)) for position, whole in wholes.items())


def _difference_of_gradients(
    division: Division, data: StepData, record: StepRecord, one: StepRecord
) -> float:
    """Return the largest difference of gradients, and of weights that were updated in shards."""
    gradients = {position: blocks[0] for position, blocks in one.gradients.items()}

    program = division.program

    def compared(
        wholes: Mapping[int, Array], parts: Mapping[int, Blocks], *words: str
    ) -> Iterator[tuple[Array, Iterator[tuple[Array, Array]]]]:
        def pairs(position: int) -> Iterator[tuple[Array, Array]]:
            for device, block in enumerate(parts[position]):
                part = wholes[position][np.ix_(*division.stored(position, device))]
                node = division.weight_node(position)
                if part.shape != block.shape and node is not None:
                    shard = partial(program.workload.repeats.shard, node)
                    steps = tuple(
                        step for step in program.gradient_steps(node) if shard(step.level) in words
                    )
                    part = record.fabric.chunk(part.reshape(-1), steps, device)
                yield part, block

        return ((whole, pairs(position)) for position, whole in wholes.items())

    biases = _biases(division, record, one)
    difference = largest_difference(
        chain(compared(gradients, record.gradients, *SHARDED[1:]), biases)
    )
    if record.weights:
        updated = {n: data.weights[n] - gradient for n, gradient in gradients.items()}
        difference = max(
            difference, largest_difference(compared(updated, record.weights, "weights"))
        )
    return difference


def _biases(
    division: Division, record: StepRecord, one: StepRecord
) -> Iterator[tuple[Array, list[tuple[Array, Array]]]]:
    """Yield the gradients of biases, each with the devices' parts."""
    for position, (whole, *_) in one.bias_gradients.items():
        blocks = enumerate(record.bias_gradients[position])
        yield (
            whole,
            [(whole[np.ix_(*division.bias_held(position, n))], block) for n, block in blocks],
        )
