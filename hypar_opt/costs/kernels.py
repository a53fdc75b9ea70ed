"""The time of a layer's passes as a machine's kernels take them, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from hypar_opt.costs.compute import NO_SIZES, Work
from hypar_opt.costs.kinds import kinds_of_nodes
from hypar_opt.costs.physical import rounded_half_even
from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.accelerator import OPERATIONS_PER_MAC, exactly
from hypar_opt.integers import exact_dtype
from hypar_opt.sharding.layouts import TOKEN
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.repetitions import passes_of
from hypar_opt.step.states import added_up, copies, copies_of
from hypar_opt.step.uneven import stretched
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.mirrored import are_mirrored, causal_nodes
from hypar_opt.workload.operators.base import elements
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import repeated
from hypar_opt.workload.repeats import ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hypar_opt.costs.compute import Sizes
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload

_RESOLUTION = 10**30
"""Units per second of a pass that stands alone: finer than any double."""

_MOST = 128
"""An upper bound on how often a pass reads or writes an element, in quarters, products included."""


def work_of(
    accelerator: Accelerator,
    hierarchy: Hierarchy,
    element_bytes: int,
    input_sizes: Sizes = NO_SIZES,
    *,
    longest: bool,
) -> Work:
    """Return the work of an accelerator: by kernels where it says what products achieve."""
    kind = Work if accelerator.gemm is None else KernelWork
    return kind(accelerator, hierarchy, element_bytes, input_sizes, longest)


@dataclass(frozen=True)
class KernelWork(Work):
    """The seconds of each layer's passes, kernel by kernel.

    A matrix product takes the longer of its operations at ``gemm`` of the peak (a convolution, at
    ``conv``) and of its operands at ``elementwise`` of the DRAM's bandwidth; kernels without
    products take their bytes. Each takes ``launch`` besides, and none overlaps another. The
    gradient pass updates the weights, too.

    Source: docs/decisions/0028-time-of-kernels.md.
    """

    @property
    def _dram_bandwidth(self) -> Fraction:
        return super()._dram_bandwidth * exactly(self.accelerator.elementwise or 1)

    def passes(
        self, workload: Workload, states: States, phases: Sequence[Phase]
    ) -> dict[Phase, list[Fraction]]:
        """Return the seconds of each layer's passes, without the update of weights."""
        nodes = np.arange(len(workload.nodes))
        times = self._of_phases(workload, nodes, states, _RESOLUTION, phases)
        return {
            phase: _in_seconds(np.maximum(*own), nodes)
            for phase, own in zip(phases, times, strict=True)
        }

    def updates(
        self, workload: Workload, states: States, repeats: Repeats = ONCE
    ) -> list[Fraction]:
        """Return the seconds in which each node's weights are updated.

        Parameters
        ----------
        repeats
            Of which nodes the parts that have the same weights each update a share of them.
        """
        nodes = np.arange(len(workload.nodes))
        charges = self._update(workload, nodes, states, _RESOLUTION, repeats)
        return _in_seconds(charges, nodes)

    def each_pass(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int,
        phases: Sequence[Phase],
    ) -> Iterator[tuple[Integers | int, Sequence[Integers]]]:
        times = self._of_phases(workload, nodes, states, per_second, phases)
        for phase, linear in zip(phases, times, strict=True):
            yield passes_of(workload, phase)[nodes], linear
        if Phase.GRADIENT in phases:
            yield 1, [self._update(workload, nodes, states, per_second, workload.repeats)]

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of a pass of all layers together."""
        own = replace(self, input_sizes=FrozenDict(self.input_sizes))
        return workload.most_repeats * _once_at_most(own, repeated(workload, ONCE))

    def once_at_most(self, workload: Workload) -> Fraction:
        """Return the upper bound of a step that repeats nothing."""
        passes = [_of_pass(workload, self.accelerator, phase) for phase in Phase]
        words = workload.elements + sum(passes[0].inner.tolist())
        each = Fraction(_MOST * self.element_bytes, 4) + (self.accelerator.update or 0)
        # With replicas, all accelerators have all of every tensor.
        loading = words * each / (self._dram_bandwidth / self.hierarchy.accelerators)
        numbers, first = kinds_of_nodes(workload)
        slowest = [max(own.seconds[node] for own in passes) for node in first]
        computing = self._computing_bound(workload, [slowest[kind] for kind in numbers])
        launches = sum(max(own.launches.tolist(), default=0) for own in passes)
        launching = launches * len(workload.nodes) * (self.accelerator.launch or 0)
        seconds: Fraction = (loading + computing) * self._stretched_bound(workload) + launching
        return seconds

    _counts_order: ClassVar[bool] = True
    """Whether the last tokens of a causal sequence are more work than the first."""

    def _operations(self, workload: Workload, nodes: Indices, states: States) -> Integers:
        operations = super()._operations(workload, nodes, states)
        names, once = workload.layouts.names, repeated(workload, ONCE)
        causal = causal_nodes(once)
        skips = self._counts_order and self.longest and Fused.on(self.accelerator).attention
        skips = skips and bool(causal.any())
        in_order = TOKEN in names and not are_mirrored(once, self.hierarchy.accelerators)
        if not (skips and in_order):
            return operations
        by_token = causal & (workload.layouts.output == names.index(TOKEN))
        made = [by_token[block, nodes] for block in states]
        parts = copies_of(made, self.hierarchy.sizes)[-1].below[0]
        # The last of some parts in order sees 2 - 1/parts times the mean.
        return stretched(operations, [(parts, 2 * parts - 1)])

    def _stretched_bound(self, workload: Workload) -> int:
        once = super()._stretched_bound(workload)
        causal = self.longest and causal_nodes(repeated(workload, ONCE)).any()
        return 2 * once if causal else once

    def _of_phases(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int,
        phases: Sequence[Phase],
    ) -> Iterator[tuple[Integers, Integers]]:
        """Yield the times of each pass of nodes as products load and as they compute.

        The longer of the two counts. The update of weights is none of them.
        """
        once, accelerators = repeated(workload, ONCE), self.hierarchy.accelerators
        tensors = self._words(workload, nodes, states)
        operations = self._operations(workload, nodes, states)
        per_word = self.element_bytes * per_second / self._dram_bandwidth
        for phase in phases:
            own = _of_pass(once, self.accelerator, phase)
            dtype = exact_dtype(
                _MOST * (workload.elements + int(sum(own.inner.tolist()))) * accelerators
            )
            weights, *operands, output = (words.astype(dtype, copy=False) for words in tensors)
            whole = workload.layouts.whole
            inner = self._amounts(workload, own.inner.astype(dtype), whole, nodes, states)
            each: Integers = added_up([*operands, output]).astype(dtype, copy=False)
            of_products: Integers = own.products[nodes] * (each + weights)
            of_products = of_products + own.scores[nodes] * inner
            others: Integers = (
                own.each[nodes] * each + own.output[nodes] * output + own.of_inner[nodes] * inner
            )
            loading = rounded_half_even(of_products, per_word)
            computing = self._computing(own.seconds, operations, nodes, per_second)
            launching = rounded_half_even(
                own.launches[nodes], (self.accelerator.launch or Fraction()) * per_second
            )
            rest = rounded_half_even(others, per_word / 4), launching
            yield added_up([loading, *rest]), added_up([computing, *rest])

    def _update(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int,
        repeats: Repeats,
    ) -> Integers:
        """Return the time in which the weights that nodes keep are updated."""
        dtype = exact_dtype(workload.elements * self.hierarchy.accelerators)
        stored = np.array(workload.stored, dtype)
        lacks = workload.layouts.weight < FIRST_SPLIT
        words = self._amounts(workload, stored, lacks, nodes, states)
        if repeats.sharded:
            first = repeats.first_levels(len(stored), "state")
            levels = np.arange(self.hierarchy.levels)[:, None, None]
            words = words // copies(lacks & (levels >= first), nodes, states, self.hierarchy)
        each = (self.accelerator.update or Fraction()) * per_second / self._dram_bandwidth
        return rounded_half_even(words, each)


@lru_cache(maxsize=16)
def _once_at_most(work: KernelWork, workload: Workload) -> Fraction:
    return work.once_at_most(workload)


def _in_seconds(charges: Integers, nodes: Indices) -> list[Fraction]:
    return [Fraction(c, _RESOLUTION) for c in np.broadcast_to(charges, nodes.shape).tolist()]


class _Pass(NamedTuple):
    """The kernels of one pass, as `PassKernels`, of each node; and the inner tensor's elements.

    Parameters
    ----------
    seconds
        Of one of a layer's multiply-accumulates on one accelerator.
    """

    products: Integers
    scores: Integers
    each: Integers
    output: Integers
    of_inner: Integers
    launches: Integers
    inner: Integers
    seconds: tuple[Fraction, ...]


@lru_cache(maxsize=256)
def _of_pass(workload: Workload, accelerator: Accelerator, phase: Phase) -> _Pass:
    fused = Fused.on(accelerator)
    peak = accelerator.units * accelerator.operations / OPERATIONS_PER_MAC
    gemm = 1 / (peak * exactly(accelerator.gemm or 1))
    flash = 1 / (peak * exactly(accelerator.flash)) if accelerator.flash else gemm
    conv = 1 / (peak * exactly(accelerator.conv)) if accelerator.conv else gemm
    numbers, first = kinds_of_nodes(workload)
    products, *columns = _kernels(workload, phase, fused=fused)
    operators = [workload.nodes[node].operator for node in first]
    seconds = [
        own * (flash if fused.attention and x.inner else conv if "k" in x.axes.weight else gemm)
        for own, x in zip(products, operators, strict=True)
    ]
    return _Pass._make((*columns, tuple(seconds[kind] for kind in numbers)))


@lru_cache(maxsize=256)
def _kernels(workload: Workload, phase: Phase, *, fused: Fused) -> tuple[Any, ...]:
    """Return how often kinds of nodes multiply, and what of `_Pass` no accelerator decides."""
    number = list(Phase).index(phase)
    numbers, first = kinds_of_nodes(workload)
    nodes = [workload.nodes[node] for node in first]
    kernels = [node.operator.kernels(fused=fused)[number] for node in nodes]
    columns = np.array(
        [(bool(k.products), k.scores, k.each, k.output, k.inner, k.launches) for k in kernels],
        np.int64,
    ).T
    inner = np.array([elements(node.operator.inner, node.sizes) for node in nodes], object)
    return [own.products for own in kernels], *columns[:, numbers], inner[numbers]


def launches_of(workload: Workload, phase: Phase, *, fused: Fused) -> list[int]:
    """Return the kernels of a pass of each node."""
    *_, launches, _ = _kernels(workload, phase, fused=fused)
    return list(map(int, launches))
