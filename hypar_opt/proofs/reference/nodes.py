"""The nodes and edges of a plan's graph, derived a second time from the network's description.

A kind of layer declares its axes and the one that each choice splits; all else is derived here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING

from hypar_opt.proofs.reference.images import PARTS, ReadImage, hides_rows, strip_of
from hypar_opt.proofs.reference.plan_graph import Operand, PlanEdge, PlanGraph, PlanNode, Split
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.operators.maps import ExpertMap, FeatureMap
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.operators.axes import Axes, Choice
    from hypar_opt.workload.operators.base import LayerMaps, Operator
    from hypar_opt.workload.operators.kernels import PassKernels
    from hypar_opt.workload.operators.maps import Map


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
    # What is read side by side in an only input is several results of one layer.
    read = [
        (sources[min(number, len(sources) - 1)], n, number)
        for n, (_, maps, sources) in enumerate(described)
        for number in range(len(maps.inputs) if sources else 0)
        if sources[min(number, len(sources) - 1)] >= 0
    ]
    readers = [len({n for source, n, _ in read if source == own}) for own in range(len(layers))]
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
        over = described[writer][1].pooled
        if target >= shared and len(described[target - shared][2]) == 1:
            over = described[target - shared][1].inputs[number]
        elements = images_of(plan) * over.elements
        axes = images_of(plan), over.channels, over.tokens or 1, *_extent(over), _experts(over) or 1
        operand = min(number, len(nodes[target].inputs) - 1)
        reader = network.layers[target - shared] if target >= shared else None
        chooses = reader is not None and reader.kind == "dispatch" and number == 1
        edges.append(PlanEdge(source, target, elements, False, *axes, operand, not chooses))
    # The order in which the search has them: a certificate counts on it.
    edges.sort(key=lambda edge: (edge.target, edge.source))
    nodes = _without_hidden(
        _by_results(nodes, edges),
        edges,
        [frozenset()] * shared + [hides_rows(layer, maps) for layer, maps, _ in described],
    )
    return PlanGraph(tuple(nodes), tuple(edges), shared)


def _extent(over: Map) -> tuple[int, int]:
    return (over.height, over.width) if isinstance(over, FeatureMap) else (1, 1)


def _by_results(nodes: Sequence[PlanNode], edges: Sequence[PlanEdge]) -> list[PlanNode]:
    """Return nodes whose channels are divided result by result, where one node reads several."""
    read: dict[tuple[int, int], list[int]] = {}
    for edge in edges:
        if not edge.weights:
            read.setdefault((edge.source, edge.target), []).append(edge.channels)
    own = [*nodes]
    for (source, _), channels in read.items():
        if len(channels) > 1:
            splits = (
                s._replace(size=gcd(s.size, *channels)) if s and s.output == "channel" else s
                for s in own[source].splits
            )
            own[source] = replace(own[source], splits=tuple(splits))
    return own


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
) -> ReadImage | None:
    """Return what parts of a layer's images read of one another, if it is another layer's."""
    over = maps.input
    if not isinstance(over, FeatureMap) or not {"rows", "columns"} & {*plan.choices}:
        return None
    strips = [strip_of(described, maps, axis, operands) for axis in PARTS]
    rows, columns = (strip.halo if strip else 0 for strip in strips)
    if not rows and not columns:
        return None
    return ReadImage(images_of(plan) * over.channels, _extent(over), (rows, columns))


def _layer(described: Operator, maps: LayerMaps, plan: Plan) -> PlanNode:
    batch, weight = images_of(plan), described.axes.weight
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
        kernel_rows=sizes["k"] if "k" in weight else 1,
        output_rows=sizes["p"] if "k" in weight else 1,
        is_convolution="k" in weight,
        inner=prod(sizes[axis] for axis in described.inner) if described.inner else 0,
        kernels=_kernels(described, plan),
        image=_image(described, operands, maps, plan),
        is_causal=bool(getattr(described, "causal", False)),
        has_tokens=any(over.tokens for over in (*maps.inputs, maps.output)),
        ends_in_sums=described.fused_pool is None and not getattr(described, "activation", None),
    )


def _kernels(described: Operator, plan: Plan) -> tuple[PassKernels, ...]:
    """Return the kernels of each pass, where the plan's array has them."""
    if plan.array is None or plan.array.description.accelerator.gemm is None:
        return ()
    accelerator = plan.array.description.accelerator
    fused = Fused(accelerator.attention != "unfused", accelerator.loss or "eager")
    return described.kernels(fused=fused)


