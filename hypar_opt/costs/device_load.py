"""What each node's choices add to the memory of a device: for a search within a capacity."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.saved_tensors import SavedTensor, saved_tensors
from hypar_opt.hardware.accelerator import SINGLE, state_bytes
from hypar_opt.integers import exact_dtype, scale
from hypar_opt.step.states import added_up, copies
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.operators.axes import BATCH, REPLICATING
from hypar_opt.workload.operators.base import elements
from hypar_opt.workload.parallelism import SIDES
from hypar_opt.workload.recomputation import repeated
from hypar_opt.workload.repeats import ONCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.integers import Integers
    from hypar_opt.step.shares import Share
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.axes import Choice
    from hypar_opt.workload.operators.kernels import Fused
    from hypar_opt.workload.tensors import Workload


class WeightBytes(NamedTuple):
    """Bytes of each weight, of its gradient and of the optimizer's state for it."""

    weight: int
    gradient: int
    state: int

    @classmethod
    def of(
        cls, element_bytes: int, optimizer: str | int, gradient_bytes: int | None = None
    ) -> WeightBytes:
        """Return them for a precision: below 4 bytes an element the training is mixed.

        Gradients and state then are in single precision, with a copy of the weights among the
        state: 2 + 4 + 12 bytes with Adam.

        Parameters
        ----------
        optimizer
            A name, or the bytes of its state for a weight.

        Source: Micikevicius et al., "Mixed precision training", ICLR 2018; Korthikanti et al.,
        MLSys 2023, figure 1, has 18 bytes, Rajbhandari et al., "ZeRO", SC20, 16.
        """
        exact = max(SINGLE, element_bytes)
        state = state_bytes(optimizer, exact, copies=element_bytes < SINGLE)
        return cls(element_bytes, gradient_bytes or exact, state)


@dataclass(frozen=True, eq=False)
class DeviceLoad:
    """The bytes that nodes hold in all accelerators together, by their states.

    Without what is held for a moment only, and as if axes were divided exactly: no more than an
    accelerator's count times the accelerators.

    Parameters
    ----------
    terms
        The bytes of a tensor of each node before any split, ``(nodes,)``, and which choices split
        none of its axes, so that each part has all: ``(choices, nodes)``, or at each level
        ``(levels, choices, nodes)``.
    """

    terms: Sequence[tuple[Integers, NDArray[np.bool_]]]
    hierarchy: Hierarchy

    def of(self, nodes: Indices, states: States) -> Integers:
        """Return the bytes of nodes in states over all levels."""
        return added_up(
            [
                sizes[nodes] * copies(lacks, nodes, states, self.hierarchy)
                for sizes, lacks in self.terms
            ]
        )

    def at(self, parts: Sequence[int]) -> Integers:
        """Return the bytes of each node, ``(nodes,)``, where choices split into so many parts.

        At levels that have not chosen each part has a copy. No more than that, where levels
        differ.
        """
        split = np.array(parts, object)[:, None]
        undecided = self.hierarchy.accelerators // prod(parts)
        return added_up(
            [
                sizes * np.where(_at_all_levels(lacks), split, 1).prod(axis=0) * undecided
                for sizes, lacks in self.terms
            ]
        ).astype(object)

    @cached_property
    def marks(self) -> list[Hashable]:
        """What tells nodes apart."""
        columns = [
            [*zip(sizes.tolist(), map(bytes, np.moveaxis(lacks, -1, 0).copy()), strict=True)]
            for sizes, lacks in self.terms
        ]
        return list(zip(*columns, strict=True))

    @property
    def upper_bound(self) -> int:
        """An upper bound on the bytes of any plan."""
        return self.hierarchy.accelerators * sum(int(sizes.sum()) for sizes, _ in self.terms)


