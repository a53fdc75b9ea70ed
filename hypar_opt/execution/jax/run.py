"""Compile and run a module's step: its collectives, loss and gradients."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.collectives import Moved, collectives
from hypar_opt.execution.jax.module import module_text
from hypar_opt.execution.jax.weights import (
    biases_of,
    inputs_of,
    targets_of,
    trained_of,
    weights_of,
)
from hypar_opt.execution.result import ExchangeRow
from hypar_opt.plan.costs import json_number
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.early_stop import read_by_backward, reads_back
from hypar_opt.workload.layer_tensors import Extent
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import recomputed_by_op
from hypar_opt.workload.repeats import PASS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.execution.jax.tensors import ShardedNetwork, StoredTensor
    from hypar_opt.execution.jax.weights import StepInput
    from hypar_opt.sharding.program import Program
    from hypar_opt.step.operations import Collective

    Array = NDArray[Any]

ELEMENT_BYTES = 4
"""The size of the module's float32."""

_FOR_INPUTS = (StepKind.ALL_REDUCE, StepKind.HALO)
"""The exchanges of inputs: of statistics, and of halos."""

_WRITTEN = Fused(attention=False)
"""The fusion in a program that is run: none."""

_PLANNED = {"collective-permute": str(StepKind.HALO)}
"""The plan's names of compiled collectives that differ from XLA's."""


@dataclass(frozen=True)
class CompiledStep:
    """The bytes that a compiled step moves, and its numbers.

    Parameters
    ----------
    exchanges
        Planned and compiled bytes by level and kind. XLA may combine all-reduces of different
        passes, so that only sums over passes are reliable.
    unused
        Bytes that a plan counts for errors that no weights need: those of layers without
        weights at or above them. A compiler drops these exchanges; they are in no row.
    bias_bytes
        Bytes by level of the gradients of biases, which no plan counts and no row has.
    padding
        Bytes that move for images that pad a batch, and that the plan does not count; rows have
        them in either column.
    loss
    gradients
        Arrays in the network's order, by layer.
    updated
        The largest difference of new weights from those of these gradients, relative to the largest
        of a layer's; 0 where the step does not update any.
    """

    exchanges: tuple[ExchangeRow, ...]
    unused: Fraction
    bias_bytes: Mapping[int, int]
    padding: Fraction
    loss: float
    gradients: Mapping[str, Array]
    updated: float = 0.0


def load(text: str, *, name: str = "model_sharded") -> ModuleType:
    """Load an exported module from its text, and restore environment variables.

    Raises
    ------
    HyparError
        If jax is not installed.
    """
    if find_spec("jax") is None:
        raise HyparError("steps in JAX need jax: pip install 'hypar-opt[jax]'")
    module = ModuleType(name)
    sys.modules[name] = module  # its named tuples look for the module that they stand in
    flags = os.environ.get("XLA_FLAGS")
    try:
        exec(compile(text, f"<{name}>", "exec"), vars(module))
        module.jax.devices()  # reads the flag that the module sets
    finally:
        os.environ.pop("XLA_FLAGS", None)
        os.environ.update({} if flags is None else {"XLA_FLAGS": flags})
    return module


def run_step(sharded: ShardedNetwork, data: Data) -> CompiledStep:
    """Run one training step, forward and backward, as one program on all devices.

    Raises
    ------
    HyparError
        If jax is not installed, has too few devices, or compiles to HLO that cannot be read.
    """
    module = load(module_text(sharded, title=sharded.network.name))
    import jax
    import numpy as np

    try:
        on = module.mesh()
    except SystemExit as error:  # the module's message when it is run as a program
        raise HyparError(f"JAX {error}") from None
    placed = [
        {name: jax.device_put(arrays[name], s) for name, s in module.shardings(table, on).items()}
        for arrays, table in zip(
            _stored(sharded, data, shards=True),
            (module.WEIGHTS, module.INPUTS_GIVEN, module.TARGETS),
            strict=True,
        )
    ]
    repeats = sharded.program.workload.repeats
    # Where weights are updated in shards, what gathers them belongs to the step.
    function = module.both if repeats.sharded else module.gradients
    compiled = module.on_devices(function, on).lower(*placed).compile()
    loss, gradients, *updated = compiled(*placed)
    trained = trained_of(sharded)

    def original(name: str, array: Array, levels: Sequence[int]) -> Array:
        """Return weights, or their gradient, in the network's order, from the devices' shards."""
        weights = trained[name]
        whole = weights.joined(array, sharded.hierarchy, levels) if levels else array
        return weights.tensor.original(whole)

    originals = {
        name: original(name, np.asarray(array), trained[name].scattered)
        for name, array in gradients.items()
    }
    difference = 0.0
    for name, one in trained.items() if updated else ():
        new = original(name, np.asarray(updated[0][name]), one.over("weights"))
        expected = data.weights[name] - module.RATE * originals[name]
        difference = max(difference, float(np.abs(new - expected).max() / np.abs(expected).max()))
    try:
        moved = list(collectives(compiled.as_text(), sharded.by_level.hierarchy.sizes))
    except ValueError as error:
        raise HyparError(f"the bytes of jax {jax.__version__} cannot be counted: {error}") from None
    return CompiledStep(
        *traffic(sharded, moved),
        _needed_bytes(sharded.by_level) - _needed_bytes(sharded.planned),
        float(loss),
        originals,
        difference,
    )


