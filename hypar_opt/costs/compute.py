"""What an accelerator does and touches by itself: multiply-accumulates and local words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.workload.tensors import MOST_CHOICES, Lacking

if TYPE_CHECKING:
    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.workload.tensors import LayerTensors, Workload

Sizes = Mapping[str, tuple[int, int]]
NO_SIZES: Sizes = MappingProxyType({})


def layer_macs(
    workload: Workload, accelerator: Accelerator, input_sizes: Sizes = NO_SIZES
) -> list[int]:
    """Return each layer's multiply-accumulates of one pass over the batch.

    Counted over the output, or, as the paper does (``mac_count = "input"``), over the input,
    ``B * K * K * C_in * C_out * H_in * W_in``, which ignores stride and padding.

    Parameters
    ----------
    input_sizes
        ``{layer: (height, width)}`` to count with in place of the network's own: the authors
        counted AlexNet with others.

    Source: docs/simulator.md.
    """
    if accelerator.mac_count == "output":
        return [layer.macs for layer in workload.layers]
    return [
        workload.batch
        * math.prod(layer.weight)
        * math.prod(input_sizes.get(layer.name, _positions(layer)))
        for layer in workload.layers
    ]


def _positions(layer: LayerTensors) -> tuple[int, ...]:
    return layer.input[2:]


def copies(workload: Workload, counts: Integers) -> Lacking:
    """Return how often all accelerators together have each tensor, as an exponent of 2.

    A level at which a layer's choice halves none of a tensor's axes leaves it whole on both
    sides. For convolutions and fully-connected layers the input has 2^o copies, the weights
    2^d, and the output 2^m.

    Parameters
    ----------
    counts : (choices, layers)
        How often each layer takes each choice.

    Returns
    -------
    Lacking
        Of the input, the weights and the output, each ``(layers,)`` Python integers.
    """
    lacking = workload.lacking(len(counts))
    return Lacking(*((counts.astype(object) * lacks).sum(axis=0) for lacks in lacking))


def local_words(workload: Workload, counts: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the words of each layer's weights, input and output, in all accelerators together.

    Each has W / 2^(m+o), its input A / 2^(d+m) and its output after pooling F / 2^(d+o), and
    each pass touches them once. Times 2^(d+m+o) accelerators these are whole numbers.

    Parameters
    ----------
    counts : (choices, layers)
        Each layer's choices over all levels.

    Source: docs/simulator.md.
    """
    weights, inputs, pooled = (
        np.array(sizes, object) for sizes in (workload.weights, workload.inputs, workload.pooled)
    )
    doubled = copies(workload, counts)
    return weights << doubled.weight, inputs << doubled.input, pooled << doubled.output


def memory_load(workload: Workload, counts: Integers, problem: ProblemFields) -> Integers:
    """Return what each layer takes of an accelerator's memory, in bytes times 2^levels.

    Its shard is W / 2^(m+o) weights, as many gradients and the optimizer's state for each;
    A / 2^(d+m) of its input and F' / 2^(d+o) of its output before pooling, feature map and
    error of both. Inference has neither gradients, errors nor state. Times 2^levels all are
    whole numbers, of fewer choices than levels too.

    Parameters
    ----------
    counts : (choices, layers)
        Each layer's choices, at most the problem's levels together.
    problem
        For its levels, its element's bytes, whether it is inference, and the optimizer.
    """
    element_bytes = problem.element_bytes
    weights, inputs, outputs = (
        np.array(sizes, object) for sizes in (workload.weights, workload.inputs, workload.outputs)
    )
    # Levels that have not chosen yet could still halve every tensor: they count as copies.
    undecided = problem.levels - counts.astype(object).sum(axis=0)
    doubled = Lacking(*(exponent + undecided for exponent in copies(workload, counts)))
    shard = weights << doubled.weight
    maps = (inputs << doubled.input) + (outputs << doubled.output)
    load: Integers = element_bytes * (shard + maps)
    if not problem.inference:
        load = 2 * load + problem.constraints.optimizer_bytes(element_bytes) * shard
    return load


@dataclass(frozen=True)
class Work:
    """Seconds that each layer's pass takes on an accelerator, of 2^levels alike.

    Compute runs beside the DRAM, and the slower binds. Every choice halves a layer's
    multiply-accumulates, so their time is the same for all; the words are not.
    """

    accelerator: Accelerator
    levels: int
    element_bytes: int = 4
    input_sizes: Sizes = field(default_factory=lambda: NO_SIZES)

    def computing(self, workload: Workload) -> list[Fraction]:
        """Return the seconds of each layer's multiply-accumulates."""
        macs = layer_macs(workload, self.accelerator, self.input_sizes)
        return [
            Fraction(count, 2**self.levels) / self._macs_per_second(layer)
            for count, layer in zip(macs, workload.layers, strict=True)
        ]

    def loading(self, workload: Workload, counts: Integers) -> list[Fraction]:
        """Return the seconds in which the DRAM delivers each layer's words."""
        per_second = self.accelerator.dram_bandwidth * 2**self.levels
        weights, inputs, outputs = local_words(workload, counts)
        words = weights + inputs + outputs
        return [self.element_bytes * count / per_second for count in words]

    def seconds(self, workload: Workload, counts: Integers) -> list[Fraction]:
        """Return the seconds of each layer's pass, by its choices over all levels."""
        pairs = zip(self.computing(workload), self.loading(workload, counts), strict=True)
        return [max(pair) for pair in pairs]

    def bound_by_memory(self, workload: Workload, counts: Integers) -> list[str]:
        """Return the layers whose DRAM takes longer than their compute."""
        names = [layer.name for layer in workload.layers]
        times = zip(self.loading(workload, counts), self.computing(workload), strict=True)
        return [name for name, (load, work) in zip(names, times, strict=True) if load > work]

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return seconds that no pass takes, all layers together."""
        slowest = Fraction()
        for choice in range(MOST_CHOICES):  # words are the most where all levels take one choice
            counts: Integers = np.zeros((MOST_CHOICES, len(workload.layers)), object)
            counts[choice] = self.levels
            slowest += sum(self.loading(workload, counts))
        return slowest + sum(self.computing(workload))

    def _macs_per_second(self, layer: LayerTensors) -> Fraction:
        # A row of processing units does a kernel's rows, a column an output's: 1 without either.
        rows, outputs = layer.sizes.get("k", 1), layer.sizes.get("p", 1)
        return self.accelerator.macs_per_second(rows, outputs)
