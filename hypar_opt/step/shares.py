"""Parts of H1 with unequal shares: what each receives in an operation, and what it holds.

H1 lies between groups of accelerators, each of one or several of its parts. A tensor that H1 splits
is split by their shares, which are one for all layers; a layer in one part has all of its tensors
there. A part's amounts are scaled to n equal parts, so that the rates of the whole array apply, and
so that those of an n-th are the amounts of equal parts. Where s is a part's share
of what is written, t of what is read, and a what a tensor has, it receives

- of a reduce-scatter (n - 1) t a, of an all-gather (1 - s) a, of an all-reduce as an equal part;
- of an all-to-all, or where one end is in one part, t (1 - s) a;
- of an exchange below H1 as much as its share of the tensor, or all of a copy.

Between more than two parts messages of one round differ, and all wait for the longest: a part's
reduce-scatter and all-gather last as long as those of as many parts of its share, and an all-to-all
as long as the longest messages of its rounds.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.hierarchy import rounded_share
from hypar_opt.integers import Integers, scale
from hypar_opt.sharding.layouts import PARTIAL, WHOLE
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.states import copies
from hypar_opt.step.uneven import padded, padded_sizes, split_sizes
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

Parts = tuple[int, ...]
"""The share of each part of H1, of their sum."""

Amounts = dict[Hashable, "Integers"]
"""Amounts of nodes in some states where parts are equal: words, or operations."""

CountOfIndices = Callable[["Integers"], "Integers"]
"""Returns the number of indices that a part has of axes of some sizes."""


@dataclass(frozen=True)
class Share:
    """One part's share.

    Parameters
    ----------
    part
        The part's number.
    parts
        The shares of all parts.
    corners
        The corners of the simplex of shares for which a bound holds; empty for these shares alone.
    """

    part: int
    parts: Parts
    corners: tuple[Parts, ...] = ()

    @classmethod
    def of_parts(cls, parts: Parts, corners: tuple[Parts, ...] = ()) -> tuple[Share, ...]:
        """Return the share of every part."""
        return tuple(cls(part, parts, corners) for part in range(len(parts)))

    @property
    def lower_bounds(self) -> Parts:
        """The least share of each part among those for which a bound holds."""
        return tuple(map(min, zip(*(self.corners or (self.parts,)), strict=True)))

    @property
    def scaled(self) -> int:
        """The share of the part, scaled to equal parts, of `total`."""
        return len(self.parts) * self.parts[self.part]

    @property
    def total(self) -> int:
        """The sum of the shares: the scaled share of each of equal parts."""
        return sum(self.parts)

    def indices(self, sizes: Integers) -> Integers:
        """Return how many indices the part has of axes of some sizes, as a run rounds them."""
        begin = sum(self.parts[: self.part])
        ends = begin + self.parts[self.part], begin
        last, first = (rounded_share(sizes, end, self.total) for end in ends)
        indices: Integers = np.asarray(last - first)
        return indices

    def min_indices(self, sizes: Integers) -> Integers:
        """Return the fewest indices that the part has at any shares between the corners."""
        (_, max_before), (ends, _) = (self._ends(sizes, n) for n in (self.part, self.part + 1))
        rounded = np.maximum(ends - max_before, 0)
        # No part has one index less than its share: either end is rounded by half of one.
        exact = -(-sizes * self.lower_bounds[self.part] // self.total) - 1
        indices: Integers = np.maximum(rounded, exact)
        return indices

    def max_indices(self, sizes: Integers) -> Integers:
        """Return the most indices that the part has at any shares between the corners."""
        (min_before, _), (_, ends) = (self._ends(sizes, n) for n in (self.part, self.part + 1))
        indices: Integers = np.asarray(ends - min_before)
        return indices

    def _ends(self, sizes: Integers, part: int) -> tuple[Integers, Integers]:
        """Return the least and the most indices of all parts before one."""
        before = [sum(parts[:part]) for parts in self.corners or (self.parts,)]
        low, high = (rounded_share(sizes, end, self.total) for end in (min(before), max(before)))
        return low, high

    def of_nodes(self, workload: Workload, nodes: Indices, states: States) -> NDArray[np.int64]:
        """Return the part's share of what each node computes, given the node's choice at H1."""
        layouts = workload.layouts
        (share,) = _shares_by_layout(layouts.names, (self,))
        return np.asarray(share[layouts.output[states[0][0], nodes]])

    def scaled_amounts(
        self,
        equal: Integers,
        lacks: NDArray[np.bool_],
        workload: Workload,
        nodes: Indices,
        states: States,
        *,
        by_image: bool = False,
    ) -> Integers:
        """Return the part's amounts of nodes, scaled to equal parts.

        It has all of what H1 does not split. Of an axis that H1 splits it has whole indices,
        between corners the fewest.

        Parameters
        ----------
        equal
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
        divided = sizes > 0
        indices = np.where(divided, self.min_indices(sizes), self.of_nodes(workload, nodes, states))
        scaled = scale(equal, (count * indices, np.where(divided, sizes, count * self.total)))
        amounts: Integers = np.where(lacks[top, nodes], equal, scaled)
        return amounts

    def in_layout(self, layout: str, parts: Parts) -> Parts:
        """Return the shares of all parts in a layout at H1: those stated if it is split."""
        if layout in PART_WORDS:
            return tuple(self.total * (n == PART_WORDS[layout]) for n in range(len(parts)))
        return parts


