"""Two unequal groups of accelerators: what each receives, and how long it works.

H1 lies between the groups. A tensor that H1 splits is split by their shares, one ratio for all
layers; all of a layer on one side is a share of everything there. A group's amounts are counted as
if both groups had as much, so that the rates of the whole array apply, and so that those of a half
are the amounts of equal parts. Where s is a group's share of what is written and t of what is read,
it receives

- of a reduce-scatter t, of an all-gather 1 - s of the tensor, of an all-reduce all of it;
- of an all-to-all, or where one end is on one side, t (1 - s);
- of an exchange below H1 as much as its share of the tensor, or all of a copy.

Source: docs/decisions/0025-unequal-groups.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import Work
from hypar_opt.costs.reading_factors import conversions_of
from hypar_opt.costs.readings import READINGS, Phase
from hypar_opt.costs.states import added_up
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.errors import HyparError, argument
from hypar_opt.sharding.layouts import CHANNEL, PARTIAL, SHUFFLED, WHOLE
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.base import Symmetries
    from hypar_opt.costs.states import Indices, States
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

SHARES = 10_000
"""The parts of a tensor that a group's share is a whole number of."""

HALF = SHARES // 2


def doubled(amounts: Integers, parts: Integers | int) -> Integers:
    """Return twice a share of each amount, rounded half up."""
    # Whole multiples apart, so that no product is much larger than the amount.
    whole = amounts // SHARES
    rest = amounts - whole * SHARES
    share: Integers = 2 * whole * parts + (4 * rest * parts + SHARES) // (2 * SHARES)
    return share


