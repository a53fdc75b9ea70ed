"""What layers of images compute in exported modules, as `operations` has it.

Where levels split images, rows have a dimension for each level, and columns, too: ``[.. r1 .. rH,
r, q1 .. qH, q, ..]``. Windows are over both as one dimension each, and so is what they write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from hypar_opt.execution.jax.operations import (
    COLUMN,
    LEVELS,
    Levels,
    as_positions,
    batch_dims,
    channel_dims,
    plain,
    positions,
)


def image(x: jax.Array) -> jax.Array:
    """Return an image with one dimension for its rows, and one for its columns."""
    places = positions(x)
    half = len(places) // 2
    return as_positions(x, (math.prod(places[:half]), math.prod(places[half:])))


def along(of: str) -> int:
    """Return the dimension of an `image`'s rows, or columns."""
    return len(LEVELS) + 1 + (of == COLUMN)


def number_of(levels: Levels) -> tuple[jax.Array, int]:
    """Return the number of this device's part, and that of all parts."""
    return lax.axis_index(levels), math.prod(lax.axis_size(level) for level in levels)


def with_borders(
    x: jax.Array, part: tuple[str, Levels, int, int], outside: float = 0.0
) -> jax.Array:
    """Return a part of an image with what its windows read of others; their errors go back.

    ``part`` names rows or columns, the levels that split them, and how many it reads before and
    behind its own. At the image's edges these are ``outside``.
    """
    of, levels, before, behind = part
    x, axis, (number, parts) = image(x), along(of), number_of(levels)
    end = x.shape[axis]
    forth = [(n, n + 1) for n in range(parts - 1)]
    pieces = [x]
    if before:
        last = lax.slice_in_dim(x, end - before, end, axis=axis)
        received = lax.ppermute(last, levels, forth)
        pieces.insert(0, jnp.where(number > 0, received, outside))
    if behind:
        first = lax.slice_in_dim(x, 0, behind, axis=axis)
        received = lax.ppermute(first, levels, [(b, a) for a, b in forth])
        pieces.append(jnp.where(number < parts - 1, received, outside))
    return jnp.concatenate(pieces, axis)


def cut_out(x: jax.Array, part: tuple[str, Levels, int, int], outside: float = 0.0) -> jax.Array:
    """Return this device's part of an image that all have, `with_borders`."""
    of, levels, before, behind = part
    x, axis, (number, parts) = image(x), along(of), number_of(levels)
    size = x.shape[axis] // parts
    borders = [(0, 0, 0)] * x.ndim
    borders[axis] = before, behind, 0
    padded = lax.pad(x, jnp.asarray(outside, x.dtype), borders)
    return lax.dynamic_slice_in_dim(padded, number * size, before + size + behind, axis)


def conv(
    x: jax.Array,
    w: jax.Array,
    stride: tuple[int, int],
    padding: Sequence[tuple[int, int]],
    dilation: tuple[int, int] = (1, 1),
) -> jax.Array:
    """Convolve with ``w[rows, columns, inputs.., outputs..]``."""
    outputs = w.shape[w.ndim - len(LEVELS) - 1 :]
    kernel = w.reshape(*w.shape[:2], -1, math.prod(outputs))
    images = plain(image(x))
    # The kernel has the inputs of one group: what it lacks of them is the number of groups.
    y = lax.conv_general_dilated(
        images,
        kernel,
        stride,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=images.shape[-1] // kernel.shape[2],
    )
    return y.reshape(*batch_dims(x), *y.shape[1:3], *outputs)


def transposed_conv(
    x: jax.Array,
    w: jax.Array,
    stride: tuple[int, int],
    padding: Sequence[tuple[int, int]],
    dilation: tuple[int, int] = (1, 1),
) -> jax.Array:
    """Return what a convolution that writes ``x`` would read, with ``w[rows, columns, ..]``."""
    outputs = w.shape[w.ndim - len(LEVELS) - 1 :]
    kernel = jnp.flip(w.reshape(*w.shape[:2], -1, math.prod(outputs)), (0, 1))
    images = plain(image(x))
    reaches = [step * (size - 1) for step, size in zip(dilation, kernel.shape[:2], strict=True)]
    y = lax.conv_general_dilated(
        images,
        kernel,
        (1, 1),
        [
            (own - before, own - after)
            for own, (before, after) in zip(reaches, padding, strict=True)
        ],
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=images.shape[-1] // kernel.shape[2],
    )
    return y.reshape(*batch_dims(x), *y.shape[1:3], *outputs)


