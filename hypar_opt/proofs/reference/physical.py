"""The charges of a step on an array: its time and its energy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.charges import ExchangeCharges
from hypar_opt.proofs.reference.plan_graph import longest_parts, of_longest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.reference.buckets import Share
    from hypar_opt.proofs.reference.plan_graph import AtH1, LongestParts, PlanNode, State
    from hypar_opt.proofs.reference.reductions import Reduced

# Its own table, as the rest of this derivation shares none with the search.
PARTS = {"femto": 10**15, "pico": 10**12, "nano": 10**9, "micro": 10**6, "milli": 10**3, "": 1}
WORD_BYTES = 4
"""An array's energies are those of 32-bit words."""


def nearest(amount: int, rate: Fraction, messages: int = 0, latency: Fraction = Fraction()) -> int:
    """Return ``amount * rate + messages * latency``, rounded half up to an integer."""
    # floor(x + 1/2) in integers, as the search's charges are rounded: both have to agree.
    denominator = rate.denominator * latency.denominator
    exact = amount * rate.numerator * latency.denominator
    exact += messages * latency.numerator * rate.denominator
    return (2 * exact + denominator) // (2 * denominator)


class Rate(NamedTuple):
    """The charge of an exchange: for an amount of 1, and for a message."""

    per_amount: Fraction
    per_message: Fraction = Fraction()

    def charge(
        self, amount: int, messages: int = 1, share: Share | None = None, alone: int = 0
    ) -> int:
        """Return the charge of an exchange with its latency, or a share of a whole number.

        Nothing to move is no message.

        Parameters
        ----------
        alone
            The messages that share their latency with none.
        """
        if not amount:
            return 0
        if share is None:
            return nearest(amount, self.per_amount, messages + alone, self.per_message)
        latency = nearest(1, self.per_message)
        begin, end = (math.floor(latency * each) for each in share)
        return nearest(amount, self.per_amount) + messages * (end - begin) + alone * latency


class LayerWork(NamedTuple):
    """What a layer's passes work on in all accelerators together.

    Parameters
    ----------
    accessed
        The words of weights, operands and output.
    kept
        The weights that are updated.
    macs, inner
        The multiply-accumulates of a pass, and the elements of the inner tensor.
    sharing
        The copies of weights that each update a share of them.
    """

    accessed: Sequence[int]
    kept: int
    macs: int
    inner: int
    sharing: int = 1


class ArrayCharges(ExchangeCharges):
    """Charges on a plan's array, as integers of a part of a second or joule."""

    UNITS: ClassVar[str]

    def __init__(self, plan: Plan, chosen: Sequence[State] = ()) -> None:
        parts = {prefix + self.UNITS: parts for prefix, parts in PARTS.items()}
        if plan.cost.unit not in parts:
            unit = plan.cost.unit
            raise CheckFailedError(f"cost, unit: should be one of {self.UNITS}, got {unit!r}")
        if plan.array is None or plan.placement is None or plan.level_weights:
            kind = plan.cost.kind
            raise CheckFailedError(f"cost, kind: {kind!r} goes with an array, unweighted")
        self.longest_counts = plan.step_model.by_largest_shard
        super().__init__(plan, chosen)
        self.array, self.placement = plan.array.description, plan.placement
        self.parts = parts[plan.cost.unit]
        self.amount_bytes = Fraction(plan.element_bytes, 4)
        # All three passes do the same work, the first layer's too (docs/simulator.md).
        self.passes = 1 if plan.inference else 3
        links = map(self.array.interconnect.bisection, plan.placement)
        self.between_pairs = [self._rate(link) for link in links]
        self.around_rings = self.array.collective != "pairwise"
        self.dimensions = self.array.dimensions_of(plan.placement)

    def joins_levels(self, node: int, state: State) -> bool:
        reduced = self.exchanges.reduced(node, state)
        stages = (stage for each in reduced for stage in self._stages(each.levels))
        return self.around_rings and any(len(stage) > 1 for stage in stages)

    def _stages(self, levels: Iterable[int]) -> list[tuple[int, ...]]:
        """Return the levels of each stage of a reduction around rings, one after the other.

        All at once; hierarchical, each run of levels of a dimension of the hardware.
        """
        if self.array.collective != "hierarchical":
            return [tuple(sorted(levels))]
        runs = groupby(sorted(levels), self.dimensions.__getitem__)
        return [tuple(run) for _, run in runs]

    @abstractmethod
    def _rate(self, link: BisectionLink) -> Rate:
        """Return the rate of exchanges over a link."""

    def _ring(self, levels: Sequence[int]) -> BisectionLink:
        """Return the link of a stage's rounds, with the latency of all of them together.

        There are n - 1 around n accelerators. On a torus or mesh each dimension has a ring.
        """
        network = self.array.interconnect
        if self.array.collective == "ring" and self.array.topology.grid():
            rings: dict[int, list[int]] = {}
            for level in levels:
                rings.setdefault(self.dimensions[level], []).append(self.placement[level])
            return network.link(network.around(rings.values(), at_once=True))
        link = network.ring(self.placement[level] for level in levels)
        return replace(link, latency=link.latency * (self.hierarchy.parts(levels) - 1))

    def _macs(self, layer: PlanNode) -> int:
        """Return a pass's multiply-accumulates, over the output or, as in the paper, the input."""
        by_input = self.array.accelerator.mac_count == "input"
        return layer.macs_by_input if by_input else layer.macs


