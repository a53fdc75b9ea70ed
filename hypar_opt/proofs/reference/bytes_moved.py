"""The bytes of a run, as charges."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.conversions import each_level
from hypar_opt.proofs.reference.exchanges import Counts, Exchanges, Matrix, State, exchanges_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.plan import Plan


@dataclass(frozen=True)
class Bytes:
    """Bytes, weighted by the cost of a byte at each level."""

    exchanges: Exchanges
    element_bytes: int
    level_weights: tuple[int, ...]
    joins_levels: bool = False

    @classmethod
    def of(cls, plan: Plan) -> Bytes:
        unit = "weighted bytes" if plan.level_weights else "bytes"
        if plan.cost.unit != unit:
            raise CheckFailedError(f"cost, unit: should be {unit!r}, got {plan.cost.unit!r}")
        weights = plan.level_weights or (1,) * plan.levels
        return cls(exchanges_of(plan), plan.element_bytes, weights)

    @property
    def resolution(self) -> int:
        """A charge is a quarter of an element: a byte, or half or a quarter of one."""
        return Fraction(self.element_bytes, 4).denominator

    def together(self, boundary: int) -> bool:
        return self.exchanges.together(boundary)

    def node(self, level: int, layer: int, counts: Counts) -> Sequence[int]:
        charges = [0] * self.exchanges.choices
        for reduction, quarters in self.exchanges.reduced(layer, counts):
            charges[reduction.choice] += self._charge(level, quarters)
        return charges

    def edge(self, level: int, boundary: int, source: Counts, target: Counts) -> Matrix:  # noqa: ARG002
        per_quarter = self._charge(level, self.exchanges.boundary(boundary, target))
        conversions = self.exchanges.conversions[boundary]
        choices = range(self.exchanges.choices)
        return tuple(
            tuple(per_quarter * sum(c[s][t] for c in conversions) for t in choices) for s in choices
        )

    def state(self, layer: int, state: Sequence[int]) -> int:  # noqa: ARG002
        return 0

    def pairs(self, boundary: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        moved = self.exchanges.passes * self.exchanges.pairs(boundary, sources, targets)
        return each_level(moved, self._charge)

    def _charge(self, level: int, quarters: int) -> int:
        """Return the charge of quarters of an element; the division leaves no remainder."""
        return quarters * self.element_bytes * self.resolution // 4 * self.level_weights[level]
