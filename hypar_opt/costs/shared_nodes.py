"""The cheapest layouts of shared tensors and weights, given the layers' choices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.kinds import index_by_key, kinds_of_boundaries
from hypar_opt.costs.level_tables import level_edges, level_table
from hypar_opt.costs.state_charges import states_of
from hypar_opt.integers import exact_dtype
from hypar_opt.plan.stored_layouts import Rows as Rows
from hypar_opt.plan.stored_layouts import rows_with_stored
from hypar_opt.step.states import exact_sum, shard_counts
from hypar_opt.workload.contiguous import orders_of, split_leading_levels
from hypar_opt.workload.parallelism import PAPERS_CHOICES, PART_WORDS
from hypar_opt.workload.splitting import may_split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.table import CostTable
    from hypar_opt.hierarchy import SplitRule
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.tensors import Workload

Tensors = Sequence[Mapping[int, int]]
"""By level, H1 first, the choice of each shared tensor's node."""

MAX_STATES = 3**6
"""Up to this many states, a shared tensor's layouts are compared over all levels jointly; beyond,
level by level."""

_LARGEST_ARRAY = 2**20
"""Elements of the largest array of states that is charged at once."""


def level_tables(
    workload: Workload,
    cost: CostModel,
    rows: Rows,
    tensors: Tensors | None = None,
) -> Iterator[tuple[CostTable, Sequence[int]]]:
    """Yield each level's table, given the choices above it, and its nodes' choices, H1 first.

    Parameters
    ----------
    rows : (levels, layers)
        The layers' choices, to which those of the shared nodes are prepended.
    tensors
        The layouts of shared tensors; by default the cheapest over all levels, or level by level if
        there are too many to compare.
    """
    above: list[Sequence[int]] = []
    for full in rows_with_shared(workload, cost, rows, tensors):
        yield level_table(cost, workload, above), full
        above.append(full)


def rows_with_shared(
    workload: Workload,
    cost: CostModel,
    rows: Rows,
    tensors: Tensors | None = None,
    *,
    rule: SplitRule | None = None,
) -> Sequence[Sequence[int]]:
    """Return the choices of all nodes, ``(levels, nodes)``, given those of the layers."""
    if not workload.shared:
        return rows
    if tensors is None:
        few = len(workload.choices) ** len(rows) <= MAX_STATES
        joined = workload.has_replicas or cost.level_separable(workload) is None
        if few and (joined or (rule and not rule.hierarchy.uniform)):
            # A plug-in's cost need not be hashable.
            layouts_of = _over_all_levels if _is_hashable(cost) else _over_all_levels.__wrapped__
            tensors = layouts_of(workload, cost, tuple(map(tuple, rows)), rule)
        elif rule and rule.hierarchy.uniform and workload.choices == PAPERS_CHOICES:
            tensors = _allowed_tensors(workload, cost, rows, rule)
        else:
            tensors = _level_by_level(workload, cost, rows, rule=rule)
    return rows_with_stored(workload, rows, tensors)


def _costs(workload: Workload, cost: CostModel, above: Indices, choice: Indices) -> Integers:
    """Return the cost that each choice of a shared tensor adds to a level.

    Shared tensors have boundaries with layers only, so each is decided separately.

    Parameters
    ----------
    above : (levels, nodes)
    choice : (nodes,)
        The choices at the level; those of shared nodes are ignored.

    Returns
    -------
    (shared, choices)
        Also for the nodes of shared weights, where it has no meaning.
    """
    shared, columns = workload.shared, np.arange(len(workload.choices))
    rows = [above] if len(above) else []
    nodes = np.arange(shared)
    states = [*(block[:, :shared, None] for block in rows), columns[None, None]]
    node = np.broadcast_to(cost.node(workload, nodes[:, None], states)[-1], (shared, len(columns)))
    boundaries, at = workload.ends_at_shared_tensors
    ends = [
        np.where(at[:, None] == end, columns, choice[workload.ends[boundaries, end], None])[None]
        for end in range(2)
    ]
    edges = level_edges(cost, workload, rows, boundaries[:, None], ends)
    edges = np.broadcast_to(edges, (len(boundaries), len(columns)))
    largest = int(node.max(initial=0)) + len(boundaries) * int(edges.max(initial=0))
    costs: Integers = node.astype(
        exact_dtype(largest), order="C"
    )  # whose entries are along one axis
    entries = workload.ends[boundaries, at, None] * len(columns) + columns
    np.add.at(costs.reshape(-1), entries.reshape(-1), edges.reshape(-1))  # fast along one axis only
    # Below H1 no tensor is all in one part.
    below = np.array([bool(len(above)) and word in PART_WORDS for word in workload.choices])
    return np.where(workload.forbidden[:shared] | below, largest + 1, costs)


def _is_hashable(cost: CostModel) -> bool:
    try:
        hash(cost)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=16)