@dataclass(frozen=True, eq=False)
class PartLoad(DeviceLoad):
    """The bytes that nodes hold in one part of H1 between groups, as if all accelerators did.

    Parameters
    ----------
    share
        The part's.
    """

    workload: Workload
    share: Share

    def of(self, nodes: Indices, states: States) -> Integers:
        """Return the bytes of nodes in states over all levels, rounded down."""
        held = []
        for sizes, lacks in self.terms:
            every = sizes[nodes] * copies(lacks, nodes, states, self.hierarchy)
            # Of copies of weights data parallelism shares out equal parts.
            at_h1 = lacks if lacks.ndim == 2 else self.workload.layouts.weight < FIRST_SPLIT
            held.append(self.part_of(every, at_h1, nodes, states))
        return added_up(held)

    def part_of(
        self, every: Integers, at_h1: NDArray[np.bool_], nodes: Indices, states: States
    ) -> Integers:
        """Return the part's bytes of what accelerators of equal parts hold, rounded down.

        Parameters
        ----------
        at_h1 : (choices, nodes)
            Whether a choice of H1 splits none of it.
        """
        asked = every, at_h1, self.workload, nodes, states
        # Partial sums are stored by image, whatever axis the layer splits.
        own, by_image = (self.share.of_amounts(*asked, by_image=n) for n in (False, True))
        held: Integers = np.maximum(np.minimum(own, by_image) - 1, 0)
        return held

    @property
    def upper_bound(self) -> int:
        return len(self.share.parts) * super().upper_bound


def device_load(
    network: Network,
    workload: Workload,
    hierarchy: Hierarchy,
    element_bytes: int,
    weight_bytes: WeightBytes,
    *,
    fused: Fused,
) -> DeviceLoad:
    """Return what the weights and saved tensors of a step take; the parameters are a problem's.

    Source: docs/decisions/0029-memory-of-a-device.md.
    """
    layouts, nodes = workload.layouts, len(workload.nodes)
    terms = []
    whole = layouts.weight < FIRST_SPLIT
    levels = np.arange(hierarchy.levels)[:, None, None]
    apart = whole & ~_splits(workload.choices_of_nodes, REPLICATING)
    for word, each in zip(("weights", "gradients", "state"), weight_bytes, strict=True):
        sizes = [each * own for own in workload.stored]
        first = workload.repeats.first_levels(nodes, word)
        terms.append((sizes, np.where(levels >= first, apart, whole)))
    of_node: dict[int, list[SavedTensor]] = {}
    saved = saved_tensors(network, workload, workload.repeats.again, fused=fused)
    for tensors in saved.kept.values():
        for tensor in tensors:
            of_node.setdefault(tensor.node, []).append(tensor)
    for number in range(max(map(len, of_node.values()), default=0)):
        sizes, lacks = [0] * nodes, np.zeros_like(whole)
        for node, own in of_node.items():
            if number < len(own):
                sizes[node], lacks[:, node] = _of_tensor(workload, own[number], element_bytes)
        terms.append((sizes, lacks))
    dtype = exact_dtype(hierarchy.accelerators * sum(sum(sizes) for sizes, _ in terms))
    return DeviceLoad([(np.array(sizes, dtype), lacks) for sizes, lacks in terms], hierarchy)


def load_of_tensors(
    workload: Workload, hierarchy: Hierarchy, element_bytes: int, tensors: Sequence[SavedTensor]
) -> DeviceLoad:
    """Return what some tensors of different nodes take."""
    nodes, choices = len(workload.nodes), len(workload.choices)
    sizes, lacks = [0] * nodes, np.zeros((choices, nodes), bool)
    for tensor in tensors:
        own = _of_tensor(workload, tensor, element_bytes)
        sizes[tensor.node], lacks[:, tensor.node] = own
    dtype = exact_dtype(hierarchy.accelerators * sum(sizes))
    return DeviceLoad([(np.array(sizes, dtype), lacks)], hierarchy)


