"""A network's loss on one device, in plain jax: no shards, no plan, arrays as they come.

An image is ``[batch, height, width, channels]``, tokens ``[batch, tokens, features]``; a vector
``[batch, features]``. Weights are ``[inputs, outputs]``, of a convolution behind rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hypar_opt.workload.network import Network

Arrays = Mapping[str, Any]


def loss(
    network: Network, weights: Arrays, given: Any, targets: Arrays, shares: Mapping[str, int]
) -> jax.Array:
    """Return the loss: the cross-entropy of each softmax, half the squared distance of other ends.

    Parameters
    ----------
    shares
        The parts of the batch over which each batch norm has its own statistics, by its name.
    """
    values: dict[int, jax.Array] = {-1: given}
    read = {source for reads in network.sources for source in reads}
    total = jnp.zeros(())
    for position, (layer, sources) in enumerate(zip(network.layers, network.sources, strict=True)):
        inputs = [values[source] for source in sources]
        owner = getattr(layer, "tied", None)
        w = weights.get(owner or layer.name)
        if owner and next(one for one in network.layers if one.name == owner).kind == "embedding":
            assert w is not None
            w = w.T
        value = _KINDS[layer.kind](layer, w, *inputs, shares=shares.get(layer.name, 1))
        activation = getattr(layer, "activation", None)
        if activation:
            value = {"relu": jax.nn.relu, "gelu": jax.nn.gelu, "tanh": jnp.tanh}[activation](value)
        if getattr(layer, "pool", None) and layer.kind == "conv":
            value = _pool(layer.pool, value)  # type: ignore[attr-defined]
        values[position] = value
        if position not in read:
            target = targets[layer.name]
            if layer.kind == "output" and layer.loss == "softmax":  # type: ignore[attr-defined]
                logs = jax.nn.log_softmax(value)
                total -= jnp.sum(jnp.take_along_axis(logs, target[..., None], -1))
            else:
                total += jnp.sum((value - target) ** 2) / 2
    return total


def _fc(layer: Any, w: Any, x: Any, **_: Any) -> Any:
    if x.ndim == 4:
        x = jnp.moveaxis(x, -1, 1).reshape(len(x), -1)
    return x @ w


def _borders(padding: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(padding[:2], padding[-2:], strict=True))


def _conv(layer: Any, w: Any, x: Any, **_: Any) -> Any:
    return jax.lax.conv_general_dilated(
        x,
        w,
        layer.stride,
        _borders(layer.padding),
        rhs_dilation=layer.dilation or (1, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=layer.groups or 1,
    )


def _pool(pool: Any, x: Any) -> Any:
    """Take each window by itself, so that nothing is assumed of borders."""
    sides = []
    for axis in (0, 1):
        extent, (before, after) = x.shape[1 + axis], _borders(pool.padding)[axis]
        starts, start = [], -before
        while start + pool.size[axis] <= extent + after:
            starts.append(start)
            start += pool.stride[axis]
        if (
            pool.rounding == "up"
            and start < extent
            and starts[-1] + pool.size[axis] < extent + after
        ):
            starts.append(start)
        sides.append([(max(s, 0), min(s + pool.size[axis], extent)) for s in starts])
    reduce = jnp.max if pool.kind == "max" else jnp.mean
    rows = [
        jnp.stack([reduce(x[:, a:b, c:d], axis=(1, 2)) for c, d in sides[1]], axis=1)
        for a, b in sides[0]
    ]
    return jnp.stack(rows, axis=1)


def _embedding(layer: Any, w: Any, *ids: Any, **_: Any) -> Any:
    return w[ids[0]] if ids else w[None]


def _attention(layer: Any, w: Any, *reads: Any, **_: Any) -> Any:
    heads, shared = layer.heads, layer.kv_heads or layer.heads
    if len(reads) == 1:
        size = reads[0].shape[-1] // (heads + 2 * shared)
        reads = tuple(jnp.split(reads[0], [heads * size, (heads + shared) * size], axis=-1))
    query, key, value = (
        x.reshape(*x.shape[:2], n, -1) for x, n in zip(reads, (heads, shared, shared), strict=True)
    )
    key, value = (jnp.repeat(x, heads // shared, axis=2) for x in (key, value))
    scores = jnp.einsum("bthe,bshe->bhts", query, key) / math.sqrt(query.shape[-1])
    if layer.causal:
        scores = jnp.where(jnp.tril(jnp.ones_like(scores)) == 0, -jnp.inf, scores)
    mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), value)
    return mixed.reshape(*mixed.shape[:2], -1)


def _norm(layer: Any, w: Any, x: Any, shares: int = 1, **_: Any) -> Any:
    scale, shift = w[0], w[1] if len(w) > 1 else 0
    if layer.norm == "affine":
        return x * scale + shift
    parts = x.reshape(shares, -1, *x.shape[1:])
    over = tuple(range(1, parts.ndim - 1)) if layer.norm == "batch" else (-1,)
    mean = 0.0 if layer.norm == "rms" else parts.mean(axis=over, keepdims=True)
    square = ((parts - mean) ** 2).mean(axis=over, keepdims=True)
    return ((parts - mean) / jnp.sqrt(square + 1e-5)).reshape(x.shape) * scale + shift


def _joined(layer: Any, w: Any, *reads: Any, **_: Any) -> Any:
    most = max(x.ndim for x in reads)
    result: Any = 0 if layer.kind == "add" else 1
    for x in reads:
        wide = x.reshape(len(x), *(1,) * (most - x.ndim), *x.shape[1:])
        result = result + wide if layer.kind == "add" else result * wide
    return result


def _concat(layer: Any, w: Any, *reads: Any, **_: Any) -> Any:
    batch = max(len(x) for x in reads)
    wide = [jnp.broadcast_to(x, (batch, *x.shape[1:])) for x in reads]
    return jnp.concatenate(wide, axis=1 if layer.axis == "tokens" else -1)


def _global_pool(layer: Any, w: Any, x: Any, **_: Any) -> Any:
    if layer.over in ("first", "last"):
        return x[:, 0 if layer.over == "first" else -1]
    axes = tuple(range(1, x.ndim - 1))
    return x.mean(axis=axes) if layer.over == "average" else x.max(axis=axes)


def _flatten(layer: Any, w: Any, x: Any, **_: Any) -> Any:
    if layer.to == "tokens":
        return x.reshape(len(x), -1, x.shape[-1])
    return (jnp.moveaxis(x, -1, 1) if x.ndim == 4 else x).reshape(len(x), -1)


def _shuffle(layer: Any, w: Any, x: Any, **_: Any) -> Any:
    dealt = x.reshape(*x.shape[:-1], layer.groups, -1)
    return jnp.swapaxes(dealt, -1, -2).reshape(x.shape)


_KINDS: dict[str, Any] = {
    "conv": _conv,
    "fc": _fc,
    "embedding": _embedding,
    "attention": _attention,
    "norm": _norm,
    "add": _joined,
    "mul": _joined,
    "concat": _concat,
    "pool": lambda layer, w, x, **_: _pool(layer.pool, x),
    "global_pool": _global_pool,
    "flatten": _flatten,
    "shuffle": _shuffle,
    "output": lambda layer, w, x, **_: x,
}