def _over_all_levels(
    workload: Workload, cost: CostModel, rows: tuple[tuple[int, ...], ...], rule: SplitRule | None
) -> Tensors:
    """Return the cheapest layouts of shared tensors over all levels jointly.

    They are cached: the same plans, of a search and of baselines, are priced repeatedly. A replica
    at one level repeats the exchanges at all others, so whole states (the layouts at all levels)
    are compared. Of ties the first in canonical order is taken.
    """
    levels: list[dict[int, int]] = [{} for _ in rows]
    tensors = np.array(list(workload.tensor_writers), np.intp)
    if not len(tensors) or not rows:
        return levels
    orders = orders_of(workload, rows)
    choices = np.array([(0,) * workload.shared + tuple(row) for row in rows], np.intp)
    states = np.array(states_of(workload, len(rows)), np.intp).T
    # Shared tensors have only layers as neighbours: a boundary has at most one shared tensor.
    boundaries, at = np.nonzero(np.isin(workload.ends, tensors))
    tensor_ends, far_ends = workload.ends[boundaries, at], workload.ends[boundaries, 1 - at]
    kinds = kinds_of_boundaries(workload, cost.end_keys).numbers[boundaries]
    # Each kind of boundary is charged once for each of the other end's choices.
    cases = np.ascontiguousarray(np.column_stack([kinds, at, choices[:, far_ends].T]))
    numbers, first = index_by_key(row.tobytes() for row in cases)
    charged: list[Integers] = []
    step = max(1, _LARGEST_ARRAY // states.size)
    for some in np.split(first, range(step, len(first), step)):
        sources, targets = (
            [np.where(at[some] == end, states[..., None], choices[:, None, far_ends[some]])]
            for end in range(2)
        )
        charges = exact_sum(cost.edge(workload, boundaries[some][None], sources, targets))
        charged += [*np.broadcast_to(charges, (states.shape[1], len(some))).T]
    beside: dict[int, list[int]] = {node: [] for node in workload.tensor_writers}
    for node, number in zip(tensor_ends.tolist(), numbers.tolist(), strict=True):
        beside[node].append(number)
    cheapest: dict[Hashable, list[int]] = {}
    for node, around in beside.items():
        key = tuple(around), tuple(workload.split_sizes[:, node])
        if key not in cheapest:
            fits = _allowed(workload, node, states, rule) & split_leading_levels(states, orders)
            total = exact_sum([charged[number] for number in around])[fits]
            cheapest[key] = states[:, fits][:, total.argmin()].tolist()
        for level, column in zip(levels, cheapest[key], strict=True):
            level[node] = column
    return levels


def _level_by_level(
    workload: Workload, cost: CostModel, rows: Rows, *, rule: SplitRule | None
) -> list[dict[int, int]]:
    """Return the layouts of shared tensors that add least at each level, given those above."""
    levels: list[dict[int, int]] = []
    tensors = list(workload.tensor_writers)
    # The parts into which the levels above split them by each choice: (choices, tensors).
    parts_above = np.ones((len(workload.choices), len(tensors)), object)
    orders = orders_of(workload, rows)
    # Choices of all nodes; those of a level's shared weights follow from the layers' choices.
    full = _with_weights(workload, rows)
    for number, choice in enumerate(full):
        costs = _costs(workload, cost, full[:number], choice)[tensors]
        parts = rule.hierarchy.sizes[number] if rule else 1
        if rule:
            fits = may_split(workload, rule, parts_above * parts, slice(None), tensors).astype(bool)
            for column, order in orders.items():
                begun = [full[level][tensors] == column for level in order if level < number]
                fits[column] &= (number in order) & np.all([fits[column], *begun], axis=0)
            costs = np.where(fits.T, costs, costs.max(initial=0) + 1)
        choice[tensors] = chosen = costs.argmin(axis=1)
        parts_above[chosen, np.arange(len(tensors))] *= parts
        levels.append(dict(zip(tensors, chosen.tolist(), strict=True)))
    return levels


def _with_weights(workload: Workload, rows: Rows) -> Indices:
    """Return the choices of all nodes, those of shared tensors 0: ``(levels, nodes)``."""
    full = rows_with_stored(workload, rows, [{}] * len(rows))
    return np.array(full, np.intp).reshape(len(rows), len(workload.nodes))


def _allowed(
    workload: Workload, node: int, states: NDArray[np.intp], rule: SplitRule | None
) -> NDArray[np.bool_]:
    """Return which states, ``(levels, states)``, a rule (if any) allows a tensor."""
    not_forbidden: NDArray[np.bool_] = ~workload.forbidden[node, states].any(axis=0)
    if rule is None:
        return not_forbidden
    parts = shard_counts(states, states.shape[1], len(workload.choices), rule.hierarchy)
    allowed = may_split(workload, rule, parts, slice(None), [node]).astype(bool)
    fits: NDArray[np.bool_] = not_forbidden & allowed.all(axis=0)
    return fits


def _allowed_tensors(
    workload: Workload, cost: CostModel, rows: Rows, rule: SplitRule
) -> list[dict[int, int]]:
    """Return the cheapest layouts of shared tensors that a rule allows at levels of equal parts.

    A tensor is split by batch at no more levels than may split the batch, and likewise by channel.
    Its cost at a level does not depend on its layouts above, so of too many levels of one layout
    those change to the other where that costs least.
    """
    # Whatever the layouts above.
    full = _with_weights(workload, rows)
    costs = [_costs(workload, cost, full[:n], choice).tolist() for n, choice in enumerate(full)]
    levels: list[dict[int, int]] = [{} for _ in rows]
    for node in workload.tensor_writers:
        by_batch, by_channel = workload.split_sizes[: len(PAPERS_CHOICES), node]
        batch, channel = rule.levels(by_batch), rule.levels(by_channel)
        # By how much a split by batch saves over one by channel, the largest saving first.
        order = sorted(
            range(len(rows)), key=lambda level: costs[level][node][0] - costs[level][node][1]
        )
        cheaper = sum(of_level[node][0] <= of_level[node][1] for of_level in costs)
        count = max(min(cheaper, batch), len(rows) - channel)
        for rank, level in enumerate(order):
            levels[level][node] = int(rank >= count)
    return levels
