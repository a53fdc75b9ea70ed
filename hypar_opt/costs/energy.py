"""Energy in joules: multiply-accumulates, local memory, and communicated words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.on_array import ArrayCost, Rates
from hypar_opt.costs.physical import Rings, array_of, rounded
from hypar_opt.costs.reductions import joined, stage_charges
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.integers import exact_dtype
from hypar_opt.step.states import exact_sum, level_choices
from hypar_opt.step.work import layer_macs, local_tensors, passes_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from hypar_opt.costs.reductions import Levels, Places, Reduction
    from hypar_opt.hardware.array import Array
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.sharding.passes import Phase
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

WORD_BYTES = 4
"""An array's energies are per 32-bit word; smaller elements are charged proportionally."""


@dataclass(frozen=True, kw_only=True)
class EnergyCost(ArrayCost):
    """Joules of one training step, over all accelerators.

    Each pass, as often as a step repeats it, touches each local tensor once, which makes W * 2^d +
    A * 2^o + F * 2^m words of a layer after d data, m model and o output choices between halves.
    Each choice multiplies one of these terms by the parts of its level, and so adds words: a charge
    of the level. The words before any choice, and the multiply-accumulates, are charged with the
    first level.

    Parameters
    ----------
    array
        For its energies, and its way of counting multiply-accumulates.
    hops
        Links that a byte of each level's exchanges between pairs crosses, H1 first.
    local
        Whether to charge local memory and compute beside the exchanges.

    Source: docs/assumptions.md.
    """

    array: Array
    hops: tuple[Fraction, ...]
    local: bool = True

    BASE = "joules"

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> EnergyCost:
        """Return the cost of a problem with an array.

        Raises
        ------
        HyparError
            If the problem has no array, or options that contradict one, or the array no energies.
        """
        array, placement = array_of(problem)
        if problem.has_unequal_parts:
            from hypar_opt.costs.groups import GroupBytes

            communication: CommunicationCost = GroupBytes.of_groups(problem)
        else:
            communication = CommunicationCost.from_problem(problem, workload)
        cost = cls(
            communication=communication,
            # If links cost nothing, a ring charges what pairs charge.
            rings=Rings.of(array, placement) if array.energies.hop else None,
            array=array,
            hops=tuple(array.interconnect.bisection(digit).hops for digit in placement),
        )
        return cost.in_units(None, workload)

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return each layer's charges: its exchanges, and the local words that a choice adds."""
        rows = self.exchanges_of_nodes(workload, nodes, states)
        if self.local and states:
            self._add_local_words(workload, nodes, states, rows)
            rows[0] = rows[0] + self._before_any_choice(workload)[nodes]
        return rows

    def reductions_charged(
        self,
        reductions: Mapping[tuple[Phase, int], Reduction],
        workload: Workload,  # noqa: ARG002
        nodes: Indices,  # noqa: ARG002
        shape: tuple[int, ...],
    ) -> list[Integers]:
        amounts = [amount.moved for amount in reductions.values()]
        mean = self.communication.mean
        moved = [mean(sum(rows[1:], rows[0])) for rows in zip(*amounts, strict=True)]
        if self.rings is None:
            return [self.at_rates(row, self.rates(level)) for level, row in enumerate(moved)]
        # Remote access is each level's, whatever links its bytes cross.
        rows = [self.at_rates(row, self._rates_over(Fraction())) for row in moved]
        # Levels that split gradients are reduced over by themselves.
        passes = [joined(list(map(mean, amount)), shape) for amount in amounts]
        links = self._over_links(self.rings, passes, len(moved))
        return [row + link for row, link in zip(rows, links, strict=True)]

    def rounded_together(self, exchange: Collective) -> Hashable:
        return exchange.tensor

    def _over_links(
        self, rings: Rings, passes: list[tuple[Integers, Integers]], levels: int
    ) -> list[Integers]:
        """Return the charges of the links that rings' bytes cross, by level."""
        rows = self.uncharged(levels)
        while passes:
            # What several passes reduce over the same levels is rounded once.
            over, reduced = passes.pop(0)
            for number, (levels_reduced, more) in enumerate(passes):
                same = levels_reduced == over
                reduced = reduced + np.where(same, more, 0)
                passes[number] = np.where(same, 0, levels_reduced), more

            charged = stage_charges(
                over,
                reduced,
                rows,
                rings,
                partial(self._over_ring, rings),
                by_crossing=self.crossing,
            )
            rows = [row + links for row, links in zip(rows, charged, strict=True)]
        return rows

    def _over_ring(self, rings: Rings, stage: Levels, _: Places, moved: Integers) -> Integers:
        # Without the remote access of a byte.
        crossing = self._unit_joules(rings.link(stage).hops) - self._unit_joules(Fraction())
        return self.at_rates(moved, (crossing * self.per_unit, Fraction()))

    def _add_local_words(
        self, workload: Workload, nodes: Indices, states: States, rows: list[Integers]
    ) -> None:
        """Add what choices add to local words: a copy of each tensor that lacks their axis."""
        hierarchy, times = Hierarchy(self.communication.sizes), self._passes(workload)
        for sizes, lacks in local_tensors(workload, hierarchy):
            elements = (times * sizes)[nodes]
            for level, choice in enumerate(level_choices(states)):
                lacked, parts = lacks[choice, nodes], hierarchy.sizes[level]
                if lacked.any():
                    rows[level] = rows[level] + self._touched(elements * lacked * (parts - 1))
                    elements = elements * np.where(lacked, parts, 1)

    def communication_only(self) -> EnergyCost:
        return replace(self, local=False)

    @property
    def level_links(self) -> Sequence[object]:
        return self.hops

    def rates(self, level: int) -> Rates:
        return self._rates_over(self.hops[level])

    def _rates_over(self, hops: Fraction) -> Rates:
        return self._unit_joules(hops) * self.per_unit, Fraction()

    def _unit_joules(self, hops: Fraction) -> Fraction:
        """Return the joules of one charge of communication, whose bytes cross ``hops`` links."""
        energy = self.array.energies
        word = energy.remote + energy.hop * hops
        return word / (WORD_BYTES * self.communication.resolution)

    def _passes(self, workload: Workload) -> Integers:
        """Return how often a step passes through each node."""
        times = exact_sum([passes_of(workload, phase) for phase in self.communication.phases])
        limit = workload.elements * math.prod(self.communication.sizes) * int(times.max(initial=1))
        return times.astype(exact_dtype(limit))

    @property
    def _element_joules(self) -> Fraction:
        """Return the joules of accessing an element in the DRAM."""
        return Fraction(self.communication.element_bytes, WORD_BYTES) * self.array.energies.dram

    def _touched(self, elements: Integers) -> Integers:
        """Return the charge of elements that are read or written."""
        return rounded(elements, self._element_joules * self.per_unit)

    def _before_any_choice(self, workload: Workload) -> Integers:
        """Return each layer's charge before any choice."""
        energy, times = self.array.energies, self._passes(workload)
        macs = times * np.array(layer_macs(workload, self.array.accelerator.mac_count), object)
        tensors = local_tensors(workload, Hierarchy(self.communication.sizes))
        words = exact_sum([times * elements for elements, _ in tensors])
        return rounded(macs, (energy.mac + energy.sram) * self.per_unit) + self._touched(words)

    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the joules of any plan under any placement."""
        levels = range(len(self.hops))
        max_hops = self.rings.interconnect.hops_upper_bound if self.rings else max(self.hops)
        highest_rate = self._unit_joules(Fraction(max_hops))
        moved = (
            sum(self.communication.upper_bound(workload, level) for level in levels) * highest_rate
        )
        energy, passes = self.array.energies, int(self._passes(workload).max(initial=1))
        macs = sum(layer_macs(workload, self.array.accelerator.mac_count))
        # No tensor has more copies than there are accelerators.
        touched = workload.elements * math.prod(self.communication.sizes) * self._element_joules
        return moved + passes * (touched + macs * (energy.mac + energy.sram))
