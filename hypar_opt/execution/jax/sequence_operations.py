"""What layers of sequences compute in exported modules, as `operations` has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hypar_opt.execution.jax.operations import (
    LEVELS,
    Levels,
    batch_dims,
    channel_dims,
    held,
    in_a_row,
    positions,
)


def token(x: jax.Array, index: int) -> jax.Array:
    """Return one token of each sequence."""
    return lax.index_in_dim(in_a_row(x), index, axis=len(LEVELS) + 1, keepdims=False)


def tokens_at(places: jax.Array, tokens: int, each: int) -> jax.Array:
    """Return the tokens at places of a mirrored sequence, of which a part has ``each``.

    The first half of a part is a chunk from the front, the other one as far from the end.
    """
    part, within = places // each, places % each
    half = each // 2
    return jnp.where(within < half, part * half, tokens - each - part * half) + within


def embedding(ids: jax.Array, w: jax.Array, rows: Sequence[int], split: Levels) -> jax.Array:
    """Look up tokens in a table, of which ``split`` levels split the rows.

    A token whose row another device has is zero: a partial sum.
    """
    own = held(rows, split).reshape(-1)
    at = jnp.full(math.prod(rows), -1).at[own].set(jnp.arange(own.size))[ids]
    features = w.shape[len(LEVELS) + 1 :]
    found = w.reshape(own.size, -1)[at]
    return jnp.where(at[..., None] < 0, 0, found).reshape(*ids.shape, *features)


def each_image(w: jax.Array, images: tuple[int, ...]) -> jax.Array:
    """Return a table's rows, one for each token, of all images."""
    return jnp.broadcast_to(w, (*images, *w.shape))


def head_norm(x: jax.Array, size: int, *, centred: bool, epsilon: float = 1e-5) -> jax.Array:
    """Normalise each head of ``size`` features by itself, and return ``[.., heads, features]``.

    Without ``centred`` by the root of the mean square alone.
    """
    x = x.reshape(*x.shape[:-1], -1, size)
    x = x - jnp.mean(x, -1, keepdims=True) if centred else x
    normed: jax.Array = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + epsilon)
    return normed


def heads_joined(x: jax.Array) -> jax.Array:
    """Return the features of all heads in one dimension: the inverse of `head_norm`'s view."""
    return x.reshape(*x.shape[:-2], -1)


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    groups: int,
    queries: int,
    *,
    causal: bool,
    window: int | None = None,
    softcap: float | None = None,
    mirrored: bool = False,
    split: Levels = (),
    rotary: tuple[float, int, bool] | None = None,
    scale: float | None = None,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """Mix values by softmax of queries and keys, in each head that this device holds.

    ``groups`` and ``queries`` are the key-value heads in the last dimension, and the heads of each;
    ``split`` levels split the queries' tokens, and each part reads all keys and values; tokens may
    be ``mirrored``. In a ``window`` a token sees itself and those before it, so many in all; a
    ``softcap`` bounds scores. ``rotary`` positions have a base, the number of a head's features,
    and whether pairs are neighbours. ``sinks`` are a score of each head beside those of keys.
    """
    batch, dims = batch_dims(query), channel_dims(query)[:-1]
    images, many = math.prod(batch), math.prod(dims) * groups
    q = query.reshape(images, math.prod(positions(query)), many, queries, -1)
    k = key.reshape(images, math.prod(positions(key)), many, -1)
    v = value.reshape(images, math.prod(positions(value)), many, -1)
    own, every = held(positions(query), split).reshape(-1), jnp.arange(k.shape[1])
    if mirrored:
        own = tokens_at(
            own, q.shape[1] * math.prod(map(lax.axis_size, split)), positions(query)[-1]
        )
        every = tokens_at(every, k.shape[1], positions(key)[-1])
    if rotary:
        q, k = turned(q, own, *rotary), turned(k, every, *rotary)
    scores = jnp.einsum("btgre,bsge->bgrts", q, k) * (scale or 1 / math.sqrt(q.shape[-1]))
    scores = softcap * jnp.tanh(scores / softcap) if softcap else scores
    if causal:
        seen = every <= own[:, None]
        seen = seen & (every > own[:, None] - window) if window else seen
        scores = jnp.where(seen, scores, -jnp.inf)
    if sinks is None:
        shares = jax.nn.softmax(scores)
    else:
        beside = sinks.reshape(images, many, queries, 1, 1)
        beside = jnp.broadcast_to(beside, (*scores.shape[:-1], 1))
        shares = jax.nn.softmax(jnp.concatenate([scores, beside], -1))[..., :-1]
    y = jnp.einsum("bgrts,bsgd->btgrd", shares, v)
    return y.reshape(*batch, *positions(query), *dims, -1)


