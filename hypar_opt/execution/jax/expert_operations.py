"""What layers of a mixture of experts compute in an exported module, as `operations` are.

Tokens are routed in groups of one size; those that choose an expert take its slots in their order,
and the others miss it.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from hypar_opt.execution.jax.operations import (
    LEVELS,
    Levels,
    batch_dims,
    channel_dims,
    held,
    plain,
    positions,
)


def in_groups(x: jax.Array, groups: int) -> jax.Array:
    """Return tokens as ``[batch, groups, tokens of a group, features]``."""
    sizes = plain(x.reshape(*batch_dims(x), -1, *channel_dims(x)))
    return sizes.reshape(len(sizes), groups, -1, sizes.shape[-1])


def expert_dims(x: jax.Array) -> tuple[int, ...]:
    """Return the sizes of the dimensions of dispatched tokens' experts."""
    return positions(x)[len(LEVELS) + 1 : -1]


def by_slot(x: jax.Array) -> jax.Array:
    """Return dispatched tokens as ``[batch, groups, experts, slots, features]``."""
    batch, features = math.prod(batch_dims(x)), math.prod(channel_dims(x))
    return x.reshape(batch, -1, math.prod(expert_dims(x)), positions(x)[-1], features)


def of_slots(bias: jax.Array) -> jax.Array:
    """Return experts' biases, ``[experts.., outputs..]``, shaped to add to all their slots."""
    ends = len(LEVELS) + 1
    return bias.reshape(*bias.shape[:ends], 1, *bias.shape[ends:])


def are_largest(x: jax.Array, count: int) -> jax.Array:
    """Return which numbers of the last dimension are the largest: of equal ones the first."""
    first = jnp.argsort(-x, axis=-1, stable=True)[..., :count]
    return jnp.any(first[..., None] == jnp.arange(x.shape[-1]), axis=-2)


def chosen(
    logits: jax.Array, top_k: int, limit: tuple[int, int] | None = None, *, sigmoid: bool = False
) -> jax.Array:
    """Return whether each token chooses each expert: those of its largest logits.

    A ``limit`` has the groups of consecutive experts, and how many of these a token chooses from:
    those with the largest logits, or with the largest sums of two sigmoids.
    """
    if limit:
        groups, top = limit
        of_group = logits.reshape(*logits.shape[:-1], groups, -1)
        best = jnp.max(of_group, -1)
        if sigmoid:
            best = jnp.sum(jnp.sort(jax.nn.sigmoid(of_group), -1)[..., -2:], -1)
        left = jnp.where(are_largest(best, top)[..., None], of_group, -jnp.inf)
        logits = left.reshape(logits.shape)
    return are_largest(logits, top_k)


def in_slots(choices: jax.Array, experts: jax.Array, slots: int) -> jax.Array:
    """Return whether a token is in a slot: ``[batch, groups, tokens, experts, slots]``."""
    slot = (jnp.cumsum(choices, axis=2) - 1)[..., experts]
    return choices[..., experts, None] & (slot[..., None] == jnp.arange(slots))


def dispatched(
    x: jax.Array,
    logits: jax.Array,
    top_k: int,
    slots: int,
    groups: tuple[int, ...],
    experts: tuple[int, ...],
    split: Levels,
    limit: tuple[int, int] | None = None,
    *,
    sigmoid: bool = False,
) -> jax.Array:
    """Return each expert's tokens in its slots, of the groups and experts that this device has.

    ``groups`` and ``experts`` are their dimensions on this device; ``split`` levels split experts.
    """
    own, count = held(experts, split).reshape(-1), math.prod(groups)
    choices = chosen(in_groups(logits, count), top_k, limit, sigmoid=sigmoid)
    taken = in_slots(choices, own, slots).astype(x.dtype)
    y = jnp.einsum("bgtxk,bgti->bgxki", taken, in_groups(x, count))
    return y.reshape(*batch_dims(x), *groups, *experts, slots, *channel_dims(x))


def by_expert(x: jax.Array, w: jax.Array) -> jax.Array:
    """Return the product of each expert's slots and its ``w[experts.., inputs.., outputs..]``."""
    outputs, features = channel_dims(w), math.prod(channel_dims(x))
    kernel = w.reshape(math.prod(expert_dims(x)), features, math.prod(outputs))
    y = jnp.einsum("bgxki,xio->bgxko", by_slot(x), kernel)
    return y.reshape(*batch_dims(x), *positions(x), *outputs)


def combined(
    x: jax.Array,
    logits: jax.Array,
    top_k: int,
    tokens: tuple[int, ...],
    split: Levels,
    limit: tuple[int, int] | None = None,
    *,
    over_chosen: bool,
    sigmoid: bool = False,
    factor: float = 1.0,
) -> jax.Array:
    """Return the sum of the outputs of each token's experts, weighted by a softmax of logits.

    Or by sigmoids of them: ``over_chosen`` divided by the sum of those of the chosen experts.
    A partial sum where ``split`` levels split the experts. ``tokens`` are the dimensions of this
    device's.
    """
    filled = by_slot(x)
    _, groups, _, slots, _ = filled.shape
    own, routed = held(expert_dims(x), split).reshape(-1), in_groups(logits, groups)
    choices = chosen(routed, top_k, limit, sigmoid=sigmoid)
    if sigmoid:
        shares = jax.nn.sigmoid(routed)
        if over_chosen:
            shares = shares / jnp.sum(shares, -1, keepdims=True, where=choices)
    else:
        shares = jax.nn.softmax(jnp.where(choices, routed, -jnp.inf) if over_chosen else routed)
    shares = shares[..., own] * factor
    taken = in_slots(choices, own, slots).astype(x.dtype)
    y = jnp.einsum("bgtxk,bgtx,bgxko->bgto", taken, shares, filled)
    return y.reshape(*batch_dims(x), *tokens, *channel_dims(x))
