"""Attention in windows of an image: its partition, and the biases and masks of its scores.

A window's index among those of an image is made of digits of rows and columns, of tokens or of an
image rolled before it is cut. While the two products are read, windows count as images of their
own: digits of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.integers import divisors
from hypar_opt.onnx.axes import (
    POSITIONS,
    Digit,
    DigitRange,
    Dim,
    UnalignedError,
    axes_of,
    extent,
    is_roll,
    merged,
    whole_dim,
)
from hypar_opt.onnx.mask_values import Unknown
from hypar_opt.onnx.model import FLOATS
from hypar_opt.onnx.windows import numbers
from hypar_opt.workload.operators.attention import ImageWindows

if TYPE_CHECKING:
    from onnx import TensorProto

    from hypar_opt.onnx.constant import Array
    from hypar_opt.onnx.features import Features
    from hypar_opt.onnx.import_state import ImportState
    from hypar_opt.onnx.model import OnnxNode

ENOUGH = -50.0
"""A score that is lower by this has no share, whatever the others are."""


class CutWindows(NamedTuple):
    """Windows of an image whose pixels are tokens, as a tensor's dimensions hold them.

    Parameters
    ----------
    shape
        What a network's layer has of them.
    places
        The digits that tell the windows apart, in order.
    pixels
        The dimension of a window's pixels.
    """

    shape: ImageWindows
    places: Dim
    pixels: Dim

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of the layer's table."""
        keys: dict[str, Any] = {"size": numbers(self.shape.size), "columns": self.shape.columns}
        return keys | ({"shift": numbers(self.shape.shift)} if self.shape.shift else {})


class AddedScores(NamedTuple):
    """What a constant adds to scores.

    Parameters
    ----------
    shape
        The windows whose relative positions biases are of.
    table
        The initializer of biases, if there are any.
    hides
        Whether it hides what a shift has joined.
    """

    shape: ImageWindows
    table: str
    hides: bool


