"""Communication in bytes: the paper's Tables 1 and 2, in one of five readings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hypar_opt.costs.all_to_alls import joined_over
from hypar_opt.costs.base import CostModel, Symmetries
from hypar_opt.costs.choices_of_readings import check_choices
from hypar_opt.costs.copies_at_boundaries import passed_sums_of, reduced_over, repeated_over
from hypar_opt.costs.halos import halos_of
from hypar_opt.costs.reading_factors import conversions_of, reductions_of
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.errors import HyparError, UnknownNameError, argument
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.step.readings import INFERENCE, READINGS, TRAINING, Phase, Reading
from hypar_opt.step.states import ByLevel, copies_of, levels_of, runs_of
from hypar_opt.step.uneven import (
    most_stretched,
    sizes_at_ends,
    split_sizes,
    stretched,
    stretches_of,
)
from hypar_opt.workload.addends import passes_addends, takes_addends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.states import Indices, States
    from hypar_opt.step.uneven import Stretches
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class CommunicationCost(CostModel):
    """Bytes exchanged between the parts of every group of one level, added up.

    The exchanges of a choice follow from the tensors that lack the axis it splits (see
    `hypar_opt.workload.operators.axes`). For convolutions and fully-connected layers, with d data,
    m model and o output choices of a layer above a level of 2^h groups, h = d + m + o, a group has
    W / 2^(m+o), F / 2^(d+o) and, of the layer's own input, A / 2^(d+m). Times 2^h these are W *
    2^d, F * 2^m and A * 2^o: integers, even where a size is odd, so the charges are exact without
    any rounding.

    ======  ======  =======================  ===========================
    layer   choice  charged for              times
    ======  ======  =======================  ===========================
    l       data    dW_l                     gradient
    l       model   F_{l+1}                  partial_sum, gathered_error
    l       output  E_l                      input_error, or conversions
    l       not     sums over channels       all_reduce
            data    (of norms, of a loss)
    l-1, l  pairs   A                        conversions
    ======  ======  =======================  ===========================

    Factors are quarters of an element. In the reading ``executed`` F_{l+1} is the output
    before pooling.

    Parameters
    ----------
    reading
        The name of a row of factors in `hypar_opt.step.readings`.
    element_bytes
        Bytes of a tensor's element: 4 as in the paper, 2 for half precision.
    phases
        The passes that are charged: all three of training, or fewer.
    level_weights
        The cost of a byte at each level, H1 first; empty for 1 at every level.
    sizes
        The parts of each level: replicas of a tensor repeat its exchanges in each part.
    longest
        Whether amounts are as if all parts sent and received as much as the longest, where axes
        are divided unevenly: of states over all levels. Otherwise they are what moves.

    Raises
    ------
    UnknownNameError
        If there is no such reading.

    Source: Tables 1 and 2; Algorithm 2; docs/model.md.
    """

    reading: str = "text"
    element_bytes: int = 4
    phases: tuple[Phase, ...] = TRAINING
    level_weights: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    longest: bool = False

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise UnknownNameError("reading", self.reading, list(READINGS))

    @classmethod
    def of_problem(cls, problem: Problem, **more: Any) -> Self:
        """Return the cost of a problem whose reading has a charge for all of its choices."""
        return cls(
            problem.reading,
            problem.element_bytes,
            INFERENCE if problem.inference else TRAINING,
            problem.level_weights,
            problem.hierarchy.sizes,
            **more,
        )

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> CommunicationCost:
        """Return the cost of a problem; else an error says which choice has no charge."""
        cost = cls.of_problem(problem)
        if cost._row.halves and not problem.hierarchy.of_halves:
            sizes, executed = ",".join(map(str, cost.sizes)), argument("reading", "executed")
            raise HyparError(f"levels of {sizes} parts need {executed}; the paper's are of two")
        check_choices(problem, workload, cost._row)
        return cost

    def of(self, phase: Phase) -> CommunicationCost:
        """Return the cost model of one pass alone."""
        return self._of_pass[phase]

    @property
    def unit(self) -> str:
        return "weighted bytes" if self.level_weights else "bytes"

    @cached_property
    def resolution(self) -> int:
        """Charges per byte: 1, or 2 or 4 where smaller elements make fractions of a byte."""
        # A quarter of an element of 4 bytes is a whole byte.
        return Fraction(self.element_bytes, 4).denominator

    def node(self, workload: Workload, nodes: Indices, states: States) -> Sequence[Integers]:
        """Return each node's charges: what it reduces, and moves at borders of images."""
        own = workload, nodes, states
        return _added(self.reduced(*own), self.at_borders(*own))

    def reduced(self, workload: Workload, nodes: Indices, states: States) -> Sequence[Integers]:
        """Return what nodes move of tensors that they reduce: Table 1."""
        parts = self._parts(levels_of(states))
        reduced = []
        every = reductions_of(workload, self.reading, self.phases, len(parts))
        # A tensor has a copy per part at each level above whose axis it lacks (`W * 2^d` for data
        # parallelism).
        for lacks, quarters, repeated in every:
            lacked = [lacks[block, nodes] for block in states]
            replicas: Integers | int = 1
            if states and repeated is not None:
                replicas = copies_of([repeated[block, nodes] for block in states], parts)[-1].below
            uneven: Stretches = []
            if self.longest:
                # The level at which a tensor is reduced divides its elements, whatever their axes.
                axes = np.where(lacks, 0, split_sizes(workload))[:, nodes]
                uneven = stretches_of(axes, states, self.hierarchy)
            reduced.append((quarters[:, nodes], copies_of(lacked, parts), replicas, uneven))

        def charge(block: int) -> Integers:
            scales = self._scales(workload, states, block)
            moved: Integers | int = 0
            first = levels_of(states[:block])
            for quarters, copies, replicas, uneven in reduced:
                amounts = quarters
                if len(quarters) > 1:
                    amounts = quarters[first : first + len(states[block])]
                amount = amounts.astype(scales.dtype, copy=False) * replicas * copies[block].added
                moved = moved + stretched(amount, uneven)
            return scales * moved

        return ByLevel(states, charge)

    def at_borders(self, workload: Workload, nodes: Indices, states: States) -> Sequence[Integers]:
        """Return what nodes move at borders of images; no level if none moves any."""
        halos = halos_of(workload, self.phases) if states else None
        if halos is None:
            return ()
        axes = split_sizes(workload) if self.longest else None
        moved = halos.charges(nodes, states, self._parts(levels_of(states)), axes)

        def charge(block: int) -> Integers:
            scales = self._scales(workload, states, block)
            amounts: Integers = scales * moved(block).astype(scales.dtype, copy=False)
            return amounts

        return ByLevel(states, charge)

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> Sequence[Integers]:
        """Return each boundary's charges: Table 2, and the sums that it may pass on."""
        ends = workload, boundaries, sources, targets
        return _added(self.converted(*ends), self.passed_sums(*ends))

    def passed_sums(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> Sequence[Integers]:
        """Return what boundaries move of sums that they may pass on; no level if none may."""
        if not (takes_addends(workload) and targets and passes_addends(workload)[boundaries].any()):
            return ()
        parts = self._parts(levels_of(targets))
        reduced, copies = reduced_over(workload, boundaries, sources, targets, parts)
        quarters = passed_sums_of(workload, self.reading, self.phases)[boundaries]
        sizes = sizes_at_ends(workload)[0][:, boundaries]
        uneven = stretches_of(sizes, sources, self.hierarchy) if self.longest else ()

        def charge(block: int) -> Integers:
            scales = self._scales(workload, targets, block)
            amount = quarters.astype(scales.dtype, copy=False) * copies * reduced[block].added
            return scales * stretched(amount, uneven)

        return ByLevel(targets, charge)

    def converted(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> Sequence[Integers]:
        """Return what boundaries move of the target's input, whose splits count: Table 2."""
        parts = self._parts(levels_of(targets))
        repeated = repeated_over(
            *(workload, boundaries, sources, targets, parts), gathers_last=self._row.gathers_last
        )
        uneven = [
            stretches_of(sizes[:, boundaries], states, self.hierarchy)
            for sizes, states in zip(sizes_at_ends(workload), (sources, targets), strict=True)
            if self.longest
        ]
        joined = []
        if self._row.joins_levels:
            levels = max(levels_of(targets), len(self.sizes))
            hierarchy = Hierarchy(self._parts(levels))
            joined = joined_over(workload, boundaries, sources, targets, hierarchy)

        def charge(block: int) -> Integers:
            scales = self._scales(workload, targets, block)
            sizes = self._parts_in(targets, block)
            amounts = self._converted(workload, boundaries, sources[block], targets[block], sizes)
            amounts = amounts.astype(scales.dtype, copy=False)
            if not amounts.any():  # as of gradients, which are no boundary's
                return 0 * scales
            if joined:
                # What crosses a joined level has not crossed one above: no remainder.
                amounts = amounts // joined[block].above
            amounts = amounts * repeated(block)
            if any(uneven):
                # The slowest sends the longest part of what is written, or receives that of what
                # is read.
                amounts = np.maximum(*(stretched(amounts, end) for end in uneven))
            return scales * amounts

        return ByLevel(targets, charge)

    def by_levels(self, workload: Workload) -> CommunicationCost | None:  # noqa: ARG002
        return None if self._row.joins_levels else self

    def _converted(
        self,
        workload: Workload,
        boundaries: Indices,
        sources: Indices,
        targets: Indices,
        sizes: Sequence[int],
    ) -> Integers:
        """Return the quarters of elements that boundaries move at each level of a block."""
        if len(set(sizes)) == 1:
            return self._conversions(workload, sizes[0])[boundaries, sources, targets]
        levels = zip(sizes, sources, targets, strict=True)
        return np.stack([self._conversions(workload, n)[boundaries, s, t] for n, s, t in levels])

    def _conversions(self, workload: Workload, parts: int) -> Integers:
        """Return the quarters of elements that a boundary moves for each pair of choices."""
        return conversions_of(workload, self.reading, self.phases, parts)

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return which levels are charged alike: by weight and parts.

        Levels of one kind may be permuted where all weigh the same, else within a run of them.
        """
        weights = self.level_weights or (1,) * levels
        kinds = list(zip(weights, self._parts(levels), strict=False))
        alike = super().symmetries(workload, levels)._replace(kinds=kinds)
        if workload.reads_whole and not self._row.gathers_last:
            return alike  # a level is charged for the copies that those above leave
        # Where levels weigh otherwise, what lies between two tells them apart.
        differ = len(set(self.level_weights)) > 1
        return alike._replace(groups=runs_of(kinds) if differ else [*map(kinds.index, kinds)])

    def thresholds(self, workload: Workload, levels: int) -> ThresholdTable | None:
        """Return the charges of all levels together, for two choices and equal levels.

        Source: docs/decisions/0005-joint-optimum.md.
        """
        # With a third choice a boundary's charge depends on what its target has split above, and
        # with unequal weights permuting the levels changes the cost: neither telescopes.
        sizes = self._parts(levels)
        if len(workload.choices) > 2 or len(set(self.level_weights)) > 1 or len(set(sizes)) > 1:
            return None
        if len(workload.repeats.begins) > 1:
            return None  # nor do they where levels split other things of the weights
        if self._row.joins_levels or workload.reads_whole or workload.lacks_every_axis:
            # A tensor's charge depends on the level and not on the layer's own count alone.
            return None
        # All levels have the same weight and parts: the first level's scale is that of all.
        parts = sizes[0] if sizes else 2
        scale, reduction = self._scale(0), self._scale(0) * (parts - 1)
        weights = workload.is_weight_boundary
        bound = (1 + self.upper_bound(workload, 0)) * parts**levels
        dtype = exact_dtype(6 * bound + int(weights.sum()) * bound * parts**levels)
        charges: Integers = np.zeros((2, len(workload.nodes)), dtype)
        for lacks, quarters, _ in reductions_of(workload, self.reading, self.phases):
            charges += reduction * quarters[0].astype(dtype, copy=False) * lacks
        conversions: Any = self._conversions(workload, parts).astype(dtype, copy=False)
        pairs = scale * conversions.reshape(-1, 4).T
        stored = charges.max(axis=0)[workload.ends[weights, 0]]
        # As `with_penalties`: no threshold charges the weights' node as much as this.
        pairs[2, weights] = 1 + stored * parts**levels
        table = ThresholdTable(
            data=charges[0],
            model=charges[1],
            ends=workload.ends,
            pairs=pairs,
            levels=levels,
            parts=parts,
            unit=self.unit,
            resolution=self.resolution,
        )
        if dtype is np.int64 or exact_dtype(table.largest) is np.object_:
            return table
        charges, pairs = charges.astype(np.int64), pairs.astype(np.int64)
        return replace(table, data=charges[0], model=charges[1], pairs=pairs)

    @cached_property
    def _of_pass(self) -> dict[Phase, CommunicationCost]:
        return {
            phase: replace(self, phases=(phase,) if phase in self.phases else ()) for phase in Phase
        }

    @cached_property
    def _row(self) -> Reading:
        return READINGS[self.reading]

    def upper_bound(self, workload: Workload, level: int) -> int:
        """Return an upper bound on the cost of a level's assignment, in units of charges."""
        return self._scale(level) * self._amounts(workload, level)

    def _amounts(self, workload: Workload, level: int) -> int:
        """Return an upper bound on the quarters of elements that move at a level, in all groups."""
        # No reading charges a tensor more than 2 (n - 1) elements in all passes, and none has more
        # copies than there are groups above a level: with replicas than accelerators.
        beyond = bool(workload.weight_users) or workload.has_replicas
        levels = max(len(self.sizes), level + 1) if beyond else level
        most = 8 * (max(self.sizes, default=2) - 1)
        if self.longest:
            most *= most_stretched(workload, self.hierarchy)
        most *= workload.most_repeats
        if halos_of(workload, self.phases):
            # A part is no shorter than its halo: all borders have fewer than 8 times the tensor.
            most *= 9
        return most * workload.elements * math.prod(self._parts(levels))

    def _scales(self, workload: Workload, states: States, block: int) -> Integers:
        """Return the charge of a quarter of an element at the levels of a block of states.

        Its integers hold every sum of each level: ``(levels, 1, ..., 1)``.
        """
        first = levels_of(states[:block])
        charges = [self._scale(first + level) for level in range(len(states[block]))]
        largest = max(charges) * self._amounts(workload, first + len(charges) - 1)
        axes = [1] * (states[block].ndim - 1)
        return np.array(charges, exact_dtype(largest)).reshape(-1, *axes)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The parts of all levels."""
        return Hierarchy(self.sizes)

    def _parts(self, levels: int) -> tuple[int, ...]:
        """Return the parts of each of the topmost levels: two for levels beyond `sizes`."""
        return (*self.sizes, *(2,) * (levels - len(self.sizes)))[:levels]

    def _parts_in(self, states: States, block: int) -> tuple[int, ...]:
        """Return the parts of the levels of a block of states."""
        return self._parts(levels_of(states[: block + 1]))[levels_of(states[:block]) :]

    def _scale(self, level: int) -> int:
        """Return the charge of a quarter of an element at a level."""
        weight = self.level_weights[level] if self.level_weights else 1
        return self.element_bytes * weight * self.resolution // 4


def _added(rows: Sequence[Integers], more: Sequence[Integers]) -> Sequence[Integers]:
    """Return the charges of each level, and those that not all problems have."""
    return [own + other for own, other in zip(rows, more, strict=True)] if more else rows