@dataclass(frozen=True)
class Share:
    """One group's share.

    Parameters
    ----------
    side
        0 for the first group, 1 for the second.
    parts
        Its share of a tensor that H1 splits, of `SHARES`.
    """

    side: int
    parts: int

    @classmethod
    def both(cls, parts: int) -> tuple[Share, Share]:
        """Return the shares of both groups, given the first one's."""
        return cls(0, parts), cls(1, SHARES - parts)

    def of_layouts(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return its share of a tensor by the tensor's layout at H1; a half of what is whole."""
        one_sided = {SIDES[self.side]: SHARES, SIDES[1 - self.side]: 0, WHOLE: HALF}
        return np.array([one_sided.get(name, self.parts) for name in names], np.int64)

    def of_nodes(self, workload: Workload, nodes: Indices, states: States) -> NDArray[np.int64]:
        """Return its share of what each node computes, given the node's choice at H1."""
        layouts = workload.layouts
        share: NDArray[np.int64] = self.of_layouts(layouts.names)[
            layouts.output[states[0][0], nodes]
        ]
        return share


@dataclass(frozen=True)
class _OfGroup:
    """What one of two groups has.

    Parameters
    ----------
    share
        The group's.
    """

    share: Share = Share(0, HALF)

    @classmethod
    def among(cls, plain: CommunicationCost | Work, share: Share) -> Self:
        """Return what a group has, where a model of equal parts has the same exchanges or work."""
        stated = [field.name for field in fields(cls) if field.name != "share"]
        return cls(**{name: getattr(plain, name) for name in stated}, share=share)


@dataclass(frozen=True)
class SideBytes(_OfGroup, CommunicationCost):
    """The bytes that one of two groups receives in a pass, as if both received as much."""

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return each node's charges: what it reduces, and gathers again, in one pass."""
        rows = [row for block in states for row in block]
        charged: list[Integers] = [np.zeros(1, np.int64)] * len(rows)
        own = self.share.of_nodes(workload, nodes, states) if rows else HALF
        for lacks, elements, received, repeated in self._reductions(workload):
            lacked = [lacks[row, nodes] for row in rows]
            before: Integers = elements[nodes]
            for row, parts in zip(rows[1:], self._parts(len(rows))[1:], strict=True):
                before = before * np.where(repeated[row, nodes], parts, 1)
            in_both = lacked[0] | repeated[rows[0], nodes] if rows else False
            for level, (here, parts) in enumerate(zip(lacked, self._parts(len(rows)), strict=True)):
                moved = before * (self._scale(level) * (parts - 1)) * here
                if level:
                    moved = np.where(in_both, 2 * moved, doubled(moved, own))
                    before = before * np.where(here, parts, 1)
                elif received is not None:
                    moved = doubled(moved, received)
                charged[level] = charged[level] + moved
        return charged

    def _reductions(
        self, workload: Workload
    ) -> Iterator[tuple[NDArray[np.bool_], Integers, int | None, NDArray[np.bool_]]]:
        """Yield what a pass reduces: which choices, ``(choices, nodes)``, quarters, and how.

        The third is the share of a reduce-scatter or an all-gather that the group receives; None
        for an all-reduce. The last are the choices that repeat it in each part.
        """
        (phase,) = self.phases
        factors, layouts, parts = READINGS["executed"], workload.layouts, self.share.parts
        nodes = workload.nodes

        def quarters(factor: int, sizes: Sequence[int]) -> Integers:
            # Of a tensor whole, and copied by every accelerator.
            largest = 8 * factor * max(sizes, default=0) * math.prod(self.sizes)
            dtype = exact_dtype(largest * self._scale(0) * SHARES)
            return factor * np.array(sizes, dtype)

        nowhere = np.zeros_like(layouts.whole)
        if phase is Phase.GRADIENT:
            weights = layouts.weight < FIRST_SPLIT
            yield weights, quarters(factors.gradient, workload.stored), None, nowhere
            return
        forward = phase is Phase.FORWARD
        partial_sums = (layouts.output < FIRST_SPLIT) & ~layouts.whole
        factor = factors.partial_sum if forward else factors.gathered_error
        received = parts if forward else SHARES - parts
        yield partial_sums, quarters(factor, workload.outputs), received, nowhere
        if any(any(node.statistics) for node in nodes):
            channels = [n for n, name in enumerate(layouts.names) if name in (CHANNEL, SHUFFLED)]
            split = np.isin(layouts.inputs[0], channels)
            sums = [node.statistics[0 if forward else 1] for node in nodes]
            yield split, quarters(factors.gradient, sums), None, layouts.whole

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        """Return each boundary's charges in one pass; those of weights are 0."""
        layouts, operand = workload.layouts, workload.operand[boundaries]
        source, target = workload.ends[boundaries, 0], workload.ends[boundaries, 1]
        made = [row for block in sources for row in block]
        needed = [row for block in targets for row in block]
        levels, parts = range(len(made)), self._parts(len(made))
        moving = ~workload.is_weight_boundary[boundaries]
        sizes: Integers = self._boundary_sizes(workload)[boundaries] * moving
        read = [layouts.inputs[operand, row, target] for row in needed]
        whole = [row == 0 for row in read] if workload.reads_whole else []
        kept = [layouts.whole[row, source] & here for row, here in zip(made, whole, strict=False)]
        charged: list[Integers] = []
        for level in levels:
            amount: Integers = sizes
            if level:
                table = conversions_of(workload, "executed", self.phases, parts[level])
                amount = table[boundaries, made[level], needed[level]] * moving
            amount = amount * self._scale(level)
            for other in levels[1:] if whole else ():
                # All-gathers come last, the topmost first.
                gathered = whole[other] if other < level else kept[other]
                repeated = np.where(whole[level], gathered, kept[other])
                amount = amount * np.where(repeated, parts[other], 1) if other != level else amount
            if not level:
                written = layouts.output[made[0], source]
                charged.append(self._between_groups(workload, amount, written, read[0]))
                continue
            of_layouts = self.share.of_layouts(layouts.names)
            own = of_layouts[read[0]]
            if not whole:
                charged.append(doubled(amount, own))
                continue
            # Until it is gathered, the tensor is split as it was written.
            own = np.where(whole[0], of_layouts[layouts.output[made[0], source]], own)
            copied = np.where(whole[level], whole[0], kept[0])
            charged.append(np.where(copied, 2 * amount, doubled(amount, own)))
        return charged

    def _between_groups(
        self, workload: Workload, amount: Integers, written: Indices, read: Indices
    ) -> Integers:
        """Return what the group receives at H1 of tensors of so many elements' charges.

        Partial sums are charged to their node; they are then split by batch, or as they are read.
        """
        first, then = _between_layouts(workload.layouts.names, self.share, self.phases)
        received = doubled(4 * amount, first[written, read])
        halved: Integers = (doubled(received, then[written, read]) + 1) // 2
        return halved

    def _boundary_sizes(self, workload: Workload) -> Integers:
        sizes = workload.boundary_sizes
        largest = 64 * max(sizes, default=0) * math.prod(self.sizes) * self._scale(0)
        return np.array(sizes, exact_dtype(largest * SHARES))


@lru_cache(maxsize=64)
def _between_layouts(
    names: tuple[str, ...], share: Share, phases: tuple[Phase, ...]
) -> NDArray[np.int64]:
    """Return a group's two shares of what it receives at H1: ``(2, layouts, layouts)``.

    Of a tensor written in one layout and read in another it receives the one share of the other.
    """
    received = np.zeros((2, len(names), len(names)), np.int64)
    shares = share.of_layouts(names).tolist()
    backward = phases == (Phase.BACKWARD,)
    for number, name in enumerate(names):
        for other, needed in enumerate(names):
            unmoved = name in (needed, WHOLE) or needed == PARTIAL
            if unmoved or (name == PARTIAL and needed not in (WHOLE, *SIDES)):
                continue
            had, has = shares[number], shares[other]
            if needed == WHOLE:
                pair = (had if backward else SHARES - had), SHARES
            elif backward:
                pair = had, SHARES - has
            else:
                pair = has, SHARES - had
            received[:, number, other] = pair
    if phases == (Phase.GRADIENT,):
        received[0] = 0
    received.setflags(write=False)
    return received


def parts_of_share(share: float | None) -> int:
    """Return the first group's share of what H1 splits, of `SHARES`; a half where none is set."""
    return HALF if share is None else round(share * SHARES)


def check_reading(problem: Problem) -> Problem:
    """Return a problem of unequal groups, if it is of the reading that a run has.

    Raises
    ------
    HyparError
        If it is of another.
    """
    if problem.reading != "executed":
        wanted = argument("reading", "executed")
        raise HyparError(f"unequal groups of accelerators need {wanted}, got {problem.reading}")
    return problem


def between_groups(levels: int) -> list[bool]:
    """Return of each level whether it lies between the groups: H1 alone does."""
    return [not level for level in range(levels)]


@dataclass(frozen=True)
class GroupBytes(CommunicationCost):
    """The bytes of both groups together.

    Parameters
    ----------
    parts
        The first group's share of a tensor that H1 splits, of `SHARES`.
    """

    parts: int = HALF

    @classmethod
    def of_groups(cls, problem: Problem) -> Self:
        """Return the bytes of a problem with unequal parts.

        Raises
        ------
        HyparError
            If it is not of the reading that a run has.
        """
        return cls.of_problem(check_reading(problem), parts=parts_of_share(problem.share))

    @cached_property
    def resolution(self) -> int:
        """Charges per byte: a group's are counted as if both had as much."""
        return 2 * super().resolution

    @cached_property
    def _sides(self) -> list[SideBytes]:
        """The bytes of each group in each pass."""
        return [
            SideBytes.among(self.of(phase), share)
            for phase in self.phases
            for share in Share.both(self.parts)
        ]

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return which levels are charged alike: H1, between the groups, as no other."""
        return super().symmetries(workload, levels).told_apart(between_groups(levels))

    def thresholds(self, workload: Workload, levels: int) -> None:
        """Return none: H1 differs from other levels."""

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        every = [side.node(workload, nodes, states) for side in self._sides]
        return [added_up(rows) for rows in zip(*every, strict=True)]

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        every = [side.edge(workload, boundaries, sources, targets) for side in self._sides]
        return [added_up(rows) for rows in zip(*every, strict=True)]


@dataclass(frozen=True)
class SideWork(_OfGroup, Work):
    """The seconds of each layer's pass on an accelerator of one of two groups."""

    def _amounts(
        self,
        workload: Workload,
        sizes: Integers,
        lacks: NDArray[np.bool_],
        nodes: Indices,
        states: States,
    ) -> Integers:
        """Return the group's amounts, as if both had as much: all of what H1 does not split."""
        every = super()._amounts(workload, sizes, lacks, nodes, states)
        own = self.share.of_nodes(workload, nodes, states)
        amounts: Integers = np.where(lacks[states[0][0], nodes], every, doubled(every, own))
        return amounts
