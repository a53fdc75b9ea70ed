"""The common base of an array's costs: exchanges at each level's rate, and exact integers."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from operator import methodcaller
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from hypar_opt.costs.all_to_alls import messages_of
from hypar_opt.costs.base import CostModel, Symmetries
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.physical import Rings, finest, rounded
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.step.states import levels_of, shape_of
from hypar_opt.units import PREFIXES
from hypar_opt.workload.addends import passes_addends
from hypar_opt.workload.repeats import ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

Rates = tuple[Fraction, Fraction]
"""The charges of a byte, as communication counts them, and of a message."""


@dataclass(frozen=True, kw_only=True)
class ArrayCost(CostModel):
    """A physical amount of one training step, in integers of a small unit.

    Exchanges are charged at the rate of their level's links between pairs. Around rings a layer's
    reduction joins all the levels that reduce.

    Parameters
    ----------
    communication
        The model that counts the bytes.
    rings
        The rings of reductions; None to reduce between pairs.
    per_unit
        Charges per second or joule: 10^15, or fewer where sums would not fit int64.
    largest
        An upper bound on any sum of charges.
    crossing
        Whether a charge that depends on several levels stands at those that are crossed: a ring's
        is divided by the bytes that cross each; else it stands at the topmost.

    Source: docs/simulator.md.
    """

    communication: CommunicationCost
    rings: Rings | None
    per_unit: int = 10**15
    largest: int = 2**63
    crossing: bool = False

    BASE: ClassVar[str]
    """The SI unit of a total."""

    @property
    @abstractmethod
    def level_links(self) -> Sequence[object]:
        """What a byte takes on each level's links, H1's first: equal ones charge the same."""

    @property
    def tiers(self) -> list[int]:
        """The levels from which on links are others than above, H1's 0 among them.

        Of nodes those within one. Between levels of equal links and parts what is held falls as
        time grows, byte for byte, wherever what is split of weights begins.
        """
        borders = enumerate(pairwise(self.level_links), 1)
        return [0, *(level for level, (above, own) in borders if above != own)]

    def in_parts(self, per_unit: int | None, workload: Workload) -> Self:
        """Return the same cost with ``per_unit`` charges in a second or joule; None for the finest.

        The finest follows from a bound over all placements, so that plans of different ones are in
        one unit and can be compared.
        """
        bound = self.upper_bound(workload)
        per_unit = per_unit or finest(bound)
        return replace(self, per_unit=per_unit, largest=math.ceil(4 * bound * per_unit))

    @cached_property
    def by_crossing(self) -> Self:
        return replace(self, crossing=True)

    @property
    def unit(self) -> str:
        return f"{PREFIXES.get(self.per_unit, '')}{self.BASE}"

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        """Return each boundary's charges: its exchanges, always between pairs, and passed sums."""
        rows = self.uncharged(levels_of(targets))
        ends = boundaries, sources, targets
        for exchanges in self.charged_apart:
            moved = exchanges.converted(workload, *ends)
            charged = self.conversions(exchanges, moved, workload, *ends)
            rows = [row + own for row, own in zip(rows, charged, strict=True)]
        if not (rows and passes_addends(workload)[boundaries].any()):
            return rows
        passed = self.of_reductions(
            methodcaller("passed_sums", workload, *ends),
            workload,
            workload.ends[boundaries, 0],
            np.broadcast_shapes(shape_of(boundaries, sources), shape_of(boundaries, targets)),
        )
        return [row + own for row, own in zip(rows, passed, strict=True)]

    def exchanges_of_nodes(
        self, workload: Workload, nodes: Indices, states: States
    ) -> list[Integers]:
        """Return the charges of each layer's exchanges: reductions, and borders between pairs."""
        if not states:
            return []
        reduced, shape = methodcaller("reduced", workload, nodes, states), shape_of(nodes, states)
        rows = self.of_reductions(reduced, workload, nodes, shape)
        for exchanges in self.charged_apart:
            moved = exchanges.at_borders(workload, nodes, states)
            times = exchanges_of(workload, exchanges.phases[0])[nodes]
            for level, row in enumerate(moved):
                charged = self.charge(row, self.rates(level), times * self.rounds(level))
                rows[level] = rows[level] + charged
        return rows

    @abstractmethod
    def of_reductions(
        self,
        moved_by: Callable[[CommunicationCost], Sequence[Integers]],
        workload: Workload,
        nodes: Indices,
        shape: tuple[int, ...],
    ) -> list[Integers]:
        """Return the charges of reductions, level by level.

        Parameters
        ----------
        moved_by
            Returns what they move, as a model of some passes counts it.
        nodes
            Whose tensors they reduce.
        shape
            Of what moves at a level.
        """

    def conversions(
        self,
        exchanges: CommunicationCost,
        moved: Sequence[Integers],
        workload: Workload,
        boundaries: Indices,
        sources: States,
        targets: States,
    ) -> list[Integers]:
        """Return what is charged of what one part of a step moves between nodes."""
        times: Integers | int = 1
        if workload.repeats != ONCE:
            times = exchanges_of(workload, exchanges.phases[0])[workload.ends[boundaries, 1]]
        ends = boundaries, sources, targets
        sent = messages_of(workload, exchanges.reading, *ends, exchanges.hierarchy)
        return [
            self.charge(row, self.rates(level), times * each * self.rounds(level))
            for level, (row, each) in enumerate(zip(moved, sent, strict=True))
        ]

    def rounds(self, level: int) -> int:
        """Return the rounds of an exchange between a level's parts: each sends to each other."""
        return self.communication.sizes[level] - 1

    def by_levels(self, workload: Workload) -> Self | None:
        return None if self.communication.by_levels(workload) is None else self

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return which levels are charged alike, by parts and rates: runs of a kind are a group.

        Around rings, too: they reduce what a node is charged, and of boundaries none but sums that
        may be passed on.
        """
        if self.rings is not None and passes_addends(workload).any():
            return super().symmetries(workload, levels)
        alike = self.communication.symmetries(workload, levels)
        return alike.told_apart([self.rates(level) for level in range(levels)])

    def uncharged(self, levels: int) -> list[Integers]:
        """Return a charge of nothing for each level."""
        return [np.zeros(1, exact_dtype(self.largest))] * levels

    def charge(self, moved: Integers, rates: Rates, messages: Integers | int = 1) -> Integers:
        """Return the charges of exchanges, each rounded by itself."""
        return rounded(moved, *rates, messages).astype(exact_dtype(self.largest), copy=False)

    @abstractmethod
    def communication_only(self) -> Self:
        """Return the cost of the exchanges alone."""

    @property
    @abstractmethod
    def charged_apart(self) -> Sequence[CommunicationCost]:
        """The exchanges of each of a step's parts whose charges are rounded by themselves."""

    @abstractmethod
    def rates(self, level: int) -> Rates:
        """Return the rates of a level's exchanges between pairs."""

    @abstractmethod
    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds or joules of any plan under any placement."""