class Time(ArrayCharges):
    """Seconds of a step in which nothing overlaps: exchanges and, at the last level, compute.

    An exchange takes its bytes over the level's bandwidth, and a latency for each message, n - 1
    between n parts. An all-reduce reduce-scatters and then all-gathers, so that it crosses each of
    its levels twice, the topmost once where that has two parts; around a ring of n it takes
    2(n - 1) messages, of all levels at which the layer makes the choice at once. A reduce-scatter
    or all-gather is half of that. Of sharded gradients the reduce-scatters share a bucket's
    latency, and weights are gathered layer by layer.

    Source: docs/simulator.md.
    """

    UNITS = "seconds"

    def of_plan(self, chosen: Sequence[State]) -> Self:
        """Return the charges of one plan: gradients share latencies that reduce alike."""
        return type(self)(self.plan, chosen)

    def _rate(self, link: BisectionLink) -> Rate:
        per_amount = link.seconds_per_byte * self.amount_bytes
        return Rate(per_amount * self.parts, link.latency * self.parts)

    def _counts_longest(self, state: State) -> bool:
        return self.longest_counts and len(state) == self.plan.levels

    def _converted(self, level: int, passes: Sequence[int], times: Sequence[int]) -> int:
        rate, rounds = self.between_pairs[level], self.hierarchy.sizes[level] - 1
        each = zip(passes, times, strict=True)
        return sum(rate.charge(amount, often * rounds) for amount, often in each)

    def _reduced(self, reduced: Sequence[Reduced]) -> int:
        total = 0
        for levels, (all_reduces, scatters, gathers), latency in reduced:
            if self.around_rings:
                for stage in self._stages(levels):
                    rate, amount = self._rate(self._ring(stage)), sum(levels[n] for n in stage)
                    total += rate.charge(amount, 2 * all_reduces + scatters, latency, gathers)
                continue
            for level, amount in levels.items():
                rounds = self.hierarchy.sizes[level] - 1
                # Between the two parts of the topmost level halving and doubling are one exchange.
                both = 1 if level == min(levels) and rounds == 1 else 2 * rounds
                messages = both * all_reduces + rounds * scatters
                rate = self.between_pairs[level]
                total += rate.charge(amount, messages, latency, rounds * gathers)
        return total

    def _local(self, node: int, state: State) -> int:
        """Return the time of a layer's passes on an accelerator: compute, or DRAM if slower."""
        if len(state) < self.plan.levels:
            return 0  # the final shards, on which the DRAM's time depends, are not known
        layer, passes = self.exchanges.graph.nodes[node], self.exchanges.passes(node)[: self.passes]
        work = self._work(node, state)
        return sum(self._seconds_of(self.array.accelerator, layer, work, passes))

    def _work(self, node: int, state: State, at_h1: AtH1 | None = None) -> LayerWork:
        """Return what a layer's passes work on in the whole array, copies and all.

        Parameters
        ----------
        at_h1
            As for `longest_parts`.
        """
        layer = self.exchanges.graph.nodes[node]
        copies = layer.copies(state, self.hierarchy)
        uneven = [self._uneven(layer, state, copied, at_h1) for copied in layer.copied]
        accessed = [
            of_longest(size * count, longer)
            for size, count, longer in zip(layer.tensors, copies, uneven, strict=True)
        ]
        # Where its state is sharded, each weight is updated once, not in each copy.
        words = self.exchanges.repetitions.sharded.get(node, ["none"] * self.plan.levels)
        levels = enumerate(zip(state, words, strict=False))
        whole = (n for n, own in levels if own[0] in layer.copied[0] and own[1] == "none")
        count = self.hierarchy.parts(whole)
        kept, sharing = of_longest(layer.stored * count, uneven[0]), copies[0] // count
        work = self._macs(layer), layer.inner
        macs, inner = (self._of_work(layer, state, amount, at_h1) for amount in work)
        if self.longest_counts and layer.is_causal and self._skips_what_is_hidden:
            made = [self.plan.choices[column] for column in state]
            parts = self.hierarchy.parts(n for n, own in enumerate(made) if own == "tokens")
            macs = of_longest(macs, ((parts, 2 * parts - 1),))  # what the last tokens see
        return LayerWork(accessed, kept, macs, inner, sharing)

    @cached_property
    def _skips_what_is_hidden(self) -> bool:
        """Whether the last tokens of a sequence are more work than the first, and in one part.

        They are in all parts where each has tokens of both ends: of equal chunks, two a part.
        """
        accelerator = self.array.accelerator
        if accelerator.gemm is None or accelerator.attention == "unfused":
            return False
        if "tokens" not in self.plan.choices:
            return False
        column, chunks = self.plan.choices.index("tokens"), 2 * self.plan.accelerators
        splits = [node.splits[column] for node in self.exchanges.graph.nodes if node.has_tokens]
        return not all(split and split.size % chunks == 0 for split in splits)

    def _seconds_of(
        self, accelerator: Accelerator, layer: PlanNode, work: LayerWork, passes: Sequence[int]
    ) -> list[int]:
        """Return the charges of a layer's passes, of accelerators of one kind.

        Parameters
        ----------
        work
            Of the whole array, as if it had these accelerators alone.
        passes
            How often each pass runs.
        """
        if accelerator.gemm is not None:
            return self._by_kernels(accelerator, layer, work, passes)
        rate = accelerator.macs_per_second(layer.kernel_rows, layer.output_rows)
        loading = sum(work.accessed) * self.plan.element_bytes / accelerator.dram_bandwidth
        # Both are of the whole array's work, so that both divide by its accelerators.
        seconds = max(work.macs / rate, loading) / self.plan.accelerators
        if self.exchanges.repetitions.computes_once:
            return [nearest(self.passes, seconds * self.parts)]
        return [often * nearest(1, seconds * self.parts) for often in passes]

    def _by_kernels(
        self, accelerator: Accelerator, layer: PlanNode, work: LayerWork, passes: Sequence[int]
    ) -> list[int]:
        """Return the time of each of a layer's passes, one kernel after the other; of an update."""
        count, (accessed, kept, macs, inner, _) = self.plan.accelerators, work
        part = {
            key: Fraction(str(getattr(accelerator, key) or 1))
            for key in ("gemm", "elementwise", "flash", "conv")
        }
        fused = accelerator.attention != "unfused" and layer.inner > 0
        achieved = part["gemm"]
        if fused and accelerator.flash:
            achieved = part["flash"]
        elif layer.is_convolution and accelerator.conv:
            achieved = part["conv"]
        peak = accelerator.units * accelerator.operations * achieved * count
        per_byte = 1 / (accelerator.dram_bandwidth * part["elementwise"] * count)
        per_word = self.plan.element_bytes * per_byte
        both, output = sum(accessed[1:]), accessed[-1]
        times = []
        for own, often in zip(layer.kernels, passes, strict=False):
            read = (accessed[0] + both) * bool(own.products) + own.scores * inner
            operations = 2 * own.products * macs
            once = max(
                nearest(read, per_word * self.parts), nearest(1, operations / peak * self.parts)
            )
            others = own.each * both + own.output * output + own.inner * inner
            once += nearest(others, per_word * self.parts / 4)
            once += nearest(own.launches, (accelerator.launch or Fraction()) * self.parts)
            times.append(often * once)
        if not self.plan.inference:
            updating = accelerator.updated_by(self.plan.constraints.optimizer).update or Fraction()
            times.append(nearest(kept, updating * per_byte * self.parts))
        return times

    def _of_work(
        self, layer: PlanNode, state: State, amount: int, at_h1: AtH1 | None = None
    ) -> int:
        """Return an amount of a layer's work in all accelerators together.

        What no choice splits is all done in each part.
        """
        whole = {choice for choice, split in layer.own.items() if split.output == "whole"}
        levels = (level for level, made in enumerate(state) if made in whole)
        uneven = self._uneven(layer, state, at_h1=at_h1)
        return of_longest(amount * self.hierarchy.parts(levels), uneven)

    def _uneven(
        self,
        layer: PlanNode,
        state: State,
        copied: frozenset[int] = frozenset(),
        at_h1: AtH1 | None = None,
    ) -> LongestParts:
        """Return the axes of a tensor, or of all work, whose largest part counts as all do.

        Of 12 heads in 8 parts that is 4/3 of the mean.

        Parameters
        ----------
        copied
            The choices that leave copies of the tensor.
        """
        if not self.longest_counts:
            return ()
        axes = ((n, split.size) for n, split in layer.own.items() if n not in copied)
        return longest_parts(axes, state, self.hierarchy, at_h1)