@dataclass(frozen=True)
class WorkOfPart:
    """The amounts of work of an accelerator of one part.

    Parameters
    ----------
    indices
        Returns the part's indices; None for a linear lower bound in its share.
    equal
        A cache of the amounts of equal parts, for other parts of the same nodes and states.
    """

    share: Share
    indices: CountOfIndices | None = field(default=None, compare=False, repr=False)
    equal: Amounts = field(default_factory=dict, compare=False, repr=False)

    def amounts(
        self,
        workload: Workload,
        sizes: Integers,
        lacks: NDArray[np.bool_],
        nodes: Indices,
        states: States,
        hierarchy: Hierarchy,
        *,
        by_largest_shard: bool,
    ) -> Integers:
        """Return amounts for `hypar_opt.step.work.WorkRules`, scaled to equal parts.

        Parameters
        ----------
        sizes : (nodes,)
            Before any split: the product of the sizes of axes.
        lacks : (choices, nodes)
            Whether a choice splits none of them, so that each part has all.
        by_largest_shard
            Whether the part has whole indices of an axis that H1 splits; else exactly its share.
        """
        key = tuple(sizes.tolist()), lacks.tobytes()
        if key not in self.equal:
            self.equal[key] = sizes[nodes] * copies(lacks, nodes, states, hierarchy)
        amounts, top, share = self.equal[key], states[0][0], self.share
        if not by_largest_shard:
            ratio = share.of_nodes(workload, nodes, states), share.total
            return np.where(lacks[top, nodes], amounts, scale(amounts, ratio))
        split = np.where(lacks, 0, split_sizes(workload))
        if self.indices is None:
            at_h1, split = split[top, nodes], split[:, nodes]
            below = [np.where(top == choice, 0, size) for choice, size in enumerate(split)]
            amounts = padded(amounts, padded_sizes(below, states, hierarchy), down=True)
            amounts = self._at_least(amounts, at_h1)
        else:
            uneven = padded_sizes(split[:, nodes], states, hierarchy, self.indices)
            amounts = padded(amounts, uneven)
        for choice, name in enumerate(workload.choices):
            if name in PART_WORDS:  # the part has all of a layer, or nothing
                has = len(share.parts) * (PART_WORDS[name] == share.part)
                amounts = np.where(top == choice, has * amounts, amounts)
        return amounts

    def _at_least(self, amounts: Integers, at_h1: Integers) -> Integers:
        """Return a linear lower bound, in the part's share, on the part's amounts.

        Rounding takes at most half an index at each of the part's ends, so the bound may be
        negative.

        Parameters
        ----------
        at_h1
            The size of the axis that H1 splits.
        """
        share = self.share
        total = len(share.parts) * amounts
        part, of = share.parts[share.part], share.total
        exact = total // of * part + total % of * part // of
        # The ends of the axis itself are not rounded.
        ends = (share.part > 0) + (share.part < len(share.parts) - 1)
        less = -(-total * ends // np.where(at_h1 > 0, 2 * at_h1, 1))
        return np.where(at_h1 > 0, exact - less, amounts)


def received(
    operations: Iterable[Collective],
    shares: tuple[Share, ...],
    charge: Callable[[int], int],
    *,
    by_longest_message: bool = False,
) -> Iterator[list[Collective]]:
    """Yield, for some parts of H1, operations with the amounts that they receive.

    Amounts are scaled to equal parts. Halves of an all-reduce of gradients are rounded together.

    Parameters
    ----------
    operations
        From `StepRules` with ``unequal``.
    charge
        Returns the charge of a quarter of an element at a level: the amounts are whole charges.
    by_longest_message
        Whether amounts are those of the longest message in each round, for which a part waits.
    """
    # Between two parts a round has one message.
    by_longest_message = by_longest_message and len(shares[0].parts) > 2
    begun: dict[tuple[int, int], Integers] = {}
    for operation in operations:
        ratio = _ratio(operation, shares, by_longest_message=by_longest_message)
        price, charges, before = charge(operation.level), operation.quarters, None
        if price > 1:
            charges = scale(charges, (price, 1))
        if operation.phase is Phase.GRADIENT:
            key = operation.level, operation.group
            before = begun.get(key)
            charges = begun[key] = charges if before is None else before + charges
        amounts = scale(charges, ratio)
        if before is not None:
            amounts = amounts - scale(before, ratio)
        yield [operation._replace(quarters=quarters) for quarters in amounts]


def senders(operation: Collective, number: int, parts: Parts) -> Parts | None:
    """Return the proportions in which parts of H1 send in an operation across it.

    A part receives from each of the others in proportion to what that part has: its share of a
    tensor that is gathered or exchanged, equally much of partial sums.

    Parameters
    ----------
    number
        The number of the node or boundary.
    """
    assert operation.at_h1 is not None
    names, *ends = operation.at_h1
    before, after = (
        names[int(np.broadcast_to(states, operation.quarters.shape)[number])] for states in ends
    )
    backward, (share, *_) = operation.phase is Phase.BACKWARD, Share.of_parts(parts)
    if operation.tensor == "output":
        return parts if backward else None
    if operation.tensor != "input" or (backward and after == WHOLE):
        return None
    return share.in_layout(after if backward else before, parts)


def _ratio(
    operation: Collective, shares: tuple[Share, ...], *, by_longest_message: bool
) -> tuple[Integers, int]:
    """Return what parts receive in an operation, over what equal parts do: ``(shares, ...)``."""
    count, whole = len(shares[0].parts), shares[0].total
    backward = operation.phase is Phase.BACKWARD
    assert operation.at_h1 is not None
    names, before, after = operation.at_h1
    if operation.level:
        return _shares_by_layout(names, shares)[:, after], whole
    if operation.tensor == "input":
        tables = _between_layouts(
            names, shares, backward=backward, by_longest_message=by_longest_message
        )
        return tables[:, before, after], whole**2
    part = np.array([share.scaled for share in shares]).reshape(-1, *[1] * operation.quarters.ndim)
    if operation.tensor != "output":
        return np.ones_like(part), 1
    # An all-reduce has two halves: a part receives addends of its share, then all other shares.
    if backward and not by_longest_message:
        return count * whole - part, (count - 1) * whole
    return part, whole


@lru_cache(maxsize=64)
def _shares_by_layout(names: tuple[str, ...], shares: tuple[Share, ...]) -> NDArray[np.int64]:
    """Return the shares of a tensor by its layout at H1: ``(shares, layouts)``; 1/n if whole."""
    stated = [share.in_layout(name, share.parts)[share.part] for share in shares for name in names]
    table = len(shares[0].parts) * np.array(stated).reshape(len(shares), -1)
    return np.where(np.array(names) == WHOLE, shares[0].total, table)


@lru_cache(maxsize=64)
def _between_layouts(
    names: tuple[str, ...], shares: tuple[Share, ...], *, backward: bool, by_longest_message: bool
) -> NDArray[np.int64]:
    """Return what parts receive of a tensor at H1, scaled to equal parts.

    Returns
    -------
    (shares, layouts, layouts)
        By the layouts in which it is written and read, in parts of the square of the shares' sum.
    """
    whole, peers = shares[0].total, len(shares[0].parts) - 1
    written, read = np.array(names)[:, None], np.array(names)
    # Partial sums are charged to their node: they are then split by batch, or as they are read.
    unsplit = np.array([name == WHOLE or name in PART_WORDS for name in names])
    unmoved = (written == PARTIAL) & ~unsplit
    unmoved |= (written == read) | (written == WHOLE) | (read == PARTIAL)
    tables = []
    for share in shares:
        stated, lowest = (
            np.array([share.in_layout(name, parts) for name in names])
            for parts in (share.parts, share.lower_bounds)
        )
        has: NDArray[Any] = stated[:, share.part]
        table = has[:, None] * (whole - has) if backward else (whole - has)[:, None] * has
        if by_longest_message:
            # Both factors increase with the share, so the product of their minima is a lower bound.
            sent = (lowest[:, None] * np.roll(lowest, -by, 1) for by in range(1, peers + 1))
            table = sum(messages.max(axis=2) for messages in sent)
        gathered = peers * has if backward or by_longest_message else whole - has
        table = np.where(read == WHOLE, whole * gathered[:, None], table)
        tables.append((peers + 1) * np.where(unmoved, 0, table))
    return np.array(tables)
