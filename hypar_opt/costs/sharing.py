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
    sources, targets = table.ends.T
    leaving, entering = np.flatnonzero(sources < shared), np.flatnonzero(targets < shared)
    np.add.at(costs, sources[leaving], table.edge[leaving, :, choice[targets[leaving]]])
    np.add.at(costs, targets[entering], table.edge[entering, choice[sources[entering]], :])
    allowed = _allowed(workload, table.choices, splits)
    choice[:shared] = np.where(allowed, costs, costs.max() + 1).argmin(axis=1)
    for node, users in workload.weight_users.items():
        # Whole where a user is in data parallelism, or where users split them differently.
        columns_of_users = {int(choice[user]) for user in users}
        choice[node] = columns_of_users.pop() if len(columns_of_users) == 1 else DATA
    return tuple(choice.tolist())


def _allowed(workload: Workload, columns: int, splits: SplitCounts | None) -> NDArray[np.bool_]:
    """Return the choices of each shared node: all that it has, or those into equal parts."""
    allowed: NDArray[np.bool_] = ~workload.forbidden(columns)[: workload.shared]
    for position, node in enumerate(workload.nodes[: workload.shared] if splits else ()):
        counts = splits.counts[:, position].tolist() if splits else []
        choices = node.operator.splits[:columns]
        even = [node.sizes[x.axis] % (2 << n) == 0 for x, n in zip(choices, counts, strict=False)]
        if any(even):
            allowed[position, : len(even)] = even
    return allowed
