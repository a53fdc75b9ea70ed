"""A plan's graph: layers, what they share, and the tensors between them, as proofs see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.proofs.reference.images import ReadImage
    from hypar_opt.workload.operators.axes import Axes
    from hypar_opt.workload.operators.kernels import PassKernels
    from hypar_opt.workload.operators.maps import Map

State = tuple[int, ...]
"""A node's choices at the topmost levels, H1 first."""

SplitAxis = tuple[int, int]
"""A choice, and the size of the axis that it splits."""

LongestParts = tuple[tuple[int, int], ...]
"""Of each axis that is divided unevenly: its size, and that of as many parts like the longest."""


class Split(NamedTuple):
    """The effect of a choice: the size of the axis that it splits, and each tensor's layout."""

    size: int
    """The size of the axis that is split; 0 if none is."""
    inputs: tuple[str, ...]
    """The axis that is read in parts, of each operand: ``batch``, ``token``, ``channel`` or, after
    a shuffle, ``shuffled``; or ``whole``; or ``partial``, where addends are read."""
    output: str
    """The axis that is written in parts: ``batch``, ``token`` or ``channel``; or ``partial``; or
    ``whole``, where nothing is split."""
    keeps_weights: bool
    """Whether each part has all weights, and so partial sums of their gradient."""
    last_resort: bool = False
    """Whether the layer is whole only where no other choice fits."""
    most: int = 0
    """The most parts, all of them equal, of an axis of images; 0 of another axis."""

    @property
    def shares_statistics(self) -> bool:
        """Whether each part has the statistics of its own channels only."""
        return "channel" in self.inputs


class Operand(NamedTuple):
    """The axes of what a layer reads, and the inputs that have them."""

    axes: Axes
    maps: tuple[Map, ...]


class CopiedBy(NamedTuple):
    """The choices that leave copies of each of a layer's tensors, one in each part."""

    weights: frozenset[int]
    inputs: tuple[frozenset[int], ...]
    outputs: frozenset[int]


@dataclass(frozen=True)
class PlanNode:
    """One layer, or what several layers share: its tensors in elements, of a whole micro-batch.

    Parameters
    ----------
    weights, stored
        W as its passes read it; and as it keeps it and reduces its gradient: another node does
        for weights that are shared.
    inputs
        What it reads, operand by operand; further inputs are counted with the last.
    outputs, pooled
        Its output before (F') and after pooling (F).
    macs, macs_by_input
        Multiply-accumulates of a pass, over the output or, as the paper counts, the input.
    splits
        The effect of each choice that the plan's problem has; None of those that it lacks.
    statistics
        Elements that are all-reduced where its channels are split: forward and backward.
    kernel_rows, output_rows
        1 of a layer without a kernel.
    is_convolution
        Whether it slides a kernel over images, be it one of a single pixel.
    inner, kernels
        Elements of an inner tensor, and the kernels of each pass, on a machine that has them.
    image
        What it reads of images, where parts of them read of one another.
    is_causal, has_tokens
        Whether its tokens see only those before them; and whether it reads or writes any tokens.
    ends_in_sums
        Whether nothing is computed of its sums, so that addends of them may be added up later.
    """

    name: str = field(compare=False)
    splits: tuple[Split | None, ...]
    weights: int = 0
    stored: int = 0
    inputs: tuple[int, ...] = (0,)
    outputs: int = 0
    pooled: int = 0
    macs: int = 0
    macs_by_input: int = 0
    statistics: tuple[int, int] = (0, 0)
    kernel_rows: int = 1
    output_rows: int = 1
    is_convolution: bool = False
    inner: int = 0
    kernels: tuple[PassKernels, ...] = ()
    image: ReadImage | None = None
    is_causal: bool = False
    has_tokens: bool = False
    ends_in_sums: bool = False

    @cached_property
    def own(self) -> dict[int, Split]:
        """The choices that it has, by their numbers."""
        return {number: split for number, split in enumerate(self.splits) if split is not None}

    @cached_property
    def copied_by(self) -> CopiedBy:
        splits = self.own.items()
        return CopiedBy(
            weights=frozenset(c for c, split in splits if split.keeps_weights),
            inputs=tuple(
                frozenset(c for c, split in splits if split.inputs[n] in ("whole", "partial"))
                for n in range(len(self.inputs))
            ),
            outputs=frozenset(c for c, split in splits if split.output in ("partial", "whole")),
        )

    @property
    def tensors(self) -> tuple[int, ...]:
        """The elements of W, of each operand, and of F."""
        return self.weights, *self.inputs, self.pooled

    @property
    def copied(self) -> tuple[frozenset[int], ...]:
        """The choices that leave copies of each of its `tensors`, one in each part."""
        weights, inputs, outputs = self.copied_by
        return weights, *inputs, outputs

    def copies(self, state: State, hierarchy: Hierarchy) -> list[int]:
        """Return the copies of each of its `tensors` in all parts of a state's levels together."""
        levels = [*zip(state, hierarchy.sizes, strict=False)]
        return [
            prod(parts for choice, parts in levels if choice in choices) for choices in self.copied
        ]

    def axes(self, layouts: Sequence[str | None]) -> tuple[SplitAxis, ...]:
        """Return the axes of a tensor that choices split, given its layout under each of them."""
        return tuple(
            (choice, split.size)
            for choice, split in self.own.items()
            if layouts[choice] not in ("partial", "whole")
        )