def max_pool(
    x: jax.Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: Sequence[tuple[int, int]],
) -> jax.Array:
    """Return the maximum of each window."""
    window, steps = (1, *size, 1), (1, *stride, 1)
    borders = ((0, 0), *padding, (0, 0))
    y = lax.reduce_window(plain(image(x)), -jnp.inf, lax.max, window, steps, borders)
    return y.reshape(*batch_dims(x), *y.shape[1:3], *channel_dims(x))


def average_pool(
    x: jax.Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: Sequence[tuple[int, int]],
    parts: Sequence[tuple[str, Levels, int, int]] = (),
) -> jax.Array:
    """Return the mean of each window, of what of it lies on the map.

    ``parts`` are those that the map was extended by.
    """
    window, steps = (1, *size, 1), (1, *stride, 1)
    borders = ((0, 0), *padding, (0, 0))
    images = plain(image(x))
    total = lax.reduce_window(images, 0.0, lax.add, window, steps, borders)
    ones = jnp.ones((1, *images.shape[1:3], 1), x.dtype)
    for of, levels, before, behind in parts:
        number, count = number_of(levels)
        axis = 1 + (of == COLUMN)
        index = lax.broadcasted_iota(jnp.int32, ones.shape, axis)
        first = jnp.where(number > 0, 0, before)
        end = ones.shape[axis] - jnp.where(number < count - 1, 0, behind)
        ones = jnp.where((first <= index) & (index < end), ones, 0)
    y = total / lax.reduce_window(ones, 0.0, lax.add, window, steps, borders)
    return y.reshape(*batch_dims(x), *y.shape[1:3], *channel_dims(x))


def unflatten(x: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Return features, a channel's positions together, as an image of these dimensions."""
    *rest, last = x.shape
    count = math.prod(sizes)
    x = x.reshape(*rest, last // count, count)
    return as_positions(jnp.moveaxis(x, -1, len(LEVELS) + 1), sizes)


def blocks_of_channels(x: jax.Array, factor: tuple[int, int], order: str) -> jax.Array:
    """Return an image whose channels have become the pixels of blocks."""
    x, rows = image(x), len(LEVELS) + 1
    sizes = {"c": x.shape[-1] // math.prod(factor), "h": factor[0], "w": factor[1]}
    x = x.reshape(*x.shape[:-1], *(sizes[axis] for axis in order))
    first = x.ndim - 3
    # Channels last, and the rows and columns of a block behind those of blocks.
    channels = [first + order.index(axis) for axis in "hwc"]
    rest = range(rows + 2, first)
    x = x.transpose(*range(rows), rows, channels[0], rows + 1, channels[1], *rest, channels[2])
    height, width = (x.shape[rows + n] * x.shape[rows + n + 1] for n in (0, 2))
    return x.reshape(*x.shape[:rows], height, width, *x.shape[rows + 4 :])


def channels_of_blocks(x: jax.Array, factor: tuple[int, int], order: str) -> jax.Array:
    """Return an image whose blocks of pixels have become channels."""
    x, rows = image(x), len(LEVELS) + 1
    height, width = (x.shape[rows + n] // factor[n] for n in (0, 1))
    x = x.reshape(*x.shape[:rows], height, factor[0], width, factor[1], *x.shape[rows + 2 :])
    at = {"h": rows + 1, "w": rows + 3, "c": x.ndim - 1}
    rest = range(rows + 4, x.ndim - 1)
    x = x.transpose(*range(rows), rows, rows + 2, *rest, *(at[axis] for axis in order))
    return x.reshape(*x.shape[: x.ndim - 3], -1)


def enlarged(x: jax.Array, factor: tuple[int, int]) -> jax.Array:
    """Return an image with each pixel repeated along rows and columns."""
    first = len(LEVELS) + 1
    return image(x).repeat(factor[0], axis=first).repeat(factor[1], axis=first + 1)
