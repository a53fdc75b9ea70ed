"""What the exported modules are made of: collectives, and what each kind of layer computes.

The text of a function is copied into a module that calls it, so that the module needs jax alone.
Every function works on one device's shards. A shard has a dimension for each level for the batch,
the rest of the batch, then positions, and the same for channels: ``[b1 .. bH, b, positions..,
c1 .. cH, c]``. Positions are tokens, ``[t1 .. tH, t]``, or rows and columns: ``[r, q]``; where
levels split images ``[r1 .. rH, r, q1 .. qH, q]``. A level's dimension is 1 where the level splits
it. Tokens that are dispatched to experts have groups in place of tokens, then experts and their
slots: ``[.. t1 .. tH, t, x1 .. xH, x, slots, c1 ..]``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

LEVELS: tuple[str, ...] = ()
"""The axes of the mesh, the topmost level first; every module has its own."""

IMAGES: tuple[int, ...] = ()
"""The image at each place of a padded batch, -1 for padding; modules that pad have their own."""

BATCH, TOKEN, EXPERT, CHANNEL, GROUP = "batch", "token", "expert", "channel", "group"
ROW, COLUMN = "row", "column"
INPUTS, OUTPUTS = BATCH, CHANNEL
"""Of weights: as batch and channels, they have the first dimensions and the last."""

Levels = tuple[str, ...]


def dimension(x: jax.Array, level: str, of: str) -> int:
    """Return the dimension of x that a level splits: of its batch, positions or channels."""
    index, axis = LEVELS.index(level), len(LEVELS) + 1
    first = {BATCH: 0, TOKEN: axis, ROW: axis, EXPERT: 2 * axis, COLUMN: 2 * axis}
    last = {CHANNEL: x.ndim - axis, GROUP: x.ndim - 2 * axis}
    return index + (first | last)[of]


def all_gather(x: jax.Array, level: str, of: str) -> jax.Array:
    """Make whole what a level splits; the error is reduce-scattered."""
    at = dimension(x, level, of)
    gathered: jax.Array = lax.all_gather(x, level, axis=at, tiled=True)
    return gathered


def reduce_scatter(x: jax.Array, level: str, to: str) -> jax.Array:
    """Add partial sums, and keep a part of them; the error is all-gathered."""
    at = dimension(x, level, to)
    added: jax.Array = lax.psum_scatter(x, level, scatter_dimension=at, tiled=True)
    return added


def all_to_all(x: jax.Array, level: str, of: str, to: str) -> jax.Array:
    """Split by another dimension at a level; so is the error, back again."""
    split, joined = dimension(x, level, to), dimension(x, level, of)
    moved: jax.Array = lax.all_to_all(x, level, split, joined, tiled=True)
    return moved


def joined_all_to_all(x: jax.Array, *moves: tuple[str, str, str]) -> jax.Array:
    """Split by other dimensions at several levels in one exchange; so is the error, back again.

    A move is a level, what it splits before, and what after.
    """
    count, levels = len(moves), tuple(level for level, _, _ in moves)
    split = [dimension(x, level, to) for level, _, to in moves]
    # The levels' dimensions go first: indices for each device, and then from each.
    sent = jnp.moveaxis(x, split, range(count))
    flat = sent.reshape(-1, *sent.shape[count:])
    received = lax.all_to_all(flat, levels, 0, 0, tiled=True).reshape(sent.shape)
    moved = jnp.moveaxis(received, range(count), split)
    for one, (level, of, _) in zip(split, moves, strict=True):
        moved = jnp.swapaxes(moved, one, dimension(x, level, of))
    return moved


def keep_part(x: jax.Array, level: str, to: str) -> jax.Array:
    """Cut a replica to this device's part, which moves nothing; the error is padded with zeros."""
    return lax.dynamic_slice_in_dim(x, lax.axis_index(level), 1, axis=dimension(x, level, to))


def padded(x: jax.Array, level: str, of: str) -> jax.Array:
    """Pad this device's part with zeros to an addend, which moves nothing; the error is cut."""
    at = dimension(x, level, of)
    zeros = jnp.zeros((*x.shape[:at], lax.axis_size(level), *x.shape[at + 1 :]), x.dtype)
    return lax.dynamic_update_slice_in_dim(zeros, x, lax.axis_index(level), axis=at)


