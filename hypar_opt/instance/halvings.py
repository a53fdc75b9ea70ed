"""The axes that a layer's choices halve, and how often they can without a remainder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.workload.operators.axes import BATCH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.tensors import Workload


def halvings_of(workload: Workload, choices: int, levels: int) -> NDArray[np.intp]:
    """Return how often each choice can split each node into equal parts: ``(choices, nodes)``.

    All levels, where a choice splits no axis.
    """
    halvings = np.full((choices, len(workload.nodes)), levels)
    for position, node in enumerate(workload.nodes):
        for column, choice in enumerate(node.operator.splits[:choices]):
            if choice.axis:
                size = node.sizes[choice.axis]
                # The lowest bit that is set: the largest power of two that divides it.
                halvings[column, position] = (size & -size).bit_length() - 1
    return halvings


def axes_of(layer: LayerTensors, columns: int) -> str:
    """Return the sizes of the axes that a layer's choices halve, for a message."""
    if layer.operator.contraction.contracted and len(layer.operator.splits) == 3:
        channels = f"{layer.input[-1 if 't' in layer.sizes else 1]} in and"
        channels += f" {layer.output[-1 if 't' in layer.sizes else 1]} out"
        return f"its batch is {layer.sizes[BATCH]}, its channels {channels}"
    splits = [choice for choice in layer.operator.splits[:columns] if choice.axis]
    sizes = (f"{layer.sizes[choice.axis]} {choice.part}s" for choice in splits)
    return f"it has {', '.join(sizes)}"
