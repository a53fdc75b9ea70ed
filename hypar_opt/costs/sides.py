"""Parts of H1 with unequal shares: what each receives, and how long it works.

H1 lies between groups of accelerators, each of one or several of its parts. A tensor that H1 splits
is split by their shares, which are one for all layers; all of a layer in one part is a share of
everything there. A part's amounts are counted as if all parts had as much, so that the rates of the
whole array apply, and so that those of an n-th are the amounts of equal parts. Where s is a part's
share of what is written, t of what is read, and a what a tensor has, it receives

- of a reduce-scatter (n - 1) t a, of an all-gather (1 - s) a, of an all-reduce as an equal part;
- of an all-to-all, or where one end is in one part, t (1 - s) a;
- of an exchange below H1 as much as its share of the tensor, or all of a copy.

Between more than two parts messages of one round differ, and all wait for the longest: a part's
reduce-scatter and all-gather last as long as those of as many parts of its share, and an all-to-all
as long as the longest messages of its rounds.

Source: docs/decisions/0025-unequal-groups.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.errors import HyparError, argument
from hypar_opt.hierarchy import parts_by_share, rounded_share
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.sharding.layouts import CHANNEL, PARTIAL, SHUFFLED, WHOLE
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.step.readings import READINGS, Phase
from hypar_opt.step.uneven import split_sizes
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.parallelism import OF_EQUAL_PARTS, SIDES
from hypar_opt.workload.repeats import ONCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.compute import Work
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

Parts = tuple[int, ...]
"""The share of each part of H1, of their sum."""


@dataclass(frozen=True)
class Share:
    """One part's share.

    Parameters
    ----------
    side
        The part's number.
    parts
        The shares of all parts.
    corners
        Those of the simplex of shares that a bound holds for; none for a bound on these alone.
    """

    side: int
    parts: Parts
    corners: tuple[Parts, ...] = ()

    @classmethod
    def each(cls, parts: Parts, corners: tuple[Parts, ...] = ()) -> list[Share]:
        """Return the share of every part."""
        return [cls(side, parts, corners) for side in range(len(parts))]

    @property
    def least(self) -> Parts:
        """The least share of each part among those that a bound holds for."""
        return tuple(map(min, zip(*(self.corners or (self.parts,)), strict=True)))

    @property
    def own(self) -> int:
        """What the part has, as if all had as much, of `whole`."""
        return len(self.parts) * self.parts[self.side]

    @property
    def whole(self) -> int:
        """The sum of the shares: what each of equal parts has, as if all had as much."""
        return sum(self.parts)

    def scaled(self, amounts: Integers, share: Integers | int) -> Integers:
        """Return a share of amounts, as if all parts had as much, rounded half up."""
        return _scaled(amounts, share, self.whole)

    def indices(self, sizes: Integers) -> Integers:
        """Return how many indices the part has of axes of some sizes, as a run rounds them."""
        indices: Integers = np.asarray(parts_by_share(sizes, self.parts)[self.side])
        return indices

    def fewest(self, sizes: Integers) -> Integers:
        """Return the fewest indices that the part has at any shares between the corners."""
        (_, most_before), (ends, _) = (self._ends(sizes, n) for n in (self.side, self.side + 1))
        rounded = np.maximum(ends - most_before, 0)
        # No part has one index less than its share: either end is rounded by half of one.
        exact = -(-sizes * self.least[self.side] // self.whole) - 1
        fewest: Integers = np.maximum(rounded, exact)
        return fewest

    def most(self, sizes: Integers) -> Integers:
        """Return the most indices that the part has at any shares between the corners."""
        (least_before, _), (_, ends) = (self._ends(sizes, n) for n in (self.side, self.side + 1))
        most: Integers = np.asarray(ends - least_before)
        return most

    def _ends(self, sizes: Integers, part: int) -> tuple[Integers, Integers]:
        """Return the least and the most indices of all parts before one."""
        before = [sum(parts[:part]) for parts in self.corners or (self.parts,)]
        least, most = (rounded_share(sizes, end, self.whole) for end in (min(before), max(before)))
        return least, most

    @property
    def rounded_ends(self) -> int:
        """How many of its ends are rounded: what begins or ends an axis is not."""
        return (self.side > 0) + (self.side < len(self.parts) - 1)

    def of_layouts(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return its share of a tensor by the tensor's layout at H1; of what is whole an n-th."""
        count = len(self.parts)
        special = dict.fromkeys(SIDES, 0) | {WHOLE: self.whole}
        special[SIDES[self.side]] = count * self.whole
        return np.array([special.get(name, self.own) for name in names], np.int64)

    def of_nodes(self, workload: Workload, nodes: Indices, states: States) -> NDArray[np.int64]:
        """Return its share of what each node computes, given the node's choice at H1."""
        layouts = workload.layouts
        share: NDArray[np.int64] = self.of_layouts(layouts.names)[
            layouts.output[states[0][0], nodes]
        ]
        return share

    def of_amounts(
        self,
        every: Integers,
        lacks: NDArray[np.bool_],
        workload: Workload,
        nodes: Indices,
        states: States,
        *,
        by_image: bool = False,
    ) -> Integers:
        """Return its amounts of nodes, as if all parts had as much: all of what H1 does not split.

        Of an axis that H1 splits the part has whole indices, between corners the fewest.

        Parameters
        ----------
        every
            The nodes' amounts in equal parts.
        lacks : (choices, nodes)
            Whether a choice splits none of them.
        by_image
            Whether H1 splits the batch, whatever the choices split.
        """
        count, top = len(self.parts), states[0][0]
        sizes = split_sizes(workload)[top, nodes]
        if by_image:
            sizes = np.where(sizes > 0, workload.batch, 0)
        largest = max(int(every.max(initial=0)), int(sizes.max(initial=0)) ** 2)
        every = every.astype(np.result_type(every, exact_dtype(2 * count * largest)), copy=False)
        divided = sizes > 0
        indices = np.where(divided, self.fewest(sizes), self.of_nodes(workload, nodes, states))
        own = _scaled(every, count * indices, np.where(divided, sizes, count * self.whole))
        amounts: Integers = np.where(lacks[top, nodes], every, own)
        return amounts

    def all_of(self, layout: str, parts: Parts) -> Parts:
        """Return the shares of all parts in a layout at H1: of what is split those stated."""
        if layout in SIDES:
            return tuple(self.whole * (n == SIDES.index(layout)) for n in range(len(parts)))
        return parts


