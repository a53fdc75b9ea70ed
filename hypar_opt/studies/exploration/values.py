"""The values of an exploration, and the costs of one plan in two readings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypar_opt.plan.costs import Cost
from hypar_opt.units import format_cost

Values = NDArray[np.float64]

TIE = 1e-12
"""Values this close, relatively, are equal: rounding depends on the order of a sum."""


MAX_ROWS = 2**20
"""Plans that a table lists: a spreadsheet holds no more rows."""

UNITS = {"time": "seconds", "energy": "joules"}
"""Columns of amounts that are named by their unit."""


@dataclass(frozen=True)
class PricedPlan:
    """One plan's cost by the exploration's reading, and by the reading ``executed``.

    The latter is None if the cost, of a plug-in, has no such reading.
    """

    cost: Cost
    executed: Cost | None

    def __repr__(self) -> str:
        costs = [cost for cost in (self.cost, self.executed) if cost is not None]
        return f"<PricedPlan {', executed '.join(format_cost(c.total, c.unit) for c in costs)}>"

    @property
    def executed_ratio(self) -> float | None:
        """Data Parallelism's amount over the plan's when both are run."""
        return None if self.executed is None else self.executed.ratios.data


def exact_number(value: float) -> int | float:
    """Return a value as an integer if it is one: bytes are 12, not 12.0."""
    return int(value) if value.is_integer() else value
