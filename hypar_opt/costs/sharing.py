"""The layouts of what layers share, given the layers' choices: a plan does not state them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, SplitCounts, level_table
from hypar_opt.workload.parallelism import DATA

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.table import CostTable
    from hypar_opt.workload.tensors import Workload

Rows = Sequence[Sequence[int]]


def level_tables(
    workload: Workload, cost: CostModel, rows: Rows, *, even: bool = False
) -> Iterator[tuple[CostTable, Sequence[int]]]:
    """Yield each level's table, given the choices above it, and its nodes' choices; H1 first.

    Parameters
    ----------
    rows : (levels, layers)
        The layers' choices. To each row those of the shared nodes are added, in front.
    even
        Whether shared tensors, too, are split into equal parts only.
    """
    splits = SplitCounts.none(len(workload.nodes), cost.choices)
    for row in rows:
        table = level_table(cost, workload, splits)
        full = with_shared(workload, table, row, splits if even else None)
        yield table, full
        splits = splits.after(full)


def nodes_choices(
    workload: Workload, cost: CostModel, rows: Rows, *, even: bool = False
) -> list[Sequence[int]]:
    """Return the choices of all nodes, ``(levels, nodes)``, given those of the layers."""
    if not workload.shared:
        return list(rows)  # no tables are needed
    return [full for _, full in level_tables(workload, cost, rows, even=even)]


def with_shared(
    workload: Workload,
    table: CostTable,
    row: Sequence[int],
    splits: SplitCounts | None = None,
) -> Sequence[int]:
    """Return a level's choices of all nodes: the shared ones' cheapest, and then the layers'.

    A tensor with several readers neighbours layers alone, and so does shared weights' node: each
    is decided by itself. Of equals the first choice is taken, data parallelism.

    Parameters
    ----------
    splits
        The state above the level, to split tensors into equal parts only; None for any parts.
    """
    shared = workload.shared
    if not shared:
        return row
    choice = np.concatenate([np.zeros(shared, np.intp), np.asarray(row, np.intp)])
    costs = table.node[:shared].copy()
    for (source, target), edge in zip(table.ends.tolist(), table.edge, strict=True):
        if source < shared:
            costs[source] = costs[source] + edge[:, choice[target]]
        elif target < shared:
            costs[target] = costs[target] + edge[choice[source]]
    for node, allowed in enumerate(_allowed(workload, table.choices, splits)):
        columns = np.flatnonzero(allowed)
        choice[node] = columns[costs[node, columns].argmin()]
    for node, users in workload.weight_users.items():
        # Whole where a user is in data parallelism, or where users split them differently.
        columns_of_users = {int(choice[user]) for user in users}
        choice[node] = columns_of_users.pop() if len(columns_of_users) == 1 else DATA
    return tuple(choice.tolist())


def _allowed(
    workload: Workload, columns: int, splits: SplitCounts | None
) -> Iterator[NDArray[np.bool_]]:
    """Yield the choices of each shared node: all that it has, or those into equal parts."""
    for position, node in enumerate(workload.nodes[: workload.shared]):
        choices = node.operator.splits[:columns]
        allowed = np.arange(columns) < len(choices)
        if splits is not None:
            counts = splits.counts[:, position].tolist()
            even = [
                node.sizes[choice.axis] % (2 << counts[column]) == 0
                for column, choice in enumerate(choices)
            ]
            if any(even):
                allowed[: len(choices)] = even
        yield allowed
