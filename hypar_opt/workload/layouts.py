"""The layouts of nodes' operands and outputs under each choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.workload.operators.axes import (
    BY_BATCH,
    BY_CHANNEL,
    DATA_CHOICE,
    PARTIAL,
    WHOLE,
    Choice,
    operand_layout,
    output_layout,
)
from hypar_opt.workload.operators.words import choices_of

if TYPE_CHECKING:
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.operators.axes import Axes, Contraction


class Layouts(NamedTuple):
    """The layouts that each choice needs and produces, as positions in ``names``.

    Positions below `FIRST_SPLIT` are unsplit: each part has a replica of the whole tensor, or an
    addend of it. A choice that a kind of layer lacks has the layouts of data parallelism; see
    `Workload.forbidden`.

    Parameters
    ----------
    names
        The layouts.
    inputs : (operands, choices, nodes)
        The layout of each operand.
    weight, output, statistics : (choices, nodes)
        The layouts of the weights, of the output, and of a norm's statistics.
    """

    names: tuple[str, ...]
    inputs: NDArray[np.intp]
    weight: NDArray[np.intp]
    output: NDArray[np.intp]
    statistics: NDArray[np.intp]

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Choices that split nothing: ``(choices, nodes)``."""
        whole: NDArray[np.bool_] = self.output == 0
        return whole

    @property
    def addends(self) -> NDArray[np.bool_]:
        """Choices that read partial sums and leave partial sums: ``(choices, nodes)``."""
        addends: NDArray[np.bool_] = self.inputs[0] == 1
        return addends


NAMES = (WHOLE, PARTIAL, BY_BATCH, BY_CHANNEL)
FIRST_SPLIT = 2
"""Positions of layouts: from this one on the tensor is split."""


def choices_of_nodes(
    nodes: Sequence[LayerTensors], choices: Sequence[str], *, may_be_whole: bool
) -> tuple[tuple[Choice | None, ...], ...]:
    """Return what each node splits under each choice of a problem; None for a choice that it lacks.

    Parameters
    ----------
    may_be_whole
        Whether a choice may split nothing.
    """
    # Layers of a kind share one mapping, and so their choices.
    keys = [(id(node.operator.splits), node.lacked) for node in nodes]
    choices_by_key = {
        key: tuple(
            c if c and node.has(c, may_be_whole=may_be_whole) else None
            for c in choices_of(node, choices)
        )
        for key, node in dict(zip(keys, nodes, strict=True)).items()
    }
    return tuple([choices_by_key[key] for key in keys])


def layouts_of(
    nodes: Sequence[LayerTensors],
    choices_of_nodes: Sequence[tuple[Choice | None, ...]],
    operands: int,
) -> Layouts:
    """Return the layouts of nodes, given what each splits under each choice of a problem.

    Parameters
    ----------
    operands
        The largest number of operands of a node.
    """
    numbers = {name: number for number, name in enumerate(NAMES)}
    shape = (len(choices_of_nodes[0]), len(nodes))
    data = numbers[operand_layout((), DATA_CHOICE)]
    inputs = np.full((operands, *shape), data)
    weight, output, statistics = np.full((3, *shape), data)
    groups: dict[tuple[Contraction, Axes, tuple[Choice | None, ...], int], list[int]] = {}
    for position, (node, choices) in enumerate(zip(nodes, choices_of_nodes, strict=True)):
        key = (node.operator.axes, node.operator.statistics.axes, choices, len(node.further_inputs))
        groups.setdefault(key, []).append(position)
    for (contraction, summed, choices, extra), positions in groups.items():
        read = contraction.read(1 + extra, operands)
        for column, choice in enumerate(choices):
            if choice is None:
                continue
            tensors = [
                *zip(inputs, (operand_layout(axes, choice) for axes in read), strict=True),
                (weight, operand_layout(contraction.weight, choice)),
                (output, output_layout(contraction.output, choice)),
                (statistics, output_layout(summed, choice)),
            ]
            for laid_out, layout in tensors:
                laid_out[column, positions] = numbers.setdefault(layout, len(numbers))
    return Layouts(tuple(numbers), inputs, weight, output, statistics)