@dataclass(frozen=True, eq=False)
class Data:
    """A step's random data for `run_step`, in the network's order."""

    weights: dict[str, Array]
    """Biases among them."""
    inputs: dict[int, Array]
    """By `StepInput.sequence`."""
    targets: dict[str, Array]


def random_data(sharded: ShardedNetwork, seed: int) -> Data:
    """Return random weights, an input and targets, scaled so that values stay near one."""
    import numpy as np

    rng = np.random.default_rng(seed)

    def draw(tensor: StoredTensor, below: int | None = None, images: int = 0) -> Array:
        shape = [*tensor.sizes]
        shape[:1] = [images] if images else shape[:1]
        if below is not None:
            return rng.integers(0, below, shape, np.int32)
        return rng.standard_normal(shape, np.float32)

    workload = sharded.planned.workload
    count = workload.batch * workload.repeats.micro_batches
    weights = {}
    for name, one in weights_of(sharded).items():
        values = draw(one.tensor)
        # Scales are near one, and so are shifts.
        weights[name] = values / np.float32(one.summed**0.5) if one.summed else 1 + values / 10
    # Each is split as its readers require, and drawn once; the network's first.
    inputs: dict[int, Array] = {}
    for given in sorted(inputs_of(sharded)[0].values(), key=lambda own: own.sequence >= 0):
        if given.sequence not in inputs:
            inputs[given.sequence] = draw(given.tensor, given.below, count)
    ends = targets_of(sharded).items()
    targets = {name: draw(one.tensor, one.below, count) for name, one in ends}
    for name, one in biases_of(sharded).items():
        weights[name] = draw(one.tensor) / 10
    return Data(weights, inputs, targets)


def one_device(sharded: ShardedNetwork, data: Data) -> tuple[float, dict[str, Array]]:
    """Return the loss and the gradients as one device that holds everything computes them."""
    import jax
    import numpy as np

    module = load(module_text(sharded, title="On one device.", alone=True), name="model_alone")
    count = sharded.program.workload.repeats.micro_batches

    def loss_of(w: Any, inputs: Any, targets: Any) -> Any:
        """Add up the losses of the micro-batches."""
        if count == 1:
            return module.loss(w, inputs, targets)
        parts = (jax.tree.map(lambda own, n=n: own[n], (inputs, targets)) for n in range(count))
        return sum(module.loss(w, *given) for given in parts)

    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(*_stored(sharded, data))
    return float(loss), {
        name: one.tensor.original(np.asarray(gradients[name]))
        for name, one in trained_of(sharded).items()
    }


def _stored(sharded: ShardedNetwork, data: Data, *, shards: bool = False) -> list[dict[str, Array]]:
    """Return weights, inputs and targets as a module stores them.

    Parameters
    ----------
    shards
        Whether weights are stored as devices keep them, possibly in shards.
    """
    weights, count = {}, sharded.program.workload.repeats.micro_batches
    for name, one in trained_of(sharded).items():
        weights[name] = one.tensor.stored(data.weights[name])
        if shards and one.over("weights"):
            weights[name] = one.shards(weights[name], sharded.hierarchy)
    ends = targets_of(sharded).items()

    def stored_input(one: StepInput, array: Array) -> Array:
        return one.stored(sharded.padding.of(array, count) if sharded.padding else array, count)

    return [
        weights,
        {
            name: stored_input(one, data.inputs[one.sequence])
            for name, one in inputs_of(sharded)[0].items()
        },
        {name: stored_input(one, data.targets[name]) for name, one in ends},
    ]


def traffic(
    sharded: ShardedNetwork, moved: Iterable[Moved]
) -> tuple[tuple[ExchangeRow, ...], Fraction, Counter[int]]:
    """Return planned and compiled traffic, and two kinds of bytes outside its rows.

    Those are planned bytes that no weights' gradient needs, and the bytes of biases by level.
    """
    planned: defaultdict[tuple[int, str], Fraction] = defaultdict(Fraction)
    unused = Fraction()
    for exchange, moves in _needed_exchanges(sharded.by_level):
        planned[exchange.level, str(exchange.kind)] += moves
        unused += exchange.elements * ELEMENT_BYTES - moves
    compiled: Counter[tuple[int, str]] = Counter()
    for transfer in moved:
        compiled[transfer.level, _PLANNED.get(transfer.kind, transfer.kind)] += transfer.bytes
    of_biases = _bytes_of_biases(sharded)
    for level, size in of_biases.items():
        compiled[level, str(StepKind.ALL_REDUCE)] -= size
    rows = (
        ExchangeRow(None, kind, level + 1, None, None, json_number(planned[key]), compiled[key])
        for key in sorted(planned.keys() | compiled.keys())
        for level, kind in [key]
    )
    return tuple(rows), unused, of_biases


