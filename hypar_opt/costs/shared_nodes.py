"""The cheapest layouts of shared tensors and weights, given the layers' choices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.kinds import kinds_of_boundaries, numbered
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.state_tables import states_of
from hypar_opt.costs.states import added_up, parts_of
from hypar_opt.sharding.weights import shared_weights as shared_weights
from hypar_opt.workload.parallelism import PAPERS_CHOICES, SIDES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.table import CostTable, Integers
    from hypar_opt.hierarchy import SplitRule
    from hypar_opt.workload.tensors import Workload

Rows = Sequence[Sequence[int]]
Tensors = Sequence[Mapping[int, int]]
"""By level, H1 first, the choice of each shared tensor's node."""

MAX_STATES = 3**6
"""Up to this many states, a shared tensor's layouts are compared over all levels jointly; beyond,
level by level."""

_LARGEST_ARRAY = 2**20
"""Elements of the largest array of states that is charged at once."""

_NONE: Mapping[int, int] = MappingProxyType({})


def level_tables(
    workload: Workload,
    cost: CostModel,
    rows: Rows,
    tensors: Tensors | None = None,
    *,
    rule: SplitRule | None = None,
) -> Iterator[tuple[CostTable, Sequence[int]]]:
    """Yield each level's table, given the choices above it, and its nodes' choices; H1 first.

    Parameters
    ----------
    rows : (levels, layers)
        The layers' choices. To each row those of the shared nodes are added, in front.
    tensors
        The layouts of shared tensors. Default: the cheapest over all levels, or level by level if
        there are too many to compare.
    rule
        How shared tensors, too, may be split; None for any way.
    """
    if tensors is None and (workload.has_replicas or (rule and not rule.hierarchy.uniform)):
        few = len(workload.choices) ** len(rows) <= MAX_STATES
        derived = _over_all_levels if few else _level_by_level
        tensors = derived(workload, cost, rows, rule=rule)
    elif tensors is None and rule and workload.shared:
        tensors = _allowed_tensors(workload, cost, rows, rule)
    above: list[Sequence[int]] = []
    for level, row in enumerate(rows):
        table = level_table(cost, workload, above)
        given = {} if tensors is None else tensors[level]
        full = with_shared(workload, table, row, given, is_top=not level)
        yield table, full
        above.append(full)


def rows_with_shared(
    workload: Workload,
    cost: CostModel,
    rows: Rows,
    tensors: Tensors | None = None,
    *,
    rule: SplitRule | None = None,
) -> list[Sequence[int]]:
    """Return the choices of all nodes, ``(levels, nodes)``, given those of the layers."""
    if not workload.shared:
        return list(rows)  # no tables are needed
    return [full for _, full in level_tables(workload, cost, rows, tensors, rule=rule)]


def with_shared(
    workload: Workload,
    table: CostTable,
    row: Sequence[int],
    given: Mapping[int, int] = _NONE,
    *,
    is_top: bool = True,
) -> Sequence[int]:
    """Return a level's choices of all nodes: the cheapest of shared nodes, then the layers'.

    Shared tensors and shared weights have boundaries with layers only, so each is decided
    separately. Ties go to the first choice, data parallelism.

    Parameters
    ----------
    given
        The choices of shared nodes that are known already.
    is_top
        Whether it is H1, where a tensor may be all on one side.
    """
    shared = workload.shared
    if not shared:
        return row
    choice = [*_costs(workload, table, row, is_top=is_top).argmin(axis=1).tolist(), *row]
    for node, column in (shared_weights(workload, choice) | dict(given)).items():
        choice[node] = column
    return tuple(choice)


def _costs(
    workload: Workload, table: CostTable, row: Sequence[int], *, is_top: bool = True
) -> Integers:
    """Return the cost that each choice of a shared node adds to a level: ``(shared, choices)``."""
    shared = workload.shared
    choice = np.concatenate([np.zeros(shared, np.intp), np.asarray(row, np.intp)])
    costs: Integers = table.node[:shared].copy()
    sources, targets = table.ends.T
    leaving, entering = np.flatnonzero(sources < shared), np.flatnonzero(targets < shared)
    np.add.at(costs, sources[leaving], table.edge[leaving, :, choice[targets[leaving]]])
    np.add.at(costs, targets[entering], table.edge[entering, choice[sources[entering]], :])
    below = np.isin(workload.choices, () if is_top else SIDES)
    return np.where(workload.forbidden[:shared] | below, costs.max() + 1, costs)


