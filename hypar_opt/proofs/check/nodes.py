"""The nodes and edges of a plan's graph, derived a second time from the network's description.

Nodes are layers, what several of them share, and tensors with several readers. A kind of layer
declares its axes and the one that each choice splits; all else is derived here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.workload.operators.axes import (
    ADDENDS,
    BY_BATCH,
    BY_CHANNEL,
    FALLBACK_REPLICATED,
    PARTIAL,
    WHOLE,
    one_part_choice,
    operand_layout,
    output_layout,
)
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.operators.maps import ExpertMap, FeatureMap
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.operators.axes import Axes, Choice
    from hypar_opt.workload.operators.base import LayerMaps, Operator
    from hypar_opt.workload.operators.kernels import PassKernels
    from hypar_opt.workload.operators.maps import Load, Map

State = tuple[int, ...]
"""A node's choices at the topmost levels, H1 first."""


PARTS = {"p": "row", "q": "column"}
"""The choice that splits each axis of images."""


class Split(NamedTuple):
    """The effect of a choice: the size of the axis that it splits, and each tensor's layout.

    Parameters
    ----------
    size
        0 if no axis is split.
    inputs
        The layout in which each operand is read: the name of an axis, whole, or partial, where
        addends are read.
    output
        The layout of the output.
    keeps_weights
        Whether each part has all weights, and so partial sums of their gradient.
    last_resort
        Whether the layer is whole only if no other choice fits.
    max_parts
        The most parts, all equal, of an axis of images; 0 for another axis.
    shares_statistics
        Whether each part has only a share of the elements over which a norm's statistics are
        summed.
    load
        Counts of tokens along the axis, if parts have unequal numbers of them.
    """

    size: int
    inputs: tuple[str, ...]
    output: str
    keeps_weights: bool = False
    last_resort: bool = False
    max_parts: int = 0
    shares_statistics: bool = False
    load: Load = ()


class Strip(NamedTuple):
    """How a layer's rows, or columns, may be split.

    Parameters
    ----------
    size
        The rows that it writes, equally many in each part.
    max_parts
        The most parts such that each reads rows only of the part before it and of that behind.
    halo
        The rows that a part reads of both neighbours.
    """

    size: int
    max_parts: int
    halo: int


class ReadImage(NamedTuple):
    """The images of another layer that a layer reads.

    Parameters
    ----------
    planes
        The number of images times channels.
    extent
        Its rows and columns.
    halos
        The rows, and columns, that a part reads from others.
    """

    planes: int
    extent: tuple[int, int]
    halos: tuple[int, int]


@dataclass(frozen=True)
class PlanNode:
    """One layer, or what several layers share: its tensors in elements, of a whole micro-batch.

    Parameters
    ----------
    weights, stored
        The elements of W that its passes read; and those that it keeps, and whose gradient it
        reduces: shared weights are kept by another node.
    inputs
        The elements of each operand; further inputs are counted with the last.
    outputs, pooled
        Its output before (F') and after pooling (F).
    macs, macs_by_input
        Multiply-accumulates of a pass, over the output or, as the paper counts, the input.
    splits
        The effect of each choice of the plan's problem; None if the node lacks it.
    statistics
        Elements that are all-reduced if the axes that they sum over are split: forward and
        backward.
    kernel_rows, output_rows
        1 for a layer without a kernel.
    is_convolution
        Whether it slides a kernel over images, even one of a single pixel.
    inner, kernels
        Elements of an inner tensor, and the kernels of each pass, on a machine that has them.
    image
        The images that it reads, if parts of them exchange halos.
    sees
        The number of tokens, and of those that each attends to at most, itself the last; None
        without a mask.
    has_tokens
        Whether it reads or writes any tokens.
    ends_in_sums
        Whether its partial sums are not processed further, so that their reduction may be deferred.
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
    sees: tuple[int, int] | None = None
    has_tokens: bool = False
    ends_in_sums: bool = False

    @cached_property
    def choices(self) -> dict[int, Split]:
        """The numbers of its choices."""
        return {number: split for number, split in enumerate(self.splits) if split is not None}

    @cached_property
    def whole(self) -> frozenset[int]:
        """The choices that leave its output whole, so that all parts repeat the work."""
        return frozenset(c for c, split in self.choices.items() if split.output == WHOLE)

    @cached_property
    def partial(self) -> frozenset[int]:
        """The choices that leave partial sums."""
        return frozenset(c for c, split in self.choices.items() if split.output == PARTIAL)

    @cached_property
    def sharing_statistics(self) -> frozenset[int]:
        """The choices with which each part has only a share of the elements of statistics."""
        return frozenset(c for c, split in self.choices.items() if split.shares_statistics)

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """The elements of W, of each operand, and of F."""
        return self.weights, *self.inputs, self.pooled

    @cached_property
    def copied(self) -> tuple[frozenset[int], ...]:
        """The choices that leave copies of each of its `tensors`, one in each part."""
        splits, unsplit = self.choices.items(), (WHOLE, PARTIAL)
        weights = frozenset(c for c, split in splits if split.keeps_weights)
        inputs = (
            frozenset(c for c, split in splits if split.inputs[n] in unsplit)
            for n in range(len(self.inputs))
        )
        return weights, *inputs, self.whole | self.partial


def fused_of(plan: Plan) -> Fused:
    """Return the tensors that fused kernels of a plan's machine do not write."""
    return Fused.on(plan.array.description.accelerator if plan.array else None)