def one_of(x: jax.Array, level: str) -> jax.Array:
    """Make addends of replicas, which moves nothing: one of them, and zeros; so of the error."""
    return x * (lax.axis_index(level) == 0).astype(x.dtype)


def in_one(bias: jax.Array, level: str) -> jax.Array:
    """Make addends of a bias, and leave its error, which all devices of a level have, as it is."""
    return bias - lax.stop_gradient(bias - one_of(bias, level))


def apart(x: jax.Array, number: int) -> jax.Array:
    """Multiply by 1, and the error too: XLA merges exchanges of what it knows to be equal."""
    # No index is above a number, which XLA does not know: it takes each factor for another.
    one = 1 + jnp.maximum(lax.axis_index(LEVELS[0]) - number, 0)
    return lax.optimization_barrier(x * one.astype(x.dtype))


def all_reduce(x: jax.Array, levels: Levels) -> jax.Array:
    """Add over the devices of some levels; the error is added too."""
    if not levels:
        return x
    added: jax.Array = lax.psum(x, levels)
    return added


def batch_dims(x: jax.Array) -> tuple[int, ...]:
    """Return the sizes of the batch's dimensions."""
    return x.shape[: len(LEVELS) + 1]


def positions(x: jax.Array) -> tuple[int, ...]:
    """Return the sizes of the dimensions between batch and channels."""
    return x.shape[len(LEVELS) + 1 : x.ndim - len(LEVELS) - 1]


def channel_dims(x: jax.Array) -> tuple[int, ...]:
    """Return the sizes of the channels' dimensions."""
    return x.shape[x.ndim - len(LEVELS) - 1 :]


def held(sizes: Sequence[int], split: Levels) -> jax.Array:
    """Return the indices that this device holds of an axis that ``split`` levels split.

    ``sizes`` are its dimensions, one for each level and the rest, whole or this device's.
    """
    whole = [
        lax.axis_size(level) if level in split else size
        for level, size in zip(LEVELS, sizes[:-1], strict=True)
    ]
    indices = jnp.arange(math.prod(whole) * sizes[-1]).reshape(*whole, sizes[-1])
    for level in split:
        indices = lax.dynamic_slice_in_dim(indices, lax.axis_index(level), 1, LEVELS.index(level))
    return indices


def plain(x: jax.Array) -> jax.Array:
    """Return x as ``[batch, positions.., channels]``: what this device holds of each."""
    sizes = (math.prod(batch_dims(x)), *positions(x), math.prod(channel_dims(x)))
    return x.reshape(sizes)


def linear(x: jax.Array, w: jax.Array) -> jax.Array:
    """Return the product with ``w[inputs.., outputs..]``, of each image or token."""
    return jnp.tensordot(x, w, len(LEVELS) + 1)


def transposed(w: jax.Array) -> jax.Array:
    """Return weights with inputs and outputs exchanged: those of an embedding as a head's."""
    half = w.ndim // 2
    return w.transpose(*range(half, w.ndim), *range(half))


def flatten(x: jax.Array) -> jax.Array:
    """Return the features of an image, a channel's positions together."""
    # The levels' dimensions of the channels go first, to split the features.
    x = jnp.moveaxis(in_a_row(x), len(LEVELS) + 1, -1)
    return x.reshape(*x.shape[:-2], -1)


def flatten_tokens(x: jax.Array) -> jax.Array:
    """Return the features of a sequence, a token's together."""
    x = jnp.moveaxis(in_a_row(x), len(LEVELS) + 1, -2)
    return x.reshape(*x.shape[:-2], -1)


