"""The charges of a node's state, and of the states of an edge's ends.

A state is a node's choices at the topmost levels, H1 first. A level is charged what appending its
choices adds, so that the tables of a level, of thresholds and of all levels are the same function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from hypar_opt.errors import CheckFailedError
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.proofs.reference.exchanges import exchanges_of
from hypar_opt.proofs.reference.plan_graph import (
    LongestParts,
    SplitAxis,
    State,
    longest_parts,
    of_longest,
)
from hypar_opt.proofs.reference.reductions import Reduced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.reference.conversions import EdgeConversion
    from hypar_opt.proofs.reference.reductions import Reduction


class Charges(Protocol):
    """The charges of a problem, as integers of a fraction of the plan's unit."""

    @property
    def resolution(self) -> int:
        """Charges per unit of the plan's cost."""

    def node(self, node: int, state: State) -> int:
        """Return what a node is charged in a state, all its levels together."""

    def joins_levels(self, node: int, state: State) -> bool:
        """Return whether levels of a state are charged together, as around a ring.

        Totals do not tell: whatever they are, what each level adds to them adds up to them.
        """

    def of_plan(self, chosen: Sequence[State]) -> Charges:
        """Return the charges of one plan, whose nodes may share some, given their states."""

    def edge(self, edge: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        """Return what pairs of states of an edge's ends are charged: ``(sources, targets)``.

        Parameters
        ----------
        sources, targets
            States of as many levels.
        """


class ExchangeCharges(ABC):
    """Charges of the exchanges between accelerators, and of what a cost adds to them.

    Nodes and edges that are alike are charged once: networks repeat their blocks.
    """

    def __init__(self, plan: Plan, chosen: Sequence[State] = ()) -> None:
        self.plan, self.exchanges = plan, exchanges_of(plan, chosen)
        self.hierarchy = self.exchanges.hierarchy
        self.resolution = 1
        kinds: dict[object, int] = {}
        passes = map(self.exchanges.passes, range(len(self.exchanges.graph.nodes)))
        own, shared_out = self.exchanges, self.exchanges.repetitions.sharded
        parts = zip(own.graph.nodes, own.reductions, own.borders, passes, strict=True)
        nodes = ((*kind, tuple(shared_out.get(n, ()))) for n, kind in enumerate(parts))
        self._first_alike = [kinds.setdefault(kind, n) for n, kind in enumerate(nodes)]
        self._node_charge, self._edge_charge = cache(self._charge_node), cache(self._charge_edge)
        self._pairs, self._whole = cache(self._charge_pairs), cache(self._find_whole)
        sizes = self.hierarchy.sizes
        self._moved = cache(lambda conversion, level: conversion.moved(sizes[level]))

    def node(self, node: int, state: State) -> int:
        return self._node_charge(self._first_alike[node], state)

    def joins_levels(self, node: int, state: State) -> bool:  # noqa: ARG002
        return False

    def of_plan(self, chosen: Sequence[State]) -> Self:  # noqa: ARG002
        return self

    def edge(self, edge: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        return self._edge_charge(self.exchanges.conversions[edge], tuple(sources), tuple(targets))

    def _charge_node(self, node: int, state: State) -> int:
        longest = self._counts_longest(state)
        reduced = self.exchanges.reduced(node, state, longest=longest)
        times = self.exchanges.borders[node]
        borders = (
            self._converted(level, passes, times)
            for level, passes in self.exchanges.at_borders(node, state, longest=longest)
        )
        return self._reduced(reduced) + sum(borders) + self._local(node, state)

    def _charge_edge(
        self, conversion: EdgeConversion, sources: tuple[State, ...], targets: tuple[State, ...]
    ) -> Integers:
        own, other = (
            self._by_longest(axes, states)
            for axes, states in zip(conversion.axes, (sources, targets), strict=True)
        )
        charged: Integers = np.zeros((len(sources), len(targets)), object)
        for written, rows in own.items():
            for read, columns in other.items():
                alike = tuple(sources[n] for n in rows), tuple(targets[n] for n in columns)
                charges = self._charge_alike(conversion, *alike, (written, read))
                if charges.shape == charged.shape:
                    return charges
                charged[np.ix_(rows, columns)] = charges
        return charged

    def _by_longest(
        self, axes: Sequence[SplitAxis], states: Sequence[State]
    ) -> dict[LongestParts, list[int]]:
        """Return the numbers of states by the axes that they divide unevenly, where that counts."""
        numbers: dict[LongestParts, list[int]] = {}
        for number, state in enumerate(states):
            uneven: LongestParts = ()
            if self._counts_longest(state):
                uneven = longest_parts(axes, state, self.hierarchy)
            numbers.setdefault(uneven, []).append(number)
        return numbers

    def _counts_longest(self, state: State) -> bool:  # noqa: ARG002
        """Return whether an exchange is charged as if all parts were as long as the longest."""
        return False

    def _charge_alike(
        self,
        conversion: EdgeConversion,
        sources: tuple[State, ...],
        targets: tuple[State, ...],
        uneven: tuple[LongestParts, LongestParts],
    ) -> Integers:
        """Return what pairs of states are charged that divide the same axes unevenly."""
        written, source, stored = self._whole(conversion.written, sources)
        read, target, wanted = self._whole(conversion.read, targets)
        copies = conversion.copies(stored, wanted, self.hierarchy)
        above, below = conversion.at_once(written, read, self.hierarchy)
        addends, throughout, reduced = conversion.addends(written, read, self.hierarchy)
        if above.size > 1 or (addends > 1).any():
            copies = copies[:, source[:, None], target] * addends
            source, target = np.arange(len(sources)), np.arange(len(targets))
        shares = self._as_number(copies, above, below)
        numbers, which = np.unique(shares, return_inverse=True)
        which = which.reshape(shares.shape)[:, source[:, None], target]
        levels, choices = len(copies), len(self.plan.choices)
        charges: Integers = np.array(
            [
                [self._pairs(conversion, level, number, uneven) for number in numbers.tolist()]
                for level in range(levels)
            ],
            object,
        ).reshape(levels, len(numbers), choices, choices)
        dtype = exact_dtype(sum(charges.max(axis=(1, 2, 3), initial=0).tolist()))
        level = np.arange(levels)[:, None, None]
        every = charges.astype(dtype)[level, which, written[:, :, None], read[:, None]]
        total: Integers = every.sum(axis=0)
        return total + self._charge_sums(conversion.sums, throughout, reduced, uneven[0])

    def _charge_sums(
        self,
        reductions: Sequence[Reduction],
        copies: Integers,
        reduced: NDArray[np.bool_],
        uneven: LongestParts,
    ) -> Integers:
        """Return what pairs of states are charged of sums that are reduced between their nodes.

        Parameters
        ----------
        copies : (sources, targets)
            Of replicas and addends throughout.
        reduced : (levels, sources, targets)
            The levels at which they are reduced.
        """
        if not reductions or not reduced.any():
            return np.zeros(1, np.int64)
        bits = np.left_shift(1, np.arange(len(reduced)))[:, None, None]
        keys = self._as_number(copies) * 2 ** len(reduced) + (reduced * bits).sum(axis=0)
        numbers, which = np.unique(keys, return_inverse=True)
        charges = []
        for number in numbers.tolist():
            repeated, levels = divmod(number, 2 ** len(reduced))
            passes = []
            for own in reductions:
                amount, moved = own.quarters * repeated, {}
                for level, parts in enumerate(self.hierarchy.sizes[: len(reduced)]):
                    if levels >> level & 1:
                        moved[level] = of_longest(amount * (parts - 1), uneven)
                        amount *= parts
                passes.append(Reduced(moved, own.often))
            charges.append(self._reduced([own for own in passes if own.levels]))
        dtype = exact_dtype(max(charges))
        charged: Integers = np.array(charges, dtype)[which].reshape(keys.shape)
        return charged

    def _as_number(self, *parts: Integers) -> Integers:
        """Return numbers of at most as many as there are accelerators as digits of one number."""
        base = 1 + self.hierarchy.accelerators
        number: Integers = np.zeros(1, exact_dtype(base ** len(parts)))
        for part in parts:
            number = number * base + part.astype(number.dtype)
        return number

    def _find_whole(
        self, layouts: tuple[str, ...], states: tuple[State, ...]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
        """Return states as choices, and where a tensor is whole in them.

        Copies depend on that alone, in which far fewer states differ.

        Returns
        -------
        choices : (levels, states)
        which : (states,)
            Of the columns of ``whole``.
        whole : (levels, distinct)
        """
        choices = np.array(states, np.intp).reshape(len(states), -1).T
        whole = np.array(layouts)[choices] == "whole"
        distinct, which = np.unique(whole, axis=1, return_inverse=True)
        return choices, which.reshape(-1), distinct

    def _charge_pairs(
        self,
        conversion: EdgeConversion,
        level: int,
        shares: int,
        uneven: tuple[LongestParts, LongestParts],
    ) -> list[list[int]]:
        """Return what pairs of choices are charged at a level for a share of a tensor's copies.

        The slowest sends the longest part of what is written, or receives that of what is read.

        Parameters
        ----------
        shares
            The copies, the parts into which levels above have divided them, and those of levels
            below, to each of which goes a message: `_as_number`.
        """
        base = 1 + self.hierarchy.accelerators
        copies, above, below = shares // base**2, shares // base % base, shares % base
        times = [often * below for _, often in conversion.passes]

        def charge(passes: Sequence[int]) -> int:
            # What joined levels above have divided leaves no remainder.
            amounts = [max(of_longest(n // above * copies, end) for end in uneven) for n in passes]
            return self._converted(level, amounts, times)

        return [[charge(passes) for passes in row] for row in self._moved(conversion, level)]

    @abstractmethod
    def _reduced(self, reduced: Sequence[Reduced]) -> int:
        """Return the charge of a node's reductions, pass by pass."""

    @abstractmethod
    def _converted(self, level: int, passes: Sequence[int], times: Sequence[int]) -> int:
        """Return the charge of the amounts that each pass moves at a level, between pairs.

        Parameters
        ----------
        times
            In how many exchanges each.
        """

    def _local(self, node: int, state: State) -> int:  # noqa: ARG002
        """Return the charge of a node's own work, and of its accesses to memory."""
        return 0


class Bytes(ExchangeCharges):
    """Bytes, weighted by the cost of a byte at each level."""

    def __init__(self, plan: Plan) -> None:
        unit = "weighted bytes" if plan.level_weights else "bytes"
        if plan.cost.unit != unit:
            raise CheckFailedError(f"cost, unit: should be {unit!r}, got {plan.cost.unit!r}")
        super().__init__(plan)
        # A charge is a quarter of an element: a byte, or half or a quarter of one.
        self.resolution = Fraction(plan.element_bytes, 4).denominator

    def _reduced(self, reduced: Sequence[Reduced]) -> int:
        moved = (each for levels, *_ in reduced for each in levels.items())
        return sum(self._converted(level, [amount], [1]) for level, amount in moved)

    def _converted(self, level: int, passes: Sequence[int], times: Sequence[int]) -> int:  # noqa: ARG002
        weight = self.plan.level_weights[level] if self.plan.level_weights else 1
        # The division leaves no remainder.
        charged = sum(passes) * self.plan.element_bytes * self.resolution // 4
        return charged * weight
