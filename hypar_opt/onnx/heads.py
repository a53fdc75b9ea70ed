"""The order of heads and of their features in an attention that is written out.

A network's queries, keys and values have head after head, and a group's queries follow one another;
those of a model may lie in any order of the channels that it reads. Where they do, the layer that
writes them has its outputs in the network's order: its weights are read so.

Scores have an axis of their own, ``g``: the heads in the order of the first product's dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

from hypar_opt.onnx.axes import Digit, Dim, UnalignedError, axes_of, extent, merged, unit
from hypar_opt.onnx.features import Features
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import Region

_CHANNEL = "e"
"""The axis of a region's elements: here the channels of a layer."""


class _HeadPart(NamedTuple):
    """A part of a dimension of images or heads that no operand divides further.

    Parameters
    ----------
    place
        Of the dimension.
    images
        Its stride among the images; 0 for heads.
    strides
        Those of each operand's channels; 0 where all of the part reads the same.
    """

    place: int
    size: int
    images: int
    strides: tuple[int, ...]


class Heads(NamedTuple):
    """The heads of an attention.

    Parameters
    ----------
    queries, keys
        Their numbers.
    orders
        The channels of queries, keys and values in the order of a network: those of the layers that
        they are read from.
    leading
        The dimensions of images and heads of the output.
    """

    queries: int
    keys: int
    orders: tuple[Region, ...]
    leading: tuple[Dim, ...]


def score_dims(queries: Features, keys: Features) -> tuple[Dim, ...]:
    """Return the dimensions of images and heads of the product of queries and keys."""
    parts = _parts((queries.dims[:-2], keys.dims[:-2]))
    strides = _row_major(parts)
    return tuple(
        merged(
            Digit("b", part.size, part.images) if part.images else Digit("g", part.size, stride)
            for part, stride in zip(parts, strides, strict=True)
            if part.place == place
        )
        for place in range(max(len(queries.dims), len(keys.dims)) - 2)
    )


def heads_of(
    node: OnnxNode, operands: tuple[Features, Features, Features], scores: Features, width: int
) -> Heads:
    """Return the heads of attention.

    Parameters
    ----------
    operands
        Queries and keys as the first product reads them, and values as the second one does:
        ``[images and heads, tokens, features]``.
    scores
        As the second product reads them.
    width
        Features of a value's head.

    Raises
    ------
    InputError
        Where heads share keys as a network's do not.
    """
    queries, keys, values = operands
    first = _parts((queries.dims[:-2], keys.dims[:-2]))
    numbered = [*zip(first, _row_major(first), strict=True)]
    rows = (scores.dims[:-2], values.dims[:-2])
    parts = [resolved for part in _parts(rows) for resolved in _resolved(part, numbered)]
    inner = [part for part in parts if not part.images]
    if any(bool(key) != bool(value) for _, key, value in (part.strides for part in inner)):
        raise node.refuse("has keys and values of different numbers of heads")
    if any(key and not query for query, key, _ in (part.strides for part in inner)):
        raise node.refuse("has more heads of keys than of queries")
    groups = [part for part in inner if part.strides[1]]
    # Each head's place among the network's: those that share keys follow one another.
    ordered = [*groups, *(part for part in inner if not part.strides[1])]
    strides = dict(zip(ordered, _row_major(ordered), strict=True))
    leading = tuple(
        merged(
            Digit("b", part.size, part.images)
            if part.images
            else Digit("c", part.size, strides[part] * width)
            for part in parts
            if part.place == place
        )
        for place in range(max(map(len, rows)))
    )
    orders = tuple(
        _order(one, [(part.size, part.strides[n]) for part in group])
        for n, (one, group) in enumerate(zip(operands, (ordered, groups, groups), strict=True))
    )
    count, shared = (math.prod(part.size for part in group) for group in (ordered, groups))
    return Heads(count, shared, orders, leading)


def _row_major(parts: Sequence[_HeadPart]) -> list[int]:
    """Return the stride of each part among the heads in their order; 0 for images."""
    sizes = [1 if part.images else part.size for part in parts]
    strides = [*accumulate(reversed(sizes), mul, initial=1)][-2::-1]
    return [0 if part.images else stride for part, stride in zip(parts, strides, strict=True)]