def indices_by_share(size: int, shares: Sequence[int]) -> list[int]:
    """Return the indices of an axis that each part has: cumulative shares are rounded."""
    whole = sum(shares)
    ends = [round(Fraction(size * end, whole)) for end in itertools.accumulate((0, *shares))]
    return [end - begin for begin, end in itertools.pairwise(ends)]


def copies_in(state: State, copying: Iterable[int], hierarchy: Hierarchy) -> int:
    """Return the parts of the levels of a state at which it makes one of some choices."""
    return hierarchy.parts(level for level, choice in enumerate(state) if choice in copying)


class PlanEdge(NamedTuple):
    """A tensor of ``elements`` between two nodes, or weights that the target uses.

    Of a tensor, ``axes`` has the sizes of those that layouts split, by their names, the channels
    last; and ``operand`` is the number of the target's that it is, or is counted with. Unless it
    ``has_error``, as of a choice between experts, nothing is sent back.
    """

    source: int
    target: int
    elements: int
    weights: bool = False
    axes: tuple[tuple[str, int], ...] = ()
    operand: int = 0
    has_error: bool = True


@dataclass(frozen=True)
class PlanGraph:
    """All nodes, shared ones first; and the edges between their positions."""

    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]
    shared: int

    @property
    def reads_whole(self) -> bool:
        return any(WHOLE in split.inputs for node in self.nodes for split in node.choices.values())

    @property
    def tensors(self) -> dict[int, int]:
        """The node of each output that several layers read, by its layer."""
        return {edge.source: edge.target for edge in self.edges if edge.target < self.shared}

    @cached_property
    def passing(self) -> set[int]:
        """The layers whose partial sums may be read as they are, as addends."""
        sources = [edge.source for edge in self.edges]
        return {
            edge.source
            for edge in self.edges
            if not edge.weights
            and sources.count(edge.source) == 1
            and self.nodes[edge.source].ends_in_sums
            and self.nodes[edge.source].partial
            and any(PARTIAL in split.inputs for split in self.nodes[edge.target].choices.values())
        }

    def users(self, node: int) -> list[int]:
        """Return the layers that use shared weights; none of a shared tensor."""
        return [edge.target for edge in self.edges if edge.weights and edge.source == node]


def images_of(plan: Plan) -> int:
    """Return the images of a micro-batch."""
    return plan.batch // (plan.training.micro_batches or 1)


