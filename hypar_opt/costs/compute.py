"""Work within an accelerator: multiply-accumulates, local words and memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.physical import rounded_half_even
from hypar_opt.frozen import FrozenDict
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.integers import exact_dtype
from hypar_opt.sharding.repetitions import passes_of
from hypar_opt.step.states import added_up, copies
from hypar_opt.step.uneven import (
    most_stretched,
    split_sizes,
    stretched,
    stretches_of,
)
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.recomputation import repeated
from hypar_opt.workload.repeats import ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.sharding.passes import Phase
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.tensors import Workload

Sizes = Mapping[str, tuple[int, int]]
NO_SIZES: Sizes = FrozenDict()


def layer_macs(
    workload: Workload, accelerator: Accelerator, input_sizes: Sizes = NO_SIZES
) -> list[int]:
    """Return each layer's multiply-accumulates of one pass over the batch.

    They are counted over the output, or with ``mac_count = "input"`` over the input, as in the
    paper: ``B * K * K * C_in * C_out * H_in * W_in``, which ignores stride and padding.

    Parameters
    ----------
    input_sizes
        ``{layer: (height, width)}`` that replace the network's own. The paper's times of AlexNet
        need those of the authors' later network file.

    Source: docs/simulator.md.
    """
    if accelerator.mac_count == "output":
        return [layer.macs for layer in workload.nodes]
    return [
        workload.batch
        * math.prod(layer.weight)
        * math.prod(input_sizes.get(layer.name, _positions(layer)))
        if layer.macs and layer.weight
        else layer.macs
        for layer in workload.nodes
    ]


def _positions(layer: LayerTensors) -> tuple[int, ...]:
    """Return the height and width of a layer's input, or its tokens; nothing for a vector."""
    return tuple(layer.sizes[axis] for axis in ("t", "h", "w") if axis in layer.sizes)


def local_words(
    workload: Workload, nodes: Indices, states: States, hierarchy: Hierarchy
) -> tuple[Integers, Integers, Integers]:
    """Return the words of nodes' weights, input and output, in all accelerators together.

    An accelerator has its shards of the weights, of the input and of the output after pooling, and
    each pass touches them once. Multiplied by the number of accelerators these are integers.

    Source: docs/simulator.md.
    """
    weights, *inputs, pooled = (
        sizes[nodes] * copies(lacks, nodes, states, hierarchy)
        for sizes, lacks in local_tensors(workload, hierarchy)
    )
    return weights, added_up(inputs), pooled


def local_tensors(
    workload: Workload, hierarchy: Hierarchy
) -> list[tuple[Integers, NDArray[np.bool_]]]:
    """Return the elements of nodes' weights, operands and output, and which choices replicate them.

    Elements are integers that hold the copies of all accelerators.

    Returns
    -------
    list of (elements, lacks)
        ``(nodes,)`` and ``(choices, nodes)``.
    """
    dtype = exact_dtype(workload.elements * hierarchy.accelerators)
    layouts = workload.layouts
    sizes = (workload.weights, *workload.operand_sizes, workload.pooled)
    return [
        (np.array(elements, dtype), numbers < FIRST_SPLIT)
        for elements, numbers in zip(
            sizes, (layouts.weight, *layouts.inputs, layouts.output), strict=True
        )
    ]


def memory_load(workload: Workload, parts: Integers, problem: ProblemFields) -> Integers:
    """Return each layer's share of an accelerator's memory, in bytes of all accelerators together.

    An accelerator holds its part of the weights, as many gradients and the optimizer's state for
    each; of the input, and of the output before pooling, feature map and error of both. Inference
    has no gradients, errors or state. Multiplied by the number of accelerators these are integers,
    also for states of fewer levels: at the other levels each part has a copy.

    Parameters
    ----------
    parts : (choices, layers)
        Into how many parts each layer's choices split it, at most the accelerators together.
    problem
        Its levels, element bytes, optimizer, and whether it is inference, are used.
    """
    element_bytes = problem.element_bytes
    accelerators = problem.hierarchy.accelerators
    each = 2 * element_bytes + problem.constraints.optimizer_bytes(element_bytes)
    dtype = exact_dtype(each * workload.elements * accelerators)
    parts = parts.astype(dtype)
    undecided = accelerators // parts.prod(axis=0)

    def held(elements: tuple[int, ...], numbers: NDArray[np.intp]) -> Integers:
        copied = np.where(numbers < FIRST_SPLIT, parts, 1).prod(axis=0)
        load: Integers = np.array(elements, dtype) * copied * undecided
        return load

    return load_of(workload, problem, held).astype(object)


