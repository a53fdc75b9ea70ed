"""What nodes compute in a pass and a state: the kernels of a training step, and its updates.

Amounts are those of all accelerators together: a tensor has a copy in each part of a level if it
lacks the axis that the level splits, and if nothing is split each part does all of the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from hypar_opt.frozen import FrozenDict
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.sharding.layouts import TOKEN
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.operations import Kernel, Update
from hypar_opt.step.states import copies, exact_sum, level_choices, replicas
from hypar_opt.step.uneven import loads_of, padded, padded_sizes, split_sizes
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.mirrored import are_mirrored, causal_nodes, windowed_nodes
from hypar_opt.workload.operators.attention import Attention
from hypar_opt.workload.operators.base import elements
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import SINGLE_PASS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.step.shares import WorkOfPart
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload

    Flags = NDArray[np.bool_]

MacCount = Literal["input", "output"]
Sizes = Mapping[str, tuple[int, int]]
NO_SIZES: Sizes = FrozenDict()


def passes_of(workload: Workload, phase: Phase) -> NDArray[np.int64]:
    """Return how often a step computes each node's pass."""
    forward, backward = workload.repeats.passes(len(workload.nodes))
    return forward if phase is Phase.FORWARD else backward


def layer_macs(workload: Workload, mac_count: MacCount, input_sizes: Sizes = NO_SIZES) -> list[int]:
    """Return each layer's multiply-accumulates of one pass over the batch.

    They are counted over the output, or with ``mac_count = "input"`` over the input, as in the
    paper: ``B * K * K * C_in * C_out * H_in * W_in``, which ignores stride and padding.

    Parameters
    ----------
    input_sizes
        ``{layer: (height, width)}`` that replace the network's own. The paper's times of AlexNet
        need those of the authors' later network file.

    Source: docs/assumptions.md.
    """
    if mac_count == "output":
        return [layer.macs for layer in workload.nodes]
    return [
        workload.batch
        * math.prod(layer.weight)
        * math.prod(input_sizes.get(layer.name, _positions(layer)))
        if layer.macs and layer.weight
        else layer.macs
        for layer in workload.nodes
    ]


def _positions(layer: LayerTensors) -> tuple[int, ...]:
    """Return the height and width of a layer's input, or its tokens; nothing for a vector."""
    return tuple(layer.sizes[axis] for axis in ("t", "h", "w") if axis in layer.sizes)


def local_tensors(workload: Workload, hierarchy: Hierarchy) -> list[tuple[Integers, Flags]]:
    """Return the elements of nodes' weights, operands and output, and which choices replicate them.

    Elements are in integers wide enough for several times the copies of all accelerators.

    Returns
    -------
    list of (elements, lacks)
        ``(nodes,)`` and ``(choices, nodes)``.
    """
    dtype = exact_dtype(MAX_QUARTERS * elements_touched(workload) * hierarchy.accelerators)
    layouts = workload.layouts
    sizes = (workload.weights, *workload.operand_sizes, workload.pooled)
    return [
        (np.array(elements, dtype), numbers < FIRST_SPLIT)
        for elements, numbers in zip(
            sizes, (layouts.weight, *layouts.inputs, layouts.output), strict=True
        )
    ]


def local_words(
    workload: Workload, nodes: Indices, states: States, hierarchy: Hierarchy
) -> tuple[Integers, Integers, Integers]:
    """Return the words of nodes' weights, input and output, in all accelerators together.

    An accelerator has shards of the weights, of the input and of the output after pooling, and each
    pass touches them once. Times the number of accelerators these are integers.

    Source: docs/assumptions.md.
    """
    weights, *inputs, pooled = (
        sizes[nodes] * copies(lacks, nodes, states, hierarchy)
        for sizes, lacks in local_tensors(workload, hierarchy)
    )
    return weights, exact_sum(inputs), pooled


MAX_QUARTERS = 128
"""An upper bound on how often a pass reads or writes an element, in quarters, products included."""


