"""What a boundary moves at each level of a run, by the layouts at its two ends at all levels.

A tensor is converted in an order that moves least: replicas are cut first, which is free; then
halves of one kind become halves of the other; and at last it is all-gathered where it is read
whole, from the topmost level down. Where it was whole and is read whole both sides repeat all
of that, each for its own replica. The error takes the same way back, and moves as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.table import Integers, exact_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALL_GATHERED = 4
EXCHANGED = 2
"""Quarters of an element that both sides receive: each the other's half, or a half of that."""

Layouts = Sequence[str]
"""A tensor's layout at every level, H1 first."""


def converted(sources: Sequence[Layouts], targets: Sequence[Layouts]) -> Integers:
    """Return the quarters of an element that each pair of ends moves at each level, in one pass.

    Parameters
    ----------
    sources, targets
        What is written, and what is read: ``batch``, ``channel``, ``shuffled`` or ``whole``;
        ``partial`` is scattered into what is read before, or by batch where that is whole.

    Returns
    -------
    (levels, sources, targets)
    """
    written, read = _of_levels(sources)[:, :, None], _of_levels(targets)[:, None, :]
    into_whole = read == "whole"
    replicated = into_whole & (written == "whole")
    gathered = into_whole & ~replicated
    free = np.isin(written, ("whole", "partial")) | (written == read)
    exchanged = ~into_whole & ~free
    dtype = exact_dtype(ALL_GATHERED << (1 + len(written)))
    replicas = replicated.sum(axis=0).astype(dtype)
    # What has been gathered above a level has twice the size for all levels below.
    gathered_above = (gathered.cumsum(axis=0) - gathered).astype(dtype)
    quarters = np.where(gathered, ALL_GATHERED, EXCHANGED * exchanged).astype(dtype)
    moved: Integers = quarters << (replicas + gathered_above * gathered)
    return moved


def each_level(quarters: Integers, charge: Callable[[int, int], int]) -> Integers:
    """Return the charges of quarters of an element, ``(levels, ...)``, added over the levels.

    Parameters
    ----------
    charge
        Of a level and an amount; asked once for amounts that are equal.
    """
    of_levels: list[Integers] = []
    largest = 0
    for level, moved in enumerate(quarters):
        amounts, position = np.unique(moved, return_inverse=True)
        charges: Integers = np.array([charge(level, int(each)) for each in amounts], object)
        largest += int(charges.max())
        of_levels.append(charges[position.reshape(moved.shape)])
    dtype = exact_dtype(largest)
    total: Integers = np.zeros(quarters.shape[1:], dtype)
    for level_charges in of_levels:
        total += level_charges.astype(dtype)
    return total


def _of_levels(states: Sequence[Layouts]) -> NDArray[np.str_]:
    """Return the layouts as an array, ``(levels, states)``."""
    return np.array([list(state) for state in states], str).reshape(len(states), -1).T
