"""Elimination layer by layer, with any number of choices each.

Buckets with equal charges up to constants, as of equal blocks, are processed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from math import prod
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.solvers.elimination.order import check_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers
    from hypar_opt.solvers.elimination.order import Order

_AT_ONCE = 2**18
"""Entries added up at once; larger tables are reduced choice by choice."""

_CACHED = 2**17
"""Entries of a message that are computed together, in a processor's cache."""


@dataclass(frozen=True, eq=False)
class PairwiseCharges:
    """Charges of layers and pairs, in several functions at once.

    Parameters
    ----------
    nodes
        Every layer's charges, ``(functions, choices)``.
    pairs
        The pairs of layers that are charged.
    charge
        Returns a pair's charges by its number, ``(functions, choices, choices)``, or a single row
        for all functions.
    layer_kinds, pair_kinds
        Layers, and pairs, of equal kinds have equal charges; None if unknown.
    """

    nodes: Sequence[Integers]
    pairs: Sequence[tuple[int, int]]
    charge: Callable[[int], Integers]
    layer_kinds: Sequence[Hashable] | None = None
    pair_kinds: Sequence[Hashable] | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(node.shape[1] for node in self.nodes)


class Shifted(NamedTuple):
    """Charges that share entries with others, up to a constant.

    Parameters
    ----------
    entries : (functions, ...)
        A single row may stand for all functions.
    more : (functions,)
        The constant added to all entries of a function.
    """

    entries: Integers
    more: Integers

    @classmethod
    def by_nothing(cls, entries: Integers) -> Shifted:
        return cls(entries, np.zeros(len(entries), entries.dtype))

    def by(self, constant: Integers) -> Shifted:
        return Shifted(self.entries, self.more + constant)

    def at(self, function: int, *places: Any) -> Integers:
        """Return a function's charges at some indices."""
        entries, more = (part[function if len(part) > 1 else 0] for part in self)
        charges: Integers = (entries[places] if places else entries) + more
        return charges


class Part(NamedTuple):
    """One charge in a layer's bucket: the layer's own, a pair's, or a message.

    Parameters
    ----------
    scope
        The other layers, in the order of the bucket's scope.
    charge : (functions, choices of the layer, choices of each in the scope)
    kind
        A number shared by charges that differ only by a constant.
    constant : (functions,)
        Its first entry, which distinguishes it from others of its kind.
    sender
        The layer whose message it is; None if it is not a message.
    """

    scope: tuple[int, ...]
    charge: Shifted
    kind: int
    constant: Integers
    sender: int | None = None

    def among(self, scope: Sequence[int]) -> Integers:
        """Return the entries of the charge with an axis for every layer of the bucket's scope."""
        entries = self.charge.entries
        if len(self.scope) == len(scope):
            return entries
        sizes = iter(entries.shape[2:])
        shape = [next(sizes) if layer in self.scope else 1 for layer in scope]
        return entries.reshape(*entries.shape[:2], *shape)


@dataclass(frozen=True, eq=False)
class Buckets:
    """The result of an elimination.

    Parameters
    ----------
    order
    parts
        All charges in each layer's bucket. Its message is the minimum of their sum over the
        layer's choices.
    messages
        Each layer's message, ``(functions, choices of each in its scope)``.
    kinds
        By layer, a number shared by buckets whose parts have equal kinds and scopes.
    """

    order: Order
    parts: Sequence[Sequence[Part]]
    messages: Sequence[Shifted]
    kinds: Sequence[int]

    def total(self, layer: int, function: int) -> Integers:
        """Return a bucket's total charge: ``(choices, choices of each in its scope)``."""
        parts = [part.among(self.order.scopes[layer]) for part in self.parts[layer]]
        # Small parts first, as in a message.
        entries: Integers = reduce(add, sorted(parts, key=lambda part: part.size))
        more = reduce(add, [part.charge.more for part in self.parts[layer]])
        return Shifted(entries, more).at(function)

    def column(self, layer: int, function: int, choices: Sequence[int]) -> Integers:
        """Return the charge of each choice of a layer, given the choices of its scope."""
        scope = self.order.scopes[layer]
        chosen = dict(zip(scope, choices, strict=True))
        column: Integers = np.zeros(1, np.int64)
        for part in self.parts[layer]:
            at = (chosen[n] for n in part.scope)
            column = column + part.charge.at(function, slice(None), *at)
        return column

    def minimum(self, function: int) -> int:
        """Return a function's minimum."""
        roots = (layer for layer, scope in enumerate(self.order.scopes) if not scope)
        return sum(int(self.messages[layer].at(function)) for layer in roots)


