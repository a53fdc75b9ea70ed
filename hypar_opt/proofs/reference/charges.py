"""The charges of a node's state, and of the states of an edge's ends.

A state is a node's choices at the topmost levels, H1 first. A level is charged what appending its
choices adds, so that the tables of a level, of thresholds and of all levels are the same function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.exchanges import EdgeConversion, Reduced, exchanges_of
from hypar_opt.proofs.reference.nodes import PlanNode, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.plan.plan import Plan


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

    def __init__(self, plan: Plan) -> None:
        self.plan, self.exchanges = plan, exchanges_of(plan)
        self.resolution = 1
        kinds: dict[object, int] = {}
        nodes = zip(self.exchanges.graph.nodes, self.exchanges.reductions, strict=True)
        self._first_alike = [kinds.setdefault(kind, n) for n, kind in enumerate(nodes)]
        self._node_charge, self._edge_charge = cache(self._charge_node), cache(self._charge_edge)

    def node(self, node: int, state: State) -> int:
        return self._node_charge(self._first_alike[node], state)

    def joins_levels(self, node: int, state: State) -> bool:  # noqa: ARG002
        return False

    def edge(self, edge: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        return self._edge_charge(self.exchanges.conversions[edge], tuple(sources), tuple(targets))

    def _charge_node(self, node: int, state: State) -> int:
        reduced = self.exchanges.reduced(node, state)
        return self._reduced(reduced) + self._local(self.exchanges.graph.nodes[node], state)

    def _charge_edge(
        self, conversion: EdgeConversion, sources: tuple[State, ...], targets: tuple[State, ...]
    ) -> Integers:
        written, read = (
            np.array(states, np.intp).reshape(len(states), -1).T for states in (sources, targets)
        )
        written, read = written[:, :, None], read[:, None, :]
        copies = conversion.copies(written, read)
        # By level, for each number of copies: the charge of each pair of choices.
        levels: list[Integers] = [
            np.array([self._pairs(conversion, level, n) for n in range(highest + 1)], object)
            for level, highest in enumerate(copies.max(axis=(1, 2)).tolist())
        ]
        dtype = exact_dtype(sum(int(charges.max()) for charges in levels))
        total: Integers = np.zeros((len(sources), len(targets)), dtype)
        for level, charges in enumerate(levels):
            total += charges.astype(dtype)[copies[level], written[level], read[level]]
        return total

    def _pairs(self, conversion: EdgeConversion, level: int, copies: int) -> list[list[int]]:
        size = conversion.elements << copies
        return [
            [self._converted(level, [quarters * size for quarters in passes]) for passes in row]
            for row in conversion.quarters
        ]

    @abstractmethod
    def _reduced(self, reduced: Sequence[Reduced]) -> int:
        """Return the charge of a node's reductions, pass by pass."""

    @abstractmethod
    def _converted(self, level: int, passes: Sequence[int]) -> int:
        """Return the charge of the quarters that each pass moves between nodes at a level."""

    def _local(self, layer: PlanNode, state: State) -> int:  # noqa: ARG002
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
        moved = (each for levels, _ in reduced for each in levels.items())
        return sum(self._converted(level, [quarters]) for level, quarters in moved)

    def _converted(self, level: int, passes: Sequence[int]) -> int:
        weight = self.plan.level_weights[level] if self.plan.level_weights else 1
        # The division leaves no remainder.
        return sum(passes) * self.plan.element_bytes * self.resolution // 4 * weight