def _splits(
    described: Operator,
    operands: Sequence[Operand],
    maps: LayerMaps,
    sizes: dict[str, int],
    plan: Plan,
) -> Iterator[Split | None]:
    weight, written = described.axes.weight, described.axes.output
    last = _last_resort(described, plan, has_experts="x" in sizes)
    for word in plan.choices:
        if word in SIDES:  # all in one part of H1
            yield Split(0, (word,) * len(operands), word, keeps_weights=False)
            continue
        choice = _choice(described.splits, word, plan, has_experts="x" in sizes)
        if choice and choice.word == "addends":
            yield Split(0, ("partial",) * len(operands), "partial", keeps_weights=False)
            continue
        if word == last or (choice and not choice.axis):  # nothing is split
            whole = ("whole",) * len(operands)
            keeps = bool(weight)
            yield Split(0, whole, "whole", keeps_weights=keeps, last_resort=word == last)
            continue
        if choice is None or not _is_offered(described, choice, operands, maps, sizes):
            yield None
            continue
        part = {"b": "batch", "t": "token", "x": "expert", **PARTS}.get(choice.axis, "channel")
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


def _last_resort(described: Operator, plan: Plan, *, has_experts: bool) -> str | None:
    """Return the choice of a plan as which a layer is whole only where no other fits, if any."""
    splits = described.splits
    own = {word: _choice(splits, word, plan, has_experts=has_experts) for word in plan.choices}
    if any(choice is not None and choice.word == "whole" for choice in own.values()):
        return None  # it may be whole anyway
    return next((word for word in ("output", "whole") if word in own and not own[word]), None)


def _operands(described: Operator, maps: LayerMaps) -> list[Operand]:
    """Return the operands of a layer, further inputs with the last."""
    declared, read = [*described.axes.inputs.values()], maps.inputs
    if not declared:  # ids of an embedding are no feature map
        return [Operand((), ())]
    *first, last = declared
    each = [Operand(axes, (over,)) for axes, over in zip(first, read, strict=False)]
    return [*each, Operand(last, read[len(first) :])]


def _read_as(axes: Axes, axis: str, part: str) -> str:
    if f"{axis}'" in axes:
        return "shuffled"
    return part if not axes or axis in axes else "whole"


def _is_offered(
    described: Operator,
    choice: Choice,
    operands: Sequence[Operand],
    maps: LayerMaps,
    sizes: dict[str, int],
) -> bool:
    """Return whether a layer has a choice: tokens only where each tensor by token has all.

    Of tokens that are routed together, T of them, a split is between such groups.
    """
    if choice.axis == "x":
        return "x" in sizes
    if choice.axis != "t":
        return True
    read = [(axes, over) for axes, over_all in operands if "t" in axes for over in over_all]
    of_group = sizes.get("T", 1)
    return all(
        0 < over.tokens == sizes.get("t", 0) * (of_group if "T" in axes else 1)
        for axes, over in (*read, (described.axes.output, maps.output))
    )


def _choice(
    splits: Mapping[str, Choice], word: str, plan: Plan, *, has_experts: bool
) -> Choice | None:
    """Return a kind's choice for one of a plan's.

    In a plan that has no word for experts, what has any is split by them under ``model``: in other
    ways only by image or token, or not at all.
    """
    if has_experts and "experts" in splits and "experts" not in plan.choices:
        if word == "model":
            return splits["experts"]
        own = splits.get(word)
        return own if own is not None and own.axis in ("", "b", "t") else None
    return splits.get(word)


def _experts(over: Map) -> int:
    return over.experts if isinstance(over, ExpertMap) else 0


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
    sizes["expert"] = _experts(over)
    layouts = {"data": "batch", "model": "channel", "output": "whole", "tokens": "token"}
    layouts |= {"rows": "row", "columns": "column", "experts": "expert"}
    extents = dict(zip(("row", "column"), _extent(over), strict=True))
    # A tensor that may be whole is that as one choice.
    layouts |= {"whole": "" if "output" in plan.choices else "whole"}
    layouts |= {"addends": "", **{side: side for side in SIDES}}
    if sizes["expert"] and "experts" not in plan.choices:
        layouts["model"] = "expert"
    splits = (
        None
        if not layout
        or (layout in ("token", "expert") and not sizes[layout])
        or extents.get(layout) == 1
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
