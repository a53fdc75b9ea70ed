"""Contiguous parts of images: which levels may split rows, or columns.

The levels that split any layer's rows divide them in order, the topmost first, so that a part of
one layer is a part of another, or several adjacent ones. A layer that splits its rows at only some
of these levels has contiguous parts only if those are the first ones: split at the second level
alone, its part would consist of a piece of each part of the first level, each with a halo of its
own.

Source: docs/model.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.workload.splitting import spatial_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.tensors import Workload

    Flags = NDArray[np.bool_]

Orders = Mapping[int, tuple[int, ...]]
"""The levels that split images, H1 first, by the column of the choice (rows or columns)."""


def orders_of(workload: Workload, rows: Sequence[Sequence[int]]) -> Orders:
    """Return the levels at which any node splits images."""
    return {
        column: tuple(level for level, row in enumerate(rows) if column in row)
        for column in spatial_columns(workload)
    }


def split_leading_levels(states: NDArray[np.intp], orders: Orders) -> Flags:
    """Return which states split images only at the leading levels of an order.

    Parameters
    ----------
    states : (levels, ...)
    """
    fits: Flags = np.ones(states.shape[1:], bool)
    for column, levels in orders.items():
        split = states == column
        begun = np.ones(states.shape[1:], bool)
        for level in range(len(states)):
            if level in levels:
                fits &= begun | ~split[level]
                begun &= split[level]
            else:
                fits &= ~split[level]
    return fits


def stays_contiguous(workload: Workload, above: Sequence[Sequence[int]]) -> Flags:
    """Return which choices keep parts contiguous at a level: ``(nodes, choices)``."""
    fits: Flags = np.ones((len(workload.nodes), len(workload.choices)), bool)
    for column, order in orders_of(workload, above).items():
        for level in order:
            fits[:, column] &= np.equal(above[level], column)
    return fits


def check_contiguous(workload: Workload, rows: Sequence[Sequence[int]]) -> None:
    """Refuse a plan, ``(levels, nodes)``, in which a node's part is not contiguous.

    Raises
    ------
    HyparError
        Naming the node, the choice and the levels.
    """
    if gap := first_gap(workload, rows):
        node, column, level, above = gap
        name, word = workload.nodes[node].name, workload.choices[column]
        raise HyparError(
            f"constraints: {name} may not take {word} at H{level + 1} and not at H{above + 1},"
            " where others do: its parts would not be contiguous"
        )


def first_gap(
    workload: Workload, rows: Sequence[Sequence[int]]
) -> tuple[int, int, int, int] | None:
    """Return the first node whose parts are not contiguous; None if there is none.

    Parameters
    ----------
    rows : (levels, nodes)

    Returns
    -------
    node, column, level, missing
        It splits its rows, or columns, at a level, and not at ``missing`` above it.
    """
    for column, levels in orders_of(workload, rows).items():
        for upper, lower in itertools.pairwise(levels):
            for node, (above, below) in enumerate(zip(rows[upper], rows[lower], strict=True)):
                if below == column != above:
                    return node, column, lower, upper
    return None


def maximal_orders(workload: Workload, levels: int) -> Iterator[Orders]:
    """Yield orders of levels such that every contiguous plan follows one of them, longest first.

    An order may be extended by levels below it, so every order here ends at the last level.
    """
    columns = spatial_columns(workload)
    above = [
        (*some, levels - 1)
        for count in reversed(range(levels))
        for some in itertools.combinations(range(levels - 1), count)
    ]
    for chosen in itertools.product(above, repeat=len(columns)):
        yield dict(zip(columns, chosen, strict=True))
