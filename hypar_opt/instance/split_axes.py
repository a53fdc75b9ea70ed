"""The axes that a layer's choices split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.workload.operators.axes import BATCH
from hypar_opt.workload.parallelism import CHOICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.table import Integers
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.tensors import Workload


def split_sizes(workload: Workload) -> Integers:
    """Return the size of the axis that each choice splits, ``(choices, nodes)``; 0 for none."""
    sizes = np.zeros((len(workload.choices), len(workload.nodes)), object)
    for position, node in enumerate(workload.nodes):
        for column, choice in enumerate(workload.choices_of_nodes[position]):
            if choice and choice.axis:
                sizes[column, position] = node.sizes[choice.axis]
    return sizes


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
