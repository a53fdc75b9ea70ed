"""The nodes and edges of a plan's graph, derived a second time from the network's description.

A kind of layer declares its axes and the one that each choice splits; all else is derived here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.proofs.reference.images import PARTS, Image, hides_rows, strip_of
from hypar_opt.workload.operators.maps import FeatureMap
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.operators.axes import Axes, Choice
    from hypar_opt.workload.operators.base import LayerMaps, Operator
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
    a shuffle, ``shuffled``; or ``whole``."""
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
    inner, kernels
        Elements of an inner tensor, and the kernels of each pass, on a machine that has them.
    image
        What it reads of images, where parts of them read of one another.
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
    inner: int = 0
    kernels: tuple[PassKernels, ...] = ()
    image: Image | None = None

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
                frozenset(c for c, split in splits if split.inputs[n] == "whole")
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


def longest_parts(axes: Iterable[SplitAxis], state: State, hierarchy: Hierarchy) -> LongestParts:
    """Return which axes a state of all levels divides unevenly."""
    uneven = []
    for choice, size in axes:
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

    Of a tensor, ``images``, ``channels``, ``tokens``, ``rows`` and ``columns`` are the sizes of the
    axes that layouts split, and ``operand`` is the number of the target's that it is, or is counted with.
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
    operand: int = 0


