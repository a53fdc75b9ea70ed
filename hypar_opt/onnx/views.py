"""Operators that reshape, slice, permute or concatenate feature maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hypar_opt.onnx.axes import (
    POSITIONS,
    Digit,
    DigitRange,
    Dim,
    UnalignedError,
    axes_of,
    extent,
    joined,
    merged,
    reshaped,
    rolled,
    sliced,
    tiles,
    unrolled,
    whole_dim,
    without,
)
from hypar_opt.onnx.computing import reshape_target, slice_bounds, squeezed_shape
from hypar_opt.onnx.constant import Array, Constant
from hypar_opt.onnx.exact import REJOINED, REORDERED
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.joins import fit, widest
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import LayerWeights
from hypar_opt.onnx.samples import Function
from hypar_opt.onnx.windows import numbers


def integers(state: ImportState, node: OnnxNode, index: int, name: str) -> list[int] | None:
    """Return integers that are an input in newer opsets and an attribute in older ones.

    Raises
    ------
    InputError
        Where the input depends on the network's input, or its values are not in the file.
    """
    if index >= len(node.inputs) or not node.inputs[index]:
        value = node.attributes().get(name)
        return [value] if isinstance(value, int) else value
    tensor = node.inputs[index]
    if not state.is_constant(tensor):
        raise node.refuse(f"its {name} {tensor!r} depends on the network's input")
    values = state.constants.integers(tensor)
    if values is None:
        problem = "is too long" if state.constant(tensor).has_values else "is not in the file"
        raise node.refuse(f"its {name} {tensor!r} {problem}")
    return values


def reshape(state: ImportState, node: OnnxNode) -> Features:
    """Reshape, Flatten, Squeeze and Unsqueeze: digits stay in order."""
    if state.is_constant(node.inputs[0]):
        raise node.refuse("its shape depends on the network's input")
    features = state.features(node.inputs[0])
    shape = _new_shape(state, node, features.shape)
    return features._replace(dims=reshaped(features.dims, shape))


def _new_shape(state: ImportState, node: OnnxNode, shape: tuple[int, ...]) -> Sequence[int]:
    if node.op == "Flatten":
        axis = node.attributes().get("axis", 1)
        axis = axis + len(shape) if axis < 0 else axis
        return [math.prod(shape[:axis]), math.prod(shape[axis:])]
    if node.op == "Reshape":
        target = integers(state, node, 1, "shape") or []
        allow_zero = bool(node.attributes().get("allowzero"))
        return reshape_target(shape, target, allow_zero=allow_zero)
    return squeezed_shape(node.op, shape, integers(state, node, 1, "axes"))


def transpose(state: ImportState, node: OnnxNode) -> Features:
    """Dimensions in another order."""
    features = state.features(node.inputs[0])
    order = node.attributes().get("perm", list(reversed(range(len(features.dims)))))
    if sorted(order) != list(range(len(features.dims))):
        raise node.refuse(f"perm should permute {len(features.dims)} dimensions, got {order}")
    return features._replace(dims=tuple(features.dims[axis] for axis in order))


def pixel_shuffle(state: ImportState, node: OnnxNode) -> Features:
    """DepthToSpace and SpaceToDepth: digits of channels and of pixels in a block change places."""
    features, attributes = state.features(node.inputs[0]), node.attributes()
    state.name_image(features)
    features = state.features(node.inputs[0])
    batch, channels, height, width = features.shape
    block = attributes["blocksize"]
    if node.op == "SpaceToDepth":
        divided = (batch, channels, height // block, block, width // block, block)
        order, whole = (0, 3, 5, 1, 2, 4), (height // block, width // block)
        channels *= block * block
    else:
        whole, channels = (height * block, width * block), channels // (block * block)
        divided = (batch, block, block, channels, height, width)
        order = (0, 3, 4, 1, 5, 2)
        if attributes.get("mode", "DCR") == "CRD":
            divided, order = (batch, channels, block, block, height, width), (0, 1, 4, 2, 5, 3)
    dims = reshaped(features.dims, divided)
    moved = tuple(dims[axis] for axis in order)
    return features._replace(dims=reshaped(moved, (batch, channels, *whole)))


def shape(state: ImportState, node: OnnxNode) -> None:
    """The sizes of a tensor, which are constants, since dynamic ones have been set."""
    features = state.features(node.inputs[0])
    value = _sizes(node, features.shape)
    one = None
    if state.graph.open_batch:
        one = _sizes(node, [extent(without(dim, "b")) for dim in features.dims])
    state.constants.add(node.outputs[0], Constant(value.shape, lambda: value, one_image=one))


def _sizes(node: OnnxNode, shape: Sequence[int]) -> Array:
    sizes = np.asarray(shape, np.int64)
    if node.op == "Size":
        return np.asarray(np.prod(sizes))
    attributes = node.attributes()
    return sizes[attributes.get("start", 0) : attributes.get("end")]


def split(state: ImportState, node: OnnxNode) -> None:
    """Ranges of one dimension, one per output."""
    features = _whole(state, node)
    axis = _axis(node, node.attributes().get("axis", 0), features)
    size = features.shape[axis]
    sizes = integers(state, node, 1, "split")
    if sizes is None:
        parts = node.attributes().get("num_outputs", len(node.outputs))
        sizes = [-(-size // parts)]
    if len(sizes) == 1 and not (node.input(1) and state.constant(node.inputs[1]).shape):
        # One number is the size of all parts but the last.
        sizes = [min(sizes[0], size - first) for first in range(0, size, max(sizes[0], 1))]
    if len(sizes) != len(node.outputs) or sum(sizes) != size:
        raise node.refuse(f"should divide {size} among {len(node.outputs)} outputs, got {sizes}")
    start = 0
    for index, part in enumerate(sizes):
        state.put(node, _take(state, node, features, axis, start, part, 1), index)
        start += part


def slice_(state: ImportState, node: OnnxNode) -> Features:
    """A range of some dimensions."""
    features = _whole(state, node)
    starts = integers(state, node, 1, "starts") or []
    ends = integers(state, node, 2, "ends") or []
    axes = integers(state, node, 3, "axes") or list(range(len(starts)))
    steps = integers(state, node, 4, "steps") or [1] * len(starts)
    if features.source < 0 and any(step > 1 for step in steps):
        # Every n-th row or column: those of an image.
        state.name_image(features)
        features = state.features(node.inputs[0])
    elif any(step > 1 for step in steps) and len(features.dims) == 4:
        features = _as_image_of_last(state, node, features)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index = _axis(node, axis, features)
        if step < 1:
            raise node.refuse("reads a dimension backwards, which is not supported")
        first, count = slice_bounds(features.shape[index], start, end, step)
        fewer = _fewer_windows(state, features, index, first, count) if step == 1 else None
        if fewer is not None:
            features = fewer
            continue
        features = _take(state, node, features, index, first, count, step)
    return features


def _as_image_of_last(state: ImportState, node: OnnxNode, features: Features) -> Features:
    """Return what is seen as rows, columns and channels as an image, as patches are merged."""
    batch, rows, columns, channels = features.dims
    first = features._replace(dims=(batch, channels, rows, columns))
    image = state.as_image(first, node)
    if image is first:
        return features
    batch, channels, rows, columns = image.dims
    return image._replace(dims=(batch, rows, columns, channels))


def _fewer_windows(
    state: ImportState, features: Features, axis: int, start: int, size: int
) -> Features | None:
    """Return a convolution without its first and last windows, its padding reduced.

    As causal convolutions are written, and an even kernel whose output is as long as its input.
    None where it is not that, or other layers read all windows.
    """
    layer, dim = state.layer(features.source), features.dims[axis]
    pending = features.taken or features.pooled or features.norm or features.border
    if layer.kind != "conv" or pending or not features.only or not size:
        return None
    if layer.keys.get("transposed") or "pool" in layer.keys or len(dim) != 1:
        return None
    name, extent_, _ = dim[0]
    if name not in ("h", "w") or extent_ != layer.sizes[name] or size == extent_:
        return None
    place = "hw".index(name)
    top, left, bottom, right = _four(layer.keys.get("padding", 0))
    padding, stride = [top, left, bottom, right], _four(layer.keys.get("stride", 1))[place]
    padding[place] -= start * stride
    padding[place + 2] -= (extent_ - start - size) * stride
    if min(padding) < 0:
        return None
    layer.keys["padding"] = numbers(padding)
    layer.sizes = {**layer.sizes, name: size}
    new = whole_dim(name, size)
    layer.dims = tuple(new if current == dim else current for current in layer.dims)
    return features._replace(dims=(*features.dims[:axis], new, *features.dims[axis + 1 :]))


def _four(values: int | list[int]) -> tuple[int, ...]:
    """Return sizes of both sides of rows and columns that a key may state as one or two."""
    if isinstance(values, int):
        return (values,) * 4
    return (*values, *values)[:4]


def _whole(state: ImportState, node: OnnxNode) -> Features:
    """Return the map that a node slices; a norm applies to the whole map, and so precedes."""
    features = state.features(node.inputs[0])
    if features.norm and not features.pooled:
        features = state.settled(node.inputs[0], node)
    return features


def _axis(node: OnnxNode, axis: int, features: Features) -> int:
    if not -len(features.dims) <= axis < len(features.dims):
        raise node.refuse(f"has no dimension {axis} of {len(features.dims)}")
    return axis % len(features.dims)


def _take(
    state: ImportState,
    node: OnnxNode,
    features: Features,
    axis: int,
    start: int,
    size: int,
    step: int,
) -> Features:
    """Return features with ``size`` indices of a dimension, from ``start``."""
    dim = features.dims[axis]
    if size == extent(dim) and step == 1:
        return features
    if size < 1 or start < 0 or start + (size - 1) * step >= extent(dim):
        raise node.refuse(f"takes {size} of {extent(dim)} from {start}")
    if "b" in axes_of([dim]):
        raise node.refuse("takes some images of a batch, which a network has no layer for")
    if len(dim) > 1 and axes_of([dim]) == {"c"}:
        # Channels that a view has shuffled.
        features = state.ordered(state.settle(features, node), node)
        dim = features.dims[axis]
    remaining, part = sliced(dim, start, size, step)
    dims = (*features.dims[:axis], remaining, *features.dims[axis + 1 :])
    if part.of.axis == "r":
        return features._replace(dims=dims, only=False)
    return features._replace(dims=dims, taken=features.taken | {part}, only=False)


def expand(state: ImportState, node: OnnxNode) -> Features:
    """Copies along dimensions of size 1, such as the key heads of a group of query heads."""
    features = state.features(node.inputs[0])
    sizes = integers(state, node, 1, "shape") or []
    if node.op == "Tile":
        dims = tuple(
            merged((*whole_dim("r", times), *dim))
            for dim, times in zip(features.dims, sizes, strict=True)
        )
        return features._replace(dims=dims)
    return features._replace(dims=broadcast(features, sizes, state.batch))


def broadcast(features: Features, shape: Sequence[int], batch: int) -> tuple[Dim, ...]:
    """Return dimensions broadcast to a shape: new ones hold copies, or the batch."""
    rank = max(len(shape), len(features.dims))
    dims = [()] * (rank - len(features.dims)) + list(features.dims)
    wanted = [1] * (rank - len(shape)) + list(shape)
    has_batch = "b" in axes_of(dims)
    out: list[Dim] = []
    for place, (dim, size) in enumerate(zip(dims, wanted, strict=True)):
        if extent(dim) not in (1, size) and size != 1:
            raise ValueError(f"{extent(dim)} and {size} do not fit one another")
        if size > 1 and extent(dim) == 1:
            is_batch = place == 0 and not has_batch and size == batch
            out.append((Digit("b" if is_batch else "r", size),))
        else:
            out.append(dim)
    return tuple(out)


def gather(state: ImportState, node: OnnxNode) -> Features:
    """Rows of a table by token ids, an embedding, or constant indices of a dimension.

    GatherND reads those of its first dimension, each alone in the last one of the indices.
    """
    data, indices = node.inputs[:2]
    axis = node.attributes().get("axis", 0)
    if state.is_constant(data):
        return _embedding(state, node, axis)
    if not state.is_constant(indices):
        raise node.refuse("reads indices that depend on the network's input")
    features = _whole(state, node)
    axis = _axis(node, axis, features)
    shape, values = state.constant(indices).shape, state.constants.integers(indices)
    if node.op == "GatherND":
        if node.attributes().get("batch_dims", 0) or shape[-1] != 1:
            raise node.refuse("reads indices of several dimensions at once")
        shape = shape[:-1]
    dim = features.dims[axis]
    if values == [*range(extent(dim))]:  # all in order, as strides of a whole tensor are
        dims = (*features.dims[:axis], *reshaped([dim], shape), *features.dims[axis + 1 :])
        return features._replace(dims=dims)
    if values is None or len(shape) > 1:
        raise node.refuse(
            f"its indices {indices!r} are not in the file, or have several dimensions"
        )
    values = [value % features.shape[axis] for value in values]
    features = _chosen(state, node, features, axis, values)
    if not shape:
        features = features._replace(dims=(*features.dims[:axis], *features.dims[axis + 1 :]))
    return features


def _chosen(
    state: ImportState, node: OnnxNode, features: Features, axis: int, values: list[int]
) -> Features:
    """Return features with some indices of a dimension."""
    size = features.shape[axis]
    if values == list(range(values[0], values[0] + len(values))):
        return _take(state, node, features, axis, values[0], len(values), 1)
    times, rest = divmod(len(values), size)
    dim = features.dims[axis]
    # Every index repeated, in place or as a whole: key heads for groups of query heads.
    if not rest and values == [index for index in range(size) for _ in range(times)]:
        new: Dim = (*dim, *whole_dim("r", times))
    elif not rest and values == list(range(size)) * times:
        new = (*whole_dim("r", times), *dim)
    else:
        raise node.refuse("reads a dimension in another order, which a network has no layer for")
    return features._replace(dims=(*features.dims[:axis], new, *features.dims[axis + 1 :]))


def _embedding(state: ImportState, node: OnnxNode, axis: int) -> Features:
    table = state.constant(node.inputs[0])
    ids = state.features(node.inputs[1])
    if len(table.shape) < 2:
        return ids.after("Gather")
    if axis != 0 or len(table.shape) > 2:
        raise node.refuse(f"reads a table of {len(table.shape)} dimensions along dimension {axis}")
    if not state.is_ids(ids):
        raise node.refuse("is an embedding, but its indices are not the network's token ids")
    if ids.operators - {"Cast", "CastLike", "Identity"}:
        state.note(node, "what is computed of token ids: a table is read by the ids themselves")
    vocabulary, features = table.shape
    keys = {"features": features, "vocabulary": vocabulary}
    sizes = {"t": state.layer(ids.source).sizes.get("t", 1), "c": features}
    weights = table.matrix(node.inputs[0], (0,), (1,))
    dims = (*ids.dims, (Digit("c", features),))
    layer = Layer("embedding", keys, [ids.source], sizes, node, weights, dims=dims)
    # Two lookups of the same ids are one layer.
    output = state.emit_unique(layer, of=node.inputs[1])
    if len(ids.dims) > 1:
        return output
    # One id an image, such as its class: a vector.
    vector = Layer("global_pool", {"over": "first"}, [output.source], {"c": features}, node)
    return Features(state.emit_unique(vector).source, dims, only=True)


def concat(state: ImportState, node: OnnxNode) -> Features:
    """Feature maps side by side, or the parts of one map rejoined."""
    maps = [state.features(n) for n in node.inputs if not state.is_constant(n)]
    if len(node.inputs) == 1:
        return maps[0]
    axis = _axis(node, node.attributes()["axis"], maps[0])
    if len(maps) == len(node.inputs):
        rejoined = _rejoined(maps, axis)
        if rejoined is not None:
            return rejoined
        blocks = _blocks_rejoined(maps, axis)
        if blocks is not None and axis == len(blocks.dims) - 1 == 3:
            return _as_image_of_last(state, node, blocks)
        if blocks is not None:
            return blocks
    return _concat_maps(state, node, axis)


def _rejoined(parts: list[Features], axis: int) -> Features | None:
    """Return a map whose parts are all joined, in any order, as rotary embeddings do."""
    first = parts[0]
    common = frozenset.intersection(*(part.taken for part in parts))
    taken = [part.taken - common for part in parts]
    if any(part.source != first.source or part.norm or part.pooled for part in parts):
        return None
    if any(len(some) != 1 for some in taken):
        return None
    ranges: list[DigitRange] = [next(iter(some)) for some in taken]
    remaining = {(*part.dims[:axis], *part.dims[axis + 1 :]) for part in parts}
    if not tiles(ranges) or len(remaining) > 1:
        return None
    like = all(part.function.is_like(first.function) for part in parts)
    roll = rolled(ranges) if like and axes_of([(ranges[0].of,)]) & POSITIONS else None
    if roll is not None:
        dims = (*first.dims[:axis], (roll,), *first.dims[axis + 1 :])
        return first._replace(dims=dims, taken=common, only=False)
    try:
        dim = joined(ranges, first.dims[axis])
    except UnalignedError:
        return None
    dims = (*first.dims[:axis], dim, *first.dims[axis + 1 :])
    operators = frozenset().union(*(part.operators for part in parts))
    function = first.function
    if any(a.start > b.start for a, b in pairwise(ranges)):
        operators |= {REORDERED}
        function = function.unknown(REORDERED)
    if any(not part.function.is_like(first.function) for part in parts):
        function = Function(rest=operators | {REJOINED})
    return first._replace(
        dims=dims, taken=common, operators=operators, function=function, only=False
    )


def _blocks_rejoined(parts: list[Features], axis: int) -> Features | None:
    """Return a map whose every n-th rows and columns are joined as channels, as Focus does."""
    first, blocks = parts[0], []
    common = frozenset.intersection(*(part.taken for part in parts))
    for part in parts:
        by_axis = {one.of.axis: one for one in part.taken - common}
        same = part.source == first.source and part.dims == first.dims
        if {*by_axis} != {"h", "w"} or len(part.taken - common) != 2 or not same:
            return None
        if part.norm or part.pooled or not part.function.is_like(first.function):
            return None
        blocks.append((by_axis["w"], by_axis["h"]))
    for pairs in (blocks, [block[::-1] for block in blocks]):
        steps = [one.step for one in pairs[0]]
        starts = [tuple(one.start for one in block) for block in pairs]
        whole = all(
            one.step * one.size == one.of.size and (one.of, one.step) == (head.of, head.step)
            for block in pairs
            for one, head in zip(block, pairs[0], strict=True)
        )
        if whole and starts == [*np.ndindex(*steps)]:
            inner = (Digit(one.of.axis, one.step, one.of.stride) for one in pairs[0])
            dims = (*first.dims[:axis], (*inner, *first.dims[axis]), *first.dims[axis + 1 :])
            return first._replace(dims=dims, taken=common, only=False)
    return None


def _concat_maps(state: ImportState, node: OnnxNode, axis: int) -> Features:
    settled = {
        name: state.as_tokens(state.settled(name, node), node)
        for name in node.inputs
        if not state.is_constant(name)
    }
    if "t" in axes_of(features.dims[axis] for features in settled.values()):
        settled = {
            name: state.vector_as_token(features, node) for name, features in settled.items()
        }
    settled = {
        name: state.as_image(state.sliced(features, node), node)
        for name, features in settled.items()
    }
    if any(unrolled(features.dims) != features.dims for features in settled.values()):
        raise node.refuse("joins a rolled feature map to another, which a network has no layer for")
    # The axis is that of any part, since a dimension of size 1 has none.
    axes = frozenset().union(*(axes_of([x.dims[axis]]) for x in settled.values()))
    over = "tokens" if axes == {"t"} else "channels" if axes == {"c"} else None
    if over is None:
        shown = ", ".join(sorted(axes)) or "no axis"
        raise node.refuse(f"should join channels or tokens, got dimension {axis} ({shown})")
    example = next(iter(settled.values()))
    parts = []
    for name in node.inputs:
        part = settled.get(name)
        if part is None:
            part = _learned_tokens(state, node, name, example, over)
        parts.append(state.ordered(part, node))
    remaining = [[*part.dims[:axis], *part.dims[axis + 1 :]] for part in parts]
    letter = over[0]
    rest = fit(remaining)
    whole = all(extent(p.dims[axis]) == state.layer(p.source).sizes.get(letter, 1) for p in parts)
    if rest is None or not whole:
        raise node.refuse("joins feature maps of different sizes")
    sizes = dict(widest(state, parts))
    sizes[letter] = sum(extent(part.dims[axis]) for part in parts)
    keys = {} if over == "channels" else {"axis": over}
    inputs = [state.read(part, node) for part in parts]
    if len(set(inputs)) < len(inputs):
        raise node.refuse("joins a map with itself, which a network has no layer for")
    dims = (*rest[:axis], (Digit(letter, sizes[letter]),), *rest[axis:])
    return state.emit(Layer("concat", keys, inputs, sizes, node, dims=dims))


def learned_tokens(state: ImportState, node: OnnxNode, name: str) -> Features:
    """Return the rows of a learned table as tokens of each image.

    Raises
    ------
    InputError
        Where it is no table of one sequence.
    """
    constant = state.constant(name)
    *places, channels = constant.shape or (1,)
    if sum(size > 1 for size in places) > 1:
        raise node.refuse(f"reads the constant {name!r}, which is no sequence of learned tokens")
    tokens = math.prod(places)
    keys, sizes = {"features": channels, "vocabulary": tokens}, {"t": tokens, "c": channels}
    dims = (*(whole_dim("t", size) for size in places), whole_dim("c", channels))
    weights = LayerWeights(constant.named(name), constant.stored)
    return state.emit_unique(Layer("embedding", keys, [], sizes, node, weights, dims=dims))


def _learned_tokens(
    state: ImportState, node: OnnxNode, name: str, neighbour: Features, over: str
) -> Features:
    """Return learned tokens that join a sequence, such as a class token's embedding."""
    constant = state.constant(name)
    channels = state.layer(neighbour.source).channels
    if constant.is_input:
        raise node.refuse(f"joins a further input of the model, through {name!r}")
    if over != "tokens" or not constant.shape or constant.shape[-1] != channels:
        raise node.refuse(f"joins the constant {name!r} to a feature map")
    tokens = constant.shape[-2] if len(constant.shape) > 1 else 1
    keys = {"features": channels, "vocabulary": tokens}
    # Exporters that fold constants repeat it for each image of the batch.
    regions = constant.first() if len(constant.shape) > 2 else constant.stored
    weights = LayerWeights(constant.named(name), regions)
    sizes = {"t": tokens, "c": channels}
    dims: list[Dim] = [() for _ in neighbour.dims]
    for axis, dim in enumerate(neighbour.dims):
        if "c" in axes_of([dim]):
            dims[axis] = dim
        elif axes_of([dim]) & POSITIONS:
            dims[axis] = whole_dim("t", tokens)
    layer = Layer("embedding", keys, [], sizes, node, weights, dims=tuple(dims))
    return state.emit_unique(layer)
