"""The names of a table's rows and columns, in the words of the network and of a plan file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RowNames:
    """The layer, the level and the choices behind a table's rows and columns.

    Parameters
    ----------
    nodes
        The names of a workload's nodes: layers, and tensors and weights that several layers share.
    words
        Each node's choices in the words of a plan file; None for a choice that it lacks.
    levels
        The table's levels, as ``H2``: its rows are all nodes at the first, then all at the next.
    states
        States over all levels, if columns are states: rows then are the nodes alone.
    columns
        By row, the state behind each column; None if the columns of all rows are the states.
    """

    nodes: Sequence[str]
    words: Sequence[Sequence[str | None]]
    levels: tuple[str, ...]
    states: Sequence[Sequence[int]] | None = None
    columns: Sequence[NDArray[np.intp]] | None = None

    def among(self, columns: Sequence[NDArray[np.intp]]) -> RowNames:
        """Return the names of a table whose rows have columns for some of the states."""
        return replace(self, columns=columns)

    def layer(self, row: int) -> str:
        """Return the name of a row's layer."""
        return self.nodes[row % len(self.nodes)]

    def level(self, row: int) -> str:
        """Return a row's level, as ``H2``, or its levels, as ``H1.H2``."""
        if self.states is not None:
            return ".".join(self.levels)
        return self.levels[row // len(self.nodes)]

    def choice(self, row: int, column: int) -> str:
        """Return a column's choice, as ``model``, or its choices by level, as ``data.model``."""
        words = self.words[row % len(self.nodes)]
        state = column if self.columns is None else int(self.columns[row][column])
        digits = (state,) if self.states is None else self.states[state]
        # A kind of layer may lack a choice that the table has a column for: it is forbidden.
        return ".".join(words[digit] or f"choice{digit + 1}" for digit in digits)