def eliminate(charges: PairwiseCharges, order: Order, deadline: Deadline) -> Buckets:
    """Eliminate every layer in turn.

    Raises
    ------
    RefusedError
        If pairs and messages exceed `MAX_ENTRIES` together; it names how many there are.
    NoAnswerError
        If the deadline passes.
    """
    numbers = ChargeKinds()
    worked: dict[Hashable, tuple[int, Integers, Shifted, int, Integers]] = {}
    parts = _charged_alone(charges, numbers)
    for layer, charged in _charged_in_pairs(charges, order, numbers):
        deadline.check()
        check_entries(numbers.entries)
        parts[layer].append(charged)
    messages = [alone.charge for (alone, *_) in parts]
    kinds = [0] * len(parts)
    for layer in order.layers:
        deadline.check()
        check_entries(numbers.entries)
        bucket, scope = parts[layer], order.scopes[layer]
        key = tuple(
            [(part.kind, part.sender is None, *map(scope.index, part.scope)) for part in bucket]
        )
        constant = reduce(add, [part.constant for part in bucket])
        if key not in worked:
            lowest = _minimum([part.among(scope) for part in bucket])
            kind, first = numbers.of(lowest)
            shifted = Shifted(lowest, reduce(add, [part.charge.more for part in bucket]))
            worked[key] = len(worked), constant, shifted, kind, first + shifted.more
        kinds[layer], before, message, kind, first = worked[key]
        more = constant - before
        messages[layer] = message = message.by(more)
        if scope:
            # All of the scope but the parent are in the parent's scope, in the same order.
            parts[scope[0]].append(Part(scope[1:], message, kind, first + more, layer))
    return Buckets(order, parts, messages, kinds)


def _charged_alone(charges: PairwiseCharges, numbers: ChargeKinds) -> list[list[Part]]:
    """Return the buckets of layers with their unary charges."""
    own_kinds = charges.layer_kinds or range(len(charges.nodes))
    parts = {
        kind: Part((), Shifted.by_nothing(node), *numbers.of(node))
        for kind, node in dict(zip(own_kinds, charges.nodes, strict=True)).items()
    }
    return [[parts[kind]] for kind in own_kinds]


def _charged_in_pairs(
    charges: PairwiseCharges, order: Order, numbers: ChargeKinds
) -> Iterator[tuple[int, Part]]:
    """Yield the charges of pairs, with the layer of each pair that is eliminated first."""
    position = {layer: n for n, layer in enumerate(order.layers)}
    own_kinds = charges.pair_kinds or range(len(charges.pairs))
    parts: dict[Hashable, tuple[Shifted, int, Integers]] = {}
    for number, ((u, v), kind) in enumerate(zip(charges.pairs, own_kinds, strict=True)):
        in_order = position[u] < position[v]
        key = in_order, kind
        if key not in parts:
            charge = charges.charge(number)
            charge = charge if in_order else charge.swapaxes(1, 2)
            parts[key] = Shifted.by_nothing(charge), *numbers.of(charge)
        yield (u, Part((v,), *parts[key])) if in_order else (v, Part((u,), *parts[key]))


class ChargeKinds:
    """Numbers of arrays of charges, ``(functions, ...)``; equal ones differ only by constants."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.entries = 0
        """Those of all arrays together."""

    def of(self, charge: Integers) -> tuple[int, Integers]:
        """Return the number of a charge, and its first entry, ``(functions,)``."""
        self.entries += charge.size
        first: Integers = charge.reshape(len(charge), -1)[:, 0]
        rest = shifted(charge, -first)
        content = repr(rest.tolist()).encode() if rest.dtype == object else rest.tobytes()
        key = rest.shape, blake2b(content, digest_size=32).digest()
        return self._numbers.setdefault(key, len(self._numbers)), first


def shifted(charge: Integers, constant: Integers) -> Integers:
    """Return a charge, ``(functions, ...)``, with a constant of each function added."""
    added: Integers = charge + constant.reshape(-1, *[1] * (charge.ndim - 1))
    return added


def _minimum(charges: list[Integers]) -> Integers:
    """Return the minimum of the sum over the first choice's axis."""
    # Small arrays first, so that they are added before they are broadcast.
    charges.sort(key=lambda charge: charge.size)
    shape = np.broadcast_shapes(*(charge.shape for charge in charges))
    if prod(shape) <= _AT_ONCE or len(shape) == 2:
        lowest: Integers = reduce(add, charges).min(axis=1)
        return lowest
    lowest = np.empty((shape[0], *shape[2:]), np.result_type(*charges))
    step = max(1, _CACHED * shape[2] // lowest.size)
    for first in range(0, shape[2], step):
        rows = slice(first, first + step)
        some = [charge if charge.shape[2] == 1 else charge[:, :, rows] for charge in charges]
        block = lowest[:, rows]
        block[...] = reduce(add, [charge[:, 0] for charge in some])
        for choice in range(1, shape[1]):
            np.minimum(block, reduce(add, [charge[:, choice] for charge in some]), out=block)
    return lowest


def traced_back(buckets: Buckets, function: int) -> tuple[list[int], bool]:
    """Return an optimum of a function, and whether it broke ties, for the first choice."""
    choices = [0] * len(buckets.parts)
    first: dict[Hashable, tuple[int, bool]] = {}
    for layer in reversed(buckets.order.layers):
        scope = [choices[n] for n in buckets.order.scopes[layer]]
        key = buckets.kinds[layer], *scope
        if key not in first:
            column = buckets.column(layer, function, scope)
            choice = int(column.argmin())
            first[key] = choice, int((column == column[choice]).sum()) > 1
        choices[layer] = first[key][0]
    return choices, any(tied for _, tied in first.values())
