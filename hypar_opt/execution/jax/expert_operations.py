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


def chosen(logits: jax.Array, top_k: int) -> jax.Array:
    """Return whether each token chooses each expert: those of its largest logits, the first."""
    first = jnp.argsort(-logits, axis=-1, stable=True)[..., :top_k]
    return jnp.any(first[..., None] == jnp.arange(logits.shape[-1]), axis=-2)


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
) -> jax.Array:
    """Return each expert's tokens in its slots, of the groups and experts that this device has.

    ``groups`` and ``experts`` are their dimensions on this device; ``split`` levels split experts.
    """
    own, count = held(experts, split).reshape(-1), math.prod(groups)
    choices = chosen(in_groups(logits, count), top_k)
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
    *,
    over_chosen: bool,
) -> jax.Array:
    """Return the sum of the outputs of each token's experts, weighted by a softmax of logits.

    A partial sum where ``split`` levels split the experts. ``tokens`` are the dimensions of this
    device's.
    """
    filled = by_slot(x)
    _, groups, _, slots, _ = filled.shape
    own, routed = held(expert_dims(x), split).reshape(-1), in_groups(logits, groups)
    choices = chosen(routed, top_k)
    among = jnp.where(choices, routed, -jnp.inf) if over_chosen else routed
    shares = jax.nn.softmax(among)[..., own]
    taken = in_slots(choices, own, slots).astype(x.dtype)
    y = jnp.einsum("bgtxk,bgtx,bgxko->bgto", taken, shares, filled)
    return y.reshape(*batch_dims(x), *tokens, *channel_dims(x))