def _needed_exchanges(program: Program) -> Iterator[tuple[Collective, Fraction]]:
    """Yield a step's exchanges, each with the bytes that some weights' gradient needs."""
    needed = _Needed(program)
    for one in exchanges_of_step(program):
        yield one, needed.share(one) * one.elements * ELEMENT_BYTES


def _needed_bytes(program: Program) -> Fraction:
    return sum((moves for _, moves in _needed_exchanges(program)), Fraction())


def _bytes_of_biases(sharded: ShardedNetwork) -> Counter[int]:
    """Return the bytes by level that the gradients of biases move."""
    program, moved = sharded.by_level, Counter[int]()
    for position, layer in enumerate(sharded.network.layers):
        if layer.has_bias:
            bias = Extent(math.prod(layer.bias_shape(sharded.layer_maps[position])))
            for step in program.bias_steps(position + sharded.shared):
                moved[step.level] += step.moved(bias) * ELEMENT_BYTES
    return moved


class _Needed:
    """The exchanges that any weights' gradient depends on."""

    def __init__(self, program: Program) -> None:
        self._workload = workload = program.workload
        trained = [bool(weights) for weights in workload.weights]
        writers = workload.tensor_writers
        for edge in workload.boundaries:  # by their targets
            if edge.target >= workload.shared and not edge.weights:
                trained[edge.target] |= trained[writers.get(edge.source, edge.source)]
        for shared, writer in workload.tensor_writers.items():
            trained[shared] |= trained[writer]
        # Whether each node has weights, or reads anything that depends on weights.
        self._trained = trained
        again = workload.repeats.recomputed
        self._together = {node for node, first in again.items() if first is not None}
        self._again = read_by_backward(workload, again, fused=_WRITTEN, trained=tuple(trained))
        block_of = {node: block[0] for block in workload.repeats.blocks for node in block}
        self._by_op = recomputed_by_op(workload, block_of, fused=_WRITTEN, trained=trained)

    def share(self, exchange: Collective) -> Fraction:
        """Return the share of a repeated exchange that is needed: all, half or none.

        Half of a forward exchange if its layer is recomputed but no backward pass reads the result.
        """
        phase, _, tensor, *_ = exchange
        if phase is Phase.FORWARD and tensor != "weights":
            edge = (
                None if exchange.boundary is None else self._workload.boundaries[exchange.boundary]
            )
            passed_on = edge is not None and tensor == "output"
            node = edge.source if edge is not None and passed_on else exchange.node
            inputs = exchange.kind is StepKind.HALO or (edge is not None and not passed_on)
            word, needed = (
                table.get(node) for table in (self._workload.repeats.by_op, self._by_op)
            )
            if word == PASS or (word and inputs):
                return Fraction(1 + (needed is not None if inputs else needed == PASS), 2)
        if phase is Phase.FORWARD and tensor != "weights" and exchange.node in self._together:
            return Fraction(1 + self._is_needed_again(exchange), 2)
        return Fraction(phase is not Phase.BACKWARD or self._is_needed_back(exchange))

    def _is_needed_again(self, exchange: Collective) -> bool:
        node, workload = exchange.node, self._workload
        if node in self._again:
            return True
        # For the backward pass of the layer itself, if that reads its inputs.
        if node >= workload.shared and exchange.boundary is not None:
            source = workload.boundaries[exchange.boundary].source
            return reads_back(workload, node, source, self._trained)
        operator = workload.nodes[node].operator
        return (
            self._trained[node]
            and exchange.kind in _FOR_INPUTS
            and operator.saves(fused=_WRITTEN).inputs
        )

    def _is_needed_back(self, exchange: Collective) -> bool:
        edges, trained = self._workload.boundaries, self._trained
        if exchange.boundary is not None:
            return trained[edges[exchange.boundary].source]
        of_weights = exchange.tensor == "weights"
        if of_weights or exchange.kind in _FOR_INPUTS:  # for the error that it passes on
            runs_again = exchange.node in self._again or self._by_op.get(exchange.node) == PASS
            return (of_weights and runs_again) or any(
                trained[edge.source]
                for edge in edges
                if edge.target == exchange.node and not edge.weights
            )
        return trained[exchange.node]