def nodes_of(plan: Plan) -> PlanGraph:
    """Return a plan's graph; only readings of a run have nodes for shared tensors."""
    runs, network = plan.cost.reading in RUN_READINGS, plan.network.description
    described = list(zip(network.layers, network.maps(), network.sources, strict=True))
    layers = [_layer(layer, maps, plan) for layer, maps, _ in described]
    if not runs:
        layers = [_without(layer, layer.whole) for layer in layers]
    position = {layer.name: n for n, layer in enumerate(network.layers)}
    tied: dict[int, list[int]] = {}
    for n, layer in enumerate(network.layers):
        if layer.shares_weights_with is not None:
            owner = position[layer.shares_weights_with]
            tied.setdefault(owner, [owner]).append(n)
    # Several operands in a single input are several results of one layer.
    read = [
        (sources[min(number, len(sources) - 1)], n, number)
        for n, (_, maps, sources) in enumerate(described)
        for number in range(len(maps.inputs) if sources else 0)
        if sources[min(number, len(sources) - 1)] >= 0
    ]
    readers = [len({n for writer, n, _ in read if writer == m}) for m in range(len(layers))]
    several = [n for n, count in enumerate(readers) if count > 1 and runs]
    shared = len(tied) + len(several)
    tensor = {source: len(tied) + n for n, source in enumerate(several)}
    users = {user for of_owner in tied.values() for user in of_owner}
    nodes = [
        *(_weights(layers[owner]) for owner in tied),
        *(_tensor(network.layers[n], described[n][1], plan) for n in several),
        *(replace(layer, stored=0) if n in users else layer for n, layer in enumerate(layers)),
    ]
    edges = [
        PlanEdge(n, user + shared, layers[owner].weights, weights=True)
        for n, (owner, of_owner) in enumerate(tied.items())
        for user in of_owner
    ]
    ends = [(source, source + shared, node, 0) for source, node in tensor.items()]
    ends += [(n, tensor.get(n, n + shared), reader + shared, number) for n, reader, number in read]
    for writer, source, target, number in ends:
        over = described[writer][1].pooled
        if target >= shared and len(described[target - shared][2]) == 1:
            over = described[target - shared][1].inputs[number]
        operand = min(number, len(nodes[target].inputs) - 1)
        reader = network.layers[target - shared] if target >= shared else None
        chooses = reader is not None and reader.kind == "dispatch" and number == 1
        axes = tuple((name, size or 1) for name, size in _sizes(over, plan).items())
        elements = images_of(plan) * over.elements
        edges.append(PlanEdge(source, target, elements, False, axes, operand, not chooses))
    # The order of the search, on which certificates rely.
    edges.sort(key=lambda edge: (edge.target, edge.source))
    hidden = [frozenset[str]()] * shared
    hidden += [_straddled(layer, maps) for layer, maps, _ in described]
    visible = _drop_straddled(_split_by_result(nodes, edges), edges, hidden)
    return PlanGraph(tuple(visible), tuple(edges), shared)


def _sizes(over: Map, plan: Plan) -> dict[str, int]:
    """Return the sizes of a map's axes, 0 of one that it lacks; the channels last."""
    rows, columns = (over.height, over.width) if isinstance(over, FeatureMap) else (1, 1)
    experts = over.experts if isinstance(over, ExpertMap) else 0
    sizes = {BY_BATCH: images_of(plan), "token": over.tokens, "expert": experts}
    return {**sizes, "row": rows, "column": columns, BY_CHANNEL: over.channels}


def _load(maps: Iterable[Map]) -> Load:
    """Return the counts of tokens of experts, if a map is dispatched to them."""
    return next((over.load for over in maps if isinstance(over, ExpertMap)), ())


def _without(node: PlanNode, choices: Iterable[int]) -> PlanNode:
    """Return a node without some of its choices."""
    splits = (None if number in choices else split for number, split in enumerate(node.splits))
    return replace(node, splits=tuple(splits))


def _split_by_result(nodes: Sequence[PlanNode], edges: Sequence[PlanEdge]) -> list[PlanNode]:
    """Return nodes whose channels are divided result by result, if one node reads several."""
    read: dict[tuple[int, int], list[int]] = {}
    for edge in edges:
        if not edge.weights:
            read.setdefault((edge.source, edge.target), []).append(dict(edge.axes)[BY_CHANNEL])
    divided = [*nodes]
    for (source, _), channels in read.items():
        if len(channels) > 1:
            splits = (
                s._replace(size=gcd(s.size, *channels)) if s and s.output == BY_CHANNEL else s
                for s in divided[source].splits
            )
            divided[source] = replace(divided[source], splits=tuple(splits))
    return divided


def _drop_straddled(
    nodes: Sequence[PlanNode], edges: Sequence[PlanEdge], hidden: list[frozenset[str]]
) -> list[PlanNode]:
    """Return nodes without splits of rows or columns that a source's pool straddles."""
    visible = [*nodes]
    for edge in edges:
        if not edge.weights and (parts := hidden[edge.source]):
            node = visible[edge.target]
            straddled = [n for n, s in node.choices.items() if {*s.inputs, s.output} & parts]
            visible[edge.target] = _without(node, straddled)
            if node.name.startswith("output of "):  # its readers read the same rows
                hidden[edge.target] |= parts
    return visible


class Operand(NamedTuple):
    """The axes of an operand of a layer, and the inputs that have them."""

    axes: Axes
    maps: tuple[Map, ...]