def _scaled(amounts: Integers, share: Integers | int, of: Integers | int) -> Integers:
    """Return ``amounts * share / of``, rounded half up."""
    # Whole multiples apart, so that no product is much larger than the amount.
    whole = amounts // of
    rest = amounts - whole * of
    scaled: Integers = whole * share + (2 * rest * share + of) // (2 * of)
    return scaled


@dataclass(frozen=True)
class OfPart:
    """What one part has: of exchanges, or of work.

    Parameters
    ----------
    share
        The part's.
    """

    share: Share = Share(0, (1, 1))

    @classmethod
    def among(cls, plain: CommunicationCost | Work, share: Share) -> Self:
        """Return what a group has, where a model of equal parts has the same exchanges or work."""
        both = {own.name for own in fields(cls)} & {own.name for own in fields(plain)}
        return cls(**{name: getattr(plain, name) for name in both} | {"share": share})


@dataclass(frozen=True)
class SideBytes(OfPart, CommunicationCost):
    """The bytes that one part receives in a pass, as if all parts received as much.

    With ``longest`` those that it waits for: its rounds last as long as their longest message.
    """

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        (charged,) = self.nodes_of_each([self.share], workload, nodes, states)
        return charged

    def nodes_of_each(
        self, shares: Sequence[Share], workload: Workload, nodes: Indices, states: States
    ) -> list[list[Integers]]:
        """Return nodes' charges with each of some shares: what a pass reduces and gathers again."""
        rows = [row for block in states for row in block]
        charged: list[list[Integers]] = [[np.zeros(1, np.int64)] * len(rows) for _ in shares]
        if not rows:
            return charged
        count, parts = len(self.share.parts), self._parts(len(rows))
        each = [share.of_nodes(workload, nodes, states) for share in shares]
        for lacks, elements, whole, repeated in self._reductions(workload, len(rows)):
            lacked = [lacks[row, nodes] for row in rows]
            before: Integers = np.ones(1, elements.dtype)
            for row, own in zip(rows[1:], parts[1:], strict=True):
                before = before * np.where(repeated[row, nodes], own, 1)
            in_each = lacked[0] | repeated[rows[0], nodes]
            for level, (here, own) in enumerate(zip(lacked, parts, strict=True)):
                if here.any():
                    moved = elements[level % len(elements), nodes] * before
                    moved = moved * (self.scale(level) * (own - 1)) * here
                    for share, of_nodes, levels in zip(shares, each, charged, strict=True):
                        added = moved
                        if level:
                            added = np.where(in_each, count * moved, share.scaled(moved, of_nodes))
                        elif not whole:
                            added = share.scaled(moved // (own - 1), self._received(share))
                        levels[level] = levels[level] + added
                if level:
                    before = before * np.where(here, own, 1)
        return charged

    def _received(self, share: Share) -> int:
        """Return the share of what a part sends to one other that it receives, as a half."""
        others = len(share.parts) - 1
        if self.phases == (Phase.BACKWARD,) and not self._waits:
            return (others + 1) * share.whole - share.own
        return others * share.own

    def _reductions(
        self, workload: Workload, levels: int
    ) -> Iterator[tuple[NDArray[np.bool_], Integers, bool, NDArray[np.bool_]]]:
        """Yield what a pass reduces: which choices, ``(choices, nodes)``, quarters, and how.

        Quarters are by level and node, of one level where all move as much.

        The third is whether it is an all-reduce, of which all parts receive as much, and not half
        of one. The last are the choices that repeat it in each part.
        """
        (phase,) = self.phases
        factors, layouts, share = READINGS["executed"], workload.layouts, self.share
        nodes = workload.nodes

        def quarters(factor: int, sizes: Sequence[int], *often: NDArray[np.int64]) -> Integers:
            # Of a tensor whole, and copied by every accelerator.
            largest = 8 * factor * max(sizes, default=0) * math.prod(self.sizes)
            largest *= workload.most_repeats * self.scale(0)
            dtype = exact_dtype(2 * len(share.parts) * max(largest, share.whole**2))
            times: Integers = np.array(often, dtype)
            return factor * np.array(sizes, dtype) * times

        nowhere = np.zeros_like(layouts.whole)
        if phase is Phase.GRADIENT:
            weights = layouts.weight < FIRST_SPLIT
            by_level = workload.repeats.moved_by_level(workload.users, levels)
            moved = quarters(factors.gradient, workload.stored, *by_level)
            yield weights, moved // 2, True, nowhere
            return
        often = exchanges_of(workload, phase)
        forward = phase is Phase.FORWARD
        partial_sums = (layouts.output < FIRST_SPLIT) & ~layouts.whole
        factor = factors.partial_sum if forward else factors.gathered_error
        yield partial_sums, quarters(factor, workload.outputs, often), False, layouts.whole
        if any(any(node.statistics) for node in nodes):
            channels = [n for n, name in enumerate(layouts.names) if name in (CHANNEL, SHUFFLED)]
            split = np.isin(layouts.inputs[0], channels)
            sums = [node.statistics[0 if forward else 1] for node in nodes]
            yield split, quarters(factors.gradient, sums, often), True, layouts.whole

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        (charged,) = self.edges_of_each([self.share], workload, boundaries, sources, targets)
        return charged

    def edges_of_each(
        self,
        shares: Sequence[Share],
        workload: Workload,
        boundaries: Indices,
        sources: States,
        targets: States,
    ) -> list[list[Integers]]:
        """Return boundaries' charges in one pass with each of some shares; of weights 0."""
        layouts, operand = workload.layouts, workload.operand[boundaries]
        source, target = workload.ends[boundaries, 0], workload.ends[boundaries, 1]
        made = [row for block in sources for row in block]
        needed = [row for block in targets for row in block]
        levels, parts = range(len(made)), self._parts(len(made))
        moving = ~workload.is_weight_boundary[boundaries]
        if self.phases == (Phase.BACKWARD,):
            moving = moving & workload.has_error[boundaries]
        sizes: Integers = self._boundary_sizes(workload)[boundaries] * moving
        if workload.repeats != ONCE:
            sizes = sizes * exchanges_of(workload, self.phases[0])[target].astype(sizes.dtype)
        read = [layouts.inputs[operand, row, target] for row in needed]
        whole = [row == 0 for row in read] if workload.reads_whole else []
        kept = [layouts.whole[row, source] & here for row, here in zip(made, whole, strict=False)]
        charged: list[list[Integers]] = [[] for _ in shares]
        if not made:
            return charged
        written = layouts.output[made[0], source]
        # Until it is gathered, a tensor is split as it was written.
        split = np.where(whole[0], written, read[0]) if whole else read[0]
        each = [share.of_layouts(layouts.names)[split] for share in shares]
        for level in levels:
            amount: Integers = sizes
            if level:
                tables = self.rules(workload, len(made)).conversions(parts[level]).values()
                way = self.phases == (Phase.BACKWARD,)
                amount = sum(
                    [*own, *own][:2][way][boundaries, made[level], needed[level]] for own in tables
                )
                amount = amount * moving * (self.phases != (Phase.GRADIENT,))
                if workload.repeats != ONCE:
                    often = exchanges_of(workload, self.phases[0])[target]
                    amount = amount * often.astype(sizes.dtype)
            amount = amount * self.scale(level)
            for other in levels[1:] if whole else ():
                # All-gathers come last, the topmost first.
                gathered = whole[other] if other < level else kept[other]
                repeated = np.where(whole[level], gathered, kept[other])
                amount = amount * np.where(repeated, parts[other], 1) if other != level else amount
            copied = np.where(whole[level], whole[0], kept[0]) if level and whole else None
            for share, own, rows in zip(shares, each, charged, strict=True):
                if not level:
                    rows.append(self._between_parts(workload, share, amount, written, read[0]))
                    continue
                scaled = share.scaled(amount, own)
                if copied is not None:
                    scaled = np.where(copied, len(share.parts) * amount, scaled)
                rows.append(scaled)
        return charged

    def _between_parts(
        self, workload: Workload, share: Share, amount: Integers, written: Indices, read: Indices
    ) -> Integers:
        """Return what the part receives at H1 of tensors of so many elements' charges.

        Partial sums are charged to their node; they are then split by batch, or as they are read.
        """
        if self.phases == (Phase.GRADIENT,):
            return 0 * amount
        asked = workload.layouts.names, share, self.phases == (Phase.BACKWARD,), self._waits
        received = _between_layouts(*asked)[written, read]
        return _scaled(4 * len(share.parts) * amount, received, share.whole**2)

    @property
    def _waits(self) -> bool:
        """Whether it waits for the longest message of a round: between two parts there is one."""
        return self.longest and len(self.share.parts) > 2

    def _boundary_sizes(self, workload: Workload) -> Integers:
        sizes, share = workload.boundary_sizes, self.share
        largest = 64 * max(sizes, default=0) * math.prod(self.sizes) * self.scale(0)
        largest *= workload.most_repeats
        # A rest times what is received: both are parts of the square of the shares' sum.
        return np.array(sizes, exact_dtype(2 * len(share.parts) * max(largest, share.whole**4)))


@lru_cache(maxsize=256)
def _between_layouts(
    names: tuple[str, ...], share: Share, backward: bool, waits: bool
) -> NDArray[Any]:
    """Return what a part receives at H1 of a tensor, as one share of another's share of it.

    Or, where it waits, that of the longest messages.

    Returns
    -------
    (layouts, layouts)
        By the layouts in which it is written and read, of the square of the shares' sum.
    """
    whole, parts, side = share.whole, range(len(share.parts)), share.side
    others, lowest = len(parts) - 1, share.least
    received = np.zeros((len(names), len(names)), exact_dtype(others * whole**2))
    for number, name in enumerate(names):
        for other, needed in enumerate(names):
            unmoved = name in (needed, WHOLE) or needed == PARTIAL
            if unmoved or (name == PARTIAL and needed not in (WHOLE, *SIDES)):
                continue
            had, has = share.all_of(name, share.parts), share.all_of(needed, share.parts)
            if needed == WHOLE:
                each = others * had[side] if backward or waits else whole - had[side]
                received[number, other] = each * whole
                continue
            if waits:
                # Of two factors that grow no product of least ones exceeds any.
                sent, to = share.all_of(name, lowest), share.all_of(needed, lowest)
                rounds = ([sent[p] * to[(p + r) % len(parts)] for p in parts] for r in parts[1:])
                received[number, other] = sum(map(max, rounds))
            elif backward:
                received[number, other] = had[side] * (whole - has[side])
            else:
                received[number, other] = has[side] * (whole - had[side])
    received.setflags(write=False)
    return received


def check_of_groups(problem: Problem) -> Problem:
    """Return a problem of unequal groups, if these have its reading and its choices.

    Raises
    ------
    HyparError
        If its reading is no run's, or a choice has equal parts.
    """
    if problem.reading != "executed":
        wanted = argument("reading", "executed")
        raise HyparError(f"unequal groups of accelerators need {wanted}, got {problem.reading}")
    for word in OF_EQUAL_PARTS:
        if word in problem.choices:
            raise HyparError(
                f"{argument('choices')}: {word} has equal parts, unlike groups of accelerators;"
                " leave it out"
            )
    return problem
