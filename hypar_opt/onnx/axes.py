"""Axes of a tensor, followed through reshapes, transpositions, slices and joins.

A dimension of an ONNX tensor is a sequence of digits, each of a named axis of a layer's feature
map: after ``Reshape`` to ``[batch, tokens, heads, 64]`` the channels of a layer are two digits,
the head and the place in the head. So a dimension may hold a part of an axis or several axes,
and a transposition moves digits; what a layer reads is known by names and not by sizes.

The axes are ``b`` (batch), ``c`` (channels), ``h`` and ``w`` (rows and columns), ``t`` (tokens),
``s`` (the keys of a score), ``r`` (copies) and, of the network's input, ``i1``, ``i2``, ``i3``
until a layer reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

POSITIONS = frozenset({"h", "w", "t"})
"""The axes that are neither batch nor channels."""

MAX_NESTED_SLICES = 16
"""The most slices of slices that are followed."""


class Digit(NamedTuple):
    """The digit ``index // stride % size`` of the index of an axis."""

    axis: str | DigitRange
    size: int
    stride: int = 1


Dim = tuple[Digit, ...]


@dataclass(frozen=True)
class DigitRange:
    """Some of the indices of a digit: ``size`` of them from ``start``, ``step`` apart."""

    of: Digit
    start: int
    size: int
    step: int = 1


class UnalignedError(ValueError):
    """A view that does not go along the digits of the axes."""


def whole_dim(axis: str | DigitRange, size: int, stride: int = 1) -> Dim:
    """Return a dimension of one digit; a single index has none."""
    return (Digit(axis, size, stride),) if size > 1 else ()


def extent(dim: Dim) -> int:
    """Return the number of indices of a dimension."""
    return math.prod(digit.size for digit in dim)


def merged(digits: Iterable[Digit]) -> Dim:
    """Return digits with neighbours of one axis made one, where they are one number."""
    out: list[Digit] = []
    for digit in digits:
        last = out[-1] if out else None
        if last and last.axis == digit.axis and last.stride == digit.stride * digit.size:
            out[-1] = Digit(digit.axis, last.size * digit.size, digit.stride)
        else:
            out.append(digit)
    return tuple(out)


def reshaped(dims: Sequence[Dim], shape: Sequence[int]) -> tuple[Dim, ...]:
    """Return the dimensions after a reshape in row-major order.

    Raises
    ------
    UnalignedError
        Where a new dimension would cut a digit at no divisor of its size.
    """
    rest = [digit for dim in reversed(dims) for digit in reversed(dim)]
    out = []
    for size in shape:
        dim: list[Digit] = []
        # A batch of one image is a digit too, and belongs to the first dimension of size 1.
        if size == 1 and rest and rest[-1].size == 1:
            dim.append(rest.pop())
        while size > 1:
            if not rest:
                raise UnalignedError
            digit = rest.pop()
            if size % digit.size == 0:
                dim.append(digit)
                size //= digit.size
                continue
            inner, remainder = divmod(digit.size, size)
            if remainder:
                raise UnalignedError
            dim.append(Digit(digit.axis, size, digit.stride * inner))
            rest.append(Digit(digit.axis, inner, digit.stride))
            break
        out.append(merged(dim))
    if math.prod(digit.size for digit in rest) != 1:
        raise UnalignedError
    if rest and out:
        out[-1] = (*out[-1], *rest)
    return tuple(out)


def sliced(dim: Dim, start: int, size: int, step: int) -> tuple[Dim, DigitRange]:
    """Return what a slice leaves of a dimension, and the share that it takes.

    Where the slice is one value of a digit, the other digits of that number remain; of any other
    slice a new axis, the share itself.

    Raises
    ------
    UnalignedError
        Where the dimension holds several axes, or an axis is read backwards.
    """
    if len(dim) != 1 or step < 1:
        raise UnalignedError
    (digit,) = dim
    if len(list(_shared(digit.axis))) >= MAX_NESTED_SLICES:
        raise UnalignedError
    share = DigitRange(digit, start, size, step)
    axis, whole, stride = digit
    if step == 1 and whole % size == 0 and start % size == 0:
        return whole_dim(axis, size, stride), share
    if step > 1 and whole == size * step and start < step:
        return whole_dim(axis, size, stride * step), share
    return (Digit(share, size),), share


def tiles(shares: Sequence[DigitRange]) -> bool:
    """Whether shares are all the indices of one digit, each once."""
    first = shares[0]
    if any(share.of != first.of or share.step != first.step for share in shares):
        return False
    if sum(share.size for share in shares) != first.of.size:
        return False
    ordered = sorted(shares, key=lambda share: share.start)
    if first.step > 1:
        return [share.start for share in ordered] == list(range(first.step))
    end = 0
    for share in ordered:
        if share.start != end:
            return False
        end += share.size
    return True


def joined(shares: Sequence[DigitRange], dim: Dim) -> Dim:
    """Return the dimension along which all shares of a digit are joined; each has ``dim`` of it."""
    of, step = shares[0].of, shares[0].step
    if not dim:
        # Stacked on a dimension of their own: the digit that tells the shares apart.
        if step > 1:
            return (Digit(of.axis, step, of.stride),)
        if len({share.size for share in shares}) > 1:
            raise UnalignedError
        size = shares[0].size
        return (Digit(of.axis, len(shares), of.stride * size),)
    # The sequence of the shares is not kept: it is a fixed permutation within the digit.
    return (of,)


def axes_of(dims: Iterable[Dim]) -> frozenset[str]:
    """Return the names of the axes in some dimensions, those of shares by what they share."""
    return frozenset(_root(digit.axis) for dim in dims for digit in dim)


def _root(axis: str | DigitRange) -> str:
    for share in _shared(axis):
        axis = share.of.axis
    return str(axis)


def _shared(axis: str | DigitRange) -> Iterator[DigitRange]:
    """Yield the shares within one another that an axis is, the last one first."""
    while isinstance(axis, DigitRange):
        yield axis
        axis = axis.of.axis


def digits_of(axis: str, dims: Iterable[Dim]) -> Dim:
    """Return the digits of an axis in some dimensions, in order, merged."""
    return merged(digit for dim in dims for digit in dim if digit.axis == axis)


def is_whole(axis: str, size: int, dims: Iterable[Dim]) -> bool:
    """Whether all digits of an axis are there, in any order."""
    digits = digits_of(axis, dims)
    return math.prod(digit.size for digit in digits) == size