def _layer(described: Operator, maps: LayerMaps, plan: Plan) -> PlanNode:
    batch, weight = images_of(plan), described.axes.weight
    sizes = {"b": batch, **described.sizes(maps)}
    kernel = prod(sizes[axis] for axis in weight if axis in sizes) if weight else 0
    macs = described.macs(sizes)
    pixels = prod(sizes[axis] for axis in ("t", "h", "w") if axis in sizes)
    forward, backward, summed = described.statistics
    indices = prod(sizes[axis] for axis in summed if axis in sizes)
    operands = _operands(described, maps)
    kernels: tuple[PassKernels, ...] = ()
    if plan.array is not None and plan.array.description.accelerator.gemm is not None:
        kernels = described.kernels(sizes, fused=fused_of(plan))
    return PlanNode(
        described.name,
        splits=tuple(_splits(described, operands, maps, sizes, plan)),
        weights=kernel,
        stored=kernel,
        inputs=tuple(batch * sum(over.elements for over in read) for _, read in operands),
        outputs=batch * maps.output.elements,
        pooled=batch * maps.pooled.elements,
        macs=macs,
        macs_by_input=batch * kernel * pixels if kernel and macs else macs,
        statistics=(forward * indices, backward * indices),
        kernel_rows=sizes["k"] if "k" in weight else 1,
        output_rows=sizes["p"] if "k" in weight else 1,
        is_convolution="k" in weight,
        inner=prod(sizes[axis] for axis in described.inner) if described.inner else 0,
        kernels=kernels,
        image=_image(described, operands, maps, plan),
        sees=_sees(described, maps),
        has_tokens=any(over.tokens for over in (*maps.inputs, maps.output)),
        ends_in_sums=described.fused_pool is None and not getattr(described, "activation", None),
    )


def _sees(described: Operator, maps: LayerMaps) -> tuple[int, int] | None:
    """Return a causal layer's tokens, and the most that each attends to."""
    tokens = maps.output.tokens
    if not getattr(described, "causal", False):
        return None
    return tokens, min(getattr(described, "window", None) or tokens, tokens)


def _operands(described: Operator, maps: LayerMaps) -> list[Operand]:
    """Return the operands of a layer, further inputs with the last."""
    declared, read = [*described.axes.inputs.values()], maps.inputs
    if not declared:  # ids of an embedding are no feature map
        return [Operand((), ())]
    *first, last = declared
    single = (Operand(axes, (over,)) for axes, over in zip(first, read, strict=False))
    return [*single, Operand(last, read[len(first) :])]


def _image(
    described: Operator, operands: Sequence[Operand], maps: LayerMaps, plan: Plan
) -> ReadImage | None:
    """Return the images of another layer that a layer's parts read from one another."""
    over = maps.input
    if not isinstance(over, FeatureMap) or not {"rows", "columns"} & {*plan.choices}:
        return None
    strips = [_strip(described, maps, axis, operands) for axis in PARTS]
    rows, columns = (strip.halo if strip else 0 for strip in strips)
    if not rows and not columns:
        return None
    extent = over.height, over.width
    return ReadImage(images_of(plan) * over.channels, extent, (rows, columns))


def _strip(
    described: Operator, maps: LayerMaps, axis: str, operands: Sequence[tuple[Axes, Sequence[Map]]]
) -> Strip | None:
    """Return how a layer's rows or columns may be split; None if not."""
    dimension = 1 + [*PARTS].index(axis)
    read = [over for axes, maps_ in operands if axis in axes for over in maps_]
    written = [maps.output, maps.pooled] if axis in described.axes.output else []
    if axis not in {choice.axis for choice in described.splits.values()}:
        return None
    if not read or not all(isinstance(over, FeatureMap) for over in (*read, *written)):
        return None
    heights = {over[dimension] for over in read}
    if len(heights) > 1:
        return None
    (height,) = heights
    rows, pooled = (written[0][dimension], written[1][dimension]) if written else (height, height)
    reach, stride, padding = described.window_along(axis)
    behind = max(0, int(reach - stride) - padding)
    own_pool = described.fused_pool
    if own_pool is not None:
        size, step = own_pool.size[dimension - 1], own_pool.stride[dimension - 1]
        overlaps = size > step or own_pool.padding[dimension - 1]
        if overlaps or pooled * step != rows:
            return None
    if pooled < 2 or height != rows * stride:
        return None
    farthest = max(padding, behind)
    parts = height // farthest if farthest else pooled
    return Strip(pooled, min(parts, pooled), padding + behind)


def _straddled(described: Operator, maps: LayerMaps) -> frozenset[str]:
    """Return the choices of images that readers of a layer lack, since its pool straddles parts."""
    pool = described.fused_pool
    if pool is None:
        return frozenset()
    before, after = maps.output, maps.pooled
    return frozenset(
        part
        for axis, part in enumerate(PARTS.values())
        if pool.size[axis] > pool.stride[axis]
        or pool.padding[axis]
        or before[1 + axis] != after[1 + axis] * pool.stride[axis]
    )