@lru_cache(maxsize=64)
def elements_touched(workload: Workload) -> int:
    """Return an upper bound on the elements of all tensors together, those within layers too."""
    inner: int = sum(inner_elements(with_repeats(workload, SINGLE_PASS)).tolist())
    return workload.elements + inner


@lru_cache(maxsize=64)
def inner_elements(workload: Workload) -> NDArray[np.object_]:
    """Return the elements of each node's inner tensor, as attention's scores: ``(nodes,)``."""
    inner: list[int] = [elements(node.operator.inner, node.sizes) for node in workload.nodes]
    return np.array(inner, object)


@dataclass(frozen=True)
class WorkRules:
    """The kernels of nodes on the accelerators of a hierarchy.

    Parameters
    ----------
    by_largest_shard
        Whether amounts are scaled as if all accelerators had the largest shard of a layer, where an
        axis is not divided evenly. Otherwise axes are divided exactly, as in the paper.
    mac_count, input_sizes
        As `layer_macs` takes them.
    skips_masked
        Whether attention skips the scores that a causal mask hides: of a sequence in order the last
        part then has the most scores.
    part
        The part of the work that an accelerator has, if parts of H1 are unequal.
    """

    hierarchy: Hierarchy
    by_largest_shard: bool = False
    mac_count: MacCount = "output"
    input_sizes: Sizes = field(default_factory=lambda: NO_SIZES)
    skips_masked: bool = False
    part: WorkOfPart | None = None

    def kernels(
        self, workload: Workload, nodes: Indices, states: States, phases: Sequence[Phase]
    ) -> Iterator[Kernel]:
        """Yield what each pass of nodes computes, reads and writes, in states over all levels."""
        of_weights, *of_maps = local_tensors(workload, self.hierarchy)
        weights = self._amounts(workload, *of_weights, nodes, states, of_weights=True)
        *operands, output = (self._amounts(workload, *amount, nodes, states) for amount in of_maps)
        once, whole = with_repeats(workload, SINGLE_PASS), workload.layouts.whole
        inner = inner_elements(once).astype(output.dtype)
        amounts = (
            self._macs(workload, nodes, states),
            weights,
            exact_sum(operands).astype(output.dtype, copy=False),
            output,
            self._amounts(workload, inner, whole, nodes, states) if inner.any() else inner[nodes],
        )
        for phase in phases:
            yield Kernel(phase, passes_of(workload, phase)[nodes], *amounts)
        epilogues = workload.repeats.epilogues(len(workload.nodes))[nodes]
        if Phase.FORWARD in phases and epilogues.any():
            yield Kernel(Phase.FORWARD, epilogues, *amounts, epilogue=True)

    def update(
        self, workload: Workload, nodes: Indices, states: States, repeats: Repeats
    ) -> Update:
        """Return the update of the weights that nodes keep.

        Parameters
        ----------
        repeats
            For which nodes parts with the same weights each update a shard of them.
        """
        stored = np.array(workload.stored, exact_dtype(workload.elements * self._accelerators))
        lacks = workload.layouts.weight < FIRST_SPLIT
        words = self._amounts(workload, stored, lacks, nodes, states, of_weights=True)
        if repeats.sharded:
            first = repeats.state_start_levels(len(stored))
            levels = np.arange(self.hierarchy.levels)[:, None, None]
            words = words // copies(lacks & (levels >= first), nodes, states, self.hierarchy)
        return Update(words)

    @property
    def _accelerators(self) -> int:
        return self.hierarchy.accelerators

    def macs(self, workload: Workload) -> Integers:
        """Return each node's multiply-accumulates in a pass, in integers for all accelerators."""
        sizes = tuple(sorted(self.input_sizes.items()))
        macs = _macs(with_repeats(workload, SINGLE_PASS), self.mac_count, sizes)
        return macs.astype(exact_dtype(int(macs.max()) * self._accelerators), copy=False)

    def _macs(self, workload: Workload, nodes: Indices, states: States) -> Integers:
        """Return the multiply-accumulates of a pass of nodes, in all accelerators together."""
        # Every choice splits the work, except one that splits nothing: then each part does all.
        layouts, macs = workload.layouts, self.macs(workload)
        amounts = self._amounts(workload, macs, layouts.whole, nodes, states)
        once = with_repeats(workload, SINGLE_PASS)
        causal, mirrored = causal_nodes(once), are_mirrored(once, self._accelerators)
        if mirrored:
            causal = windowed_nodes(once)  # all parts have equally many scores
        # The first token of an unequal part is unknown.
        skips = (
            self.skips_masked and self.by_largest_shard and self.part is None and bool(causal.any())
        )
        if not skips or TOKEN not in layouts.names:
            return amounts
        by_token = causal & (layouts.output == layouts.names.index(TOKEN))
        split = (by_token[choice, nodes] for choice in level_choices(states))
        parts = replicas(split, self.hierarchy.sizes)
        if not windowed_nodes(once).any():
            # The last of parts in order has 2 - 1/parts times the mean number of scores.
            return padded(amounts, [(parts, 2 * parts - 1)])
        return padded(amounts, [_largest_unmasked(once, nodes, parts, mirrored=mirrored)])

    def _amounts(
        self,
        workload: Workload,
        sizes: Integers,
        lacks: Flags,
        nodes: Indices,
        states: States,
        *,
        of_weights: bool = False,
    ) -> Integers:
        """Return an amount of nodes in all accelerators together: of words, or of operations.

        By the largest shard, an axis of 12 in eight parts counts as one of 16.

        Parameters
        ----------
        sizes : (nodes,)
            Before any split: the product of the sizes of axes.
        lacks : (choices, nodes)
            Whether a choice splits none of them, so that each part has all.
        of_weights
            Whether they are of weights, of which each expert has equally many.
        """
        if self.part is not None:
            arguments = workload, sizes, lacks, nodes, states, self.hierarchy
            return self.part.amounts(*arguments, by_largest_shard=self.by_largest_shard)
        amounts: Integers = sizes[nodes] * copies(lacks, nodes, states, self.hierarchy)
        if self.by_largest_shard:
            split = np.where(lacks, 0, split_sizes(workload))[:, nodes]
            loads = None if of_weights else loads_of(workload, lacks, nodes)
            amounts = padded(amounts, padded_sizes(split, states, self.hierarchy, loads=loads))
        return amounts


