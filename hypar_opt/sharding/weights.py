"""The layout of shared weights, which is determined by the choices of the layers that use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypar_opt.workload.layouts import FIRST_SPLIT

if TYPE_CHECKING:
    from hypar_opt.workload.tensors import Workload


def shared_weights(workload: Workload, choice: Sequence[int]) -> dict[int, int]:
    """Return the choices of shared weights' nodes, given those of the layers among all nodes'.

    They are whole where a user reads them whole, or where users split them differently.
    """
    weights = {}
    for node, users in workload.weight_users.items():
        columns = {choice[user] for user in users}
        whole = len(columns) > 1 or any(
            workload.layouts.weight[choice[user], user] < FIRST_SPLIT for user in users
        )
        weights[node] = replicated(workload, node) if whole else columns.pop()
    return weights


def replicated(workload: Workload, node: int) -> int:
    """Return the choice in which a node's weights have a replica in each part."""
    whole: int = (workload.layouts.weight[:, node] == 0).argmax()
    return int(whole)


def with_users(workload: Workload, choice: Sequence[int]) -> tuple[int, ...]:
    """Return the choices of all nodes, with those of shared weights derived from their users."""
    full = list(choice)
    for node, column in shared_weights(workload, choice).items():
        full[node] = column
    return tuple(full)
