"""The time of a layer's passes on an accelerator: kernels one after the other, or a roofline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.kinds import index_by_key, kinds_of_nodes
from hypar_opt.hardware.accelerator import OPERATIONS_PER_MAC, exactly
from hypar_opt.integers import Integers, scale
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.states import exact_sum
from hypar_opt.step.uneven import max_padding_factor
from hypar_opt.step.work import MAX_QUARTERS, NO_SIZES, Sizes, WorkRules, elements_touched
from hypar_opt.workload.mirrored import causal_nodes
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import SINGLE_PASS

if TYPE_CHECKING:
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.step.operations import Kernel
    from hypar_opt.step.shares import WorkOfPart
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class Work:
    """The seconds of each layer's passes on one of a hierarchy's accelerators.

    An accelerator that says what matrix products achieve runs kernels, one after the other. A
    product takes the longer of its operations at ``gemm`` of the peak (a convolution, at ``conv``)
    and of its operands at ``elementwise`` of the DRAM's bandwidth; kernels without products take
    their bytes. Each takes ``launch`` besides. The gradient pass updates the weights, too.

    On another, as the paper's, compute overlaps with DRAM traffic: all passes of a layer are alike,
    and each takes the longer of its multiply-accumulates and of its words.

    Parameters
    ----------
    input_sizes
        As `hypar_opt.step.work.layer_macs` takes them.
    by_largest_shard
        Whether a pass lasts as long as on the accelerator with the largest shard, where an axis is
        not divided evenly. Otherwise axes are divided exactly, as in the paper.
    part
        The part of the work that the accelerator has, if parts of H1 are unequal.

    Source: docs/assumptions.md.
    """

    accelerator: Accelerator
    hierarchy: Hierarchy
    element_bytes: int = 4
    input_sizes: Sizes = field(default_factory=lambda: NO_SIZES)
    by_largest_shard: bool = False
    part: WorkOfPart | None = None

    def charges(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int,
        phases: Sequence[Phase],
    ) -> Integers:
        """Return the time of nodes' passes as integers of ``1 / per_second``, rounded half up.

        Parameters
        ----------
        states
            Over all levels.
        phases
            The passes of a step, which repeats them as the workload says.
        """
        passes = self.pass_times(workload, nodes, states, per_second, phases)
        return exact_sum([times * _longer(linear) for times, linear in passes])

    def charges_of_update(
        self, workload: Workload, nodes: Indices, states: States, per_second: Fraction | int
    ) -> Integers:
        """Return the part of `charges` that updates nodes' weights."""
        return self._update(workload, nodes, states, per_second, workload.repeats)

    def pass_times(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int,
        phases: Sequence[Phase],
    ) -> Iterator[tuple[Integers | int, Sequence[Integers]]]:
        """Yield how often a step has each pass, and the times of which the longest counts.

        Each time is linear in an accelerator's amounts; their maximum is not.
        """
        kernels = [*self._rules.kernels(workload, nodes, states, phases)]
        if self._runs_kernels:
            for kernel in kernels:
                yield kernel.times, self._times(kernel, workload, nodes, per_second)
            if Phase.GRADIENT in phases:
                repeats = workload.repeats
                yield 1, [self._update(workload, nodes, states, per_second, repeats)]
            return
        # Passes that are all equal are rounded together if each occurs once.
        together = len(phases) if workload.repeats.computes_once else 1
        passes = [kernel.times for kernel in kernels if not kernel.epilogue]
        often = 1 if together > 1 else exact_sum(passes)
        yield often, self._times(kernels[0], workload, nodes, per_second * together)

    def passes(
        self, workload: Workload, states: States, phases: Sequence[Phase]
    ) -> dict[Phase, list[Fraction]]:
        """Return the exact seconds of each layer's passes, given its state at all levels.

        Without the update of weights.
        """
        columns = [*map(tuple, self._columns(workload, states).T.tolist())]
        computed = _computed_passes(self, workload, tuple(phases))
        new = {column: node for node, column in enumerate(columns) if column not in computed}
        if new:
            nodes = np.array([*new.values()])
            states = [block[:, nodes] for block in states]
            seconds = {
                kernel.phase: _exact(_longer(self._times(kernel, workload, nodes, None)), nodes)
                for kernel in self._rules.kernels(workload, nodes, states, phases)
                if not kernel.epilogue
            }
            for number, column in enumerate(new):
                computed[column] = {phase: exact[number] for phase, exact in seconds.items()}
        return {phase: [computed[column][phase] for column in columns] for phase in phases}

    def epilogues(self, workload: Workload, states: States) -> list[Fraction]:
        """Return the exact seconds of what follows each layer's products in its forward pass."""
        if not self._runs_kernels:
            return [Fraction()] * len(workload.nodes)
        workload = with_repeats(workload, SINGLE_PASS)
        nodes, kinds, states = self._node_kinds(workload, states)
        (kernel,) = self._rules.kernels(workload, nodes, states, (Phase.FORWARD,))
        times = self._times(kernel._replace(epilogue=True), workload, nodes, None)
        exact = _exact(_longer(times), nodes)
        return [exact[kind] for kind in kinds.tolist()]

    def updates(
        self, workload: Workload, states: States, repeats: Repeats = SINGLE_PASS
    ) -> list[Fraction]:
        """Return the exact seconds of each node's update of weights.

        Parameters
        ----------
        repeats
            As `WorkRules.update` takes them.
        """
        nodes = np.arange(len(workload.nodes))
        return _exact(self._update(workload, nodes, states, None, repeats), nodes)

    def _node_kinds(self, workload: Workload, states: States) -> tuple[Indices, Indices, States]:
        """Return one node of each kind, the kind of each node, and the nodes' states.

        Parameters
        ----------
        states
            One state for each node.
        """
        columns = self._columns(workload, states)
        _, first, inverse = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        return first, inverse.reshape(-1), [block[:, first] for block in states]

    def _columns(self, workload: Workload, states: States) -> Indices:
        """Return each node's kind and states: nodes with equal ones take equally long."""
        nodes = np.arange(len(workload.nodes))
        kinds = nodes if self.input_sizes else kinds_of_nodes(workload).numbers  # they are by layer
        columns: Indices = np.vstack([kinds, *states])
        return columns

    @cached_property
    def _rules(self) -> WorkRules:
        return WorkRules(
            self.hierarchy,
            self.by_largest_shard,
            self.accelerator.mac_count,
            self.input_sizes,
            self._runs_kernels and Fused.on(self.accelerator).attention,
            self.part,
        )

    @property
    def _runs_kernels(self) -> bool:
        return self.accelerator.gemm is not None

    @cached_property
    def _seconds_of_word(self) -> Fraction:
        """The seconds of a word, divided by the accelerators, whose DRAMs work in parallel."""
        bandwidth = self.accelerator.dram_bandwidth * self.hierarchy.accelerators
        if self._runs_kernels:
            bandwidth *= exactly(self.accelerator.elementwise or 1)
        return self.element_bytes / bandwidth

    def _times(
        self, kernel: Kernel, workload: Workload, nodes: Indices, per_second: Fraction | int | None
    ) -> list[Integers]:
        """Return the times of loading and of computing of a pass of nodes; the longer counts.

        Parameters
        ----------
        per_second
            Each time is rounded to integers of ``1 / per_second``; None for exact fractions.
        """
        once = with_repeats(workload, SINGLE_PASS)
        kernels = _pass_of(once, self.accelerator, kernel.phase, epilogue=kernel.epilogue)
        per_word = self._seconds_of_word
        moved = kernel.operands + kernel.output
        loaded = (
            kernels.products[nodes] * (moved + kernel.weights)
            + kernels.scores[nodes] * kernel.inner
        )
        times = [
            _timed(loaded, per_word, per_second),
            self._computing(kernels, kernel.macs, nodes, per_second),
        ]
        if not self._runs_kernels:
            return times
        words = (
            kernels.elementwise[nodes] * moved
            + kernels.output[nodes] * kernel.output
            + kernels.of_inner[nodes] * kernel.inner
        )
        launch = self.accelerator.launch or Fraction()
        fixed = (
            _timed(words, per_word / 4, per_second),
            _timed(kernels.launches[nodes], launch, per_second),
        )
        return [exact_sum([time, *fixed]) if per_second else sum(fixed, time) for time in times]

    def _computing(
        self,
        kernels: _Pass,
        macs: Integers,
        nodes: Indices,
        per_second: Fraction | int | None,
    ) -> Integers:
        """Return the time of nodes' multiply-accumulates in a pass."""
        which = kernels.paces[nodes]
        times: Integers = np.zeros(1, np.int64)
        for number in {*which.reshape(-1).tolist()}:
            rate = kernels.seconds[number] / self.hierarchy.accelerators
            times = np.where(which == number, _timed(macs, rate, per_second), times)
        return times

    def _update(
        self,
        workload: Workload,
        nodes: Indices,
        states: States,
        per_second: Fraction | int | None,
        repeats: Repeats,
    ) -> Integers:
        """Return the time of updating the weights that nodes keep."""
        update = self.accelerator.update if self._runs_kernels else None
        seconds = (update or Fraction()) * self._seconds_of_word / self.element_bytes
        words = self._rules.update(workload, nodes, states, repeats).words
        return _timed(words, seconds, per_second)

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds of a pass of all layers together."""
        return workload.max_repeats * _single_pass_bound(self, with_repeats(workload, SINGLE_PASS))


def _longer(times: Sequence[Integers]) -> Integers:
    longer: Integers = np.maximum.reduce(np.broadcast_arrays(*times))
    return longer


def _timed(amounts: Integers, seconds: Fraction, per_second: Fraction | int | None) -> Integers:
    """Return the time of amounts at so many seconds each: integers, or exact fractions."""
    if per_second is None:
        exact: Integers = np.asarray(amounts, object) * seconds
        return exact
    return scale(amounts, seconds * per_second)


def _exact(seconds: Integers, nodes: Indices) -> list[Fraction]:
    return [Fraction(time) for time in np.broadcast_to(seconds, nodes.shape).tolist()]


@lru_cache(maxsize=16)
def _computed_passes(*_: Hashable) -> dict[tuple[int, ...], dict[Phase, Fraction]]:
    """Return a cache of the seconds of nodes' passes by their kind and states.

    There is one per `Work`, workload and phases: most are shared by the plans that a search
    simulates.
    """
    return {}


@lru_cache(maxsize=64)
def _single_pass_bound(work: Work, workload: Workload) -> Fraction:
    """Return an upper bound on the seconds of a pass of all layers of a step that repeats none."""
    accelerator, accelerators = work.accelerator, work.hierarchy.accelerators
    passes = [_pass_of(workload, accelerator, phase) for phase in Phase]
    # With replicas, every accelerator has all of every tensor.
    quarters = MAX_QUARTERS if work._runs_kernels else 4
    touches = Fraction(quarters, 4) + (accelerator.update or 0) / work.element_bytes
    loading = elements_touched(workload) * accelerators * touches * work._seconds_of_word
    # All accelerators compute all of what is whole.
    whole = np.any(workload.layouts.whole, axis=0)
    paces = ([kernels.seconds[n] for n in kernels.paces.tolist()] for kernels in passes)
    slowest = map(max, zip(*paces, strict=True))
    macs_by_pace: Counter[Fraction] = Counter()
    macs = work._rules.macs(workload)
    for count, replicated, seconds in zip(macs.tolist(), whole.tolist(), slowest, strict=True):
        macs_by_pace[seconds] += count * (accelerators if replicated else 1)
    computing = sum((count * seconds for seconds, count in macs_by_pace.items()), Fraction())
    launches = sum(max(kernels.launches.tolist(), default=0) for kernels in passes)
    launching = launches * len(workload.nodes) * (accelerator.launch or 0)
    factor = 1
    if work.by_largest_shard:
        factor = max_padding_factor(workload, work.hierarchy)
        factor *= 2 if causal_nodes(workload).any() else 1
    return Fraction((loading + computing / accelerators) * factor + launching)


class _Pass(NamedTuple):
    """The kernels of one pass of each node, as `PassKernels`.

    Parameters
    ----------
    paces
        The pace of each node's multiply-accumulates, as an index of `seconds`.
    seconds
        The seconds of a multiply-accumulate on one accelerator, for each pace.
    """

    products: Integers
    scores: Integers
    elementwise: Integers
    output: Integers
    of_inner: Integers
    launches: Integers
    paces: Indices
    seconds: tuple[Fraction, ...]


@lru_cache(maxsize=256)
def _pass_of(
    workload: Workload, accelerator: Accelerator, phase: Phase, *, epilogue: bool = False
) -> _Pass:
    if accelerator.gemm is None:
        ones = np.ones(len(workload.nodes), np.int64)
        # Row-stationary: rows of processing units hold a kernel's rows, columns an output's. A
        # layer whose weights have no rows (fully-connected, experts) has one of each.
        seconds = [
            1 / accelerator.macs_per_second(*(node.sizes[axis] if has_rows else 1 for axis in "kp"))
            for node in workload.nodes
            for has_rows in ["k" in node.operator.axes.weight]
        ]
        return _Pass(ones, *(0 * ones,) * 5, *_numbered(seconds))
    fused = Fused.on(accelerator)
    peak = accelerator.units * accelerator.operations / OPERATIONS_PER_MAC
    gemm = 1 / (peak * exactly(accelerator.gemm))
    flash = 1 / (peak * exactly(accelerator.flash)) if accelerator.flash else gemm
    conv = 1 / (peak * exactly(accelerator.conv)) if accelerator.conv else gemm
    numbers, first = kinds_of_nodes(workload)
    nodes = [workload.nodes[node] for node in first]
    kernels = [node.kernels(fused=fused)[list(Phase).index(phase)] for node in nodes]
    if epilogue:
        kernels = [kernel.epilogue for kernel in kernels]
    columns = np.array(
        [(bool(k.products), k.scores, k.io, k.output, k.inner, k.launches) for k in kernels],
        np.int64,
    ).T
    kind_seconds = [
        k.products
        * (
            flash
            if fused.attention and node.operator.inner
            else conv
            if "k" in node.operator.axes.weight
            else gemm
        )
        for k, node in zip(kernels, nodes, strict=True)
    ]
    paces, distinct = _numbered(kind_seconds)
    return _Pass._make((*columns[:, numbers], paces[numbers], distinct))


def _numbered(seconds: Sequence[Fraction]) -> tuple[Indices, tuple[Fraction, ...]]:
    """Return the index of each among the distinct values, and these."""
    numbers, first = index_by_key(seconds)
    return numbers, tuple(seconds[number] for number in first)


def launches_of(workload: Workload, phase: Phase, *, fused: Fused) -> list[int]:
    """Return the number of kernels of each node in a pass."""
    number = list(Phase).index(phase)
    return [node.kernels(fused=fused)[number].launches for node in workload.nodes]
