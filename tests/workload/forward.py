"""A plain forward pass in numpy: what each kind of layer computes, for one image or sequence.

An image is ``(channels, height, width)``, a vector ``(features,)``, tokens ``(tokens, features)``,
ids of tokens ``(tokens,)`` integers. Nothing here knows a formula for a size: an output is as
large as what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[Any]
Layer = dict[str, Any]


class UndefinedError(ValueError):
    """A layer has no result for such inputs."""


def forward(layer: Layer, *inputs: Array) -> tuple[Array, Array]:
    """Return a layer's output, and the same after its pool."""
    ids = layer["kind"] == "embedding"
    _need(all(read.dtype.kind == ("i" if ids else "f") for read in inputs))
    output = _KINDS[layer["kind"]](layer, *inputs)
    _need(output.size > 0)
    pooled = pool(layer["pool"], output) if layer["kind"] == "conv" and "pool" in layer else output
    return output, pooled


def _need(condition: bool) -> None:
    if not condition:
        raise UndefinedError


def _values(*shape: int) -> Array:
    return np.linspace(-1.0, 1.0, int(np.prod(shape)) + 1)[1:].reshape(shape)


def _pair(value: int | Sequence[int]) -> Sequence[int]:
    return (value, value) if isinstance(value, int) else value


def _borders(value: int | Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the borders before and after of rows, then of columns."""
    given = _pair(value)
    top, left, bottom, right = given if len(given) == 4 else (*given, *given)
    return (top, bottom), (left, right)


def conv(layer: Layer, image: Array) -> Array:
    _need(image.ndim == 3)
    groups, filters = layer.get("groups", 1), layer["filters"]
    _need(len(image) % groups == 0 and filters % groups == 0)
    if layer.get("transposed"):
        return transposed(layer, image)
    (rows, columns), (down, right) = _pair(layer["kernel"]), _pair(layer.get("dilation", 1))
    padded = np.pad(image, ((0, 0), *_borders(layer.get("padding", 0))))
    reach = ((rows - 1) * down + 1, (columns - 1) * right + 1)
    _need(reach[0] <= padded.shape[1] and reach[1] <= padded.shape[2])
    vertical, horizontal = _pair(layer.get("stride", 1))
    windows = sliding_window_view(padded, reach, (1, 2))
    windows = windows[:, ::vertical, ::horizontal, ::down, ::right]
    windows = windows.reshape(groups, -1, *windows.shape[1:])
    kernel = _values(groups, filters // groups, windows.shape[1], rows, columns)
    output: Array = np.einsum("gcpqkl,gfckl->gfpq", windows, kernel)
    return output.reshape(filters, *output.shape[2:])


def transposed(layer: Layer, image: Array) -> Array:
    """Add a window to the output for each pixel, and cut the borders off."""
    groups, filters = layer.get("groups", 1), layer["filters"]
    (rows, columns), (down, right) = _pair(layer["kernel"]), _pair(layer.get("dilation", 1))
    steps, (_, height, width) = _pair(layer.get("stride", 1)), image.shape
    kernel = _values(groups, filters // groups, len(image) // groups, rows, columns)
    shape = [(n - 1) * s for n, s in zip((height, width), steps, strict=True)]
    output = np.zeros(
        (filters, shape[0] + (rows - 1) * down + 1, shape[1] + (columns - 1) * right + 1)
    )
    for p in range(height):
        for q in range(width):
            pixel = image[:, p, q].reshape(groups, -1)
            windows = np.einsum("gc,gfckl->gfkl", pixel, kernel).reshape(filters, rows, columns)
            for k in range(rows):
                for m in range(columns):
                    place = p * steps[0] + k * down, q * steps[1] + m * right
                    output[:, place[0], place[1]] += windows[:, k, m]
    (top, bottom), (left, end) = _borders(layer.get("padding", 0))
    _need(output.shape[1] > top + bottom and output.shape[2] > left + end)
    return output[:, top : output.shape[1] - bottom, left : output.shape[2] - end]


def pool(table: Layer, image: Array) -> Array:
    """Slide a window over the map; ``up`` keeps a last one that is only partly on the map."""
    _need(image.ndim == 3)
    size, border = _pair(table["size"]), _borders(table.get("padding", 0))
    padded = np.pad(image, ((0, 0), *border), constant_values=np.nan)
    stride = _pair(table["stride"]) if "stride" in table else size
    reduce = _REDUCTIONS[table["kind"]]
    starts: list[list[int]] = []
    for axis in (0, 1):
        extent, (before, after) = padded.shape[1 + axis], border[axis]
        _need(max(before, after) < size[axis] <= extent)
        fit = [s for s in range(0, extent, stride[axis]) if s + size[axis] <= extent]
        following = fit[-1] + stride[axis]
        if table.get("rounding") == "up" and fit[-1] + size[axis] < extent:
            # It has to start before the border that follows the map, or would see nothing of it.
            fit += [following] if following < extent - after else []
        starts.append(fit)
    rows, columns = starts
    return np.stack(
        [
            [reduce(padded[:, r : r + size[0], c : c + size[1]], axis=(1, 2)) for c in columns]
            for r in rows
        ],
    ).transpose(2, 0, 1)


def fc(layer: Layer, read: Array) -> Array:
    flat = read if read.ndim == 2 else read.reshape(-1)
    output: Array = flat @ _values(flat.shape[-1], layer["units"])
    return output


def embedding(layer: Layer, *reads: Array) -> Array:
    scale: float = layer.get("scale", 1)
    if not reads:
        return scale * _values(layer["vocabulary"], layer["features"])
    (ids,) = reads
    return scale * _values(layer.get("vocabulary", int(ids.max()) + 1), layer["features"])[ids]


def attention(layer: Layer, *reads: Array) -> Array:
    _need(all(read.ndim == 2 for read in reads))
    heads = layer["heads"]
    sinks = np.full(heads, -np.inf)
    if layer.get("sinks"):
        _need(len(reads) == 4 and reads[3].shape == (1, heads))
        reads, sinks = reads[:3], reads[3][0]
    shared: int = layer.get("kv_heads") or heads
    _need(heads % shared == 0)
    rest_of_keys: list[Array] = []
    if len(reads) == 1:
        size, rest = divmod(reads[0].shape[1], heads + 2 * shared)
        _need(rest == 0)
        query, key, value = np.split(reads[0], [heads * size, (heads + shared) * size], axis=1)
    else:
        query, key, value, *rest_of_keys = reads

    def split(tokens: Array, count: int) -> Array:
        _need(tokens.shape[1] % count == 0)
        return tokens.reshape(len(tokens), count, -1).swapaxes(0, 1)

    q, k, v = split(query, heads), split(key, shared), split(value, shared)
    for one in rest_of_keys:
        _need(len(one) == len(key))
        k = np.concatenate([k, np.repeat(one[None], shared, axis=0)], axis=2)
    _need(q.shape[2] == k.shape[2] and k.shape[1] == v.shape[1])
    k, v = (np.repeat(one, heads // shared, axis=0) for one in (k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2])
    if cap := layer.get("softcap"):
        scores = cap * np.tanh(scores / cap)
    if layer.get("causal"):
        scores[:, np.tri(*scores.shape[1:]) == 0] = -np.inf
        count, seen = scores.shape[1:]
        scores[:, np.tri(count, seen, -(layer.get("window") or seen)) == 1] = -np.inf
    # A sink is the score of a further key, whose value is zero.
    beside = np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))
    scores = np.concatenate([scores, beside], axis=2)
    v = np.concatenate([v, np.zeros((len(v), 1, v.shape[2]))], axis=1)
    exponentials = np.exp(scores - scores.max(axis=2, keepdims=True))
    mixed: Array = exponentials / exponentials.sum(axis=2, keepdims=True) @ v
    return mixed.swapaxes(0, 1).reshape(len(query), -1)


def _channel_axis(read: Array) -> int:
    return 1 if read.ndim == 2 else 0


def norm(layer: Layer, read: Array) -> Array:
    if "groups" in layer:
        channels = read.shape[_channel_axis(read)]
        _need(layer["norm"] in ("layer", "rms") and layer.get("heads", 1) == 1)
        _need(channels % layer["groups"] == 0)
    if (heads := layer.get("heads") or 1) > 1:
        _need(read.ndim == 2 and read.shape[1] % heads == 0)
        _need(layer["norm"] in ("layer", "rms"))
        of_one = {**layer, "heads": 1}
        return norm(of_one, read.reshape(len(read) * heads, -1)).reshape(read.shape)
    axis = _channel_axis(read)
    others = tuple(a for a in range(read.ndim) if a != axis)
    over = others if layer["norm"] == "batch" else (axis,)
    shape = [size if a == axis else 1 for a, size in enumerate(read.shape)]
    scale, shift = _values(*shape), _values(*shape)
    if layer["norm"] == "affine":
        return read * scale + shift
    if groups := layer.get("groups"):
        normed = [_normed(layer, part, None) for part in np.split(read, groups, axis)]
        return np.asarray(np.concatenate(normed, axis) * scale + shift)
    return np.asarray(_normed(layer, read, over) * scale + shift)


def _normed(layer: Layer, read: Array, over: tuple[int, ...] | None) -> Array:
    mean = 0.0 if layer["norm"] == "rms" else read.mean(axis=over, keepdims=True)
    spread = np.sqrt(((read - mean) ** 2).mean(axis=over, keepdims=True) + 1e-5)
    return np.asarray((read - mean) / spread)


def _broadcast(operation: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def combine(_: Layer, *reads: Array) -> Array:
        largest = max(reads, key=lambda read: read.size)
        axis = _channel_axis(largest)
        point = tuple(size if a == axis else 1 for a, size in enumerate(largest.shape))
        result = np.ones_like(largest)
        for read in reads:
            # A vector, or a map of one position, goes to all positions.
            _need(read.shape in (largest.shape, point, (largest.shape[axis],)))
            result = operation(result, read if read.shape == largest.shape else read.reshape(point))
        return result

    return combine


def mul(layer: Layer, *reads: Array) -> Array:
    if not layer.get("gate"):
        return _broadcast(np.multiply)(layer, *reads)
    _need(len(reads) == 2)
    tokens, numbers = reads
    _need(tokens.ndim == 2 and numbers.shape == (len(tokens), 1))
    return np.stack([token * number for token, number in zip(tokens, numbers, strict=True)])


def concat(layer: Layer, *reads: Array) -> Array:
    _need(len({read.ndim for read in reads}) == 1)
    axis = _channel_axis(reads[0]) if layer.get("axis", "channels") == "channels" else 0
    _need(layer.get("axis") != "tokens" or reads[0].ndim == 2)
    try:
        return np.concatenate(reads, axis=axis)
    except ValueError:
        raise UndefinedError from None


def global_pool(layer: Layer, read: Array) -> Array:
    over = layer.get("over", "average")
    if over in ("first", "last"):
        _need(read.ndim == 2)
        return np.asarray(read[0 if over == "first" else -1])
    axes = tuple(a for a in range(read.ndim) if a != _channel_axis(read))
    return np.asarray(read.mean(axis=axes) if over == "average" else read.max(axis=axes))


def flatten(layer: Layer, read: Array) -> Array:
    if layer.get("to", "features") == "features":
        return read.reshape(-1)
    return read if read.ndim == 2 else read.reshape(len(read), -1).T


def unflatten(layer: Layer, read: Array) -> Array:
    extent = layer["height"], layer["width"]
    if read.ndim == 2:
        _need(len(read) == extent[0] * extent[1])
        return np.stack([channel.reshape(extent) for channel in read.T])
    _need(read.ndim == 1 and len(read) % (extent[0] * extent[1]) == 0)
    return read.reshape(-1, *extent)


def pixel_shuffle(layer: Layer, image: Array) -> Array:
    """Place each pixel by its indices."""
    _need(image.ndim == 3)
    rows, columns = _pair(layer.get("factor", 2))
    deepens = layer.get("to") == "depth"
    size = image.shape if deepens else (len(image), image.shape[1] * rows, image.shape[2] * columns)
    channels, rest = (len(image), 0) if deepens else divmod(len(image), rows * columns)
    _need(rest == size[1] % rows == size[2] % columns == 0)
    deep = np.zeros((channels * rows * columns, size[1] // rows, size[2] // columns))
    output = deep if deepens else np.zeros((channels, *size[1:]))
    sizes = {"c": channels, "h": rows, "w": columns}
    for c, y, x in np.ndindex(channels, *size[1:]):
        index = {"c": c, "h": y % rows, "w": x % columns}
        number = 0
        for axis in layer.get("order", "chw"):
            number = number * sizes[axis] + index[axis]
        place = number, y // rows, x // columns
        if deepens:
            output[place] = image[c, y, x]
        else:
            output[c, y, x] = image[place]
    return output


def sinusoid(layer: Layer, read: Array) -> Array:
    _need(read.shape == (1,))
    half = layer["features"] // 2
    base, scale = layer.get("base", 1e4), layer.get("scale", 1.0)
    angles = [scale * read.item() / base ** (j / half) for j in range(half)]
    halves = [np.cos(angles), np.sin(angles)]
    return np.concatenate(halves if layer.get("first", "cos") == "cos" else halves[::-1])


def slice_of(layer: Layer, read: Array) -> Array:
    axis = _channel_axis(read)
    end = layer.get("start", 0) + layer["size"]
    _need(end <= read.shape[axis])
    return np.moveaxis(np.moveaxis(read, axis, 0)[end - layer["size"] : end], 0, axis)


def shuffle(layer: Layer, read: Array) -> Array:
    channels_first = np.moveaxis(read, _channel_axis(read), 0)
    _need(len(channels_first) % layer["groups"] == 0)
    grouped = channels_first.reshape(layer["groups"], -1, *channels_first.shape[1:])
    shuffled = grouped.swapaxes(0, 1).reshape(channels_first.shape)
    return np.moveaxis(shuffled, 0, _channel_axis(read))


def output(layer: Layer, read: Array) -> Array:
    if cap := layer.get("softcap"):
        read = cap * np.tanh(read / cap)
    if layer.get("loss", "softmax") == "none":
        return read
    axis = _channel_axis(read)
    exponentials = np.exp(read - read.max(axis=axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=axis, keepdims=True))


_REDUCTIONS: dict[str, Callable[..., Any]] = {"max": np.nanmax, "average": np.nanmean}
_KINDS: dict[str, Callable[..., Array]] = {
    "conv": conv,
    "fc": fc,
    "linear": fc,
    "embedding": embedding,
    "attention": attention,
    "norm": norm,
    "add": _broadcast(np.add),
    "mul": mul,
    "concat": concat,
    "pool": lambda layer, read: pool(layer["pool"], read),
    "global_pool": global_pool,
    "flatten": flatten,
    "unflatten": unflatten,
    "pixel_shuffle": pixel_shuffle,
    "slice": slice_of,
    "sinusoid": sinusoid,
    "shuffle": shuffle,
    "output": output,
}