class PlanGraph(NamedTuple):
    """All nodes, what is shared first; and the edges between their positions."""

    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]
    shared: int

    @property
    def reads_whole(self) -> bool:
        return any("whole" in split.inputs for node in self.nodes for split in node.own.values())

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
            replace(x, splits=tuple(s if s and s.output != "whole" else None for s in x.splits))
            for x in layers
        ]
    position = {layer.name: n for n, layer in enumerate(network.layers)}
    tied: dict[int, list[int]] = {}
    for n, layer in enumerate(network.layers):
        if layer.shares_weights_with is not None:
            owner = position[layer.shares_weights_with]
            tied.setdefault(owner, [owner]).append(n)
    read = [
        (source, n, number)
        for n, (_, _, sources) in enumerate(described)
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
        over, elements = described[writer][1].pooled, layers[writer].pooled
        axes = images_of(plan), over.channels, over.tokens or 1, *_extent(over)
        operand = min(number, len(nodes[target].inputs) - 1)
        edges.append(PlanEdge(source, target, elements, False, *axes, operand))
    # The order in which the search has them: a certificate counts on it.
    edges.sort(key=lambda edge: (edge.target, edge.source))
    nodes = _without_hidden(
        nodes,
        edges,
        [frozenset()] * shared + [hides_rows(layer, maps) for layer, maps, _ in described],
    )
    return PlanGraph(tuple(nodes), tuple(edges), shared)


def _extent(over: Map) -> tuple[int, int]:
    return (over.height, over.width) if isinstance(over, FeatureMap) else (1, 1)


def _without_hidden(
    nodes: Sequence[PlanNode], edges: Sequence[PlanEdge], hidden: list[frozenset[str]]
) -> list[PlanNode]:
    """Return nodes that read no rows or columns of a tensor whose own pool straddles them."""
    kept = [*nodes]
    for edge in edges:
        here = frozenset() if edge.weights else hidden[edge.source]
        if here:
            splits = kept[edge.target].splits
            left = (None if s and {*s.inputs, s.output} & here else s for s in splits)
            kept[edge.target] = replace(kept[edge.target], splits=tuple(left))
            if kept[edge.target].name.startswith("output of "):  # whoever reads that reads it
                hidden[edge.target] |= here
    return kept


def _image(
    described: Operator, operands: Sequence[Operand], maps: LayerMaps, plan: Plan
) -> Image | None:
    """Return what parts of a layer's images read of one another, if it is another layer's."""
    over = maps.input
    if not isinstance(over, FeatureMap) or not {"rows", "columns"} & {*plan.choices}:
        return None
    strips = [strip_of(described, maps, axis, operands) for axis in PARTS]
    rows, columns = (strip.halo if strip else 0 for strip in strips)
    if not rows and not columns:
        return None
    return Image(images_of(plan) * over.channels, _extent(over), (rows, columns))


def _layer(described: Operator, maps: LayerMaps, plan: Plan) -> PlanNode:
    batch, weight = images_of(plan), described.contraction.weight
    sizes = {"b": batch, **described.sizes(maps)}
    kernel = prod(sizes[axis] for axis in weight if axis in sizes) if weight else 0
    macs = described.macs(sizes)
    pixels = prod(sizes[axis] for axis in ("t", "h", "w") if axis in sizes)
    (forward, backward), positions = described.statistics, batch * maps.output.positions
    operands = _operands(described, maps)
    return PlanNode(
        described.name,
        splits=tuple(_splits(described, operands, maps, sizes, plan)),
        weights=kernel,
        stored=kernel,
        inputs=tuple(batch * sum(over.elements for over in own) for _, own in operands),
        outputs=batch * maps.output.elements,
        pooled=batch * maps.pooled.elements,
        macs=macs,
        macs_by_input=batch * kernel * pixels if kernel and macs else macs,
        statistics=(forward * positions, backward * positions),
        kernel_rows=sizes.get("k", 1),
        output_rows=sizes.get("p", 1),
        inner=prod(sizes[axis] for axis in described.inner) if described.inner else 0,
        kernels=_kernels(described, plan),
        image=_image(described, operands, maps, plan),
    )


def _kernels(described: Operator, plan: Plan) -> tuple[PassKernels, ...]:
    """Return the kernels of each pass, where the plan's array has them."""
    if plan.array is None or plan.array.description.accelerator.gemm is None:
        return ()
    fused = plan.array.description.accelerator.attention != "unfused"
    return described.kernels(fused=fused)


def _splits(
    described: Operator,
    operands: Sequence[Operand],
    maps: LayerMaps,
    sizes: dict[str, int],
    plan: Plan,
) -> Iterator[Split | None]:
    weight, written = described.contraction.weight, described.contraction.output
    for word in plan.choices:
        if word in SIDES:  # all in one part of H1
            yield Split(0, (word,) * len(operands), word, keeps_weights=False)
            continue
        choice = described.splits.get(word)
        if choice is None or not _is_offered(choice, operands, maps, sizes):
            yield None
            continue
        if not choice.axis:  # nothing is split
            whole = ("whole",) * len(operands)
            last = described.whole_if_uneven
            yield Split(0, whole, "whole", keeps_weights=bool(weight), last_resort=last)
            continue
        part = {"b": "batch", "t": "token", **PARTS}.get(choice.axis, "channel")
        strip = strip_of(described, maps, choice.axis, operands) if choice.axis in PARTS else None
        if choice.axis in PARTS and strip is None:
            yield None
            continue
        yield Split(
            strip.size if strip else sizes[choice.axis],
            # A tensor that the layer does not have is neither whole nor a partial sum.
            inputs=tuple(_read_as(axes, choice.axis, part) for axes, _ in operands),
            output=part if not written or choice.axis in written else "partial",
            keeps_weights=bool(weight) and choice.axis not in weight,
            most=strip.most if strip else 0,
        )


def _operands(described: Operator, maps: LayerMaps) -> list[Operand]:
    """Return the operands of a layer: an only input may have several of them side by side."""
    declared, read = [*described.contraction.inputs.values()], maps.inputs
    if not declared:  # ids of an embedding are no feature map
        return [Operand((), ())]
    if len(read) < len(declared):
        of_all = (axis for axis in declared[0] if all(axis in axes for axes in declared))
        return [Operand(tuple(of_all), read)]
    *first, last = declared
    each = [Operand(axes, (over,)) for axes, over in zip(first, read, strict=False)]
    return [*each, Operand(last, read[len(first) :])]


def _read_as(axes: Axes, axis: str, part: str) -> str:
    if f"{axis}'" in axes:
        return "shuffled"
    return part if not axes or axis in axes else "whole"


def _is_offered(
    choice: Choice, operands: Sequence[Operand], maps: LayerMaps, sizes: dict[str, int]
) -> bool:
    """Return whether a layer has a choice: tokens only where each tensor by token has all."""
    if choice.axis != "t":
        return True
    read = (over for axes, over_all in operands if "t" in axes for over in over_all)
    return all(0 < over.tokens == sizes.get("t") for over in (maps.output, *read))


def _weights(owner: PlanNode) -> PlanNode:
    """Return the node of shared weights: whole, or split as its users split them."""
    first, *others = owner.splits
    assert first is not None, "all kinds of layers split the batch"
    # Of an embedding and of a fully-connected layer alike the choices that do not keep all weights
    # split them; that an axis is one of their tensors' does not matter here.
    splits = (
        None
        if split is None or split.keeps_weights
        else split._replace(inputs=(split.output,))
        if split.output in SIDES
        else Split(split.size, ("channel",), "channel", keeps_weights=False)
        for split in others
    )
    whole = Split(first.size, ("batch",), "batch", keeps_weights=True)
    return PlanNode(f"weights of {owner.name}", (whole, *splits), stored=owner.weights)


def _tensor(writer: Operator, maps: LayerMaps, plan: Plan) -> PlanNode:
    over = maps.pooled
    sizes = {"batch": images_of(plan), "channel": over.channels, "whole": 0, "token": over.tokens}
    layouts = {"data": "batch", "model": "channel", "output": "whole", "tokens": "token"}
    layouts |= {"rows": "row", "columns": "column"}
    extents = dict(zip(("row", "column"), _extent(over), strict=True))
    layouts |= {side: side for side in SIDES}
    splits = (
        None
        if (layout == "token" and not over.tokens) or extents.get(layout) == 1
        else Split(
            {**sizes, **extents}.get(layout, 0),
            (layout,),
            layout,
            keeps_weights=False,
            most=extents.get(layout, 0),
        )
        for layout in map(layouts.__getitem__, plan.choices)
    )
    return PlanNode(f"output of {writer.name}", tuple(splits))