def _largest_unmasked(
    workload: Workload, nodes: Indices, parts: Integers, *, mirrored: bool
) -> tuple[Integers, Integers]:
    """Return the scores of the part with most unmasked ones, over the mean of all parts.

    As a denominator and a numerator, for nodes in states.

    Parameters
    ----------
    parts
        The number of parts into which each node's tokens are split.
    """
    numbers, parts = np.broadcast_arrays(nodes, parts)
    under, over = np.ones((2, *numbers.shape), np.int64)
    for node in np.unique(numbers).tolist():
        operator = workload.nodes[node].operator
        if not isinstance(operator, Attention):
            continue
        tokens, of_node = workload.nodes[node].sizes["t"], numbers == node
        for count in np.unique(parts[of_node]).tolist():
            share = _unmasked_share(operator, tokens, count, mirrored=mirrored)
            split = of_node & (parts == count)
            over[split], under[split] = share.as_integer_ratio()
    return under, over


@lru_cache(maxsize=1024)
def _unmasked_share(operator: Attention, tokens: int, parts: int, *, mirrored: bool) -> Fraction:
    """Return the scores of the part of a sequence that has most, over the mean of all parts.

    That is the last of parts in order, and the middle one of mirrored parts.
    """
    if not operator.causal or parts == 1:
        return Fraction(1)
    size, end = Fraction(tokens, parts), Fraction(tokens)
    if mirrored:
        end = (tokens + size) / 2
    scores = operator.pairs(end) - operator.pairs(end - size)
    return parts * scores / operator.pairs(tokens)


@lru_cache(maxsize=64)
def _macs(
    workload: Workload, mac_count: MacCount, sizes: tuple[tuple[str, tuple[int, int]], ...]
) -> Integers:
    macs = layer_macs(workload, mac_count, dict(sizes))
    return np.array(macs, exact_dtype(max(macs)))
