"""Mixtures of experts: dispatch, experts' products, and combination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hypar_opt.execution.virtual.arithmetic.base import Arithmetic, Footprint
from hypar_opt.execution.virtual.arithmetic.products import FullyConnectedArithmetic
from hypar_opt.workload.activations import ACTIVATIONS

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array, Indices
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.operators.maps import ExpertMap, LogitMap

_SIGMOID, _ = ACTIVATIONS["sigmoid"]

Errors = tuple[Sequence["Array"], "Array | None"]


class _Assignment(NamedTuple):
    """The tokens that a device's experts take and their slots, as parallel index arrays."""

    image: Indices
    group: Indices
    token: Indices
    expert: Indices
    slot: Indices


class _RoutedArithmetic(Arithmetic):
    """A layer that reads a router's logits: all of them, on every device."""

    @classmethod
    def footprint(cls, tensors: LayerTensors) -> Footprint:
        logits = int(np.prod(tensors.further_inputs[0]))
        slots = int(np.prod([tensors.sizes[axis] for axis in "bxtk"]))
        moved = slots * tensors.sizes.get("i", tensors.sizes.get("o", 1))
        return Footprint(saved=3 * logits + 6 * slots, working=8 * logits + 4 * moved)

    @property
    def logits(self) -> LogitMap:
        return cast("LogitMap", self.shard.maps.further_inputs[0])

    def by_group(self, array: Array) -> Array:
        """Return an array of whole groups as ``(images, groups, tokens, features)``."""
        images, tokens, features = array.shape
        _, groups, _ = self.logits.slots
        per_group = self.logits.tokens // groups
        return array.reshape(images, tokens // per_group, per_group, features)

    def chosen(self, logits: Array) -> Array:
        """Return which experts each token chooses: the largest logits, ties to the first."""
        routing = self.logits.routing
        groups, top = routing.limit
        if groups > top:
            *rest, experts = logits.shape
            by_group = logits.reshape(*rest, groups, experts // groups)
            best = by_group.max(axis=4)
            if routing.sigmoid:
                best = np.sort(_SIGMOID(by_group), axis=4)[..., -2:].sum(axis=4)
            candidates = np.where(_largest(best, top)[..., None], by_group, -np.inf)
            logits = candidates.reshape(logits.shape)
        return _largest(logits, routing.top_k)

    def assigned(self, chosen: Array, over: ExpertMap, experts: Indices) -> _Assignment:
        """Return the tokens in experts' slots: the first of each group that choose them."""
        slot = (chosen.cumsum(axis=2) - 1)[..., experts]
        taken = np.nonzero(chosen[..., experts] & (slot < over.slots))
        image, group, token, expert = taken
        return _Assignment(image, group, token, expert, slot[taken])


def _largest(numbers: Array, count: int) -> Array:
    """Return which numbers along the last axis are the largest, ties to the first."""
    order = np.argsort(-numbers, axis=3, kind="stable")[..., :count]
    largest = np.zeros(numbers.shape, bool)
    np.put_along_axis(largest, order, values=True, axis=3)
    return largest


class DispatchArithmetic(_RoutedArithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        tokens, logits = map(self.by_group, reads)
        self._shapes = [read.shape for read in reads]
        over, experts = cast("ExpertMap", self.shard.maps.output), self.shard.experts
        self._taken = self.assigned(self.chosen(logits), over, experts)
        image, group, token, expert, slot = self._taken
        images, groups, _, features = tokens.shape
        slots = np.zeros((images, len(experts), groups, over.slots, features))
        slots[image, expert, group, slot] = tokens[image, group, token]
        return slots

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        image, group, token, expert, slot = self._taken
        of_tokens, of_logits = map(np.zeros, self._shapes)
        # Experts share tokens, so errors are added. The choice of experts has no derivative.
        into = (image, group, token)
        np.add.at(self.by_group(of_tokens), into, error[image, expert, group, slot])
        return [of_tokens, of_logits], None


class ExpertsArithmetic(Arithmetic):
    """The product of each expert's slots and its own weights."""

    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        assert weights is not None
        (self._read,) = reads
        self._weights = weights
        return self._read @ weights[:, None]

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        gradient = np.einsum("bxtki,bxtko->xio", self._read, error, optimize=True)
        return [error @ self._weights.swapaxes(1, 2)[:, None]], gradient


class CombineArithmetic(_RoutedArithmetic):
    def forward(self, reads: Sequence[Array], weights: Array | None, sums: Array | None) -> Array:  # noqa: ARG002
        self._slots, logits = reads[0], self.by_group(reads[1])
        self._chosen = self.chosen(logits)
        self._experts = self.shard.experts
        over = cast("ExpertMap", self.shard.maps.input)
        self._taken = self.assigned(self._chosen, over, self._experts)
        routing = self.logits.routing
        among = self._chosen if routing.over_chosen else np.True_
        scores = np.exp(logits - logits.max(axis=3, keepdims=True))
        self._slope: Array | float = 1.0  # with respect to the score's logarithm
        if routing.sigmoid:
            scores = _SIGMOID(logits)
            self._slope = 1.0 - scores
        self._divides = routing.over_chosen or not routing.sigmoid
        shares = np.where(among, scores, 0.0)
        self._shares = shares / shares.sum(axis=3, keepdims=True) if self._divides else shares
        image, group, token, expert, slot = self._taken
        share = self._shares[image, group, token, self._experts[expert], None] * routing.factor
        images, tokens, _ = reads[1].shape
        output = np.zeros((images, tokens, self._slots.shape[4]))
        into = (image, group, token)
        np.add.at(self.by_group(output), into, share * self._slots[image, expert, group, slot])
        return output

    def backward(self, error: Array, sums: Array | None) -> Errors:  # noqa: ARG002
        image, group, token, expert, slot = self._taken
        arrived = self.by_group(error)[image, group, token]
        experts = self._experts[expert]
        of_slots = np.zeros_like(self._slots)
        factor = self.logits.routing.factor
        share = self._shares[image, group, token, experts, None] * factor
        of_slots[image, expert, group, slot] = share * arrived
        # Only the shares of this device's experts; other devices add theirs.
        of_shares = np.zeros_like(self._shares)
        products = arrived * self._slots[image, expert, group, slot]
        of_shares[image, group, token, experts] = products.sum(axis=1) * factor
        if self._divides:
            of_shares -= (of_shares * self._shares).sum(axis=3, keepdims=True)
        of_logits = self._shares * self._slope * of_shares
        return [of_slots, of_logits.reshape(*error.shape[:2], self._shares.shape[3])], None


KINDS: dict[str, type[Arithmetic]] = {
    "router": FullyConnectedArithmetic,
    "dispatch": DispatchArithmetic,
    "experts": ExpertsArithmetic,
    "combine": CombineArithmetic,
}
