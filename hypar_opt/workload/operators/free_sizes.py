"""The sizes of a small network of the same structure, under the equations of its layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hypar_opt.errors import RefusedError

SMALL_HEAD = 2
"""Features of a head in a small network."""

Size = Mapping[int | None, int]
"""A linear expression: the coefficient of each free size, and the constant under None."""


def constant(number: int) -> Size:
    """Return a known size."""
    return {None: number}


def plus(sizes: Iterable[Size]) -> Size:
    """Return the sum of sizes."""
    total: dict[int | None, int] = {}
    for size in sizes:
        for key, count in size.items():
            total[key] = total.get(key, 0) + count
    return total


def times(size: Size, factor: int) -> Size:
    """Return a multiple of a size."""
    return {key: count * factor for key, count in size.items()}


def one_padded(key: str, size: Size) -> dict[str, Size]:
    """Return the keys of a layer that pads one index less than a size up to it."""
    return {key: plus([size, constant(-1)]), "pad": size}


class SmallMap(NamedTuple):
    """A map of a small network: its channels, and either tokens or height and width.

    Or, with ``features``, the features of dispatched tokens; then its channels are experts.
    """

    channels: Size
    tokens: Size | None
    extent: tuple[int, int] = (1, 1)
    features: Size | None = None


SmallLayer = tuple[SmallMap, dict[str, Size]]
"""The output of a layer in a small network, and the sizes of its keys."""


class FreeSizes:
    """Free sizes of a small network, and the equations between them.

    Parameters
    ----------
    parts
        The value of a free size that no equation determines, and the maximum number of tokens, so
        that levels can split them; it divides all channels.
    tokens, vocabulary
        Those of the original network's input, if it has them.
    """

    def __init__(self, parts: int, tokens: int, vocabulary: int | None) -> None:
        self.parts, self.vocabulary = parts, vocabulary
        self._defaults: list[int] = []
        self._value: dict[int, Size] = {}
        self._weights: dict[str, tuple[Size, Size]] = {}
        self.tokens = constant(min(tokens, parts))
        self.words = self.free()

    def free(self, default: int | None = None) -> Size:
        """Return a new free size."""
        self._defaults.append(self.parts if default is None else default)
        return {len(self._defaults) - 1: 1}

    def equate(self, one: Size, other: Size, layer: str) -> None:
        """Add the equation of two sizes that a layer requires.

        Raises
        ------
        RefusedError
            If both are sums of several sizes, they are different constants, or a constant is no
            multiple of the other's coefficients.
        """
        one, other = self._resolved(one), self._resolved(other)
        if one == other:
            return
        for term, total in ((one, other), (other, one)):
            (key, count), *more = term.items()
            if more or key is None or key in total:
                continue
            if not any(number % count for number in total.values()):
                self._value[key] = {other: number // count for other, number in total.items()}
                return
        if len(one) == len(other) == 1 and len({None, *one, *other}) == 3:
            multiple, common = math.lcm(*one.values(), *other.values()), self.free()
            for ((key, count),) in (one.items(), other.items()):
                if key is not None:
                    self._value[key] = times(common, multiple // count)
            return
        raise RefusedError(f"layer {layer!r} ties sizes for which no small ones are known")

    def tie(self, layer: str, owner: str, read: Size, written: Size) -> None:
        """Record the sizes of a layer's weights, or equate them with their owner's."""
        for size, shared in zip(
            (read, written), self._weights.setdefault(owner, (read, written)), strict=True
        ):
            self.equate(size, shared, layer)

    def of(self, size: Size) -> int:
        """Return a size as a number."""
        return sum(
            count * (1 if key is None else self._defaults[key])
            for key, count in self._resolved(size).items()
        )

    def number(self, size: Size) -> int | None:
        """Return a size as a number, if the equations determine it."""
        resolved = self._resolved(size)
        return resolved.get(None, 0) if set(resolved) <= {None} else None

    def _resolved(self, size: Size) -> Size:
        while True:
            solved = next((key for key in size if key is not None and key in self._value), None)
            if solved is None:
                return {key: count for key, count in size.items() if count}
            rest = {key: count for key, count in size.items() if key != solved}
            size = plus([rest, times(self._value[solved], size[solved])])