def attention_below_heads(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    groups: int,
    queries: int,
    **options: Any,
) -> jax.Array:
    """Mix values as `attention` does, by some of the queries of each key-value head.

    ``groups`` and ``queries`` are the key-value heads that this device holds, and of each the heads
    of queries; queries, keys and values are split by levels of their own.
    """
    ones = (1,) * len(channel_dims(query)[:-1])
    q, k, v = (x.reshape(*batch_dims(x), *positions(x), *ones, -1) for x in (query, key, value))
    y = attention(q, k, v, groups, queries, **options)
    return y.reshape(*batch_dims(query), *positions(query), *channel_dims(query)[:-1], -1)


def attention_in_windows(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *biases: jax.Array,
    queries: int,
    features: int,
    size: tuple[int, int],
    columns: int,
    shift: tuple[int, int] = (0, 0),
    softcap: float | None = None,
    scale: float | None = None,
) -> jax.Array:
    """Mix values as `attention` does, within each window of an image whose pixels are tokens.

    Of each key-value head this device holds so many ``queries``, of so many ``features``. The image
    has so many ``columns``, and is rolled up and to the left by a ``shift`` before it is cut
    into windows of a ``size``; they hide what only that has joined. A score may have a bias, by
    the key's position relative to the query.
    """
    images, pixels, tokens = (math.prod(own) for own in (batch_dims(query), size, positions(query)))
    image = jnp.arange(tokens).reshape(-1, columns)
    rows, shape = len(image), (-1, size[0], columns // size[1], size[1])
    moved = 2 * (jnp.arange(rows) >= rows - shift[0])[:, None]
    moved = moved + (jnp.arange(columns) >= columns - shift[1])
    rolled = jnp.roll(image, (-shift[0], -shift[1]), (0, 1))
    order, sides = (
        own.reshape(shape).swapaxes(1, 2).reshape(-1, pixels) for own in (rolled, moved)
    )
    q = query.reshape(images, tokens, -1, queries, features)[:, order]
    k, v = (x.reshape(images, tokens, q.shape[3], -1)[:, order] for x in (key, value))
    scores = jnp.einsum("bntgre,bnsge->bngrts", q, k) * (scale or 1 / math.sqrt(features))
    scores = softcap * jnp.tanh(scores / softcap) if softcap else scores
    for bias in biases:
        places = jnp.divmod(jnp.arange(pixels), size[1])
        down, right = (own[:, None] - own + n - 1 for own, n in zip(places, size, strict=True))
        own = bias.reshape(images, -1, *q.shape[3:5])[:, down * (2 * size[1] - 1) + right]
        scores = scores + jnp.einsum("btsgr->bgrts", own)[:, None]
    seen = sides[:, :, None] == sides[:, None]
    shares = jax.nn.softmax(jnp.where(seen[:, None, None], scores, -jnp.inf))
    y = jnp.einsum("bngrts,bnsgd->bntgrd", shares, v)
    y = y.reshape(images, tokens, -1)[:, jnp.argsort(order.reshape(-1))]
    return y.reshape(*batch_dims(query), *positions(query), *channel_dims(query)[:-1], -1)


def attention_with_shared_features(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    shared: jax.Array,
    groups: int,
    queries: int,
    **options: Any,
) -> jax.Array:
    """Mix values as `attention` does, by keys whose last features are the same in all heads.

    It is these that rotary positions turn: scores are the same where they come first.
    """
    dims, count = channel_dims(query)[:-1], math.prod(channel_dims(shared))
    q = query.reshape(*batch_dims(query), *positions(query), *dims, groups, queries, -1)
    q = jnp.roll(q, count, -1).reshape(query.shape)
    places = (*batch_dims(key), *positions(key))
    k = key.reshape(*places, *dims, groups, -1)
    z = shared.reshape(*places, *(1,) * len(dims), 1, count)
    k = jnp.concatenate([jnp.broadcast_to(z, (*k.shape[:-1], count)), k], -1)
    return attention(q, k.reshape(*places, *dims, -1), value, groups, queries, **options)


def turned(
    x: jax.Array, places: jax.Array, base: float, features: int, interleaved: bool
) -> jax.Array:
    """Turn pairs of the first features of heads ``[b, t, .., e]`` by their tokens' places."""
    angles = places[:, None] * base ** (-jnp.arange(0, features, 2) / features)
    angles = angles.reshape(-1, *(1,) * (x.ndim - 3), features // 2)
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    own, rest = x[..., :features], x[..., features:]
    pairs = own.reshape(*own.shape[:-1], *((-1, 2) if interleaved else (2, -1)))
    a, b = jnp.moveaxis(pairs, -1 if interleaved else -2, 0)
    pairs = jnp.stack([a * cos - b * sin, b * cos + a * sin], -1 if interleaved else -2)
    return jnp.concatenate([pairs.reshape(own.shape), rest], -1)