def _splits(
    described: Operator,
    operands: Sequence[Operand],
    maps: LayerMaps,
    sizes: dict[str, int],
    plan: Plan,
) -> Iterator[Split | None]:
    weight, written = described.axes.weight, described.axes.output
    offered = {
        word: one_part_choice(word) or _choice(described.splits, word, plan, sizes)
        for word in plan.choices
    }
    may_be_whole = any(choice and choice.word == "whole" for choice in offered.values())
    lacking = (word for word in ("output", "whole") if word in offered and not offered[word])
    if not may_be_whole and (word := next(lacking, None)):
        offered[word] = FALLBACK_REPLICATED
    for choice in offered.values():
        if choice is None:
            yield None
            continue
        of_images = choice.axis in PARTS
        strip = _strip(described, maps, choice.axis, operands) if of_images else None
        if strip is None and (
            of_images or not _is_offered(described, choice, operands, maps, sizes)
        ):
            yield None
            continue
        yield Split(
            strip.size if strip else sizes[choice.axis] if choice.axis else 0,
            inputs=tuple(operand_layout(axes, choice) for axes, _ in operands),
            output=output_layout(written, choice),
            keeps_weights=bool(weight) and operand_layout(weight, choice) == WHOLE,
            last_resort=choice.last_resort,
            max_parts=strip.max_parts if strip else 0,
            shares_statistics=bool(choice.axis) and choice.axis not in described.statistics.axes,
            load=_load((*maps.inputs, maps.output)) if choice.axis == "x" else (),
        )


def _is_offered(
    described: Operator,
    choice: Choice,
    operands: Sequence[Operand],
    maps: LayerMaps,
    sizes: dict[str, int],
) -> bool:
    """Return whether a layer has a choice: tokens only if all tensors by token have all of them.

    If T tokens are routed together, splits are between groups of T.
    """
    if choice.axis != "t":
        return choice.axis != "x" or "x" in sizes
    read = [(axes, over) for axes, over_all in operands if "t" in axes for over in over_all]
    of_group = sizes.get("T", 1)
    return all(
        0 < over.tokens == sizes.get("t", 0) * (of_group if "T" in axes else 1)
        for axes, over in (*read, (described.axes.output, maps.output))
    )


def _choice(
    splits: Mapping[str, Choice], word: str, plan: Plan, sizes: Mapping[str, int]
) -> Choice | None:
    """Return a kind's choice for one of a plan's.

    In a plan without a word for experts, layers with experts split them under ``model``; otherwise
    they are split only by image or token, or not at all.
    """
    if "x" in sizes and "experts" in splits and "experts" not in plan.choices:
        if word == "model":
            return splits["experts"]
        choice = splits.get(word)
        return choice if choice is not None and choice.axis in ("", "b", "t") else None
    return splits.get(word)


def _weights(owner: PlanNode) -> PlanNode:
    """Return the node of shared weights: whole, or split as its users split them.

    For embeddings and fully-connected layers, any choice that does not keep all weights splits
    them, whatever its axis.
    """
    first, *further = owner.splits
    assert first is not None, "all kinds of layers split the batch"
    splits = (
        None
        if split is None or split.keeps_weights
        else split._replace(inputs=(split.output,))
        if split.output in PART_WORDS
        else Split(split.size, (BY_CHANNEL,), BY_CHANNEL)
        for split in further
    )
    whole = Split(first.size, (BY_BATCH,), BY_BATCH, keeps_weights=True)
    return PlanNode(f"weights of {owner.name}", (whole, *splits), stored=owner.weights)


def _tensor(writer: Operator, maps: LayerMaps, plan: Plan) -> PlanNode:
    """Return the node of a tensor with several readers, with a choice for each of its axes."""
    sizes = _sizes(maps.pooled, plan)
    layouts = {"data": BY_BATCH, "model": BY_CHANNEL, "output": WHOLE, "tokens": "token"}
    layouts |= {"rows": "row", "columns": "column", "experts": "expert"}
    layouts |= {word: word for word in plan.choices if word in PART_WORDS}
    # If a tensor may be whole, that is one choice.
    layouts |= {"whole": "" if "output" in plan.choices else WHOLE}
    layouts |= {ADDENDS.word: "", "queries": ""}
    if sizes["expert"] and "experts" not in plan.choices:
        layouts["model"] = "expert"

    def split(layout: str) -> Split | None:
        size, image = sizes.get(layout, 0), layout in PARTS.values()
        lacks = size == 1 if image else layout in ("token", "expert") and not size
        if not layout or lacks:
            return None
        load = _load([maps.pooled]) if layout == "expert" else ()
        return Split(size, (layout,), layout, max_parts=size if image else 0, load=load)

    return PlanNode(
        f"output of {writer.name}", tuple(split(layouts[word]) for word in plan.choices)
    )
