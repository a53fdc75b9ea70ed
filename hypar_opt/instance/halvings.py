"""The axes that a layer's choices halve, and how often they can without a remainder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.workload.operators.axes import BATCH
from hypar_opt.workload.parallelism import CHOICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.tensors import Workload


def halvings_of(workload: Workload, levels: int) -> NDArray[np.intp]:
    """Return how often each choice can split each node into equal parts: ``(choices, nodes)``.

    All levels, where a choice splits no axis.
    """
    halvings = np.full((len(workload.choices), len(workload.nodes)), levels)
    for position, node in enumerate(workload.nodes):
        for column, choice in enumerate(workload.choices_of_nodes[position]):
            if choice and choice.axis:
                size = node.sizes[choice.axis]
                # The lowest bit that is set: the largest power of two that divides it.
                halvings[column, position] = (size & -size).bit_length() - 1
    return halvings


def axes_of(layer: LayerTensors, choices: Sequence[str]) -> str:
    """Return the sizes of the axes that a layer's choices split, for a message."""
    splits = layer.operator.splits
    if layer.operator.contraction.contracted and len(splits) == len(CHOICES):
        channels = f"{layer.input[-1 if 't' in layer.sizes else 1]} in and"
        channels += f" {layer.output[-1 if 't' in layer.sizes else 1]} out"
        return f"its batch is {layer.sizes[BATCH]}, its channels {channels}"
    own = (splits[word] for word in choices if word in splits)
    sizes = (f"{layer.sizes[choice.axis]} {choice.part}s" for choice in own if choice.axis)
    return f"it has {', '.join(sizes)}"
