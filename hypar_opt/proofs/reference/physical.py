"""The time and the energy of a step on an array, as charges."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.conversions import each_level
from hypar_opt.proofs.reference.exchanges import Counts, Exchanges, Matrix, State, exchanges_of
from hypar_opt.proofs.reference.nodes import PlanNode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.plan import Plan

# Its own table, as the rest of this derivation shares none with the search.
PARTS = {"femto": 10**15, "pico": 10**12, "nano": 10**9, "micro": 10**6, "milli": 10**3, "": 1}
WORD_BYTES = 4
"""An array's energies are those of 32-bit words."""


def _array_of(plan: Plan, ending: str) -> tuple[Array, tuple[int, ...], int]:
    """Return a plan's array, its placement, and the parts of a second or joule in its unit."""
    parts = {prefix + ending: parts for prefix, parts in PARTS.items()}
    if plan.cost.unit not in parts:
        raise CheckFailedError(f"cost, unit: should be one of {ending}, got {plan.cost.unit!r}")
    if plan.array is None or plan.placement is None or plan.level_weights:
        raise CheckFailedError(f"cost, kind: {plan.cost.kind!r} goes with an array, unweighted")
    return plan.array.description, plan.placement, parts[plan.cost.unit]


def _macs(layer: PlanNode, array: Array) -> int:
    """Return a pass's multiply-accumulates, over the output or, as the paper, over the input."""
    by_input = array.accelerator.mac_count == "input"
    return layer.macs_by_input if by_input else layer.macs


def nearest(amount: int, rate: Fraction, messages: int = 0, latency: Fraction = Fraction()) -> int:
    """Return ``amount * rate + messages * latency``, rounded half up to an integer."""
    # floor(x + 1/2) in integers, as the search's charges are rounded: both have to agree.
    denominator = rate.denominator * latency.denominator
    exact = amount * rate.numerator * latency.denominator
    exact += messages * latency.numerator * rate.denominator
    return (2 * exact + denominator) // (2 * denominator)


class Pace(NamedTuple):
    """The time of an exchange in the plan's unit: for a quarter of an element, and a message."""

    per_quarter: Fraction
    per_message: Fraction

    @classmethod
    def of(cls, split: BisectionLink, element_bytes: int, per_second: int) -> Pace:
        per_quarter = split.seconds_per_byte * Fraction(element_bytes, 4)
        return cls(per_quarter * per_second, split.latency * per_second)

    def time(self, quarters: int, messages: int = 1) -> int:
        """Return the time of an exchange; nothing to move is no message."""
        if not quarters:
            return 0
        return nearest(quarters, self.per_quarter, messages, self.per_message)


