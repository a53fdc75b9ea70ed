"""Viterbi over a layer's choices at all levels together, exact for any charges of levels.

A layer has ``choices ** levels`` states. Where the boundary's charge is a sum over levels,
the transition from one layer to the next goes level by level, the topmost first: every step
replaces one digit of the source's state by one of the target's, which takes O(levels x
states) time per boundary instead of O(states ^ 2).

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.table import chain_ends
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError
from hypar_opt.integers import exact_dtype
from hypar_opt.solvers.base import FIRST_STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.state_table import FactoredTable
    from hypar_opt.integers import Integers

_MAX_PAIRS = 2**24
"""The most pairs of columns that are charged exactly."""


def cheapest_states(
    table: FactoredTable, rank: NDArray[np.intp], deadline: Deadline = NEVER
) -> tuple[int, list[int]]:
    """Return the least cost and the canonical states of that cost, one per layer.

    If the least cost is the penalty, there are no states.

    Parameters
    ----------
    table
        A chain; forbidden states cost the penalty (big-M).
    rank : (states,)
        The rank of every state in canonical order.
    deadline
        Checked once per layer.

    Raises
    ------
    RefusedError, NoAnswerError
        As `costs_to_come`.
    """
    costs = costs_to_come(table, deadline)
    lowest_cost = costs[-1].min()
    if lowest_cost == table.penalty:
        return int(lowest_cost), []
    states = [_first(costs[-1] == lowest_cost, rank)]
    for layer in range(len(costs) - 1, 0, -1):
        target = states[-1]
        # The sources of a minimum are those whose cost and charge add up to the target's cost.
        into = costs[layer][target] - table.node[layer, target]
        step = step_into(table, layer - 1, target)
        states.append(_first(costs[layer - 1] + step == into, rank))
    return int(lowest_cost), states[::-1]


def cheapest_by_bounds(
    table: FactoredTable, rank: NDArray[np.intp], deadline: Deadline
) -> tuple[int, int, list[int]]:
    """Return the least cost where a table's pairs are lower bounds, a bound, and the states.

    Columns that are in no assignment whose bound is within a threshold are excluded (reduced-cost
    fixing). The others are solved exactly, with a threshold that rises until the optimum is within
    it. If too many pairs remain to be charged, the cost is that of the best known assignment, above
    the bound. Parameters and errors are those of `cheapest_states`; its states are those without a
    time limit.
    """
    assert table.exact is not None
    bound, states = cheapest_states(table, rank, deadline)
    if not states:
        return bound, bound, []
    cost, _ = _optimum_of(table, [np.array([state]) for state in states], rank, deadline)
    ahead = zip(costs_to_come(table, deadline), costs_to_go(table, deadline), strict=True)
    bounds = [before + after for before, after in ahead] if cost > bound else []
    threshold, step = bound, bound // FIRST_STEP + 1
    while cost > threshold:
        threshold, step = min(threshold + step, cost), 2 * step
        limit = threshold if table.penalty is None else min(threshold, table.penalty - 1)
        columns = [np.flatnonzero(of_layer <= limit) for of_layer in bounds]
        if sum(len(one) * len(other) for one, other in pairwise(columns)) > _MAX_PAIRS:
            return cost, bound, states
        cost, states = _optimum_of(table, columns, rank, deadline)
        # What was left out costs more than the threshold.
        bound = min(cost, threshold + 1)
    return cost, cost, states


def _optimum_of(
    table: FactoredTable,
    columns: Sequence[NDArray[np.intp]],
    rank: NDArray[np.intp],
    deadline: Deadline,
) -> tuple[int, list[int]]:
    """Return the least cost of some columns of each layer, and the canonical ones of that cost."""
    assert table.exact is not None
    charges = []
    for boundary, ends in enumerate(pairwise(columns)):
        deadline.check()
        charges.append(table.exact(boundary, *ends))
    node = [of_layer[numbers] for of_layer, numbers in zip(table.node, columns, strict=True)]
    dtype = exact_dtype(sum(int(part.max()) for part in (*node, *charges)))
    costs: list[Integers] = [node[0].astype(dtype)]
    for of_boundary, of_layer in zip(charges, node[1:], strict=True):
        costs.append((costs[-1][:, None] + of_boundary).min(axis=0) + of_layer)
    lowest = costs[-1].min()
    picks = [_first(costs[-1] == lowest, rank[columns[-1]])]
    for layer in range(len(costs) - 1, 0, -1):
        into = costs[layer][picks[-1]] - node[layer][picks[-1]]
        reached = costs[layer - 1] + charges[layer - 1][:, picks[-1]] == into
        picks.append(_first(reached, rank[columns[layer - 1]]))
    return int(lowest), [int(col[n]) for col, n in zip(columns, reversed(picks), strict=True)]


def costs_to_come(table: FactoredTable, deadline: Deadline = NEVER) -> list[Integers]:
    """Return, for every layer, the least cost of all layers up to it, by its state.

    Returns
    -------
    list of (states,) arrays
        In the table's units, including the layer's charge; at most the penalty, which represents
        all assignments that pay it: sums of several would need wider integers.

    Raises
    ------
    RefusedError
        If the table is not a single chain of all its layers.
    NoAnswerError
        If the deadline passes.
    """
    _check_chain(table)
    costs: list[Integers] = [_limited(table, table.node[0])]
    for layer in range(1, len(table.node)):
        deadline.check()
        after = transition(table, layer - 1, costs[-1]) + table.node[layer]
        costs.append(_limited(table, after))
    return costs


def costs_to_go(table: FactoredTable, deadline: Deadline = NEVER) -> list[Integers]:
    """Return, for every layer, the least cost of all layers after it, by its state.

    Returns
    -------
    list of (states,) arrays
        In the table's units. With the costs to come they add up to the least cost of all layers,
        given the state of one, if that is below the penalty.

    Raises
    ------
    RefusedError, NoAnswerError
        As `costs_to_come`.
    """
    _check_chain(table)
    costs: list[Integers] = [np.zeros_like(table.node[-1])]
    for boundary in range(len(table.ends) - 1, -1, -1):
        deadline.check()
        after = _limited(table, costs[-1] + table.node[boundary + 1])
        costs.append(transition(table, boundary, after, back=True))
    return costs[::-1]


def transition(
    table: FactoredTable, boundary: int, costs: Integers, *, back: bool = False
) -> Integers:
    """Return the minimum over sources of ``costs[source] + charge[source, target]``, ``(states,)``.

    Back, it is the minimum over targets of ``charge[source, target] + costs[target]``.

    At each level the array's axes are the target's digits above, the digit at the level that is
    replaced, and the source's digits below.
    """
    # A charge may depend on the target's digits above: forward the topmost level is first, so that
    # they are in by then; back it is last, so that they are not yet replaced.
    levels = range(table.levels)
    for level in reversed(levels) if back else levels:
        charge = table.pairs[level][boundary]  # (prefixes or 1, source digit, target digit)
        if back:
            charge = charge.swapaxes(1, 2)
        view = costs.reshape(table.choices**level, table.choices, 1, -1)
        costs = view[:, 0] + charge[:, 0, :, None]
        for digit in range(1, table.choices):
            np.minimum(costs, view[:, digit] + charge[:, digit, :, None], out=costs)
    return costs.reshape(-1)


def step_into(table: FactoredTable, boundary: int, target: int) -> Integers:
    """Return the charges from every source state to one target state, ``(states,)``."""
    choices, levels = table.choices, table.levels
    charge: Integers = np.zeros(1, table.node.dtype)
    for level, pairs in enumerate(table.pairs):
        digit = target // choices ** (levels - 1 - level) % choices
        prefix = target // choices ** (levels - level) if pairs.shape[1] > 1 else 0
        charge = (charge[:, None] + pairs[boundary, prefix, :, digit]).reshape(-1)
    return charge


def _limited(table: FactoredTable, costs: Integers) -> Integers:
    """Return costs of at most the penalty: those above are of forbidden states."""
    return costs if table.penalty is None else np.minimum(costs, table.penalty)


def _check_chain(table: FactoredTable) -> None:
    if not np.array_equal(table.ends, chain_ends(len(table.node))):
        raise RefusedError("solves chains only; this graph is not a chain")


def _first(is_candidate: NDArray[np.bool_], rank: NDArray[np.intp]) -> int:
    """Return the candidate of the lowest rank: the canonical one of the ties."""
    candidates = np.flatnonzero(is_candidate)
    return int(candidates[rank[candidates].argmin()])
