"""What layers of a mixture of experts compute in an exported module, as `operations` are.

Dispatched tokens have experts as their channels, and groups, slots and features as positions:
``[b1 .. bH, b, groups, slots, features, x1 .. xH, x]``. Tokens are routed in groups of one size;
those that choose an expert take its slots in their order, and the others miss it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hypar_opt.execution.jax.operations import Levels, batch_dims, channel_dims, held, plain


def in_groups(x: jax.Array, groups: int) -> jax.Array:
    """Return tokens as ``[batch, groups, tokens of a group, features]``."""
    sizes = plain(x.reshape(*batch_dims(x), -1, *channel_dims(x)))
    return sizes.reshape(len(sizes), groups, -1, sizes.shape[-1])


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
    slots: tuple[int, int],
    experts: tuple[int, ...],
    split: Levels,
) -> jax.Array:
    """Return each expert's tokens in its slots, of the experts that this device has.

    ``slots`` are the groups, and an expert's slots in each; ``split`` levels split the experts,
    whose dimensions on this device are ``experts``.
    """
    own = held(experts, split).reshape(-1)
    choices = chosen(in_groups(logits, slots[0]), top_k)
    taken = in_slots(choices, own, slots[1]).astype(x.dtype)
    y = jnp.einsum("bgtxk,bgti->bgkix", taken, in_groups(x, slots[0]))
    return y.reshape(*batch_dims(x), *y.shape[1:4], *experts)


def by_expert(x: jax.Array, w: jax.Array) -> jax.Array:
    """Return the product of each expert's slots and its ``w[experts.., inputs, outputs]``."""
    y = jnp.einsum("bgkix,xio->bgkox", plain(x), w.reshape(-1, *w.shape[-2:]))
    return y.reshape(*batch_dims(x), *y.shape[1:4], *channel_dims(x))


def combined(
    x: jax.Array,
    logits: jax.Array,
    top_k: int,
    dims: tuple[int, ...],
    split: Levels,
    *,
    over_chosen: bool,
) -> jax.Array:
    """Return the sum of the outputs of each token's experts, weighted by a softmax of logits.

    A partial sum where ``split`` levels split the experts. ``dims`` are the dimensions of tokens
    and features.
    """
    groups, slots = x.shape[len(batch_dims(x)) :][:2]
    own, routed = held(channel_dims(x), split).reshape(-1), in_groups(logits, groups)
    choices = chosen(routed, top_k)
    among = jnp.where(choices, routed, -jnp.inf) if over_chosen else routed
    shares = jax.nn.softmax(among)[..., own]
    taken = in_slots(choices, own, slots).astype(x.dtype)
    y = jnp.einsum("bgtxk,bgtx,bgkox->bgto", taken, shares, plain(x))
    return y.reshape(*batch_dims(x), *dims)