@dataclass(frozen=True)
class Time:
    """Seconds of a step in which nothing overlaps: exchanges and, at the last level, compute.

    An exchange takes its bytes over the level's bandwidth, and a latency for each message.
    An all-reduce between pairs halves and then doubles, so that it crosses each of its levels
    twice, the topmost once; around a ring of n it takes 2(n - 1) messages, of all levels at
    which the layer makes the choice at once. A reduce-scatter or all-gather is half of that:
    one message a level, n - 1 around a ring.

    Source: docs/simulator.md.
    """

    exchanges: Exchanges
    plan: Plan
    array: Array
    placement: tuple[int, ...]
    per_second: int
    paces: tuple[Pace, ...]
    resolution: int = 1

    @classmethod
    def of(cls, plan: Plan) -> Time:
        array, placement, per_second = _array_of(plan, "seconds")
        paces = tuple(
            Pace.of(array.interconnect.bisection(bit), plan.element_bytes, per_second)
            for bit in placement
        )
        return cls(exchanges_of(plan), plan, array, placement, per_second, paces)

    @property
    def joins_levels(self) -> bool:
        return self.array.collective == "ring"

    def together(self, boundary: int) -> bool:
        return self.exchanges.together(boundary)

    def node(self, level: int, layer: int, counts: Counts) -> Sequence[int]:
        charges = [0] * self.exchanges.choices
        if not self.joins_levels:
            for reduction, quarters in self.exchanges.reduced(layer, counts):
                # At the topmost of the levels that are reduced over, by whichever choices, halving
                # and doubling are one exchange.
                alike = self.exchanges.choices_of(layer, reduction.step)
                above = sum(counts[choice] for choice in alike)
                crossed_twice = reduction.all_reduce and above > 0
                charges[reduction.choice] += self.paces[level].time(
                    quarters, 2 if crossed_twice else 1
                )
        # Charged where the final shards are known, on which the DRAM's time depends.
        if level == self.plan.levels - 1:
            for choice in range(self.exchanges.choices):
                final = [count + (position == choice) for position, count in enumerate(counts)]
                charges[choice] += self._compute(layer, final)
        return charges

    def edge(self, level: int, boundary: int, source: Counts, target: Counts) -> Matrix:  # noqa: ARG002
        elements = self.exchanges.boundary(boundary, target)
        pace, conversions = self.paces[level], self.exchanges.conversions[boundary]
        choices = range(self.exchanges.choices)
        return tuple(
            tuple(sum(pace.time(c[s][t] * elements) for c in conversions) for t in choices)
            for s in choices
        )

    def pairs(self, boundary: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        def charge(level: int, quarters: int) -> int:
            return self.exchanges.passes * self.paces[level].time(quarters)

        return each_level(self.exchanges.pairs(boundary, sources, targets), charge)

    def state(self, layer: int, state: Sequence[int]) -> int:
        """Return the charge of the rings: one for each pass, over all levels that it reduces."""
        if not self.joins_levels:
            return 0
        total = 0
        for step, (levels, quarters) in self.exchanges.joined(layer, state).items():
            own = (r for r in self.exchanges.reductions[layer] if r.step is step)
            all_reduce = any(reduction.all_reduce for reduction in own)
            # n - 1 messages for a reduce-scatter or an all-gather around a ring of n accelerators.
            messages = (2 ** len(levels) - 1) * (2 if all_reduce else 1)
            ring = self.array.interconnect.ring(self.placement[level] for level in levels)
            pace = Pace.of(ring, self.plan.element_bytes, self.per_second)
            total += pace.time(quarters, messages)
        return total

    def _compute(self, position: int, counts: Sequence[int]) -> int:
        """Return the time of a layer's passes on an accelerator: compute, or DRAM if slower."""
        layer, accelerator = self.exchanges.nodes[position], self.array.accelerator
        copies = layer.copies(counts)
        rate = accelerator.macs_per_second(layer.kernel_rows, layer.output_rows)
        computing = _macs(layer, self.array) / rate
        # W * 2^d + F * 2^m + A * 2^o words in the whole array; every pass accesses each once.
        words = (layer.weights << copies.weights) + (layer.pooled << copies.outputs)
        words += layer.inputs << copies.inputs
        loading = words * self.plan.element_bytes / accelerator.dram_bandwidth
        # Both are of the whole array's work, so that both divide by its accelerators.
        seconds = max(computing, loading) / self.plan.accelerators
        # All three passes do the same work, the first layer's too (docs/simulator.md).
        passes = 1 if self.plan.inference else 3
        return round(seconds * passes * self.per_second)


@dataclass(frozen=True)
class Energy:
    """Joules of a step: communicated words, accessed words, and multiply-accumulates.

    Each pass accesses each local tensor once, W * 2^d + A * 2^o + F * 2^m words over the array;
    a choice doubles one of these terms. The words before any choice, and the
    multiply-accumulates, are charged with the first level.

    Source: docs/simulator.md.
    """

    exchanges: Exchanges
    plan: Plan
    array: Array
    per_joule: int
    placement: tuple[int, ...]
    resolution: int = 1

    @classmethod
    def of(cls, plan: Plan) -> Energy:
        array, placement, per_joule = _array_of(plan, "joules")
        return cls(exchanges_of(plan), plan, array, per_joule, placement)

    @property
    def joins_levels(self) -> bool:
        """Whether reductions go around rings and crossing a link has a cost."""
        return self.array.collective == "ring" and self.array.energies.hop > 0

    @cached_property
    def _quarter(self) -> Fraction:
        """The charge of a quarter of an element if a word takes one joule."""
        return Fraction(self.plan.element_bytes, 4 * WORD_BYTES) * self.per_joule

    @cached_property
    def _between_pairs(self) -> list[Fraction]:
        """The charge of a quarter of an element between pairs, for each level."""
        hops = [self.array.interconnect.bisection(bit).hops for bit in self.placement]
        energy = self.array.energies
        return [self._quarter * (energy.remote + energy.hop * crossed) for crossed in hops]

    def together(self, boundary: int) -> bool:
        return self.exchanges.together(boundary)

    def node(self, level: int, layer: int, counts: Counts) -> Sequence[int]:
        size = self.exchanges.nodes[layer]
        moved = [0] * self.exchanges.choices
        for reduction, quarters in self.exchanges.reduced(layer, counts):
            moved[reduction.choice] += quarters
        rate = self._between_pairs[level]
        if self.joins_levels:  # the links are charged with the state
            rate = self._quarter * self.array.energies.remote
        charges = [nearest(quarters, rate) for quarters in moved]
        copies = size.copies(counts)
        for choice, split in enumerate(size.splits[: self.exchanges.choices]):
            # Both sides access a tensor that the choice replicates: its words are added again.
            if split.keeps_weights:
                charges[choice] += self._touched(size.weights << copies.weights)
            if split.output in ("partial", "whole"):
                charges[choice] += self._touched(size.pooled << copies.outputs)
            if split.input == "whole":
                charges[choice] += self._touched(size.inputs << copies.inputs)
        if level == 0:
            energy = self.array.energies
            macs = _macs(size, self.array) * self._passes
            before_any_choice = nearest(macs, (energy.mac + energy.sram) * self.per_joule)
            before_any_choice += self._touched(size.weights + size.pooled + size.inputs)
            charges = [charge + before_any_choice for charge in charges]
        return charges

    def edge(self, level: int, boundary: int, source: Counts, target: Counts) -> Matrix:  # noqa: ARG002
        elements = self.exchanges.boundary(boundary, target)
        rate, conversions = self._between_pairs[level], self.exchanges.conversions[boundary]
        choices = range(self.exchanges.choices)
        return tuple(
            tuple(nearest(elements * sum(c[s][t] for c in conversions), rate) for t in choices)
            for s in choices
        )

    def pairs(self, boundary: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        def charge(level: int, quarters: int) -> int:
            return nearest(self.exchanges.passes * quarters, self._between_pairs[level])

        return each_level(self.exchanges.pairs(boundary, sources, targets), charge)

    def state(self, layer: int, state: Sequence[int]) -> int:
        """Return the charge of the links that rings cross, each over all levels it reduces."""
        if not self.joins_levels:
            return 0
        # What goes around the same ring is rounded together, as in the search's charges.
        rings: dict[tuple[int, ...], int] = {}
        for levels, quarters in self.exchanges.joined(layer, state).values():
            bits = tuple(self.placement[level] for level in levels)
            rings[bits] = rings.get(bits, 0) + quarters
        total = 0
        for bits, moved in rings.items():
            # Remote access is charged by `node`; a ring adds the links only.
            crossed = self.array.energies.hop * self.array.interconnect.ring(bits).hops
            total += nearest(moved, self._quarter * crossed)
        return total

    @property
    def _passes(self) -> int:
        """Forward alone, or forward, backward and gradient."""
        return 1 if self.plan.inference else 3

    def _touched(self, elements: int) -> int:
        """Return the charge of elements that every pass accesses once in the DRAM."""
        word = Fraction(self.plan.element_bytes, WORD_BYTES) * self._passes
        return nearest(elements, word * self.array.energies.dram * self.per_joule)