def _parts(rows: Sequence[Sequence[Dim]]) -> list[_HeadPart]:
    """Return the dimensions of all operands in parts that none divides further."""
    rank = max(len(dims) for dims in rows)
    padded = [((),) * (rank - len(dims)) + tuple(dims) for dims in rows]
    aligned = enumerate(zip(*padded, strict=True))
    return [part for place, dims in aligned for part in _divided(place, dims)]


def _divided(place: int, dims: Sequence[Dim]) -> Iterator[_HeadPart]:
    size = max(extent(dim) for dim in dims)
    wide = [dim if extent(dim) == size else None for dim in dims]
    if any(dim is None and extent(narrow) > 1 for dim, narrow in zip(wide, dims, strict=True)):
        raise UnalignedError
    if any(digit == Digit("b", 1) for dim in dims for digit in dim):
        yield _HeadPart(place, 1, 1, (0,) * len(dims))  # a batch of one image is a digit, too
    cuts = {1, size}
    for dim in filter(None, wide):
        cuts.update(accumulate((digit.size for digit in reversed(dim)), mul))
    for upper, lower in pairwise(sorted(cuts, reverse=True)):
        if upper % lower:
            raise UnalignedError
        steps = [("", 0) if dim is None else _step(dim, lower) for dim in wide]
        axes = {axis for axis, _ in steps}
        if axes - {"", "b", "c", "g", "r"} or ("b" in axes and axes & {"c", "g"}):
            raise UnalignedError
        images = max(by if axis == "b" else 0 for axis, by in steps)
        strides = tuple(by if axis in ("c", "g") else 0 for axis, by in steps)
        yield _HeadPart(place, upper // lower, images, strides)


def _step(dim: Dim, inside: int) -> tuple[str, int]:
    """Return the axis of an index that has ``inside`` others within it, and its stride there."""
    below = 1
    for digit in reversed(dim):
        if below <= inside < below * digit.size:
            (axis,) = axes_of([(digit,)])
            return axis, inside // below * digit.stride * unit(digit.axis)
        below *= digit.size
    raise UnalignedError


def _resolved(part: _HeadPart, numbered: Sequence[tuple[_HeadPart, int]]) -> Iterator[_HeadPart]:
    """Yield a part of scores and values as those of queries, keys and values."""
    number, value = part.strides
    if part.images or not number:
        yield part._replace(strides=(0, 0, value))
        return
    end = number * part.size
    cuts = {number, end, *(stride for _, stride in numbered if number < stride < end)}
    for upper, lower in pairwise(sorted(cuts, reverse=True)):
        reference, stride = next(
            (candidate, stride)
            for candidate, stride in numbered
            if stride <= lower < stride * candidate.size
        )
        if upper % lower or lower % stride or upper > stride * reference.size:
            raise UnalignedError
        query, key = (step * (lower // stride) for step in reference.strides)
        yield _HeadPart(part.place, upper // lower, 0, (query, key, value * (lower // number)))


def _order(one: Features, heads: Sequence[tuple[int, int]]) -> Region:
    """Return the channels of an operand, head after head."""
    features = [(digit.size, digit.stride * unit(digit.axis)) for digit in one.dims[-1]]
    digits = (Digit(_CHANNEL, size, stride) for size, stride in (*heads, *features))
    return Region("", (merged(digits),), _first(one))


def _first(features: Features) -> int:
    """Return the first channel of a map of which parts may be taken."""
    return sum(part.start * part.of.stride * unit(part.of.axis) for part in features.taken)


def channels_of(features: Features, places: Sequence[int]) -> Region:
    """Return the channels that some dimensions of a map hold, in their order."""
    digits = (digit for place in places for digit in features.dims[place])
    channels = (Digit(_CHANNEL, one.size, one.stride * unit(one.axis)) for one in digits)
    return Region("", (merged(channels),), _first(features))


def in_order(orders: Sequence[Region], first: int, channels: int) -> bool:
    """Whether channels follow one another from ``first`` on."""
    for order in orders:
        if order.first != first or order.dims not in (((),), ((Digit(_CHANNEL, order.elements),),)):
            return False
        first += order.elements
        channels -= order.elements
    return not channels
