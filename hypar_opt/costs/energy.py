"""Energy in joules: multiply-accumulates, local memory, and words that move."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, SplitCounts
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import layer_macs, local_words
from hypar_opt.costs.physical import Rings, array_of, finest, rounded
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.units import PREFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

WORD_BYTES = 4
"""The constants are those of 32-bit words; smaller elements take their part."""


@dataclass(frozen=True)
class EnergyCost(CostModel):
    """Joules of one training step, over all accelerators.

    Each pass touches each local tensor once, which makes W * 2^d + A * 2^o + F * 2^m words of
    a layer after d data, m model and o output choices: each choice adds as many words as its
    tensor had, so a level can be charged for what it adds. What a layer has before any choice,
    and its multiply-accumulates, are charged with the first level.

    Parameters
    ----------
    communication
        Whose bytes are charged.
    array
        For its constants, and its way of counting multiply-accumulates.
    hops
        Links that a byte of each level's exchanges between pairs crosses, H1 first.
    rings
        Those that reductions go around, and whose links their bytes then cross: a charge of
        a layer's state. None to reduce between pairs.
    local
        Whether to charge what is not exchanged.
    per_joule
        Charges count this fraction of a joule: 10^15, or fewer where sums of femtojoules
        would not fit int64.
    largest
        No sum of charges is larger.

    Source: docs/simulator.md.
    """

    communication: CommunicationCost
    array: Array
    hops: tuple[Fraction, ...]
    rings: Rings | None = None
    local: bool = True
    per_joule: int = 10**15
    largest: int = 2**63

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> EnergyCost:
        """Return the cost of a problem with an array.

        Raises
        ------
        HyparError
            If the problem has no array, or what does not go with one.
        """
        array, placement = array_of(problem)
        hops = tuple(array.interconnect.bisection(bit).hops for bit in placement)
        rings = Rings.of(array, placement) if array.energy.hop else None
        cost = cls(CommunicationCost.from_problem(problem, workload), array, hops, rings)
        per_joule = finest(cost.upper_bound(workload))
        largest = math.ceil(4 * cost.upper_bound(workload) * per_joule)
        return replace(cost, per_joule=per_joule, largest=largest)

    @property
    def unit(self) -> str:
        return f"{PREFIXES[self.per_joule]}joules"

    @property
    def choices(self) -> int:
        return self.communication.choices

    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Charge each layer's exchanges and the local words that its choice adds."""
        moved = self.communication.node(workload, splits)
        hops = Fraction() if self.rings else self.hops[splits.level]
        node = rounded(moved, self._of_byte(hops) * self.per_joule)
        if self.local:
            # A choice adds as many words as the tensors that it leaves whole have by now.
            words = local_words(workload, splits.counts)
            lacking = workload.lacking(self.choices)
            tensors = zip((lacking.weight, lacking.input, lacking.output), words, strict=True)
            for lacks, elements in tensors:
                node += self._touched(elements)[:, None] * lacks.T
            if splits.level == 0:
                node += self._whole(workload)[:, None]
        return node.astype(exact_dtype(self.largest))

    def edge(self, workload: Workload, source: SplitCounts, target: SplitCounts) -> Integers:
        """Charge each boundary's exchanges."""
        moved = self.communication.edge(workload, source, target)
        edge = rounded(moved, self._of_byte(self.hops[target.level]) * self.per_joule)
        return edge.astype(exact_dtype(self.largest))

    def of_state(self, workload: Workload, state: Sequence[int]) -> Mapping[int, Integers]:
        """Charge each layer for the links that its rings' bytes cross."""
        charges: dict[int, Integers] = {}
        for choice, levels, split in self.rings.joined(state) if self.rings else ():
            crossing = self._of_byte(split.hops) - self._of_byte(Fraction())
            moved = self.communication.of_choice(workload, state, choice)
            charge = rounded(moved, crossing * self.per_joule)
            charges[levels[0]] = charge.astype(exact_dtype(self.largest))
        return charges

    def beyond_levels(self, workload: Workload, splits: SplitCounts) -> str | None:  # noqa: ARG002
        """Return what of the energy is of a layer's state: the links that its rings cross."""
        return "a ring joins all the levels at which a layer reduces" if self.rings else None

    def communication_only(self) -> EnergyCost:
        return replace(self, local=False)

    def _of_byte(self, hops: Fraction) -> Fraction:
        """Return the joules of a charge of communication whose bytes cross some links."""
        energy = self.array.energy
        word = energy.remote + energy.hop * hops
        return word / (WORD_BYTES * self.communication.resolution)

    @property
    def _of_element(self) -> Fraction:
        """Return the joules of touching an element in every pass."""
        words = Fraction(self.communication.element_bytes, WORD_BYTES)
        return words * len(self.communication.phases) * self.array.energy.dram

    def _touched(self, elements: Integers) -> Integers:
        return rounded(elements, self._of_element * self.per_joule)

    def _whole(self, workload: Workload) -> Integers:
        """Return each layer's charge before any choice."""
        energy = self.array.energy
        macs = np.array(layer_macs(workload, self.array.accelerator), object)
        each = (energy.mac + energy.sram) * len(self.communication.phases)
        weights, inputs, outputs = (
            np.array(sizes, object)
            for sizes in (workload.weights, workload.inputs, workload.pooled)
        )
        words = weights + inputs + outputs
        return rounded(macs, each * self.per_joule) + self._touched(words)

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return joules that no plan takes, wherever its levels are placed."""
        levels = range(len(self.hops))
        most = self.rings.interconnect.hops_upper_bound if self.rings else max(self.hops)
        highest_rate = self._of_byte(Fraction(most))
        moved = (
            sum(self.communication.upper_bound(workload, level) for level in levels) * highest_rate
        )
        energy, phases = self.array.energy, len(self.communication.phases)
        macs = sum(layer_macs(workload, self.array.accelerator))
        touched = (workload.elements << len(self.hops)) * self._of_element
        return moved + touched + macs * phases * (energy.mac + energy.sram)
