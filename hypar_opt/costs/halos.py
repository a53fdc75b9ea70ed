"""What parts of images exchange at their borders, as a layer's charge beside its reductions.

Parts exchange rows first, and columns then, those of the rows that they have by now: where rows are
split, of as many at the image's edges as between two parts, as programs of one shape for all parts
do. The errors of these rows and columns go back the same way.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.hierarchy import Hierarchy
from hypar_opt.integers import exact_dtype
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.step.states import copies_of
from hypar_opt.step.uneven import stretched, stretches_of
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.operators.axes import BY_COLUMN, BY_ROW, COLUMNS, ROWS
from hypar_opt.workload.splitting import spatial_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices, States
    from hypar_opt.step.uneven import Stretches
    from hypar_opt.workload.tensors import Workload


class Halos(NamedTuple):
    """Quarters of an element at a border between two parts, of each node.

    Parameters
    ----------
    rows, columns : (nodes,)
        Of the whole border.
    corners : (nodes,)
        What columns exchange more for each part of the rows.
    by_row, by_column, whole : (choices, nodes)
        Whether a choice splits the input by row, by column, or not at all.
    """

    rows: Integers
    columns: Integers
    corners: Integers
    by_row: NDArray[np.bool_]
    by_column: NDArray[np.bool_]
    whole: NDArray[np.bool_]

    def charges(
        self,
        nodes: Indices,
        states: States,
        parts: Sequence[int],
        axes: NDArray[np.int64] | None = None,
    ) -> Callable[[int], Integers]:
        """Return a function from blocks of levels to the quarters that move at each level.

        Parameters
        ----------
        axes : (choices, nodes)
            The sizes of the axes that choices split, where all parts count as the longest.
        """
        uneven: Stretches = ()
        if axes is not None:
            split = np.where(self.whole, 0, axes)[:, nodes]
            uneven = stretches_of(split, states, Hierarchy(tuple(parts)))
        rows, columns, whole = (
            copies_of([choices[block, nodes] for block in states], parts)
            for choices in (self.by_row, self.by_column, self.whole)
        )
        copies, parts_of_rows = whole[-1].below[0], rows[-1].below[0]
        corners = self.corners[nodes] * np.where(parts_of_rows > 1, parts_of_rows, 0)
        of_columns = (self.columns[nodes] + corners) * copies
        of_rows = self.rows[nodes] * copies

        def charge(block: int) -> Integers:
            # A border is at the topmost level at which its two parts differ.
            moved: Integers = rows[block].added * of_rows + columns[block].added * of_columns
            return stretched(moved, uneven)

        return charge


@lru_cache(maxsize=64)
def halos_of(workload: Workload, phases: tuple[Phase, ...]) -> Halos | None:
    """Return what layers exchange at the borders of parts of images; None if none does.

    The network's input arrives with what each part reads of it.
    """
    if not spatial_columns(workload):
        return None
    times = exchanges_of(workload, Phase.FORWARD) * (Phase.FORWARD in phases)
    times = times + workload.repeats.micro_batches * (Phase.BACKWARD in phases)
    amounts: list[tuple[int, int, int]] = []
    for position, (node, count) in enumerate(zip(workload.nodes, times.tolist(), strict=True)):
        rows, columns = (node.borders.get(axis) for axis in (ROWS.axis, COLUMNS.axis))
        own = 4 * count * (position in workload.readers)
        if not own or not ((rows and rows.halo) or (columns and columns.halo)):
            amounts.append((0, 0, 0))
            continue
        *rest, height, width = node.input
        own *= rest[0] * rest[1]
        above, beside = (border.halo if border else 0 for border in (rows, columns))
        amounts.append((own * above * width, own * beside * height, own * beside * above))
    if not any(map(any, amounts)):
        return None
    inputs, names = workload.layouts.inputs[0], workload.layouts.names
    by_row, by_column = (
        inputs == names.index(name) if name in names else np.zeros_like(inputs, bool)
        for name in (BY_ROW, BY_COLUMN)
    )
    # Of all parts of all levels together.
    dtype = exact_dtype(12 * max(map(max, amounts)))
    rows_, columns_, corners = np.array(amounts, dtype).T
    return Halos(rows_, columns_, corners, by_row, by_column, inputs < FIRST_SPLIT)
