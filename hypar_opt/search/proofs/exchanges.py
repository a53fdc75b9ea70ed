"""The exchanges of layers at one level, pass by pass, in quarters of an element.

With d data, m model and o output choices of a layer above a level of 2^h groups, h their sum,
all groups together have W * 2^d of its weights, F * 2^m of its output and A * 2^o of its
input: integers, even where a size is odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import CheckFailedError

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

Counts = tuple[int, ...]
"""How often a layer makes each choice at the levels above."""

Matrix = tuple[tuple[int, ...], ...]
"""A charge for each pair of choices, the earlier layer's first."""


class Pass(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    GRADIENT = "gradient"


class Split(NamedTuple):
    """The effect of a choice: the size of the axis that it halves, and each tensor's layout."""

    size: int
    """The size of the axis that is halved."""
    input: str
    """The axis of which each side reads half, ``batch`` or ``channel``; or ``whole``."""
    output: str
    """The axis of which each side writes half, ``batch`` or ``channel``; or ``partial``."""
    keeps_weights: bool
    """Whether both sides have all weights, and so partial sums of their gradient."""


@dataclass(frozen=True)
class Layer:
    """One layer: its tensors in elements, of the whole batch.

    Parameters
    ----------
    weights, inputs, outputs, pooled
        W, A of the boundary before it, and its output before (F') and after pooling (F).
    macs, macs_by_input
        Multiply-accumulates of a pass, over the output or, as the paper counts, the input.
    splits
        The effect of each choice of its kind.
    kernel_rows, output_rows
        1 of a layer without a kernel.
    """

    name: str
    weights: int
    inputs: int
    outputs: int
    pooled: int
    macs: int
    macs_by_input: int
    splits: tuple[Split, ...]
    kernel_rows: int = 1
    output_rows: int = 1

    def copies(self, counts: Sequence[int]) -> Copies:
        """Return the number of copies of each tensor in the array, as exponents of 2."""
        chosen = list(zip(self.splits, counts, strict=False))
        return Copies(
            weights=sum(count for split, count in chosen if split.keeps_weights),
            inputs=sum(count for split, count in chosen if split.input == "whole"),
            outputs=sum(count for split, count in chosen if split.output == "partial"),
        )


class Copies(NamedTuple):
    """Exponents of 2, for each of a layer's tensors."""

    weights: int
    inputs: int
    outputs: int


def layers_of(plan: Plan) -> tuple[Layer, ...]:
    """Return the layers of a chain; the boundary before each is its input.

    A kind of layer declares its axes and the one that each choice halves; all else is derived
    here.
    """
    network, batch = plan.network.description, plan.batch
    layers = []
    for described, maps in zip(network.layers, network.maps(), strict=True):
        read, weight, written = described.contraction
        # Declarations are shared with the search: they are the network's description. What follows
        # from them is derived here a second time.
        sizes = {"b": batch, **described.sizes(maps)}
        kernel = prod(sizes[axis] for axis in weight)
        splits = []
        for choice in described.choices:
            part = "batch" if choice.axis == "b" else "channel"
            splits.append(
                Split(
                    sizes[choice.axis],
                    input=part if choice.axis in read else "whole",
                    output=part if choice.axis in written else "partial",
                    keeps_weights=choice.axis not in weight,
                )
            )
        layers.append(
            Layer(
                described.name,
                weights=kernel,
                inputs=prod(sizes[axis] for axis in read),
                outputs=prod(sizes[axis] for axis in written),
                pooled=batch * maps.pooled.elements,
                macs=prod(sizes[axis] for axis in {*weight, *written}),
                macs_by_input=batch * kernel * prod(sizes[axis] for axis in read[2:]),
                splits=tuple(splits),
                kernel_rows=sizes.get("k", 1),
                output_rows=sizes.get("p", 1),
            )
        )
    return tuple(layers)


@dataclass(frozen=True)
class ReadingFactors:
    """The factors of a reading in quarters of an element, both directions added.

    Parameters
    ----------
    gradient
        dW of a layer in data parallelism: an all-reduce.
    forward_sum, backward_sum
        The output of a layer in model parallelism: all-reduced forward, or, where
        ``scattered``, reduce-scattered before pooling forward, its error gathered backward.
    feature_map, error
        A boundary between a split by batch and one by channel, dp-mp say, on A: forward and
        backward.
    behind_model
        A boundary behind partial sums, mp-mp and mp-dp, on A: backward.
    input_error
        An input that is read whole, backward: an all-reduce. None if the reading has no charge
        for such a choice.
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


READINGS: Mapping[str, ReadingFactors] = MappingProxyType(
    {
        "tables": ReadingFactors(4, 4, 0, 1, 1, 2, input_error=4, of_network_input=True),
        "text": ReadingFactors(8, 8, 0, 1, 1, 2, input_error=8),
        "figures": ReadingFactors(8, 8, 0, 2, 2, 0),
        "executed": ReadingFactors(8, 4, 4, 2, 2, 0, scattered=True),
    }
)


class Reduction(NamedTuple):
    """An exchange of partial sums in one pass, caused by a layer's own choice."""

    choice: int
    step: Pass
    tensor: str
    """The field of `Copies` that counts it."""
    quarters: int
    all_reduce: bool


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of a plan's problem at a level above which nothing is split.

    Parameters
    ----------
    choices
        2, or 3 with output parallelism.
    reductions
        Those of each layer.
    conversions
        For each boundary, a matrix for each pass that moves anything: the quarters of an
        element of A for each pair of choices.
    """

    choices: int
    layers: tuple[Layer, ...]
    reductions: tuple[tuple[Reduction, ...], ...]
    conversions: tuple[tuple[Matrix, ...], ...]

    def reduced(self, layer: int, counts: Counts) -> list[tuple[Reduction, int]]:
        """Return a layer's reductions and the quarters that each moves, given the choices above."""
        copies = self.layers[layer].copies(counts)
        return [
            (reduction, reduction.quarters << getattr(copies, reduction.tensor))
            for reduction in self.reductions[layer]
        ]

    def over_levels(self, layer: int, reduction: Reduction, state: Sequence[int]) -> int:
        """Return the quarters that a reduction moves over all levels with its choice."""
        quarters = 0
        for level, choice in enumerate(state):
            if choice == reduction.choice:
                above = [state[:level].count(other) for other in range(self.choices)]
                copies = self.layers[layer].copies(above)
                quarters += reduction.quarters << getattr(copies, reduction.tensor)
        return quarters

    def boundary(self, position: int, target: Counts) -> int:
        """Return the elements of a boundary's A in all groups together, as its target reads it."""
        layer = self.layers[position + 1]
        return layer.inputs << layer.copies(target).inputs

    @property
    def separable(self) -> bool:
        """Whether a choice's charge at a level depends only on that choice's own count above."""
        return not any(
            any(split.input == "whole" for split in layer.splits[: self.choices])
            or all(split.keeps_weights for split in layer.splits[: self.choices])
            or all(split.output == "partial" for split in layer.splits[: self.choices])
            for layer in self.layers
        )


def exchanges_of(plan: Plan) -> Exchanges:
    """Return the exchanges of a plan's problem.

    Raises
    ------
    CheckFailedError
        If its reading is unknown, or has no charge for one of its choices.
    """
    reading = READINGS.get(plan.cost.reading)
    choices = len(plan.choices)
    layers = layers_of(plan)
    reads_whole = (split.input == "whole" for layer in layers for split in layer.splits[:choices])
    if reading is None or (any(reads_whole) and reading.input_error is None):
        raise CheckFailedError(
            f"cost, reading: {plan.cost.reading!r} charges nothing for the choices"
            f" {', '.join(plan.choices)}"
        )
    passes = (Pass.FORWARD,) if plan.inference else tuple(Pass)
    reductions = []
    for position, layer in enumerate(layers):
        # No layer reads the error of the network's input; AccPar charges it by convention.
        is_fed = position > 0 or reading.of_network_input
        charged = _reductions(reading, layer, choices, is_fed=is_fed)
        reductions.append(tuple(r for r in charged if r.step in passes and r.quarters))
    conversions = []
    for source, target in pairwise(layers):
        matrices = [_conversions(reading, step, source, target, choices) for step in passes]
        conversions.append(tuple(pairs for pairs in matrices if any(map(any, pairs))))
    return Exchanges(choices, layers, tuple(reductions), tuple(conversions))


def _reductions(
    reading: ReadingFactors, layer: Layer, choices: int, *, is_fed: bool
) -> Iterator[Reduction]:
    """Yield the reductions of each choice of a layer: Table 1, and AccPar's Type III.

    Those of 0 quarters are among them.
    """
    # A program reduces partial sums before the activation and the pool; the paper counts the pooled
    # map.
    output = layer.outputs if reading.scattered else layer.pooled
    forward, backward = reading.forward_sum * output, reading.backward_sum * output
    error = (reading.input_error or 0) * layer.inputs if is_fed else 0
    for choice, split in enumerate(layer.splits[:choices]):
        if split.keeps_weights:
            gradient = reading.gradient * layer.weights
            yield Reduction(choice, Pass.GRADIENT, "weights", gradient, True)
        if split.output == "partial":
            yield Reduction(choice, Pass.FORWARD, "outputs", forward, not reading.scattered)
            yield Reduction(choice, Pass.BACKWARD, "outputs", backward, False)
        if split.input == "whole":
            yield Reduction(choice, Pass.BACKWARD, "inputs", error, True)


def _conversions(
    reading: ReadingFactors, step: Pass, source: Layer, target: Layer, choices: int
) -> Matrix:
    """Return the quarters of an element of A for each pair of choices: Table 2, and AccPar's."""
    quarters = {
        Pass.FORWARD: {
            ("batch", "channel"): reading.feature_map,
            ("channel", "batch"): reading.feature_map,
            ("batch", "whole"): 2,
            ("channel", "whole"): 2,
        },
        Pass.BACKWARD: {
            ("batch", "channel"): reading.error,
            ("channel", "batch"): reading.error,
            ("partial", "channel"): reading.behind_model,
            ("partial", "batch"): reading.behind_model,
        },
    }.get(step, {})

    def converted(written: int, read: int) -> int:
        if written >= len(source.splits) or read >= len(target.splits):
            return 0  # a choice that the kind does not have
        return quarters.get((source.splits[written].output, target.splits[read].input), 0)

    columns = range(choices)
    return tuple(tuple(converted(written, read) for read in columns) for written in columns)