def split_features(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return features, none of which is split, with the dimensions that levels will split."""
    return x.reshape(*x.shape[: x.ndim - len(shape)], *shape)


def in_a_row(x: jax.Array) -> jax.Array:
    """Return all positions in one dimension: an image's row by row."""
    return as_positions(x, (math.prod(positions(x)),))


def as_positions(x: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Return positions, an image's row by row, in dimensions of these sizes."""
    return x.reshape(*batch_dims(x), *sizes, *channel_dims(x))


def concatenate_tokens(sequences: Sequence[jax.Array], sizes: tuple[int, ...]) -> jax.Array:
    """Return one sequence after the other, as tokens whose dimensions have these sizes."""
    joined = jnp.concatenate([in_a_row(x) for x in sequences], len(LEVELS) + 1)
    return as_positions(joined, sizes)


def at_positions(x: jax.Array, places: int) -> jax.Array:
    """Return a vector, or a map of one position, with so many dimensions for positions."""
    return x.reshape(*batch_dims(x), *(1,) * places, *channel_dims(x))


def gelu_by_erf(x: jax.Array) -> jax.Array:
    """Return x times the normal distribution at x, not its approximation by tanh."""
    return jax.nn.gelu(x, approximate=False)


def quick_gelu(x: jax.Array) -> jax.Array:
    """Return x times the sigmoid of 1.702 x."""
    return x * jax.nn.sigmoid(1.702 * x)


def clipped_quick_gelu(x: jax.Array) -> jax.Array:
    """Return x, at most 7, times the sigmoid of 1.702 times it."""
    x = jnp.minimum(x, 7.0)
    return x * jax.nn.sigmoid(1.702 * x)


def clipped_plus_one(x: jax.Array) -> jax.Array:
    """Return x between -7 and 7, and 1 added to it."""
    return jnp.clip(x, -7.0, 7.0) + 1.0


def thresholded_relu(x: jax.Array) -> jax.Array:
    """Return x where it is above 1, else 0."""
    return jnp.where(x > 1, x, 0)


def squared_relu(x: jax.Array) -> jax.Array:
    """Return the square of x where it is positive, else 0."""
    return jnp.square(jax.nn.relu(x))


def soft_cap(x: jax.Array, cap: float) -> jax.Array:
    """Return values that are bounded by a cap, and almost x where they are small."""
    return cap * jnp.tanh(x / cap)


def sinusoid(
    x: jax.Array, features: jax.Array, count: int, base: float, scale: float, first: str
) -> jax.Array:
    """Return some features of the cosines and sines of a number, of which there are ``count``."""
    half = count // 2
    angles = x * scale * base ** (-(features % half) / half)
    return jnp.where((features < half) == (first == "cos"), jnp.cos(angles), jnp.sin(angles))


def layer_norm(
    x: jax.Array, features: int, split: Levels, *, centred: bool, epsilon: float = 1e-5
) -> jax.Array:
    """Normalise each position over its features, whose sums are added over ``split`` levels.

    Without ``centred`` by the root of the mean square alone.
    """
    over = tuple(range(x.ndim - len(LEVELS) - 1, x.ndim))
    sums = [jnp.sum(x * x, axis=over, keepdims=True)]
    if centred:
        sums.append(jnp.sum(x, axis=over, keepdims=True))
    square, *mean = all_reduce(jnp.stack(sums), split) / features
    if mean:
        x, square = x - mean[0], square - mean[0] * mean[0]
    normed: jax.Array = x * lax.rsqrt(square + epsilon)
    return normed


def group_norm(
    x: jax.Array,
    size: int | None,
    elements: int,
    split: Levels,
    *,
    centred: bool,
    epsilon: float = 1e-5,
) -> jax.Array:
    """Normalise each group of ``size`` channels with all positions, so many ``elements`` in all.

    Their sums are added over ``split`` levels. Without a size all channels are one group.
    """
    half, places = len(LEVELS) + 1, len(positions(x))
    groups = x if size is None else x.reshape(*x.shape[:-1], -1, size)
    first = half if size is None else groups.ndim - 1 - places
    # What a sum is over comes last.
    last = jnp.moveaxis(groups, range(half, half + places), range(first, first + places))
    flat = last.reshape(*last.shape[:first], *(1,) * len(LEVELS), -1)
    normed = layer_norm(flat, elements, split, centred=centred, epsilon=epsilon)
    back = range(first, first + places), range(half, half + places)
    return jnp.moveaxis(normed.reshape(last.shape), *back).reshape(x.shape)


def batch_norm(
    x: jax.Array,
    apart: Sequence[int] = (),
    real: jax.Array | None = None,
    *,
    epsilon: float = 1e-5,
) -> jax.Array:
    """Normalise each channel over the images that this device holds, and their positions.

    Each index of the dimensions ``apart`` is a share of its own. Of ``real`` images, if they are
    said, and of any in a share without one.
    """
    over = tuple(n for n in range(x.ndim - len(LEVELS) - 1) if n not in apart)
    counted = None if real is None else real | ~jnp.any(real, axis=over, keepdims=True)
    mean = partial(jnp.mean, axis=over, keepdims=True, where=counted)
    centred = x - mean(x)
    spread = mean(centred * centred)
    normed: jax.Array = centred * lax.rsqrt(spread + epsilon)
    return normed


def affine(x: jax.Array, w: jax.Array) -> jax.Array:
    """Scale, and shift where there is a second row of weights."""
    return x * w[0] + w[1] if len(w) > 1 else x * w[0]


def by_group(x: jax.Array, rest: tuple[int, ...]) -> jax.Array:
    """Return channels ``[.., c1 .. cH, c]`` as groups, and those of a group apart.

    The levels' dimensions of the channels then split the groups; ``rest`` are those of a group's
    channels, which follow.
    """
    return x.reshape(*x.shape[:-1], -1, *rest)


def dealt_out(x: jax.Array) -> jax.Array:
    """Return the channels of groups, ``by_group``, dealt out in turn."""
    half = len(LEVELS) + 1
    x = jnp.moveaxis(x, range(x.ndim - 2 * half, x.ndim - half), range(x.ndim - half, x.ndim))
    return x.reshape(*x.shape[: x.ndim - half - 1], -1)


def squared_error(x: jax.Array, targets: jax.Array) -> jax.Array:
    """Return half the squared distance from the targets, of this device's share."""
    return jnp.sum((x - targets) ** 2) / 2


def without_padding(x: jax.Array, classes: int, split: Levels) -> jax.Array:
    """Return logits with those behind the last class at minus infinity.

    ``split`` levels split their channels.
    """
    return jnp.where(held(channel_dims(x), split) < classes, x, -jnp.inf)


def real_images(x: jax.Array, split: Levels) -> jax.Array:
    """Return which images are no padding, of this device's, which ``split`` levels split."""
    real = jnp.array(IMAGES)[held(batch_dims(x), split)] >= 0
    return real.reshape(*real.shape, *(1,) * (x.ndim - real.ndim))


def sure_of(x: jax.Array, labels: jax.Array, split: Levels) -> jax.Array:
    """Return logits like x, whose channels ``split`` levels split, that leave only the labels."""
    return jnp.where(is_label(x, labels, split), 0, -jnp.inf)


def is_label(x: jax.Array, labels: jax.Array, split: Levels) -> jax.Array:
    """Return which of the channels of each position, that this device holds, is its label."""
    half = len(LEVELS) + 1
    return held(channel_dims(x), split) == labels.reshape(*labels.shape, *(1,) * half)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def softmax_loss(x: jax.Array, labels: jax.Array, split: Levels) -> jax.Array:
    """Return the cross-entropy of a softmax over channels that ``split`` levels split.

    Each position all-reduces three numbers; the error needs no exchange.
    """
    return softmax_and_loss(x, labels, split)[0]


def softmax_and_loss(x: jax.Array, labels: jax.Array, split: Levels) -> tuple[jax.Array, jax.Array]:
    """Return this device's share of the loss, and its error."""
    over = tuple(range(x.ndim - len(LEVELS) - 1, x.ndim))
    target = is_label(x, labels, split)
    largest = jnp.max(x, axis=over, keepdims=True)
    largest = lax.pmax(largest, split) if split else largest
    exponentials = jnp.exp(x - largest)
    sums = jnp.stack([exponentials, jnp.where(target, x - largest, 0)])
    total, wanted = all_reduce(jnp.sum(sums, axis=[n + 1 for n in over], keepdims=True), split)
    # All devices of split levels have the same sums: each counts its share of the loss.
    loss = jnp.sum(jnp.log(total) - wanted) / math.prod(lax.axis_size(level) for level in split)
    return loss, exponentials / total - target


def softmax_loss_forward(
    x: jax.Array, labels: jax.Array, split: Levels
) -> tuple[jax.Array, jax.Array]:
    """Return the loss, and its error for the backward pass."""
    return softmax_and_loss(x, labels, split)


def softmax_loss_backward(
    split: Levels, error: jax.Array, cotangent: jax.Array
) -> tuple[jax.Array, None]:
    """Return the error of the logits."""
    del split
    return cotangent * error, None


softmax_loss.defvjp(softmax_loss_forward, softmax_loss_backward)
