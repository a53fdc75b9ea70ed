"""Min-marginals: the least cost of an assignment with each choice of each layer.

A bucket's table has, for the choices of its layer and scope, the least cost of all that was
eliminated into it. The least cost of the rest comes down the tree of buckets, from parents: the
minimum of a parent's table without the message that this bucket sent up.

Source: Dechter, "Bucket elimination", 1999; Shenoy and Shafer, 1990.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.table import Integers
    from hypar_opt.deadline import Deadline
    from hypar_opt.solvers.elimination.buckets import Buckets


def least_by_choice(buckets: Buckets, deadline: Deadline) -> list[Integers]:
    """Return, for every layer, the least cost of an assignment with each of its choices.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    order = buckets.order
    children: list[list[int]] = [[] for _ in order.scopes]
    for layer, scope in enumerate(order.scopes):
        if scope:
            children[scope[0]].append(layer)
    optimum = buckets.least(0)
    # The least cost outside each layer's bucket, by the choices of its scope.
    rest: list[Integers | int] = [
        0 if scope else optimum - int(buckets.messages[layer][0])
        for layer, scope in enumerate(order.scopes)
    ]
    least: list[Integers] = [buckets.messages[0]] * len(order.scopes)
    for layer in reversed(order.layers):
        deadline.check()
        scope = order.scopes[layer]
        whole = buckets.total(layer, 0) + rest[layer]
        least[layer] = whole.min(axis=tuple(range(1, whole.ndim)))
        among = (layer, *scope)
        for child in children[layer]:
            message = buckets.messages[child][0]
            rest[child] = _minimum(whole, among, order.scopes[child]) - message
        rest[layer] = 0  # it may be large
    return least


def _minimum(table: Integers, among: Sequence[int], kept: Sequence[int]) -> Integers:
    """Return the minimum over all layers but some, which are in the same order."""
    axes = tuple(axis for axis, layer in enumerate(among) if layer not in kept)
    least: Integers = table.min(axis=axes)
    return least
