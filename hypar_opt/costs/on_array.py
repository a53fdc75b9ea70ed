"""The common base of an array's costs: exchanges at each level's rate, and exact integers."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from hypar_opt.costs.base import CostModel, Symmetries
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.physical import Rings, finest, rounded
from hypar_opt.costs.reductions import reductions_of
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.step.states import broadcast_shape, levels_of, shape_of
from hypar_opt.units import PREFIXES
from hypar_opt.workload.addends import may_defer_reduction

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from hypar_opt.costs.reductions import Reduction
    from hypar_opt.sharding.passes import Phase
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.rules import StepRules
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

Rates = tuple[Fraction, Fraction]
"""The charges of a byte, as communication counts bytes, and of a message."""

BETWEEN_PAIRS = ("halo", "input")
"""The tensors that are not reduced: each level's parts exchange them."""


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
    max_total
        An upper bound on any sum of charges.
    crossing
        Whether a charge over several levels is attributed to those that are crossed: a ring's is
        divided by the bytes that cross each. Otherwise it stands at the topmost.

    Source: docs/assumptions.md.
    """

    communication: CommunicationCost
    rings: Rings | None
    per_unit: int = 10**15
    max_total: int = 2**63
    crossing: bool = False

    proportional: ClassVar[bool] = False
    BASE: ClassVar[str]
    """The SI unit of a total."""

    @property
    @abstractmethod
    def level_links(self) -> Sequence[object]:
        """A key of each level's links, H1 first: over links of equal keys a byte costs the same."""

    def in_units(self, per_unit: int | None, workload: Workload) -> Self:
        """Return the same cost with ``per_unit`` charges in a second or joule; None for the finest.

        The finest follows from a bound over all placements, so that the charges of plans with
        different placements have one unit and can be compared.
        """
        bound = self.upper_bound(workload)
        per_unit = per_unit or finest(bound)
        return replace(self, per_unit=per_unit, max_total=math.ceil(4 * bound * per_unit))

    @cached_property
    def attributed(self) -> Self:
        return replace(self, crossing=True)

    @property
    def physical(self) -> Self:
        return self

    def level_key(self, level: int) -> Hashable:
        """Return a level's rates."""
        return self.communication.level_key(level), self.rates(level)

    def rules(self, workload: Workload, levels: int) -> StepRules:
        """Return the rules of what a workload exchanges at so many levels."""
        return self.communication.rules(workload, levels)

    @property
    def unit(self) -> str:
        return f"{PREFIXES.get(self.per_unit, '')}{self.BASE}"

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        """Return each boundary's charges: its exchanges between pairs, and deferred reductions."""
        levels = levels_of(targets)
        rules = self.rules(workload, levels)
        ends = shape_of(boundaries, sources), shape_of(boundaries, targets)
        context = workload, workload.ends[boundaries, 0], broadcast_shape(*ends), levels
        return self.charges(rules.boundary(boundaries, sources, targets), *context)

    def exchanges_of_nodes(
        self, workload: Workload, nodes: Indices, states: States
    ) -> list[Integers]:
        """Return the charges of each layer's exchanges: reductions, and halos between pairs."""
        levels = levels_of(states)
        rules = self.rules(workload, levels)
        context = workload, nodes, shape_of(nodes, states), levels
        return self.charges(rules.node(nodes, states), *context)

    def charges(
        self,
        operations: Iterable[Collective],
        workload: Workload,
        nodes: Indices,
        shape: tuple[int, ...],
        levels: int,
    ) -> list[Integers]:
        """Return what exchanges are charged, by level.

        Parameters
        ----------
        nodes
            The nodes whose exchanges they are; of boundaries, the sources.
        shape
            The shape of the nodes, or boundaries, with their states.
        """
        rows = self.uncharged(levels)
        if not levels:
            return rows
        between, reductions = self.exchanges_and_reductions(operations, levels)
        for exchanges in between:
            level = exchanges[0].level
            rows[level] = rows[level] + self.exchange(exchanges)
        if not reductions:
            return rows
        charged = self.reductions_charged(reductions, workload, nodes, shape)
        return [row + more for row, more in zip(rows, charged, strict=True)]

    def exchanges_and_reductions(
        self, operations: Iterable[Collective], levels: int
    ) -> tuple[list[list[Collective]], dict[tuple[Phase, int], Reduction]]:
        """Return the exchanges between pairs that are rounded once, and the reductions.

        Reductions are by pass and number in `REDUCTION_GROUPS`.
        """
        between: dict[tuple[Hashable, int], list[Collective]] = {}
        reduced: list[Collective] = []
        for operation in operations:
            if operation.tensor in BETWEEN_PAIRS:
                key = self.rounded_together(operation), operation.level
                between.setdefault(key, []).append(operation)
            else:
                reduced.append(operation)
        return [*between.values()], reductions_of(reduced, self.communication, levels)

    def messages(self, operation: Collective) -> Integers | int:
        """Return the messages of an exchange between pairs, one after the other."""
        messages: Integers | int = operation.times * operation.messages
        return messages * self.rounds(operation.level)

    @abstractmethod
    def reductions_charged(
        self,
        reductions: Mapping[tuple[Phase, int], Reduction],
        workload: Workload,
        nodes: Indices,
        shape: tuple[int, ...],
    ) -> list[Integers]:
        """Return the charges by level of reductions by pass and number in `REDUCTION_GROUPS`."""

    @abstractmethod
    def rounded_together(self, exchange: Collective) -> Hashable:
        """Return a key of an exchange between pairs: those with one key are rounded as a sum."""

    def rounds(self, level: int) -> int:
        """Return the rounds of an exchange in which each part of a level sends to all others."""
        return self.communication.sizes[level] - 1

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return which levels are charged alike.

        A ring joins levels in the charges of nodes, which may still be permuted. If boundaries may
        defer reductions, each level is a kind by itself.
        """
        symmetries = super().symmetries(workload, levels)
        if self.rings is not None and may_defer_reduction(workload).any():
            return symmetries._replace(level_kinds=range(levels), level_groups=range(levels))
        return symmetries

    def uncharged(self, levels: int) -> list[Integers]:
        """Return a charge of nothing for each level."""
        return [np.zeros(1, exact_dtype(self.max_total))] * levels

    def charge(self, operation: Collective) -> Integers:
        """Return the charge of an exchange between pairs, rounded by itself."""
        return self.exchange([operation])

    def exchange(self, operations: Sequence[Collective]) -> Integers:
        """Return the charge of exchanges between pairs at one level, which are rounded once."""
        first, level = operations[0], operations[0].level
        moved = self.communication.fold(operations, level + 1)[level]
        return self.at_rates(moved, self.rates(level), self.messages(first))

    def at_rates(self, moved: Integers, rates: Rates, messages: Integers | int = 1) -> Integers:
        """Return the charges of what moves, each rounded by itself."""
        return rounded(moved, *rates, messages).astype(exact_dtype(self.max_total), copy=False)

    @abstractmethod
    def communication_only(self) -> Self:
        """Return the cost of the exchanges alone."""

    @abstractmethod
    def rates(self, level: int) -> Rates:
        """Return the rates of a level's exchanges between pairs."""

    @abstractmethod
    def upper_bound(self, workload: Workload) -> Fraction:
        """Return an upper bound on the seconds or joules of any plan under any placement."""
