"""Plans of more states than memory allows: improved two levels at a time, with a bound by compute.

No node's states are listed: of two levels its choices are, beside those that it has at the others.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement, pairwise, product
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.kinds import index_by_key, kinds_of_boundaries, kinds_of_nodes
from hypar_opt.costs.state_charges import choices_by_level
from hypar_opt.costs.table import CostTable
from hypar_opt.costs.weights import with_penalties
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.search.local_search import descent, free_levels
from hypar_opt.solvers.elimination.solve import solve
from hypar_opt.step.states import exact_sum
from hypar_opt.workload.contiguous import orders_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.deadline import Deadline
    from hypar_opt.instance.constraints import ConstraintSet
    from hypar_opt.instance.instance import Instance
    from hypar_opt.search.result import Rows

_PAIRS = 2**17
"""Pairs of columns whose boundaries are charged at once."""

_MAX_LEVELS = 32
"""Levels of which any two are changed together; of more, only neighbours are."""


def improved_rows(instance: Instance, rows: Rows, deadline: Deadline) -> Rows:
    """Return a plan, ``(levels, nodes)``, that no change at two levels improves, from another one.

    Of more than 32 levels, 4 billion accelerators, it is two neighbouring levels. If the deadline
    passes, it is as far improved as it is by then. A plan of layers that share a memory is returned
    as it is.
    """
    if instance.constraints.couple_layers:
        return rows
    best = np.array(rows, np.intp)
    best_at = partial(_best_at, instance, deadline)
    levels = range(len(best))
    pairs = free_levels(len(best), 2) if len(best) <= _MAX_LEVELS else [*pairwise(levels)]
    # A limit, or more than memory allows, ends the search.
    with suppress(NoAnswerError, RefusedError):
        for better in descent(best, inf, pairs, best_at):
            best = better
    return [*map(tuple, best.tolist())]


def least_compute(instance: Instance) -> int:
    """Return a bound on all plans of a cost: what nodes compute, each in its fastest state.

    Levels of as many parts compute alike, so that states differ by how many make each choice.
    """
    time, workload, levels = instance.cost.time, instance.workload, instance.problem.levels
    if time is None or instance.problem.groups:
        return 0
    choices, sizes = choices_by_level(workload, levels), instance.problem.hierarchy.sizes
    groups = [[level for level in range(levels) if sizes[level] == size] for size in set(sizes)]
    each_group = [combinations_with_replacement(range(choices[0]), len(group)) for group in groups]
    combined = np.array([np.concatenate(digits) for digits in product(*each_group)], np.intp)
    states = np.empty_like(combined.T)
    states[np.concatenate(groups)] = combined.T
    kinds, nodes = kinds_of_nodes(workload)
    times = time.compute(workload, nodes[:, None], [states[:, None]])
    fastest = np.broadcast_to(times, (len(nodes), states.shape[1])).min(axis=1)
    return sum(fastest[kinds].tolist())


def _contiguous(
    instance: Instance, rows: NDArray[np.intp], free: Sequence[int]
) -> Iterator[ConstraintSet]:
    """Yield constraints by which parts of images stay contiguous, whatever two levels choose."""
    orders = orders_of(instance.workload, rows.tolist())
    largest = {column: tuple(sorted({*order, *free})) for column, order in orders.items()}
    yield instance.constraints.within(largest)
    if orders:
        fewest = {column: tuple(sorted({*order} - {*free})) for column, order in orders.items()}
        yield instance.constraints.within(fewest)


def _best_at(
    instance: Instance, deadline: Deadline, rows: NDArray[np.intp], free: Sequence[int]
) -> tuple[float, NDArray[np.intp]]:
    """Return the least cost of the plans that differ from one at some levels only, and its plan.

    Infinity and the plan itself if constraints allow none.

    Raises
    ------
    RefusedError, NoAnswerError
        As `solve`.
    """
    workload, levels = instance.workload, len(rows)
    choices = choices_by_level(workload, levels)
    combinations = [*product(*(range(choices[level]) for level in free))]
    states = np.repeat(rows[..., None], len(combinations), axis=2)
    states[list(free)] = np.array(combinations, np.intp).T[:, None]
    table = _table(instance, rows, states, combinations)
    distinct, places = np.unique(states.reshape(levels, -1), axis=1, return_inverse=True)
    nodes, lowest, best = np.arange(len(table.node)), inf, rows
    for constraints in _contiguous(instance, rows, free):
        allowed = constraints.allowed([*map(tuple, distinct.T.tolist())], deadline)
        allowed_columns = allowed[nodes[:, None], places.reshape(states.shape[1:])]
        result = solve(replace(table, allowed=allowed_columns), deadline)
        cost = inf if result.objective is None else result.objective
        if result.assignment is not None and cost < lowest:
            lowest, best = cost, states[:, nodes, list(result.assignment)]
    return lowest, best


def _table(
    instance: Instance,
    rows: NDArray[np.intp],
    states: NDArray[np.intp],
    combinations: Sequence[Sequence[int]],
) -> CostTable:
    """Return what nodes are charged in some states each, ``(levels, nodes, columns)``.

    Parameters
    ----------
    rows : (levels, nodes)
        What those of a node have in common.
    combinations
        The choices in which they differ, by column.
    """
    cost, workload, levels = instance.cost, instance.workload, len(rows)
    node_keys = cost.symmetries(workload, levels).node_keys
    keys = zip(kinds_of_nodes(workload).numbers.tolist(), node_keys, *rows.tolist(), strict=True)
    kinds, nodes = index_by_key(keys)
    charges = exact_sum(cost.attributed.node(workload, nodes[:, None], [states[:, nodes]]))
    node: Integers = np.broadcast_to(charges, (len(nodes), len(combinations)))[kinds]
    boundary_cost = (cost.level_separable(workload) or cost).attributed
    ends = rows[:, workload.ends.T].reshape(2 * levels, -1)
    boundary_kinds = kinds_of_boundaries(workload, cost.end_keys).numbers.tolist()
    kinds, boundaries = index_by_key(zip(boundary_kinds, *ends.tolist(), strict=True))
    step = max(1, _PAIRS // len(combinations) ** 2)
    tables: list[Integers] = []
    for some in np.split(boundaries, range(step, len(boundaries), step)):
        sources, targets = (states[:, nodes] for nodes in workload.ends[some].T)
        pairs = [sources[..., None]], [targets[:, :, None]]
        total = exact_sum(boundary_cost.edge(workload, some[:, None, None], *pairs))
        tables += [*np.broadcast_to(total, (len(some), len(combinations), len(combinations)))]
    highest = sum(int(tables[kind].max()) for kind in kinds)
    dtype = exact_dtype(highest + sum(node.max(axis=1).tolist()))
    edge: Integers = np.array([tables[kind] for kind in kinds], dtype).reshape(
        -1, len(combinations), len(combinations)
    )
    node, (edge,) = with_penalties(workload, node.astype(dtype), [edge], combinations)
    return CostTable(node, edge, workload.ends, {}, cost.unit, cost.resolution)
