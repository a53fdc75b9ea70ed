"""Which choices a table allows, and whether any assignment can be feasible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable


def allowed_choices(table: CostTable) -> NDArray[np.bool_]:
    """Return whether each layer is allowed each choice, ``(layers, choices)`` bool."""
    return np.ones(table.node.shape, bool) if table.allowed is None else table.allowed


def trivially_infeasible(table: CostTable) -> bool:
    """Whether a layer has no allowed choice, or the lightest choices exceed the capacity.

    Nothing else makes a table infeasible: edges forbid no pair of choices.
    """
    allowed = allowed_choices(table)
    if not allowed.any(axis=1).all():
        return True
    return any(
        sum(int(row[columns].min()) for row, columns in zip(load, allowed, strict=True)) > capacity
        for load, capacity in table.limits
    )