def load_of(
    workload: Workload,
    problem: ProblemFields,
    held: Callable[[tuple[int, ...], NDArray[np.intp]], Integers],
) -> Integers:
    """Return the bytes of memory of what `held` counts: the elements of each layer's tensor.

    It is given a tensor's elements by node, and the layouts of the tensor by choice and node.
    """
    layouts, element_bytes = workload.layouts, problem.element_bytes
    shard = held(workload.stored, layouts.weight)
    maps = held(workload.outputs, layouts.output)
    for elements, numbers in zip(workload.operand_sizes, layouts.inputs, strict=True):
        maps = maps + held(elements, numbers)
    load: Integers = element_bytes * (shard + maps)
    if not problem.inference:
        # Gradients are as large as weights, and errors as feature maps.
        load = 2 * load + problem.constraints.optimizer_bytes(element_bytes) * shard
    return load


@dataclass(frozen=True)
class Work:
    """The seconds of each layer's pass on one of a hierarchy's equal accelerators.

    Compute overlaps with DRAM traffic, and the slower of the two counts.

    Parameters
    ----------
    longest
        Whether a pass lasts as long as on the accelerator with most of a layer, where an axis is
        not divided evenly. Otherwise it is divided exactly, as in the paper.

    Source: docs/simulator.md.
    """

    accelerator: Accelerator
    hierarchy: Hierarchy
    element_bytes: int = 4
    input_sizes: Sizes = field(default_factory=lambda: NO_SIZES)
    longest: bool = False

    @property
    def _dram_bandwidth(self) -> Fraction:
        """The bytes per second of all accelerators together."""
        return self.accelerator.dram_bandwidth * self.hierarchy.accelerators

    def passes(
        self, workload: Workload, states: States, phases: Sequence[Phase]
    ) -> dict[Phase, list[Fraction]]:
        """Return the seconds of each layer's passes, exactly, given its state at all levels.

        All passes are alike.
        """
        nodes = np.arange(len(workload.nodes))
        operations = self._operations(workload, nodes, states).tolist()
        # Words are those of all accelerators, whose DRAMs work in parallel.
        words = added_up(self._words(workload, nodes, states)).tolist()
        each = self._seconds_of_macs(workload)
        slower = [
            max(
                count * own / self.hierarchy.accelerators,
                self.element_bytes * moved / self._dram_bandwidth,
            )
            for count, own, moved in zip(operations, each, words, strict=True)
        ]
        return dict.fromkeys(phases, slower)

    def charges(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int,
        phases: Sequence[Phase],
    ) -> Integers:
        """Return the time of nodes' passes as integers of ``1 / per_second``, rounded half to even.

        Parameters
        ----------
        states
            Over all levels.
        phases
            The passes of a step, which repeats them as the workload says.
        """
        return added_up(
            [
                times * reduce(np.maximum, linear)
                for times, linear in self.each_pass(workload, nodes, states, per_second, phases)
            ]
        )

    def each_pass(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int,
        phases: Sequence[Phase],
    ) -> Iterator[tuple[Integers | int, Sequence[Integers]]]:
        """Yield the times of which `charges` adds up the longest, and how often a step takes it.

        Each is linear in what an accelerator has, which the longest of several is not.
        """
        once = repeated(workload, ONCE)
        if workload.repeats.computes_once:
            yield 1, self.loading_and_computing(once, nodes, states, per_second, phases)
            return
        alike = self.loading_and_computing(once, nodes, states, per_second, phases[:1])
        yield added_up([passes_of(workload, phase)[nodes] for phase in phases]), alike

    def loading_and_computing(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int,
        phases: Sequence[Phase],
    ) -> tuple[Integers, Integers]:
        """Return the two times of passes that are all alike, of which the longer counts."""
        per_second *= len(phases)
        words = added_up(self._words(workload, nodes, states))
        loading = rounded_half_even(words, self.element_bytes * per_second / self._dram_bandwidth)
        each = self._seconds_of_macs(workload)
        operations = self._operations(workload, nodes, states)
        return loading, self._computing(each, operations, nodes, per_second)

    def _computing(
        self,
        each: Sequence[Fraction],
        operations: Integers,
        nodes: Indices,
        per_second: Fraction | int,
    ) -> Integers:
        """Return the time of nodes' multiply-accumulates in a pass.

        Parameters
        ----------
        each
            The seconds of one of them on one accelerator, by node.
        """
        known: dict[Fraction, int] = {}
        own = [known.setdefault(each[node], len(known)) for node in nodes.reshape(-1).tolist()]
        numbers = np.array(own, np.intp).reshape(nodes.shape)
        times: Integers = np.zeros(1, np.int64)
        for seconds, number in known.items():
            rate = seconds * per_second / self.hierarchy.accelerators
            times = np.where(numbers == number, rounded_half_even(operations, rate), times)
        return times

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of a pass of all layers together."""
        # Words, a sum of products over levels, are largest where all levels make the same choice;
        # the sum over the choices bounds the largest of these.
        nodes, choices = np.arange(len(workload.nodes))[None], len(workload.choices)
        states = [np.arange(choices)[None, :, None]] * self.hierarchy.levels
        words = sum(
            sum(part.reshape(-1).tolist()) * (choices * nodes.size // part.size)
            for part in local_words(workload, nodes, states, self.hierarchy)
        )
        loading: Fraction = self.element_bytes * words / self._dram_bandwidth
        computing = self._computing_bound(workload, self._seconds_of_macs(workload))
        often = workload.most_repeats
        return often * (loading + computing) * self._stretched_bound(workload)

    def _words(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return the words of each tensor of nodes, in all accelerators together."""
        return [
            self._amounts(workload, sizes, lacks, nodes, states)
            for sizes, lacks in local_tensors(workload, self.hierarchy)
        ]

    def _operations(self, workload: Workload, nodes: Indices, states: States) -> Integers:
        """Return the multiply-accumulates of a pass of nodes, in all accelerators together."""
        macs = self._macs(workload)
        macs = macs.astype(exact_dtype(int(macs.max()) * self.hierarchy.accelerators), copy=False)
        # Every choice splits the work, but where it splits nothing all parts do all of it.
        return self._amounts(workload, macs, workload.layouts.whole, nodes, states)

    def _macs(self, workload: Workload) -> Integers:
        sizes = tuple(sorted(self.input_sizes.items()))
        return _macs(repeated(workload, ONCE), self.accelerator, sizes)

    def _seconds_of_macs(self, workload: Workload) -> tuple[Fraction, ...]:
        return _seconds_of_macs(repeated(workload, ONCE), self.accelerator)

    def _amounts(
        self,
        workload: Workload,
        sizes: Integers,
        lacks: NDArray[np.bool_],
        nodes: Indices,
        states: States,
    ) -> Integers:
        """Return an amount of nodes in all accelerators together: of words, or of operations.

        Of the longest part an axis of 12 in eight parts counts as one of 16.

        Parameters
        ----------
        sizes : (nodes,)
            Before any split: the product of the sizes of axes.
        lacks : (choices, nodes)
            Whether a choice splits none of them, so that each part has all.
        """
        amounts: Integers = sizes[nodes] * copies(lacks, nodes, states, self.hierarchy)
        if self.longest:
            split = np.where(lacks, 0, split_sizes(workload))[:, nodes]
            amounts = stretched(amounts, stretches_of(split, states, self.hierarchy))
        return amounts

    def _stretched_bound(self, workload: Workload) -> int:
        return most_stretched(workload, self.hierarchy) if self.longest else 1

    def _computing_bound(self, workload: Workload, each: Sequence[Fraction]) -> Fraction:
        """Return an upper bound on the seconds of all nodes' multiply-accumulates in a pass."""
        macs = self._macs(workload)
        whole = np.any(workload.layouts.whole, axis=0)
        times = np.where(whole, self.hierarchy.accelerators, 1).tolist()
        done: Counter[Fraction] = Counter()
        for count, all_do, own in zip(macs.tolist(), times, each, strict=True):
            done[own] += count * all_do
        seconds = (count * own for own, count in done.items())
        return sum(seconds, Fraction()) / self.hierarchy.accelerators


@lru_cache(maxsize=64)
def _macs(
    workload: Workload, accelerator: Accelerator, sizes: tuple[tuple[str, tuple[int, int]], ...]
) -> Integers:
    macs = layer_macs(workload, accelerator, dict(sizes))
    return np.array(macs, exact_dtype(max(macs)))


@lru_cache(maxsize=64)
def _seconds_of_macs(workload: Workload, accelerator: Accelerator) -> tuple[Fraction, ...]:
    """Return the seconds of one of each node's multiply-accumulates on one accelerator."""
    # Row-stationary: rows of processing units hold a kernel's rows, columns an output's. A layer
    # whose weights have no rows (fully-connected, experts) has one of each.
    return tuple(
        1 / accelerator.macs_per_second(*(node.sizes[axis] if has_rows else 1 for axis in "kp"))
        for node in workload.nodes
        for has_rows in ["k" in node.operator.axes.weight]
    )
