"""The nodes and edges of a plan's graph, derived a second time from the network's description.

A kind of layer declares its axes and the one that each choice splits; all else is derived here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.operators.base import LayerMaps, Operator
    from hypar_opt.workload.operators.kernels import PassKernels


State = tuple[int, ...]
"""A node's choices at the topmost levels, H1 first."""

LongestParts = tuple[tuple[int, int], ...]
"""Of each axis that is divided unevenly: its size, and that of as many parts like the longest."""


class Split(NamedTuple):
    """The effect of a choice: the size of the axis that it splits, and each tensor's layout."""

    size: int
    """The size of the axis that is split; 0 if none is."""
    reads: tuple[str, ...]
    """The axis of each operand that is read in parts: ``batch``, ``channel`` or, after a shuffle,
    ``shuffled``; or ``whole``. Inputs beyond the operands are as the last."""
    output: str
    """The axis that is written in parts: ``batch`` or ``channel``; or ``partial``; or
    ``whole``, where nothing is split."""
    keeps_weights: bool
    """Whether each part has all weights, and so partial sums of their gradient."""
    last_resort: bool = False
    """Whether the layer is whole only where no other choice fits."""

    @property
    def shares_statistics(self) -> bool:
        """Whether each part has the statistics of its own channels only."""
        return self.reads[0] != "batch" and self.output != "whole"

    def reads_as(self, number: int) -> str:
        """Return how an input is read."""
        return self.reads[min(number, len(self.reads) - 1)]


@dataclass(frozen=True)
class PlanNode:
    """One layer, or what several layers share: its tensors in elements, of a whole micro-batch.

    Parameters
    ----------
    weights, stored
        W as its passes read it; and as it keeps it and reduces its gradient: another node does
        for weights that are shared.
    operands, outputs, pooled
        Each operand that it reads, and its output before (F') and after pooling (F).
    macs, macs_by_input
        Multiply-accumulates of a pass, over the output or, as the paper counts, the input.
    splits
        The effect of each choice of its kind, of those that the plan's problem has.
    statistics
        Elements that are all-reduced where its channels are split: forward and backward.
    kernel_rows, output_rows
        1 of a layer without a kernel.
    inner, kernels
        Elements of an inner tensor, and the kernels of each pass, on a machine that has them.
    """

    name: str = field(compare=False)
    splits: tuple[Split, ...]
    weights: int = 0
    stored: int = 0
    operands: tuple[int, ...] = (0,)
    outputs: int = 0
    pooled: int = 0
    macs: int = 0
    macs_by_input: int = 0
    statistics: tuple[int, int] = (0, 0)
    kernel_rows: int = 1
    output_rows: int = 1
    inner: int = 0
    kernels: tuple[PassKernels, ...] = ()

    @property
    def tensors(self) -> tuple[int, ...]:
        """The elements of W, of each operand, and of F."""
        return self.weights, *self.operands, self.pooled

    @cached_property
    def copied_by(self) -> tuple[frozenset[int], ...]:
        """The choices that leave copies of each of its `tensors`, one in each part."""
        splits = list(enumerate(self.splits))
        return (
            frozenset(c for c, split in splits if split.keeps_weights),
            *(
                frozenset(c for c, split in splits if split.reads_as(number) == "whole")
                for number in range(len(self.operands))
            ),
            frozenset(c for c, split in splits if split.output in ("partial", "whole")),
        )

    def copies(self, state: State, hierarchy: Hierarchy) -> list[int]:
        """Return the copies of each of its `tensors` in all parts of a state's levels together."""
        levels = [*zip(state, hierarchy.sizes, strict=False)]
        return [
            prod(parts for choice, parts in levels if choice in choices)
            for choices in self.copied_by
        ]


