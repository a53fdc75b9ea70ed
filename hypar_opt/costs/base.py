"""What every cost model offers, and the state it is asked in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable
    from hypar_opt.shapes import Shapes


@dataclass(frozen=True, eq=False)
class Splits:
    """How often each choice has been taken, layer by layer, at the levels above.

    Parameters
    ----------
    counts : (choices, layers) int64
        ``counts[0]`` is d and ``counts[1]`` is m of MODEL "Sizes".

    The level, H1 being 0, is how many choices each layer has made.
    """

    level: int
    counts: NDArray[np.int64]

    @classmethod
    def none(cls, layers: int, choices: int = 2) -> Splits:
        """Return the state at the topmost level, where every tensor is whole."""
        return cls(0, np.zeros((choices, layers), np.int64))

    def after(self, assignment: Sequence[int] | NDArray[np.intp]) -> Splits:
        """Return the state one level down, each layer having taken its choice."""
        counts = self.counts.copy()
        counts[np.asarray(assignment, np.intp), np.arange(counts.shape[1])] += 1
        return Splits(self.level + 1, counts)


class CostModel(Protocol):
    """Prices one hierarchy level, given what the levels above have split.

    A table's entries are charges of the whole level, over all its groups, so that a
    plan's total is the plain sum of its levels.
    """

    unit: str

    def table(self, shapes: Shapes, splits: Splits) -> CostTable: ...
