"""All levels together where thresholds are independent: a table for each threshold t."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable, are_chains, side_by_side
from hypar_opt.integers import Integers, exact_dtype


@dataclass(frozen=True)
class ThresholdTable:
    """A joint table by thresholds: whether a layer takes model parallelism at t levels or more.

    A layer with model parallelism at m of H levels, each of n parts, is charged
    ``model * n^(t-1)`` for each t up to m and ``data * n^(H-t)`` for each t above, whatever the
    order of its levels; a boundary is charged for each t by whether each of its layers reaches it.
    So thresholds are independent, and the optimum over all levels is that of H tables of two
    choices. An assignment says for t = 1 which layers reach it, then for t = 2, and so on.

    Source: docs/decisions/0005-joint-optimum.md.

    Parameters
    ----------
    data, model
        Each layer's charge at a level where nothing is split above.
    ends
        Each boundary's source and target.
    pairs
        Each boundary's charges for dp-dp, for dp-mp, for mp-dp and for mp-mp.
    levels
        H, at least 1.
    parts
        Of every level.
    unit, resolution
        As in `CostTable`.
    """

    data: Sequence[int] | Integers
    model: Sequence[int] | Integers
    ends: Sequence[tuple[int, int]] | NDArray[np.intp]
    pairs: Sequence[Sequence[int] | Integers] | Integers
    levels: int
    parts: int = 2
    unit: str = "bytes"
    resolution: int = 1

    @cached_property
    def is_chain(self) -> bool:
        """Whether the layers are one chain, or several independent ones."""
        return are_chains(self.ends, len(self.data))

    @cached_property
    def max_total(self) -> int:
        """An upper bound on the cost of an assignment, and on that of any threshold."""
        # No layer costs more than its full charge at all thresholds: at most n^H - 1 times.
        columns = map(as_list, (self.data, self.model, *self.pairs))
        return sum(map(sum, columns)) * int(self.parts**self.levels)

    @property
    def copies(self) -> list[tuple[int, int]]:
        """How many times each threshold t, from 1 on, charges ``data`` and ``model``."""
        # As at a level below H - t data and t - 1 model choices.
        levels, n = range(self.levels), self.parts
        return [(n ** (self.levels - 1 - above), n**above) for above in levels]

    def below(self, above: Sequence[Sequence[int]]) -> ThresholdTable:
        """Return the table of one level, given the choices at those above it: one threshold.

        Parameters
        ----------
        above : (levels, layers)
        """
        data, model = np.asarray(self.data), np.asarray(self.model)
        if above:
            copies = np.array([self.parts**level for level in range(self.levels)], data.dtype)
            split = np.sum(above, axis=0)
            data, model = data * copies[len(above) - split], model * copies[split]
        level = replace(self, data=data, model=model, levels=1)
        vars(level)["is_chain"] = self.is_chain  # of the same boundaries
        return level

    def tables(self) -> list[CostTable]:
        """Return the table of each threshold, t = 1 to H."""
        dtype = exact_dtype(self.max_total)
        node = np.array([self.data, self.model], dtype).T
        ends = np.array(self.ends, np.intp).reshape(-1, 2)
        edge: Integers = np.array(self.pairs, dtype).T.reshape(-1, 2, 2)
        tables = []
        for copies in self.copies:
            charges: Integers = node * np.array(copies, dtype)
            tables.append(
                CostTable(charges, edge, ends, unit=self.unit, resolution=self.resolution)
            )
        return tables

    def astype(self, dtype: type[np.int64 | np.object_]) -> ThresholdTable:
        """Return the table with its charges as such integers."""
        data, model = np.asarray(self.data, dtype), np.asarray(self.model, dtype)
        pairs: Integers = np.asarray(self.pairs, dtype)
        return replace(self, data=data, model=model, pairs=pairs)

    def as_one_table(self) -> CostTable:
        """Return the tables of all thresholds side by side, for solvers of plain tables."""
        return side_by_side(self.tables())


def as_list(column: Sequence[int] | Integers) -> list[int]:
    """Return a column's charges as Python's integers."""
    entries: list[int] = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return entries
