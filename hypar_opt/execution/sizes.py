"""Sizes that are not known yet, and what ties them to one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypar_opt.errors import RefusedError

Size = Mapping[int | None, int]
"""A sum: how often each free size occurs, and, under None, a constant."""


def constant(number: int) -> Size:
    """Return a size that is known."""
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


class Sizes:
    """Free sizes, some of them determined by others.

    Parameters
    ----------
    default
        What a free size is that nothing determines.
    """

    def __init__(self, default: int) -> None:
        self._default = default
        self._defaults: list[int] = []
        self._value: dict[int, Size] = {}

    def free(self, default: int | None = None) -> Size:
        """Return a new size."""
        self._defaults.append(self._default if default is None else default)
        return {len(self._defaults) - 1: 1}

    def equate(self, one: Size, other: Size, layer: str) -> None:
        """Make two sizes equal, as a layer needs them.

        Raises
        ------
        RefusedError
            If both are sums of several, or other constants.
        """
        one, other = self._resolved(one), self._resolved(other)
        if one == other:
            return
        for left, right in ((one, other), (other, one)):
            (key, count), *more = left.items()
            if not more and key is not None and count == 1 and key not in right:
                self._value[key] = right
                return
        raise RefusedError(f"layer {layer!r} ties sizes for which no small ones are known")

    def of(self, size: Size) -> int:
        """Return a size as a number."""
        return sum(
            count * (1 if key is None else self._defaults[key])
            for key, count in self._resolved(size).items()
        )

    def _resolved(self, size: Size) -> Size:
        while True:
            known = next((key for key in size if key is not None and key in self._value), None)
            if known is None:
                return {key: count for key, count in size.items() if count}
            rest = {key: count for key, count in size.items() if key != known}
            size = plus([rest, times(self._value[known], size[known])])