def held_while_running(
    workload: Workload,
    hierarchy: Hierarchy,
    element_bytes: int,
    weight_bytes: WeightBytes,
    fused: Fused,
    nodes: Indices,
    states: States,
) -> list[tuple[Integers, NDArray[np.bool_]]]:
    """Return the least that nodes hold for a moment, in bytes of all accelerators together.

    Weights and gradients are gathered where they are sharded, if there are replicas of them; and a
    loss has its values in single precision. Beside each is which choices of H1 split none of it.
    """
    layouts, count = workload.layouts, len(workload.nodes)
    asked = weight_bytes.weight, element_bytes >= SINGLE
    weights, logits = _gathered_and_single(repeated(workload, ONCE), *asked, fused)
    dtype = exact_dtype(hierarchy.accelerators * (2 * sum(weights) + sum(logits)))
    whole, apart = layouts.weight < FIRST_SPLIT, _splits(workload.choices_of_nodes, REPLICATING)
    copied_weights = copies(whole, nodes, states, hierarchy)
    gathered: Integers = np.zeros(1, dtype)
    for word in ("weights", "gradients")[: 1 + bool(weight_bytes.gradient)]:
        first = workload.repeats.first_levels(count, word)
        below = apart & (np.arange(hierarchy.levels)[:, None, None] >= first)
        replicas = copies(below, nodes, states, hierarchy)
        own = np.where(replicas > 1, np.array(weights, dtype)[nodes] * copied_weights, 0)
        gathered = gathered + own
    kept = layouts.output == 0
    of_loss = np.array(logits, dtype)[nodes] * copies(kept, nodes, states, hierarchy)
    return [(gathered, whole), (of_loss, kept)]


@lru_cache(maxsize=64)
def _gathered_and_single(
    workload: Workload, each: int, copied: bool, fused: Fused
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the bytes of nodes' weights as their passes read them, and of a loss's values.

    Parameters
    ----------
    each
        The bytes of a weight.
    copied
        Whether what is saved in single precision already has one copy of the values.
    """
    weights = [
        0 if node.operator.reads_ids else each * own
        for node, own in zip(workload.nodes, workload.weights, strict=True)
    ]
    singles = [node.operator.saves(fused=fused).singles for node in workload.nodes]
    logits = [
        SINGLE * (own - (own > 0 and copied)) * prod(node.pooled)
        for own, node in zip(singles, workload.nodes, strict=True)
    ]
    return weights, logits


def _of_tensor(
    workload: Workload, tensor: SavedTensor, element_bytes: int
) -> tuple[int, NDArray[np.bool_]]:
    """Return the bytes of a saved tensor, and which choices of its node do not split it."""
    node, layouts = tensor.node, workload.layouts
    if tensor.own is not None:
        each = tensor.own.elements * element_bytes + tensor.own.bytes
        own = elements(tensor.own.axes, workload.nodes[node].sizes)
        splits = _splits([workload.choices_of_nodes[node]], tensor.own.axes)[:, 0]
        return each * own, ~splits & ~np.isin(workload.choices, SIDES)
    # Partial sums are stored as they are reduce-scattered.
    numbers = layouts.inputs[0] if tensor.reads else layouts.output
    return element_bytes * prod(tensor.shape), numbers[:, node] == 0


def _splits(
    choices_of_nodes: Sequence[Sequence[Choice | None]], axes: Sequence[str]
) -> NDArray[np.bool_]:
    """Return which choices split one of some axes: ``(choices, nodes)``."""
    columns = [
        [(choice.axis if choice else BATCH) in axes for choice in choices]
        for choices in choices_of_nodes
    ]
    return np.array(columns, bool).T


def _at_all_levels(lacks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which choices split none of a tensor's axes at any level."""
    at_all: NDArray[np.bool_] = np.logical_and.reduce(lacks.reshape(-1, *lacks.shape[-2:]))
    return at_all


def at_price(held: Integers, price: Fraction) -> Integers:
    """Return the charges of bytes, each at a price, rounded down."""
    return scale(held, price, "down")


@dataclass(frozen=True, eq=False)
class PricedLoad:
    """Bytes at a price: a Lagrangian relaxation of a capacity.

    Parameters
    ----------
    price
        Charges for a byte of all accelerators together.
    """

    load: DeviceLoad
    price: Fraction

    def charges(self, nodes: Indices, states: States) -> Integers:
        """Return what the bytes of nodes cost, rounded down."""
        return at_price(self.load.of(nodes, states), self.price)

    @property
    def upper_bound(self) -> int:
        return int(self.price * self.load.upper_bound) + 1
