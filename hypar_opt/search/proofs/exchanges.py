"""What layers exchange at one level, pass by pass, in quarters of an element.

With d data, m model and o output choices of a layer above a level of 2^h groups, h their sum,
all groups together have W * 2^d of its weights, F * 2^m of its output and A * 2^o of its
input: exact, of odd sizes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import CheckFailedError
from hypar_opt.workload.parallelism import DATA, MODEL, OUTPUT

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network

Counts = tuple[int, ...]
"""How often a layer takes each choice at the levels above."""

Matrix = tuple[tuple[int, ...], ...]
"""A number for each pair of choices, the earlier layer's first."""


class Pass(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    GRADIENT = "gradient"


@dataclass(frozen=True)
class Layer:
    """One weighted layer: its tensors in elements, of the whole batch.

    Parameters
    ----------
    weights, inputs, outputs, pooled
        W, A of the boundary before it, and its output before (F') and after pooling (F).
    input_channels, output_channels
        Of the kernel; features and units of a fully-connected layer.
    input_positions, output_positions
        Height times width, before pooling; 1 of a fully-connected layer.
    kernel_rows, output_rows
        1 of a fully-connected layer.
    """

    name: str
    weights: int
    inputs: int
    outputs: int
    pooled: int
    input_channels: int
    output_channels: int
    input_positions: int = 1
    output_positions: int = 1
    kernel_rows: int = 1
    output_rows: int = 1


def layers_of(network: Network, batch: int) -> tuple[Layer, ...]:
    """Return the layers of a chain; the boundary before each is its input."""
    found = []
    for layer, (read, output, pooled) in zip(network.layers, network.maps(), strict=True):
        maps = batch * read.elements, batch * output.elements, batch * pooled.elements
        if layer.kind == "fc":
            channels = read.elements, layer.units
            found.append(Layer(layer.name, channels[0] * channels[1], *maps, *channels))
            continue
        rows, columns = layer.kernel
        channels = read.channels, layer.filters
        found.append(
            Layer(
                layer.name,
                rows * columns * channels[0] * channels[1],
                *maps,
                *channels,
                input_positions=read.height * read.width,
                output_positions=output.height * output.width,
                kernel_rows=rows,
                output_rows=output.height,
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class Reading:
    """Quarters of an element that one reading charges, both directions added.

    Parameters
    ----------
    gradient
        dW of a layer in data parallelism: an all-reduce.
    forward_sum, backward_sum
        The output of a layer in model parallelism: all-reduced forward, or, where
        ``scattered``, reduce-scattered before pooling forward, its error gathered backward.
    feature_map, error
        dp-mp, on A: forward and backward.
    behind_model
        mp-mp and mp-dp, on A: backward.
    input_error
        The input of a layer in output parallelism, backward: an all-reduce. None where the
        reading knows no such choice.
    of_network_input
        Whether that is charged for the network's first layer too.

    Source: Tables 1 and 2, section 3.4; docs/model.md.
    """

    gradient: int
    forward_sum: int
    backward_sum: int
    feature_map: int
    error: int
    behind_model: int
    input_error: int | None = None
    of_network_input: bool = False
    scattered: bool = False


READINGS: Mapping[str, Reading] = MappingProxyType(
    {
        "tables": Reading(4, 4, 0, 1, 1, 2, input_error=4, of_network_input=True),
        "text": Reading(8, 8, 0, 1, 1, 2, input_error=8),
        "figures": Reading(8, 8, 0, 2, 2, 0),
        "executed": Reading(8, 4, 4, 2, 2, 0, scattered=True),
    }
)


class Reduction(NamedTuple):
    """What a layer's own choice makes it exchange in one pass, of whole tensors."""

    choice: int
    step: Pass
    quarters: int
    all_reduce: bool


@dataclass(frozen=True)
class Exchanges:
    """What a plan's problem exchanges, before any level has split anything.

    Parameters
    ----------
    choices
        2, or 3 with output parallelism.
    reductions
        Of each layer.
    conversions
        In each pass that moves any, the quarters of an element of A for each pair of choices.
    boundaries
        Elements of A between each layer and the next.
    """

    choices: int
    reductions: tuple[tuple[Reduction, ...], ...]
    conversions: Mapping[Pass, Matrix]
    boundaries: tuple[int, ...]

    def reduced(self, layer: int, counts: Counts) -> list[tuple[Reduction, int]]:
        """Return a layer's reductions, and the quarters that each moves below those choices."""
        return [
            (reduction, reduction.quarters << counts[reduction.choice])
            for reduction in self.reductions[layer]
        ]

    def boundary(self, place: int, target: Counts) -> int:
        """Return the elements of A that all groups together have: whole 2^o times."""
        return self.boundaries[place] << (target[OUTPUT] if self.choices > OUTPUT else 0)


def exchanges_of(plan: Plan, layers: tuple[Layer, ...]) -> Exchanges:
    """Return what a plan's problem exchanges.

    Raises
    ------
    CheckFailedError
        If its reading is unknown, or does not know one of its choices.
    """
    reading = READINGS.get(plan.cost.reading)
    choices = len(plan.choices)
    if reading is None or (choices > OUTPUT and reading.input_error is None):
        raise CheckFailedError(
            f"cost, reading: {plan.cost.reading!r} charges nothing for the choices"
            f" {', '.join(plan.choices)}"
        )
    passes = (Pass.FORWARD,) if plan.inference else tuple(Pass)
    reductions = []
    for place, layer in enumerate(layers):
        output = layer.outputs if reading.scattered else layer.pooled
        input_error = reading.input_error or 0
        if place == 0 and not reading.of_network_input:
            input_error = 0
        charged = [
            Reduction(DATA, Pass.GRADIENT, reading.gradient * layer.weights, True),
            Reduction(MODEL, Pass.FORWARD, reading.forward_sum * output, not reading.scattered),
            Reduction(MODEL, Pass.BACKWARD, reading.backward_sum * output, False),
            Reduction(OUTPUT, Pass.BACKWARD, input_error * layer.inputs, True),
        ]
        reductions.append(
            tuple(r for r in charged if r.step in passes and r.quarters and r.choice < choices)
        )
    conversions = {step: _conversions(reading, step, choices) for step in passes}
    return Exchanges(
        choices,
        tuple(reductions),
        {step: pairs for step, pairs in conversions.items() if any(map(any, pairs))},
        tuple(layer.inputs for layer in layers[1:]),
    )


def _conversions(reading: Reading, step: Pass, choices: int) -> Matrix:
    """Return the quarters of an element of A for each pair of choices: Table 2, and AccPar's."""
    pairs = {
        Pass.FORWARD: {
            (DATA, MODEL): reading.feature_map,
            (DATA, OUTPUT): 2,
            (OUTPUT, OUTPUT): 2,
            (OUTPUT, DATA): 1,
        },
        Pass.BACKWARD: {
            (DATA, MODEL): reading.error,
            (MODEL, MODEL): reading.behind_model,
            (MODEL, DATA): reading.behind_model,
            (OUTPUT, DATA): 1,
        },
    }.get(step, {})
    every = range(choices)
    return tuple(tuple(pairs.get((source, target), 0) for target in every) for source in every)
