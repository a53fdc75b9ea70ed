"""Energy in joules: multiply-accumulates, local memory, and communicated words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import BoundaryStates, CostModel, PlanChoices, SplitCounts
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import layer_macs, local_words
from hypar_opt.costs.joined_levels import over_levels
from hypar_opt.costs.physical import Rings, array_of, finest, rounded
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.units import PREFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

WORD_BYTES = 4
"""An array's energies are per 32-bit word; smaller elements are charged proportionally."""


@dataclass(frozen=True)
class EnergyCost(CostModel):
    """Joules of one training step, over all accelerators.

    Each pass touches each local tensor once, which makes W * 2^d + A * 2^o + F * 2^m words of
    a layer after d data, m model and o output choices. Each choice doubles one of these terms,
    and so adds as many words as it had: a charge of its level. The words before any choice, and
    the multiply-accumulates, are charged with the first level.

    Parameters
    ----------
    communication
        The model that counts the bytes.
    array
        For its energies, and its way of counting multiply-accumulates.
    hops
        Links that a byte of each level's exchanges between pairs crosses, H1 first.
    rings
        The rings of reductions, if a link that a byte crosses is charged: a charge of a layer's
        state (`of_state`). None to reduce between pairs.
    local
        Whether to charge local memory and compute beside the exchanges.
    per_joule
        Charges per joule: 10^15, or fewer where sums of femtojoules would not fit int64.
    largest
        An upper bound on any sum of charges.

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
            If the problem has no array, or options that contradict one, or the array no energies.
        """
        array, placement = array_of(problem)
        hops = tuple(array.interconnect.bisection(bit).hops for bit in placement)
        # If links cost nothing, a ring charges what pairs charge, and no state needs a charge.
        rings = Rings.of(array, placement) if array.energies.hop else None
        cost = cls(CommunicationCost.from_problem(problem, workload), array, hops, rings)
        # The unit follows from a bound over all placements, so that plans of different placements
        # are in one unit and can be compared.
        upper_bound = cost.upper_bound(workload)
        per_joule = finest(upper_bound)
        largest = math.ceil(4 * upper_bound * per_joule)
        return replace(cost, per_joule=per_joule, largest=largest)

    @property
    def unit(self) -> str:
        return f"{PREFIXES[self.per_joule]}joules"

    @property
    def choices(self) -> int:
        return self.communication.choices

    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Return each layer's charges: its exchanges, and the local words that a choice adds."""
        moved = self.communication.node(workload, splits)
        # Around rings the links are a charge of the state; what is left here is remote access.
        hops = Fraction() if self.rings else self.hops[splits.level]
        dtype = exact_dtype(self.largest)
        node: Integers = rounded(moved, self._of_byte(hops) * self.per_joule).astype(dtype)
        if self.local:
            # A choice replicates the tensors that lack its axis, and so adds their words once more.
            words = local_words(workload, splits.counts)
            lacking = workload.lacking(self.choices)
            tensors = zip((lacking.weight, lacking.input, lacking.output), words, strict=True)
            for lacks, elements in tensors:
                node += self._touched(elements).astype(dtype)[:, None] * lacks.T
            if splits.level == 0:
                node += self._before_any_choice(workload).astype(dtype)[:, None]
        return node

    def edge(self, workload: Workload, source: SplitCounts, target: SplitCounts) -> Integers:
        """Return each boundary's charges: its exchanges, always between pairs."""
        moved = self.communication.edge(workload, source, target)
        edge = rounded(moved, self._of_byte(self.hops[target.level]) * self.per_joule)
        return edge.astype(exact_dtype(self.largest))

    def reads_splits(self, workload: Workload) -> tuple[bool, bool]:
        return self.communication.reads_splits(workload)

    def of_plans(self, workload: Workload, plans: NDArray[np.intp]) -> Integers | None:
        if workload.has_replicas(self.choices):
            return None
        choices = PlanChoices.of(plans, self.choices)
        dtype = exact_dtype(self.largest)
        charges: Integers = np.zeros(plans.shape[:2], dtype)
        node, edge = self.communication.exchanged(workload, choices)
        for level, hops in enumerate(self.hops[: plans.shape[1]]):
            own = self._of_byte(Fraction() if self.rings else hops) * self.per_joule
            for part, rate in ((node, own), (edge, self._of_byte(hops) * self.per_joule)):
                charges[:, level] += rounded(part[:, level], rate).astype(dtype).sum(axis=1)
        if self.local:
            words = local_words(workload, choices.above)
            lacking = workload.lacking(self.choices)
            tensors = zip((lacking.weight, lacking.input, lacking.output), words, strict=True)
            for lacks, elements in tensors:
                touched = self._touched(elements).astype(dtype)
                charges += (touched * lacks[plans, np.arange(plans.shape[2])]).sum(axis=2)
            charges[:, 0] += self._before_any_choice(workload).astype(dtype).sum()
        return charges

    def pairs(self, workload: Workload, ends: BoundaryStates) -> Integers:
        moved = self.communication.pairs(workload, ends)
        rates = [self._of_byte(hops) * self.per_joule for hops in self.hops]
        charges = [rounded(*level) for level in zip(moved, rates, strict=False)]
        return (
            np.array(charges, object).reshape(ends.sources.shape).astype(exact_dtype(self.largest))
        )

    def of_state(self, workload: Workload, state: Sequence[int]) -> Mapping[int, Integers]:
        """Return each layer's charge for the links that its rings' bytes cross."""
        if self.rings is None:
            return {}
        charges: dict[int, Integers] = {}
        dtype = exact_dtype(self.largest)
        moved: dict[tuple[int, ...], Integers] = {}
        for phase in self.communication.phases:
            for levels, reduced in over_levels(
                self.communication.of(phase), workload, state
            ).items():
                moved[levels] = moved.get(levels, 0) + reduced
        for levels, reduced in moved.items():
            # Without the remote access of a byte, which `node` has charged.
            crossing = self._of_byte(self.rings.link(levels).hops) - self._of_byte(Fraction())
            charge = rounded(reduced, crossing * self.per_joule).astype(dtype)
            # Reported with the topmost level of the ring.
            charges[levels[0]] = charges.get(levels[0], 0) + charge
        return charges

    def beyond_levels(self, workload: Workload, splits: SplitCounts) -> str | None:  # noqa: ARG002
        """Return why no level alone charges the links of rings; None between pairs."""
        return "a ring joins all the levels at which a layer reduces" if self.rings else None

    def communication_only(self) -> EnergyCost:
        return replace(self, local=False)

    def _of_byte(self, hops: Fraction) -> Fraction:
        """Return the joules of one charge of communication, whose bytes cross ``hops`` links."""
        energy = self.array.energies
        word = energy.remote + energy.hop * hops
        return word / (WORD_BYTES * self.communication.resolution)

    @property
    def _of_element(self) -> Fraction:
        """Return the joules of accessing an element in the DRAM once in every pass."""
        words = Fraction(self.communication.element_bytes, WORD_BYTES)
        return words * len(self.communication.phases) * self.array.energies.dram

    def _touched(self, elements: Integers) -> Integers:
        """Return the charge of elements that every pass reads or writes once."""
        return rounded(elements, self._of_element * self.per_joule)

    def _before_any_choice(self, workload: Workload) -> Integers:
        """Return each layer's charge before any choice."""
        energy = self.array.energies
        macs = np.array(layer_macs(workload, self.array.accelerator), object)
        joules_per_mac = (energy.mac + energy.sram) * len(self.communication.phases)
        weights, inputs, outputs = (
            np.array(sizes, object)
            for sizes in (workload.weights, workload.inputs, workload.pooled)
        )
        words: Integers = weights + inputs + outputs
        return rounded(macs, joules_per_mac * self.per_joule) + self._touched(words)

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the joules of any plan under any placement."""
        levels = range(len(self.hops))
        max_hops = self.rings.interconnect.hops_upper_bound if self.rings else max(self.hops)
        highest_rate = self._of_byte(Fraction(max_hops))
        moved = (
            sum(self.communication.upper_bound(workload, level) for level in levels) * highest_rate
        )
        energy, phases = self.array.energies, len(self.communication.phases)
        macs = sum(layer_macs(workload, self.array.accelerator))
        # No tensor has more than 2^H copies in the array.
        touched = (workload.elements << len(self.hops)) * self._of_element
        return moved + touched + macs * phases * (energy.mac + energy.sram)