def in_windows(
    state: ImportState, node: OnnxNode, features: Features
) -> tuple[Features, CutWindows | None]:
    """Return tokens of windows as those of images, and the windows; else unchanged."""
    if not axes_of(features.dims[:-2]) & POSITIONS:
        return features, None
    features = state.as_tokens(features, node, in_parts=True)
    *leading, pixels, channels = features.dims
    places = merged(digit for dim in leading for digit in dim if _is_place(digit))
    tokens, inside = state.layer(features.source).sizes.get("t", 1), extent(pixels)
    shape = next(_shapes(tokens, inside, places, pixels), None)
    if shape is None:
        raise node.refuse(
            "is attention over a part of the tokens that is no window of an image, which a network"
            " has no layer for"
        )
    below, dims = tokens // inside, []
    for dim in leading:
        new: list[Digit] = []
        for digit in dim:
            if _is_place(digit):
                below //= digit.size
                new.append(Digit("b", digit.size, below))
            elif digit.axis == "b":
                # A batch of one image is a digit, too, but here windows are the images.
                new += whole_dim("b", digit.size, digit.stride * (tokens // inside))
            else:
                new.append(digit)
        dims.append(merged(new))
    dims += [whole_dim("t", inside), channels]
    return features._replace(dims=tuple(dims)), CutWindows(shape, places, pixels)


def _is_place(digit: Digit) -> bool:
    return bool(axes_of([(digit,)]) & POSITIONS)


def _shapes(tokens: int, inside: int, places: Dim, pixels: Dim) -> Iterator[ImageWindows]:
    """Yield the windows of an image of so many pixels that are cut so."""
    rolls = {digit.axis for digit in (*places, *pixels) if isinstance(digit.axis, DigitRange)}
    for columns in divisors(tokens):
        axes: list[Digit] = [Digit("t", tokens // columns, columns), Digit("t", columns)]
        shift = [0, 0]
        for n, whole in enumerate(axes):
            for roll in rolls:
                if isinstance(roll, DigitRange) and is_roll(roll) and roll.of == whole:
                    axes[n], shift[n] = Digit(roll, whole.size), roll.start
        for height in divisors(inside):
            size = height, inside // height
            shape = ImageWindows(size=size, columns=columns, shift=tuple(shift))
            if shape.problem(tokens):
                continue
            cut = [*zip(axes, size, strict=True)]
            outer = (whole_dim(of.axis, of.size // n, of.stride * n) for of, n in cut)
            inner = (whole_dim(of.axis, n, of.stride) for of, n in cut)
            if (merged(chain(*outer)), merged(chain(*inner))) == (places, pixels):
                yield shape


def original_dims(state: ImportState, leading: Sequence[Dim], windows: CutWindows) -> list[Dim]:
    """Return dimensions in which windows are images, as those of images and of windows."""
    count = math.prod(digit.size for digit in windows.places)
    below, strides = count, []
    for place in windows.places:
        below //= place.size
        strides.append((place, below))
    parts = [(digit, count) for digit in whole_dim("b", state.batch)] + strides
    dims = []
    for dim in leading:
        new: list[Digit] = []
        for digit in dim:
            if digit.axis != "b":
                new.append(digit)
                continue
            end = digit.stride * digit.size
            pieces = [piece for piece, by in parts if digit.stride <= by and by * piece.size <= end]
            if extent(tuple(pieces)) != digit.size:
                raise UnalignedError
            new += pieces
        dims.append(merged(new))
    if state.batch == 1:
        dims[0] = (Digit("b", 1), *dims[0])
    return dims


def added_scores(
    state: ImportState, scores: Features, name: str, windows: CutWindows | None
) -> AddedScores | None:
    """Return what a constant adds to scores that windows have; None where it is anything else.

    That is decided by other values for the learned table, zeros and different numbers: what a
    table's own are, as zeros before training, is left aside.
    """
    inside = state.layer(scores.source).sizes["t"]
    *leading, rows, columns = scores.dims
    if (rows, columns) != (whole_dim("t", inside), whole_dim("s", inside)):
        return None
    heads = math.prod(digit.size for dim in leading for digit in dim if digit.axis == "g")
    tensors = [state.graph.initialisers.get(weight) for weight in state.constant(name).weights]
    tables = [
        tensor
        for tensor in tensors
        if tensor and tensor.data_type in FLOATS and len(tensor.dims) == 2
    ]
    if windows:
        shapes = [windows.shape]
    else:
        sizes = [(inside // width, width) for width in (divisors(inside) if tables else ())]
        shapes = [ImageWindows(size=size, columns=size[1]) for size in sizes]
    fits = [
        (shape, table)
        for table in tables
        for shape in shapes
        if [*table.dims] == [shape.biases, heads]
    ]
    # Without a table it is a mask, the same for all heads.
    of_heads = [dim for dim in leading if "g" in axes_of([dim])]
    ends = state.constant(name).shape[-3::-1]
    is_mask = all(
        size == 1 or dim not in of_heads for size, dim in zip(ends, reversed(leading), strict=False)
    )
    if windows and is_mask and not fits:
        return _shown(state, leading, name, windows.shape, windows, None)
    shown = (_shown(state, leading, name, shape, windows, table) for shape, table in fits)
    return next(filter(None, shown), None)


def _shown(
    state: ImportState,
    leading: Sequence[Dim],
    name: str,
    shape: ImageWindows,
    windows: CutWindows | None,
    table: TensorProto | None,
) -> AddedScores | None:
    number, head = (sum(_along(leading, axis), np.zeros((1, 1), int)) for axis in "bg")
    inputs: list[dict[str, Array]] = [{}]
    expected = np.zeros((1, 1))
    if table is not None:
        from onnx import helper

        of = np.arange(1, math.prod(table.dims) + 1).reshape(table.dims)
        dtype = helper.tensor_dtype_to_np_dtype(table.data_type)
        inputs = [{table.name: values.astype(dtype)} for values in (0 * of, of)]
        expected = of[shape.relative(), head]
    without, added = (state.mask_values.get(name, tensors) for tensors in (inputs[0], inputs[-1]))
    if isinstance(without, Unknown) or isinstance(added, Unknown):
        return None
    seen = without > ENOUGH
    tokens = shape.pixels * (extent(windows.places) if windows else 1)
    sides = shape.seen(tokens)
    hides = not seen.all()
    try:
        if hides and (seen != sides[number[..., 0, 0] % len(sides)]).any():
            return None
        if without[seen].any() or (np.where(seen, added, 0) != np.where(seen, expected, 0)).any():
            return None
    except ValueError:  # sizes that do not fit one another
        return None
    if table is None:
        return AddedScores(shape, "", hides=True) if hides else None
    return AddedScores(shape, table.name, hides)


def _along(dims: Sequence[Dim], axis: str) -> Iterator[Array]:
    """Yield the part of an axis' index along each dimension, shaped to broadcast over scores."""
    for place, dim in enumerate(dims):
        index = np.zeros(1, int)
        for digit in dim:
            steps = np.arange(digit.size) * digit.stride * (digit.axis == axis)
            index = (index[:, None] + steps).ravel()
        if not index.any():
            index = index[:1]
        yield index.reshape(-1, *[1] * (len(dims) - place + 1))
