"""The layers at which a step's errors begin: softmax with its loss, and plain outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.execution.virtual.arithmetic.base import (
    Arithmetic,
    by_position,
    channel_axis,
)

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array


class OutputArithmetic(Arithmetic):
    """An output without a loss: its input, perhaps soft-capped."""

    kept_inputs = 3

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        self._written = self._capped(reads[0])
        return self._written

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:  # noqa: ARG002
        return [
            error if self._cap is None else error * (1 - (self._written / self._cap) ** 2)
        ], None

    @property
    def _cap(self) -> float | None:
        return getattr(self.shard.layer, "softcap", None)

    def _capped(self, read: Array) -> Array:
        return read if self._cap is None else self._cap * np.tanh(read / self._cap)


class SoftmaxLoss(OutputArithmetic):
    """The cross-entropy of softmax with random targets, its mean over images and tokens.

    Its sums over channels are three numbers per position: the largest logit, the sum of
    exponentials relative to it, and the target's logit.
    """

    def sums(self, reads: Sequence[Array]) -> Array | None:
        logits = self._logits(self._capped(reads[0]))
        assert self.shard.data is not None
        targets = self.shard.data.reshape(-1)
        largest = logits.max(axis=1, initial=-np.inf)
        relative = np.exp(logits - np.where(np.isfinite(largest), largest, 0.0)[:, None])
        self._hits = targets[:, None] == self.shard.read
        of_target = np.where(self._hits, logits, 0.0).sum(axis=1)
        return np.stack([largest, relative.sum(axis=1), of_target], axis=1)

    def _logits(self, read: Array) -> Array:
        """Return the logits by position, minus infinity for padding."""
        classes = getattr(self.shard.layer, "classes", None) or self.shard.maps.output.channels
        return np.where(self.shard.read < classes, by_position(read), -np.inf)

    @property
    def combine(self) -> Callable[[Array, Array], Array]:
        return _combined

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:
        assert sums is not None
        written = super().forward(reads, weights, sums)
        logits = self._logits(written)
        positions = self.shard.batch * self.shard.maps.output.positions
        shares = np.exp(logits - sums[:, :1]) / sums[:, 1:2]
        self._error = (shares - self._hits) / positions
        self.loss = float((sums[:, 0] + np.log(sums[:, 1]) - sums[:, 2]).sum() / positions)
        return written

    def backward(self, error: Array, sums: Array | None) -> tuple[Sequence[Array], Array | None]:
        # Only one replica of an unsplit loss counts: its error is 1, and 0 in the others.
        axis = channel_axis(self._written)
        shape = np.moveaxis(self._written, axis, -1).shape
        return super().backward(error * np.moveaxis(self._error.reshape(shape), -1, axis), sums)


def _combined(one: Array, other: Array) -> Array:
    largest = np.maximum(one[:, 0], other[:, 0])
    # A device without channels has no largest logit, and adds nothing.
    reference = np.where(np.isfinite(largest), largest, 0.0)
    sums = one[:, 1] * np.exp(one[:, 0] - reference)
    sums += other[:, 1] * np.exp(other[:, 0] - reference)
    return np.stack([largest, sums, one[:, 2] + other[:, 2]], axis=1)


KINDS: dict[str, type[Arithmetic]] = {"output": OutputArithmetic}