def _over_all_levels(
    workload: Workload, cost: CostModel, rows: Rows, *, rule: SplitRule | None
) -> list[dict[int, int]]:
    """Return the cheapest layouts of shared tensors over all levels jointly.

    A replica at one level repeats the exchanges at all others, so whole states (the layouts at all
    levels) are compared. Ties go to the first in canonical order.
    """
    levels: list[dict[int, int]] = [{} for _ in rows]
    tensors = np.array(list(workload.tensor_writers), np.intp)
    if not len(tensors) or not rows:
        return levels
    choices = np.array([(0,) * workload.shared + tuple(row) for row in rows], np.intp)
    states = np.array(states_of(workload, len(rows)), np.intp).T
    # A tensor neighbours layers alone: each boundary has one at an end, or none.
    boundaries, at = np.nonzero(np.isin(workload.ends, tensors))
    own, other = workload.ends[boundaries, at], workload.ends[boundaries, 1 - at]
    kinds = kinds_of_boundaries(workload).numbers[boundaries]
    # What is alike is charged once: the kind and end of a boundary, and its other end's choices.
    alike = np.ascontiguousarray(np.column_stack([kinds, at, choices[:, other].T]))
    numbers, first = numbered(row.tobytes() for row in alike)
    charged: list[Integers] = []
    step = max(1, _LARGEST_ARRAY // states.size)
    for some in np.split(first, range(step, len(first), step)):
        sources, targets = (
            [np.where(at[some] == end, states[..., None], choices[:, None, other[some]])]
            for end in range(2)
        )
        charges = added_up(cost.edge(workload, boundaries[some][None], sources, targets))
        charged += [*np.broadcast_to(charges, (states.shape[1], len(some))).T]
    beside: dict[int, list[int]] = {node: [] for node in workload.tensor_writers}
    for node, number in zip(own.tolist(), numbers.tolist(), strict=True):
        beside[node].append(number)
    least: dict[Hashable, list[int]] = {}
    for node, around in beside.items():
        key = tuple(around), rule and tuple(workload.split_sizes[:, node])
        if key not in least:
            total, kept = added_up([charged[number] for number in around]), states
            if rule:
                fits = _allowed(workload, node, states, rule)
                total, kept = total[fits], states[:, fits]
            least[key] = kept[:, total.argmin()].tolist()
        for level, column in zip(levels, least[key], strict=True):
            level[node] = column
    return levels


def _level_by_level(
    workload: Workload, cost: CostModel, rows: Rows, *, rule: SplitRule | None
) -> list[dict[int, int]]:
    """Return the layouts of shared tensors that add least at each level, given those above."""
    levels: list[dict[int, int]] = []
    left = {
        node: [
            workload.nodes[node].sizes[choice.axis] if rule and choice.axis else 0
            for choice in filter(None, workload.choices_of_nodes[node])
        ]
        for node in workload.tensor_writers
    }
    above: list[Sequence[int]] = []
    for number, row in enumerate(rows):
        table = level_table(cost, workload, above)
        costs = _costs(workload, table, row, is_top=not number).tolist()
        level, parts = {}, rule.hierarchy.sizes[number] if rule else 1
        for node, sizes in left.items():
            fits = [n for n, size in enumerate(sizes) if not rule or rule.allows(size, parts)]
            level[node] = min(fits, key=costs[node].__getitem__)
            sizes[level[node]] //= parts
        levels.append(level)
        above.append(with_shared(workload, table, row, level, is_top=not number))
    return levels


def _allowed(
    workload: Workload, node: int, states: NDArray[np.intp], rule: SplitRule
) -> NDArray[np.bool_]:
    """Return in which states, ``(levels, states)``, a tensor is split as a rule allows."""
    parts = parts_of(states, states.shape[1], len(workload.choices), rule.hierarchy)
    allowed: NDArray[np.bool_] = rule.allows(workload.split_sizes[:, node, None], parts)
    return np.all(allowed, axis=0)  # type: ignore[no-any-return]


def _allowed_tensors(
    workload: Workload, cost: CostModel, rows: Rows, rule: SplitRule
) -> list[dict[int, int]]:
    """Return the cheapest layouts of shared tensors that a rule allows at levels of equal parts.

    A tensor is split by batch at no more levels than may split the batch, and likewise by
    channel. Its cost at a level does not depend on its layouts above, so the levels that change
    from one to the other are those where that costs least.
    """
    costs = []
    above: list[Sequence[int]] = []
    for row in rows:
        table = level_table(cost, workload, above)
        costs.append(_costs(workload, table, row).tolist())
        above.append(with_shared(workload, table, row))
    levels: list[dict[int, int]] = [{} for _ in rows]
    for node in workload.tensor_writers:
        by_batch, by_channel = workload.split_sizes[: len(PAPERS_CHOICES), node]
        batch, channel = rule.levels(by_batch), rule.levels(by_channel)
        # In the order of what a split by batch saves over one by channel, the largest saving first.
        order = sorted(
            range(len(rows)), key=lambda level: costs[level][node][0] - costs[level][node][1]
        )
        cheaper = sum(here[node][0] <= here[node][1] for here in costs)
        count = max(min(cheaper, batch), len(rows) - channel)
        for rank, level in enumerate(order):
            levels[level][node] = int(rank >= count)
    return levels
