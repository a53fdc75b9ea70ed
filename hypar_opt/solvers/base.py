"""What every solver offers, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable


class Status(StrEnum):
    """What an answer is worth."""

    OPTIMAL = "optimal"
    """No assignment of this table costs less; the bound equals the objective."""

    FEASIBLE = "feasible"
    """An assignment, with no word on whether a better one exists."""


@dataclass(frozen=True)
class SolveResult:
    """A solver's answer to one table. What it claims is checked before it is used.

    Parameters
    ----------
    assignment
        Each layer's choice, as its column in the table.
    objective
        What the assignment costs, in the table's whole numbers, as the solver has it; None
        where the solver does not say.
    bound
        No assignment costs less; None where the solver has no word on that.
    """

    assignment: tuple[int, ...]
    objective: int | None
    status: Status
    bound: int | None = None


class Solver(Protocol):
    """One way to assign a choice to each layer of a cost table.

    Every exact solver returns the same assignment: among the cheapest, the one that is
    first in the table's order of choices, compared from the last layer back. Ties decide
    what the levels below have to split, so they change totals.
    """

    summary: ClassVar[str]
    """What it does and what it guarantees, in a line."""

    def accepts(self, table: CostTable) -> str | None:
        """Return why this table is refused, or None."""

    def solve(self, table: CostTable) -> SolveResult:
        """Answer a table that `accepts` did not refuse."""
