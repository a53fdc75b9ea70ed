"""Sliding windows over an image: its rows and columns, and the padding of its borders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypar_opt.onnx.axes import Dim, whole_dim
from hypar_opt.onnx.features import Features
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.model import OnnxNode


@dataclass(frozen=True)
class Image:
    """An image as a convolution or a pool reads it; a sequence is one row, of height 1."""

    features: Features
    channels: int
    extents: tuple[int, int]
    is_row: bool

    def pair(self, values: Sequence[int] | None, default: int) -> tuple[int, int]:
        """Return an attribute's numbers for rows and columns."""
        pair = list(values) if values is not None else [default] * (1 if self.is_row else 2)
        if self.is_row:
            pair = [1, *pair]
        if len(pair) != 2 or min(pair) < 0:
            raise ValueError(f"should have a number for rows and columns, got {pair}")
        return pair[0], pair[1]

    def dims(self, channels: int, height: int, width: int) -> tuple[Dim, ...]:
        """Return the dimensions of the image that a layer of windows writes."""
        digits = [("c", channels), ("h", height), ("w", width)]
        if self.is_row:
            del digits[1]
        rest = tuple(whole_dim(axis, size) for axis, size in digits)
        return (self.features.dims[0], *rest)


def image_of(state: ImportState, node: OnnxNode, rank: int) -> Image:
    """Return the image that a node of windows reads: batch, channels, rows and columns.

    Raises
    ------
    InputError
        Where the tensor is not an image, or has more than two dimensions of positions.
    """
    name = node.inputs[0]
    if rank not in (1, 2):
        raise node.refuse(f"has windows of {rank} dimensions; images have two")
    features = state.seen(name)
    if len(features.dims) != rank + 2:
        raise node.refuse(f"should read {rank + 2} dimensions, got {len(features.dims)}")
    state.name_image(features)
    features = state.settle(state.features(name), node, border=True)
    features = state.as_image(state.sliced(features, node), node)
    features = state.ordered(features, node)
    layer = state.layer(features.source)
    places = ("w",) if rank == 1 else ("h", "w")
    for dim, axis in zip(features.dims[1:], ("c", *places), strict=True):
        size = layer.sizes.get(axis, 1)
        if dim != whole_dim(axis, size):
            if layer.is_tokens and rank == 1:
                break  # a window of one token is a product with each token
            if layer.is_tokens:
                raise node.refuse(
                    "reads tokens as an image in another order than row by row, or a part of them"
                )
            raise node.refuse("should read channels, rows and columns of an image, in this order")
    extents = (layer.sizes.get("h", 1), layer.sizes.get("w", 1))
    return Image(features, layer.channels, extents, rank == 1)


def window_counts(
    node: OnnxNode,
    image: Image,
    window: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    *,
    up: bool = False,
) -> list[int]:
    """Return the numbers of windows along rows and columns.

    With ``up`` a last one counts too that starts on the map or the border before it.
    """
    counts = []
    for extent, size, step, spread, before, after in zip(
        image.extents, window, stride, dilation, padding[:2], padding[2:], strict=True
    ):
        free = extent + before + after - spread * (size - 1) - 1
        if free < 0 or min(size, step, spread) < 1:
            raise node.refuse(
                f"its window of {size} does not fit {extent} and a padding of {before + after}"
            )
        count = free // step + 1
        if up and free % step:
            count += count * step < extent + before
        counts.append(count)
    return counts


def window_padding(
    node: OnnxNode,
    image: Image,
    attributes: dict[str, Any],
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, int, int, int]:
    """Return top, left, bottom and right padding, including the zeros of an earlier Pad."""
    mode = attributes.get("auto_pad", "NOTSET")
    before, after = [0, 0], [0, 0]
    border = image.features.border.widths if image.features.border else (0, 0, 0, 0)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        for axis in range(2):
            extent = image.extents[axis] + border[axis] + border[axis + 2]
            count = -(-extent // stride[axis])
            reach = (count - 1) * stride[axis] + dilation[axis] * (window[axis] - 1) + 1
            missing = max(0, reach - extent)
            small = missing // 2
            before[axis] = small if mode == "SAME_UPPER" else missing - small
            after[axis] = missing - before[axis]
    elif mode == "NOTSET":
        before, after = _stated_pads(image, attributes.get("pads"))
    elif mode != "VALID":
        raise node.refuse(f"auto_pad should be one of ONNX's, got {mode!r}")
    return (
        before[0] + border[0],
        before[1] + border[1],
        after[0] + border[2],
        after[1] + border[3],
    )


def _stated_pads(image: Image, pads: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """Return an attribute's padding before and after the rows and columns; None for no padding."""
    pads = pads or [0] * (2 if image.is_row else 4)
    half = len(pads) // 2
    before, after = list(image.pair(pads[:half], 0)), list(image.pair(pads[half:], 0))
    if image.is_row:
        before[0] = after[0] = 0
    return before, after


def transposed_extents(
    image: Image,
    window: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int] = (0, 0, 0, 0),
) -> tuple[int, int]:
    """Return the rows and columns that a transposed convolution writes."""
    height, width = (
        (extent - 1) * step + spread * (size - 1) + 1 - before - after
        for extent, size, step, spread, before, after in zip(
            image.extents, window, stride, dilation, padding[:2], padding[2:], strict=True
        )
    )
    return height, width


def transposed_padding(
    node: OnnxNode,
    image: Image,
    attributes: dict[str, Any],
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, int, int, int]:
    """Return what a transposed convolution cuts off: top, left, bottom and right.

    Further rows and columns, ONNX' output padding, are cut off less.
    """
    if image.features.border:
        raise node.refuse("reads a border that Pad adds, which a transposed convolution does not")
    mode = attributes.get("auto_pad", "NOTSET")
    more = image.pair(attributes.get("output_padding"), 0)
    if image.is_row:
        more = 0, more[1]
    wanted = attributes.get("output_shape")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [extent * step for extent, step in zip(image.extents, stride, strict=True)]
        wanted = wanted[1:] if image.is_row else wanted
    if wanted is not None:
        extents = transposed_extents(image, window, stride, dilation)
        cut = [a + b - c for a, b, c in zip(extents, more, image.pair(wanted, 1), strict=True)]
        if any(size % 2 for size in cut):
            raise node.refuse(
                "cuts off an odd number of rows or columns, of which versions of ONNX cut one more"
                " at either end; pads would say it"
            )
        before = after = [size // 2 for size in cut]
    else:
        pads = None if mode == "VALID" else attributes.get("pads")
        before, after = _stated_pads(image, pads)
    bottom, right = (border - extra for border, extra in zip(after, more, strict=True))
    if min(*before, bottom, right) < 0:
        raise node.refuse("writes rows or columns beyond its windows, which no layer has")
    return before[0], before[1], bottom, right


def filling(features: Features) -> str:
    """Return what a map's border is filled with, for messages."""
    value = features.border_value
    return "unknown numbers" if value is None else f"{value:.4g}"


def numbers(values: Sequence[int]) -> int | list[int]:
    """Return sizes as in a network file: one number where all are equal."""
    if len(set(values)) == 1:
        return values[0]
    half = len(values) // 2
    if len(values) == 4 and values[:half] == values[half:]:
        return list(values[:half])
    return list(values)
