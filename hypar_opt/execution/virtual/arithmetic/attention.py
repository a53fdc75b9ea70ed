"""The core of attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from hypar_opt.execution.virtual.arithmetic.base import Arithmetic, Footprint, LayerShard
from hypar_opt.workload.operators.attention import pairs_of

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array, Indices
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.operators.attention import Attention, Rotary


def turned(
    x: Array, positions: Indices, rotary: Rotary | None, start: int = 0, *, back: bool = False
) -> Array:
    """Return queries or keys with rotary positions, or their errors turned back.

    Parameters
    ----------
    x : (..., tokens, features of a head)
    positions : (tokens,)
        In the whole sequence.
    start
        The first feature of a head that may be turned.
    """
    if rotary is None:
        return x
    base, count, interleaved = rotary.pairing(x.shape[-1] - start)
    rates = base ** (-np.arange(0, count, 2) / count)
    angles = positions[:, None] * (-rates if back else rates)
    y = x.copy()
    first, second = (
        y[..., start:][..., indices] for indices in pairs_of(count, interleaved=interleaved)
    )
    a, b = first.copy(), second.copy()
    first[:] = a * np.cos(angles) - b * np.sin(angles)
    second[:] = b * np.cos(angles) + a * np.sin(angles)
    return y


class AttentionArithmetic(Arithmetic):
    """``softmax(Q K^T / sqrt(e)) V`` of a device's key-value heads, or another scale.

    Inside, arrays are ``(images, key-value heads, queries of a head, tokens, features)``.
    """

    @classmethod
    def footprint(cls, tensors: LayerTensors) -> Footprint:
        sizes = tensors.sizes
        scores = math.prod(sizes[axis] for axis in "bgrts")
        turned = 0
        if cast("Attention", tensors.operator).rotary is not None:
            elements = sizes["b"] * sizes["g"] * sizes["e"]
            turned = elements * (sizes["r"] * sizes["t"] + sizes["s"])
        elif "m" in sizes:  # keys with a copy of shared features for each head
            turned = sizes["b"] * sizes["g"] * sizes["s"] * sizes["e"]
        saved = 2 if cast("Attention", tensors.operator).softcap else 1
        saved, working = saved * scores + turned, 5 * scores + 4 * turned
        if cast("Attention", tensors.operator).windows:
            # Copies of inputs and output, cut into windows, and a mask for all windows.
            copies = sum(map(math.prod, (tensors.input, tensors.output, *tensors.further_inputs)))
            saved, working = saved + copies + scores, working + copies + scores
        return Footprint(saved=saved, working=working)

    def __init__(self, shard: LayerShard) -> None:
        super().__init__(shard)
        layer = cast("Attention", shard.layer)
        self._sizes = layer.sizes(shard.maps)
        self._causal, self._rotary = bool(layer.causal), layer.rotary
        self._window, self._cap = layer.window, layer.softcap
        self._windows, self._of_scores = layer.windows, layer.score_input is not None
        self._scale = layer.scale or 1 / np.sqrt(self._sizes["e"])
        # The key features of a single head, which precede the rotated ones.
        self._own = self._sizes.get("n", self._sizes["e"])
        self._start = self._sizes.get("n", 0)

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        query, key, value, *shared = reads
        beside = shared.pop() if self._of_scores else None
        query, key, value = map(self._cut, (query, key, value))
        self._heads = key.shape[2] // self._own
        start, positions = self._start, np.arange(key.shape[1])
        k = self._split(key, self._own)
        for one in shared:
            of_heads = np.broadcast_to(one[:, None, None], (*k.shape[:-1], one.shape[2]))
            k = np.concatenate([k, of_heads], axis=4)
        q = self._split(query, self._sizes["e"])
        self._q = turned(q, self.shard.tokens, self._rotary, start)
        self._k = turned(k, positions, self._rotary, start)
        self._v = self._split(value, self._sizes["d"])
        scores = self._q @ self._k.swapaxes(3, 4) * self._scale
        if self._cap:
            self._tangent = np.tanh(scores / self._cap)
            scores = self._cap * self._tangent
        if self._windows:
            scores = self._in_windows(scores, beside)
        if self._causal:
            keys, queries = np.arange(scores.shape[4]), self.shard.tokens[:, None]
            seen = keys <= queries
            if self._window:
                seen &= keys > queries - self._window
            scores = np.where(seen, scores, -np.inf)
        largest = scores.max(axis=4, keepdims=True)
        sink = None if beside is None or self._windows else self._split(beside, 1)
        if sink is not None:
            largest = np.maximum(largest, sink)
        shares = np.exp(scores - largest)
        total = shares.sum(axis=4, keepdims=True)
        if sink is not None:
            of_sink = np.exp(sink - largest)
            total = total + of_sink
            self._of_sink = of_sink / total
        self._p = shares / total
        return self._uncut(self._joined(self._p @ self._v))

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:  # noqa: ARG002
        mixed = self._split(self._cut(error), self._sizes["d"])
        of_shares = mixed @ self._v.swapaxes(3, 4)
        weighted = (of_shares * self._p).sum(axis=4, keepdims=True)
        of_scores = self._p * (of_shares - weighted)
        of_beside = []
        if self._of_scores and self._windows:
            of_beside = [self._bias_gradients(of_scores)]
        elif self._of_scores:
            of_sinks = -(self._of_sink * weighted).sum(axis=3, keepdims=True)
            of_beside = [self._joined(of_sinks)]
        if self._cap:
            of_scores *= 1 - self._tangent**2
        of_scores *= self._scale
        # Queries of a group share keys and values: their errors are added.
        of_k = (of_scores.swapaxes(3, 4) @ self._q).sum(axis=2, keepdims=True)
        of_v = (self._p.swapaxes(3, 4) @ mixed).sum(axis=2, keepdims=True)
        rotary, start = self._rotary, self._start
        of_q = turned(of_scores @ self._k, self.shard.tokens, rotary, start, back=True)
        of_k = turned(of_k, np.arange(of_k.shape[3]), rotary, start, back=True)
        of_k, of_shared = np.split(of_k, [self._own], axis=4)
        errors = [self._uncut(self._joined(one)) for one in (of_q, of_k, of_v)]
        if start:
            errors.append(of_shared.sum(axis=(1, 2)))
        return [*errors, *of_beside], None

    def _cut(self, array: Array) -> Array:
        """Return tokens cut into windows, each treated as an image."""
        if not self._windows:
            return array
        images, tokens, features = array.shape
        order = self._windows.order(tokens)
        return array[:, order].reshape(images * len(order), order.shape[1], features)

    def _uncut(self, array: Array) -> Array:
        """Return tokens in their order: the inverse of `_cut`."""
        if not self._windows:
            return array
        tokens, features = self._sizes["t"], array.shape[2]
        whole = np.empty((len(array) * array.shape[1] // tokens, tokens, features))
        whole[:, self._windows.order(tokens).ravel()] = array.reshape(whole.shape)
        return whole

    def _in_windows(self, scores: Array, biases: Array | None) -> Array:
        """Return the scores of windows with biases added and those across a shift's seam masked."""
        assert self._windows is not None
        seen = self._windows.seen(self._sizes["t"])[:, None, None]
        by_image = scores.reshape(len(scores) // len(seen), len(seen), *scores.shape[1:])
        if biases is not None:
            of_heads = biases.reshape(*biases.shape[:2], *scores.shape[1:3])
            added = of_heads[:, self._windows.relative()]
            by_image = by_image + np.moveaxis(added, (1, 2), (3, 4))[:, None]
        return np.where(seen, by_image, -np.inf).reshape(scores.shape)

    def _bias_gradients(self, of_scores: Array) -> Array:
        """Return the gradient of biases: for each bias, the sum over its scores."""
        assert self._windows is not None
        count = self._sizes["t"] // self._windows.pixels
        images = len(of_scores) // count
        by_image = of_scores.reshape(images, count, *of_scores.shape[1:]).sum(axis=1)
        error = np.zeros((self._sizes["u"], images, *by_image.shape[1:3]))
        np.add.at(error, self._windows.relative(), np.moveaxis(by_image, (3, 4), (0, 1)))
        return error.swapaxes(0, 1).reshape(images, len(error), math.prod(error.shape[2:]))

    def _split(self, array: Array, size: int) -> Array:
        images, tokens, features = array.shape
        queries = features // (self._heads * size) if self._heads else 0
        parts = array.reshape(images, tokens, self._heads, queries, size)
        return parts.transpose(0, 2, 3, 1, 4)

    def _joined(self, array: Array) -> Array:
        images, heads, queries, tokens, size = array.shape
        return array.transpose(0, 3, 1, 2, 4).reshape(images, tokens, heads * queries * size)


KINDS: dict[str, type[Arithmetic]] = {"attention": AttentionArithmetic}