class Energy(ArrayCharges):
    """Joules of a step: communicated words, accessed words, and multiply-accumulates.

    Each pass accesses each local tensor once, with all its copies in the array; a choice between n
    parts leaves n copies of one of W, A and F, and is charged what it adds. The words before any
    choice, and the multiply-accumulates, are charged with the first level.

    Source: docs/simulator.md.
    """

    UNITS = "joules"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        # If links cost nothing, a ring charges what pairs charge.
        self.around_rings = self.around_rings and self.array.energies.hop > 0

    def _rate(self, link: BisectionLink) -> Rate:
        return self._over(self.array.energies.remote + self.array.energies.hop * link.hops)

    def _over(self, joules_per_word: Fraction) -> Rate:
        return Rate(self.amount_bytes / WORD_BYTES * joules_per_word * self.parts)

    def _converted(self, level: int, passes: Sequence[int], times: Sequence[int]) -> int:  # noqa: ARG002
        return self.between_pairs[level].charge(sum(passes))

    def _reduced(self, reduced: Sequence[Reduced]) -> int:
        by_level: Counter[int] = Counter()
        by_ring: Counter[tuple[frozenset[int], tuple[int, ...]]] = Counter()
        for levels, *_ in reduced:
            by_level.update(levels)
            for ring in self._stages(levels):
                # Of passes over the same levels all words are rounded together.
                by_ring[frozenset(levels), ring] += sum(map(levels.__getitem__, ring))
        if not self.around_rings:
            return sum(self._converted(level, [moved], []) for level, moved in by_level.items())
        energy = self.array.energies
        # Remote access is each level's, whatever links its words cross around a ring.
        total = sum(map(self._over(energy.remote).charge, by_level.values()))
        for (_, ring), moved in by_ring.items():
            total += self._over(energy.hop * self._ring(ring).hops).charge(moved)
        return total

    def _local(self, node: int, state: State) -> int:
        if not state:
            return 0
        energy, layer = self.array.energies, self.exchanges.graph.nodes[node]
        often = sum(self.exchanges.passes(node)[: self.passes])
        total = nearest(often * self._macs(layer), (energy.mac + energy.sram) * self.parts)
        copies = [layer.copies(state[:n], self.hierarchy) for n in range(len(state) + 1)]
        for above, below in pairwise(copies):
            # Each part accesses a tensor that a choice replicates: its words are added again.
            added = zip(layer.tensors, above, below, strict=True)
            total += sum(self._accessed(often * size * (n - m)) for size, m, n in added)
        return total + self._accessed(often * sum(layer.tensors))

    def _accessed(self, elements: int) -> int:
        """Return the charge of elements that are accessed in the DRAM."""
        words = Fraction(self.plan.element_bytes, WORD_BYTES)
        return nearest(elements, words * self.array.energies.dram * self.parts)