def longest_parts(sizes: Iterable[int], state: State, hierarchy: Hierarchy) -> LongestParts:
    """Return the axes that a state of all levels divides unevenly.

    Parameters
    ----------
    sizes
        Of the axis that each choice splits; 0 of those that do not count.
    """
    uneven = []
    for choice, size in enumerate(sizes):
        parts = hierarchy.parts(level for level, made in enumerate(state) if made == choice)
        if size % parts:
            uneven.append((size, -(-size // parts) * parts))
    return tuple(uneven)


def of_longest(amount: int, uneven: LongestParts) -> int:
    """Return an amount as if every part were as long as the longest, rounded up axis by axis."""
    for size, longest in uneven:
        amount = -(-amount * longest // size)
    return amount


class PlanEdge(NamedTuple):
    """A tensor of ``elements`` between two nodes, or weights that the target uses.

    Of a tensor, ``images`` and ``channels`` are the sizes of the axes that layouts split, and
    ``number`` is that of the target's input.
    """

    source: int
    target: int
    elements: int
    weights: bool = False
    images: int = 1
    channels: int = 1
    number: int = 0


class PlanGraph(NamedTuple):
    """All nodes, what is shared first; and the edges between their positions."""

    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]
    shared: int

    @property
    def reads_whole(self) -> bool:
        return any("whole" in split.reads for node in self.nodes for split in node.splits)

    def users(self, node: int) -> list[int]:
        """Return the layers that use shared weights; none of a shared tensor."""
        return [edge.target for edge in self.edges if edge.weights and edge.source == node]


def images_of(plan: Plan) -> int:
    """Return the images that pass at once: those of a micro-batch."""
    return plan.batch // (plan.training.micro_batches or 1)


def nodes_of(plan: Plan, *, shared_tensors: bool) -> PlanGraph:
    """Return a plan's graph.

    Parameters
    ----------
    shared_tensors
        Whether a tensor with several readers is a node, and nodes may be whole.
    """
    network = plan.network.description
    described = list(zip(network.layers, network.maps(), network.sources, strict=True))
    layers = [_layer(layer, maps, plan) for layer, maps, _ in described]
    if not shared_tensors:
        layers = [
            replace(x, splits=tuple(s for s in x.splits if s.output != "whole")) for x in layers
        ]
    position = {layer.name: n for n, layer in enumerate(network.layers)}
    tied: dict[int, list[int]] = {}
    for n, layer in enumerate(network.layers):
        if layer.shares_weights_with is not None:
            owner = position[layer.shares_weights_with]
            tied.setdefault(owner, [owner]).append(n)
    read = [
        (source, reader, number)
        for reader, (_, _, sources) in enumerate(described)
        for number, source in enumerate(sources)
        if source >= 0
    ]
    readers = [sum(source == n for source, *_ in read) for n in range(len(layers))]
    several = [n for n, count in enumerate(readers) if count > 1 and shared_tensors]
    shared = len(tied) + len(several)
    tensor = {source: len(tied) + n for n, source in enumerate(several)}
    nodes = [_weights(layers[owner]) for owner in tied]
    nodes += [_tensor(network.layers[n], described[n][1], plan) for n in several]
    users = {user for of_owner in tied.values() for user in of_owner}
    nodes += [replace(layer, stored=0) if n in users else layer for n, layer in enumerate(layers)]
    edges = [
        PlanEdge(n, user + shared, layers[owner].weights, weights=True)
        for n, (owner, of_owner) in enumerate(tied.items())
        for user in of_owner
    ]
    ends = [(source, source + shared, node, 0) for source, node in tensor.items()]
    ends += [(n, tensor.get(n, n + shared), reader + shared, number) for n, reader, number in read]
    for writer, source, target, number in ends:
        channels = described[writer][1].pooled.channels
        edges.append(
            PlanEdge(
                *(source, target, layers[writer].pooled),
                images=images_of(plan),
                channels=channels,
                number=number,
            )
        )
    # The order in which the search has them: a certificate counts on it.
    edges.sort(key=lambda edge: (edge.target, edge.source))
    return PlanGraph(tuple(nodes), tuple(edges), shared)


def _layer(described: Operator, maps: LayerMaps, plan: Plan) -> PlanNode:
    batch, weight = images_of(plan), described.contraction.weight
    sizes = {"b": batch, **described.sizes(maps)}
    kernel = prod(sizes[axis] for axis in weight if axis in sizes) if weight else 0
    macs = described.macs(sizes)
    pixels = prod(sizes[axis] for axis in ("t", "h", "w") if axis in sizes)
    (forward, backward), positions = described.statistics, batch * maps.output.positions
    operands = [0] * len(_operands(described, 1 + len(maps.others)))
    # Ids of an embedding are no feature map.
    for number, over in enumerate(maps.inputs if described.contraction.inputs else ()):
        operands[min(number, len(operands) - 1)] += batch * over.elements
    return PlanNode(
        described.name,
        splits=tuple(_splits(described, len(maps.inputs), sizes, plan)),
        weights=kernel,
        stored=kernel,
        operands=tuple(operands),
        outputs=batch * maps.output.elements,
        pooled=batch * maps.pooled.elements,
        macs=macs,
        macs_by_input=batch * kernel * pixels if kernel and macs else macs,
        statistics=(forward * positions, backward * positions),
        kernel_rows=sizes.get("k", 1),
        output_rows=sizes.get("p", 1),
        inner=prod(sizes[axis] for axis in described.inner) if described.inner else 0,
        kernels=_kernels(described, plan),
    )


def _kernels(described: Operator, plan: Plan) -> tuple[PassKernels, ...]:
    """Return the kernels of each pass, where the plan's array has them."""
    if plan.array is None or plan.groups or plan.array.description.accelerator.gemm is None:
        return ()
    fused = plan.array.description.accelerator.attention != "unfused"
    return described.kernels(fused=fused)


def _operands(described: Operator, inputs: int) -> list[tuple[str, ...]]:
    """Return the axes of each operand; those that are side by side in one input have what all have.

    A layer that reads nothing has one operand, without axes.
    """
    declared = [*described.contraction.inputs.values()]
    if inputs < len(declared):
        first, *others = declared
        return [tuple(axis for axis in first if all(axis in axes for axes in others))]
    return declared or [()]


def _splits(described: Operator, inputs: int, sizes: dict[str, int], plan: Plan) -> Iterator[Split]:
    weight, written = described.contraction.weight, described.contraction.output
    operands = _operands(described, inputs)
    for choice in (described.splits[word] for word in plan.choices if word in described.splits):
        if not choice.axis:  # nothing is split
            last = described.whole_if_uneven
            whole = ("whole",) * len(operands)
            yield Split(0, whole, "whole", keeps_weights=bool(weight), last_resort=last)
            continue
        part = "batch" if choice.axis == "b" else "channel"
        yield Split(
            sizes[choice.axis],
            reads=tuple(_read(choice.axis, axes, part) for axes in operands),
            # A tensor that the layer does not have is neither whole nor a partial sum.
            output=part if not written or choice.axis in written else "partial",
            keeps_weights=bool(weight) and choice.axis not in weight,
        )


def _read(axis: str, axes: tuple[str, ...], part: str) -> str:
    """Return how an operand is read where an axis is split."""
    if f"{axis}'" in axes:
        return "shuffled"
    return part if not axes or axis in axes else "whole"


def _weights(owner: PlanNode) -> PlanNode:
    """Return the node of shared weights: whole, or split as its users split them."""
    first, *others = owner.splits
    # Of an embedding and of a fully-connected layer alike the choices beyond the first split the
    # weights; that an axis is one of their tensors' does not matter here.
    splits = [Split(split.size, ("channel",), "channel", keeps_weights=False) for split in others]
    whole = Split(first.size, ("batch",), "batch", keeps_weights=True)
    return PlanNode(f"weights of {owner.name}", (whole, *splits), stored=owner.weights)


def _tensor(writer: Operator, maps: LayerMaps, plan: Plan) -> PlanNode:
    splits = (
        Split(images_of(plan), ("batch",), "batch", keeps_weights=False),
        Split(maps.pooled.channels, ("channel",), "channel", keeps_weights=False),
        Split(0, ("whole",), "whole", keeps_weights=False),
    )
    return PlanNode(f"output of {writer.name}", splits[: len(plan.choices)])
