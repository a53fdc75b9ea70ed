"""Viterbi over what each layer takes at all levels together, exact for any charges a level.

A layer has ``choices ** levels`` states. Where the boundary's charge is a sum over levels,
the step from one layer to the next is taken level by level, the topmost first: each step
replaces one digit of the source's state by one of the target's, which costs O(levels x
states) a boundary instead of O(states ^ 2).

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.table import chain_ends
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.product import FactoredTable
    from hypar_opt.costs.table import Integers


def cheapest_states(
    table: FactoredTable, rank: NDArray[np.intp], deadline: Deadline = NEVER
) -> tuple[int, list[int]]:
    """Return the least cost and the canonical states that have it, one a layer.

    Parameters
    ----------
    table
        A chain, its forbidden states priced out.
    rank : (states,)
        Each state's place in canonical order.
    deadline
        Looked at once a layer.
    """
    costs = costs_to_come(table, deadline)
    least = costs[-1].min()
    states = [_first(costs[-1] == least, rank)]
    for layer in range(len(costs) - 1, 0, -1):
        target = states[-1]
        into = costs[layer][target] - table.node[layer, target]
        step = step_into(table, layer - 1, target)
        states.append(_first(costs[layer - 1] + step == into, rank))
    return int(least), states[::-1]


def costs_to_come(table: FactoredTable, deadline: Deadline = NEVER) -> list[Integers]:
    """Return, for each layer, the least cost of all layers up to it by its state.

    Raises
    ------
    RefusedError
        If the table is no chain of all its layers.
    """
    if not np.array_equal(table.ends, chain_ends(len(table.node))):
        raise RefusedError("takes chains of layers, and this graph is none")
    costs: list[Integers] = [table.node[0]]
    for layer in range(1, len(table.node)):
        deadline.check()
        costs.append(transition(table, layer - 1, costs[-1]) + table.node[layer])
    return costs


def transition(table: FactoredTable, boundary: int, costs: Integers) -> Integers:
    """Return the least of ``costs[source] + charge[source, target]`` for each target state.

    At each level the array's axes are the target's digits above, the source's digit here,
    and the source's digits below.
    """
    choices = table.choices
    prefixes = 1
    for pairs in table.pairs:
        charge = pairs[boundary]  # (prefixes or 1, source digit, target digit)
        view = costs.reshape(prefixes, choices, 1, -1)
        step = view[:, 0] + charge[:, 0, :, None]
        for digit in range(1, choices):
            np.minimum(step, view[:, digit] + charge[:, digit, :, None], out=step)
        costs = step
        prefixes *= choices
    return costs.reshape(-1)


def step_into(table: FactoredTable, boundary: int, target: int) -> Integers:
    """Return the charge of each source state before one target state."""
    choices, levels = table.choices, table.levels
    charge: Integers = np.zeros(1, table.node.dtype)
    for level, pairs in enumerate(table.pairs):
        digit = target // choices ** (levels - 1 - level) % choices
        prefix = target // choices ** (levels - level) if pairs.shape[1] > 1 else 0
        charge = (charge[:, None] + pairs[boundary, prefix, :, digit]).reshape(-1)
    return charge


def _first(among: NDArray[np.bool_], rank: NDArray[np.intp]) -> int:
    found = np.flatnonzero(among)
    return int(found[rank[found].argmin()])
