"""Axes of a tensor, followed through reshapes, transpositions, slices and joins.

A dimension of an ONNX tensor is a sequence of digits, each of a named axis of a layer's feature
map: after ``Reshape`` to ``[batch, tokens, heads, 64]`` the channels of a layer are two digits,
the head and the index in the head. So a dimension may hold a part of an axis or several axes,
and a transposition moves digits; what a layer reads is known by names, not by sizes.

The axes are ``b`` (batch), ``c`` (channels), ``h`` and ``w`` (rows and columns), ``t`` (tokens),
``s`` (the keys of a score), ``r`` (copies) and, until a layer reads the network's input, its
``i1``, ``i2``, ``i3``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

POSITIONS = frozenset({"h", "w", "t"})
"""Axes of positions: neither batch nor channels."""

MAX_NESTED_SLICES = 16
"""Slices of slices are followed up to this depth."""


class Digit(NamedTuple):
    """The digit ``index // stride % size`` of the index of an axis."""

    axis: str | DigitRange
    size: int
    stride: int = 1


Dim = tuple[Digit, ...]


@dataclass(frozen=True)
class DigitRange:
    """A range of a digit's indices: ``size`` of them from ``start``, ``step`` apart."""

    of: Digit
    start: int
    size: int
    step: int = 1


class UnalignedError(ValueError):
    """A view that cuts across the digits of the axes."""


def whole_dim(axis: str | DigitRange, size: int, stride: int = 1) -> Dim:
    """Return the dimension of one digit; a single index has no digit."""
    return (Digit(axis, size, stride),) if size > 1 else ()


def extent(dim: Dim) -> int:
    """Return the number of indices of a dimension."""
    return math.prod(digit.size for digit in dim)


def without(dim: Dim, axis: str) -> Dim:
    """Return a dimension without the digits of an axis, such as copies (``r``)."""
    return tuple(digit for digit in dim if digit.axis != axis)


def merged(digits: Iterable[Digit]) -> Dim:
    """Return digits, adjacent ones of one axis merged if they form one number."""
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
        Where a new dimension would cut a digit elsewhere than at a divisor of its size.
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
    """Return the dimension after a slice, and the range that the slice takes.

    Where the slice is one value of a digit, the other digits of that number remain; any other slice
    becomes a new axis, the range itself.

    Raises
    ------
    UnalignedError
        Where the dimension holds several axes, or an axis is read backwards.
    """
    if len(dim) != 1 or step < 1:
        raise UnalignedError
    (digit,) = dim
    if len(list(_nested(digit.axis))) >= MAX_NESTED_SLICES:
        raise UnalignedError
    part = DigitRange(digit, start, size, step)
    axis, whole, stride = digit
    if step == 1 and whole % size == 0 and start % size == 0:
        return whole_dim(axis, size, stride), part
    if step > 1 and whole == size * step and start < step:
        return whole_dim(axis, size, stride * step), part
    return (Digit(part, size),), part


def tiles(parts: Sequence[DigitRange]) -> bool:
    """Whether ranges cover all indices of one digit, each once."""
    first = parts[0]
    if any(part.of != first.of or part.step != first.step for part in parts):
        return False
    if sum(part.size for part in parts) != first.of.size:
        return False
    ordered = sorted(parts, key=lambda part: part.start)
    if first.step > 1:
        return [part.start for part in ordered] == list(range(first.step))
    end = 0
    for part in ordered:
        if part.start != end:
            return False
        end += part.size
    return True


def joined(parts: Sequence[DigitRange], dim: Dim) -> Dim:
    """Return the dimension along which all ranges of a digit, each of ``dim``, are joined."""
    of, step = parts[0].of, parts[0].step
    if not dim:
        # Stacked along a new dimension: the digit that tells the ranges apart.
        if step > 1:
            return (Digit(of.axis, step, of.stride),)
        if len({part.size for part in parts}) > 1:
            raise UnalignedError
        return (Digit(of.axis, len(parts), of.stride * parts[0].size),)
    # The order of ranges is dropped: it is a fixed permutation within the digit.
    return (of,)


def is_roll(axis: str | DigitRange) -> bool:
    """Return whether an axis is all indices of a digit, rotated."""
    return isinstance(axis, DigitRange) and axis.size == axis.of.size


def rolled(parts: Sequence[DigitRange]) -> Digit | None:
    """Return the rotated digit that two swapped parts of a digit form; None for other parts."""
    if len(parts) != 2:
        return None
    first, second = parts
    digit, by = first.of, second.size
    if second.start or first.start != by or {first.step, second.step} != {1}:
        return None
    axis, size, stride = digit
    if isinstance(axis, DigitRange) and is_roll(axis) and (size, stride) == (axis.size, 1):
        digit, by = axis.of, (by + axis.start) % size
    return Digit(DigitRange(digit, by, size), size) if by else digit


def unrolled(dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return dimensions with every rotated digit replaced by the original one."""
    return tuple(merged(map(_unrolled, dim)) for dim in dims)


def _unrolled(digit: Digit) -> Digit:
    while isinstance(axis := digit.axis, DigitRange) and is_roll(axis):
        digit = Digit(axis.of.axis, digit.size, digit.stride * axis.of.stride)
    return digit


def axes_of(dims: Iterable[Dim]) -> frozenset[str]:
    """Return the names of the axes in some dimensions; a range counts as its axis."""
    return frozenset(_root(digit.axis) for dim in dims for digit in dim)


def _root(axis: str | DigitRange) -> str:
    for part in _nested(axis):
        axis = part.of.axis
    return str(axis)


def _nested(axis: str | DigitRange) -> Iterator[DigitRange]:
    """Yield the nested ranges that an axis stands for, innermost first."""
    while isinstance(axis, DigitRange):
        yield axis
        axis = axis.of.axis


def unit(axis: str | DigitRange) -> int:
    """Return the stride, in indices of a map's axis, of an axis or a range of it."""
    if not isinstance(axis, DigitRange):
        return 1
    return axis.step * axis.of.stride * unit(axis.of.axis)


_PART = "part of c"
"""The axis of a reduction over some of the channels."""


def part_of_channels(dims: Iterable[Dim]) -> str:
    """Return the name of the axis that is reduced over dimensions of some of the channels.

    It ends in their number where they follow one another, as those of a head.
    """
    digits = merged(digit for dim in dims for digit in dim if digit.size > 1)
    if len(digits) != 1 or digits[0].stride * unit(digits[0].axis) != 1:
        return _PART
    return f"{_PART}: {digits[0].size}"


def is_part(axis: str) -> bool:
    """Whether an axis is one of `part_of_channels`."""
    return axis.startswith(_PART)


def part_size(over: Collection[str]) -> int | None:
    """Return how many channels are reduced together, of some of them; None where unknown."""
    numbers = [axis.partition(f"{_PART}: ")[2] for axis in over if is_part(axis)]
    return int(numbers[0]) if len(numbers) == 1 and numbers[0] else None


def head_size(over: Collection[str]) -> int | None:
    """Return the channels of a head that alone are reduced; None where others are, or unknown."""
    return part_size(over) if len(over) == 1 else None


def digits_of(axis: str, dims: Iterable[Dim]) -> Dim:
    """Return the digits of an axis in some dimensions, in order, merged."""
    return merged(digit for dim in dims for digit in dim if digit.axis == axis)


def is_whole(axis: str, size: int, dims: Iterable[Dim]) -> bool:
    """Whether dimensions hold all digits of an axis, in any order."""
    digits = digits_of(axis, dims)
    return math.prod(digit.size for digit in digits) == size
