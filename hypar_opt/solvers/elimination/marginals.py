"""Min-marginals: the least cost of an assignment with each choice of each layer.

A bucket's table has, for the choices of its layer and scope, the least cost of all that was
eliminated into it. The least cost of the rest comes down the tree of buckets, from parents: the
minimum of a parent's table without the message that this bucket sent up.

Source: Dechter, "Bucket elimination", 1999; Shenoy and Shafer, 1990.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.solvers.elimination.buckets import ChargeKinds, Shifted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers
    from hypar_opt.solvers.elimination.buckets import Buckets

_LARGEST_KEPT = 2**18
"""The most entries of a bucket whose results are cached for others of its kind."""


def least_by_choice(buckets: Buckets, deadline: Deadline) -> list[Integers]:
    """Return, for every layer, the least cost of an assignment with each of its choices.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    order, numbers = buckets.order, ChargeKinds()
    optimum = buckets.minimum(0)
    worked: dict[tuple[int, int], _Bucket] = {}
    outside: dict[int, _Outside] = {}
    lowest: dict[int, Integers] = {}
    for layer in reversed(order.layers):
        deadline.check()
        if not order.scopes[layer]:
            rest = np.array([optimum - int(buckets.messages[layer].at(0))])
            outside[layer] = _Outside.of(rest, numbers)
        around = outside.pop(layer)
        constant = around.constant + sum(part.constant for part in buckets.parts[layer])
        key = buckets.kinds[layer], around.kind
        bucket = worked.get(key)
        if bucket is None:
            bucket = _bucket(buckets, layer, around.charge.at(0), constant, numbers)
            if sum(below.charge.entries.size for _, below in bucket.below) <= _LARGEST_KEPT:
                worked[key] = bucket
        change = constant - bucket.constant
        lowest[layer] = bucket.minima + change
        senders = (part for part in buckets.parts[layer] if part.sender is not None)
        for part, (message, below) in zip(senders, bucket.below, strict=True):
            assert part.sender is not None
            more = change - part.constant + message
            outside[part.sender] = _Outside(
                below.charge.by(more), below.kind, below.constant + more
            )
    return [lowest[layer] for layer in range(len(lowest))]


@dataclass(frozen=True, eq=False)
class _Outside:
    """The least cost outside a layer's bucket, by the choices of its scope.

    Parameters
    ----------
    charge : (1, choices of each in the scope)
    kind, constant
        As of a `Part`.
    """

    charge: Shifted
    kind: int
    constant: Integers

    @classmethod
    def of(cls, charge: Integers, numbers: ChargeKinds) -> _Outside:
        return cls(Shifted.by_nothing(charge), *numbers.of(charge))


@dataclass(frozen=True, eq=False)
class _Bucket:
    """The results for a bucket, and for others of its kind up to a constant.

    Parameters
    ----------
    constant
        The constant of all its parts and of what is outside.
    minima
        The least cost of an assignment with each of its layer's choices.
    below
        For each message in the bucket, its constant and the charge outside its sender's bucket.
    """

    constant: Integers
    minima: Integers
    below: Sequence[tuple[Integers, _Outside]]


def _bucket(
    buckets: Buckets, layer: int, outside: Integers, constant: Integers, numbers: ChargeKinds
) -> _Bucket:
    scope = buckets.order.scopes[layer]
    whole = buckets.total(layer, 0) + outside
    below = []
    for part in buckets.parts[layer]:
        if part.sender is not None:
            sender_scope = buckets.order.scopes[part.sender]
            message = buckets.messages[part.sender].at(0)
            rest = (_minimum(whole, (layer, *scope), sender_scope) - message)[None]
            below.append((part.constant, _Outside.of(rest, numbers)))
    return _Bucket(constant, whole.min(axis=tuple(range(1, whole.ndim))), below)


def _minimum(table: Integers, among: Sequence[int], kept: Sequence[int]) -> Integers:
    """Return the minimum over all layers except some, which are in the same order."""
    axes = tuple(axis for axis, layer in enumerate(among) if layer not in kept)
    lowest: Integers = table.min(axis=axes)
    return lowest
