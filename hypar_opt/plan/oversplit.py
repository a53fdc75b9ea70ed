"""Axes that a plan splits below one image or one channel."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan


def oversplit_warnings(plan: Plan) -> list[str]:
    """Return a warning for each axis that a plan splits below one image or one channel.

    The model splits exactly, also below one image or channel; a program cannot.
    """
    at_once = plan.batch // (plan.training.micro_batches or 1)
    workload = workload_of(plan.network.description, at_once, plan.choices)
    rows = np.array(plan.assignments(), np.intp).reshape(plan.levels, len(workload.layers))
    split: dict[str, list[tuple[str, int, int]]] = {"image": []}
    choices = workload.choices_of_nodes[workload.shared :]
    for position, layer in enumerate(workload.layers):
        for column, choice in enumerate(choices[position]):
            if choice is None or not choice.axis:
                continue
            size, levels = layer.sizes[choice.axis], np.flatnonzero(rows[:, position] == column)
            parts, count = split.setdefault(choice.part, []), plan.hierarchy.parts(levels)
            if count > size:
                parts.append((layer.name, size, count))
    sentences = []
    for part, too_many_parts in split.items():
        if too_many_parts:
            # The layer with the smallest fraction of an index to a part is the example.
            name, size, count = max(too_many_parts, key=lambda row: Fraction(row[2], row[1]))
            layers = f"{len(too_many_parts)} layers" if len(too_many_parts) > 1 else "1 layer"
            available = f"{size} {part}s" if size > 1 else f"1 {part}"
            sentences.append(
                f"splits {layers} below one {part}: {name} has {available} for {count:,} parts"
            )
    return sentences