AtH1 = Callable[[int], int]
"""Returns how many indices of an axis of some size a part of H1 has."""


def longest_parts(
    axes: Iterable[SplitAxis], state: State, hierarchy: Hierarchy, at_h1: AtH1 | None = None
) -> LongestParts:
    """Return which axes a state of all levels divides unevenly.

    Parameters
    ----------
    at_h1
        Of a part of H1 between groups: what it has of an axis that H1 divides by shares.
    """
    uneven = []
    for choice, size in axes:
        levels = [level for level, made in enumerate(state) if made == choice]
        parts, own = hierarchy.parts(levels), size
        below = parts
        if at_h1 is not None and 0 in levels and size:
            own, below = at_h1(size), parts // hierarchy.sizes[0]
        longest = -(-own // below) * parts
        if longest != size:
            uneven.append((size, longest))
    return tuple(uneven)


def of_longest(amount: int, uneven: LongestParts) -> int:
    """Return an amount as if every part were as long as the longest, rounded up axis by axis."""
    for size, longest in uneven:
        amount = -(-amount * longest // size)
    return amount


class PlanEdge(NamedTuple):
    """A tensor of ``elements`` between two nodes, or weights that the target uses.

    Of a tensor, ``images`` to ``experts`` are the sizes of the axes that layouts split, and
    ``operand`` is the number of the target's that it is, or is counted with. Unless it
    ``has_error``, as of a choice between experts, nothing is sent back.
    """

    source: int
    target: int
    elements: int
    weights: bool = False
    images: int = 1
    channels: int = 1
    tokens: int = 1
    rows: int = 1
    columns: int = 1
    experts: int = 1
    operand: int = 0
    has_error: bool = True


class PlanGraph(NamedTuple):
    """All nodes, what is shared first; and the edges between their positions."""

    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]
    shared: int

    @property
    def reads_whole(self) -> bool:
        return any("whole" in split.inputs for node in self.nodes for split in node.own.values())

    def adds_up(self) -> list[bool]:
        """Return of each edge whether its target may take addends as its source leaves them."""
        sources = [edge.source for edge in self.edges]
        return [
            not edge.weights
            and sources.count(edge.source) == 1
            and self.nodes[edge.source].ends_in_sums
            and any(own.output == "partial" for own in self.nodes[edge.source].own.values())
            and any("partial" in own.inputs for own in self.nodes[edge.target].own.values())
            for edge in self.edges
        ]

    def users(self, node: int) -> list[int]:
        """Return the layers that use shared weights; none of a shared tensor."""
        return [edge.target for edge in self.edges if edge.weights and edge.source == node]
