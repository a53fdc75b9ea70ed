"""Elementwise operators: of one feature map, with constants, and of several maps."""

from __future__ import annotations

import math
from dataclasses import replace

from hypar_opt.onnx.axes import (
    POSITIONS,
    Dim,
    axes_of,
    digits_of,
    is_whole,
    whole_dim,
    without,
)
from hypar_opt.onnx.constant import Constant
from hypar_opt.onnx.exact import MAP, MIXED, of_itself, with_constant
from hypar_opt.onnx.features import INPUT, Features, Layer, PendingNorm
from hypar_opt.onnx.import_state import ImportState, shape_error
from hypar_opt.onnx.joins import fit, join, layer_of
from hypar_opt.onnx.masks import shown_by
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import LayerWeights
from hypar_opt.onnx.scores import is_same
from hypar_opt.onnx.table import EXACT, activation
from hypar_opt.onnx.views import broadcast
from hypar_opt.workload.operators import OPERATORS

# Operators whose constants are learned: shifts and scales. Exporters do not subtract weights or
# divide by them.
_SHIFTS = frozenset({"Add", "Sum", "BiasAdd", "BiasGelu", "BiasDropout"})
_SCALES = frozenset({"Mul", "PRelu"})


# Alpha of activations: its default in ONNX, and its value in a step.
_ALPHAS = {
    "Celu": (1.0, 1.0),
    "Elu": (1.0, 1.0),
    "HardSigmoid": (0.2, 1 / 6),
    "LeakyRelu": (0.01, 0.01),
    "Swish": (1.0, 1.0),
}


def elementwise(state: ImportState, node: OnnxNode) -> Features:
    """An elementwise operator, which keeps any layout.

    Its word may be a kind of layer of one input; attributes with the names of keys are these.
    """
    word = node.word
    if word in OPERATORS.built_in_names() and OPERATORS[word].reads == (1, 1):
        keys = OPERATORS[word].model_fields.keys() & node.attributes().keys()
        given = {key: node.attributes()[key] for key in sorted(keys)}
        return layer_of(state, node, word, given, state.settled(node.inputs[0], node))
    _check_attributes(state, node)
    if len(node.inputs) == 1:
        features = state.features(node.inputs[0])
        if features.norm and word:
            features = state.settled(node.inputs[0], node)
        by_tanh = node.op == "Gelu" and node.attributes().get("approximate", "none") == "tanh"
        return features.after("FastGelu" if by_tanh else node.op)
    names = [name for name in node.inputs if name]
    maps = [name for name in names if not state.is_constant(name)]
    constants = [name for name in names if state.is_constant(name)]
    if word not in ("", "add", "mul"):
        # No scale or shift after an activation can join a norm.
        for name in maps:
            features = state.features(name)
            if features.norm:
                state.settled(name, node)
    sources = {state.features(name).source for name in maps}
    result = _together(state, node, word, maps)
    # A node that joins maps is a layer, not an operator on one.
    joins = result.source not in sources
    for name in constants:
        result = _with_constant(state, node, result, name)
    return result if joins else result.after(node.op)


def _check_attributes(state: ImportState, node: OnnxNode) -> None:
    """Note activations of a form that a step does not compute."""
    attributes = node.attributes()
    default, kept = _ALPHAS.get(node.op, (0.0, 0.0))
    alpha = attributes.get("alpha", default) if kept else kept
    is_number = isinstance(alpha, int | float)
    if not is_number or not math.isclose(alpha, kept, rel_tol=1e-3):
        shown = f"{alpha:.4g}" if isinstance(alpha, float) else str(alpha)
        state.note(node, f"alpha {shown} of {node.op}, which is taken with {kept:.4g}")
    if node.op == "QuickGelu":
        state.note(node, "gelu by a sigmoid, which is computed by its approximation by tanh")
    if node.op == "Clip" and (attributes.get("min", 0.0), attributes.get("max", 6.0)) != (0.0, 6.0):
        state.note(node, "bounds of a clip, which are taken as 0 and 6")
    if node.op == "Dropout" and (training := node.input(2)):
        switch = state.constant(training)
        is_off = switch.known and switch.elements == 1 and not switch.value.any()
        if not is_off:
            state.note(node, "dropout")


def _together(state: ImportState, node: OnnxNode, word: str, names: list[str]) -> Features:
    """Return the maps of a node as one, joined by a layer if they are of several."""
    groups = _turned(node, _groups(node, [state.features(name) for name in names]))
    if len(groups) > 1:
        groups = _groups(node, [state.settle(features, node) for features in groups])
    if len(groups) > 1:
        groups = _without_masks(state, node, groups)
    if len(groups) == 1:
        return groups[0]
    if node.op not in EXACT:
        means = "product" if word == "mul" else "sum"
        state.note(node, f"{node.op} of two feature maps, which is taken as their {means}")
    return join(state, node, word or "add", groups)


def _turned(node: OnnxNode, groups: list[Features]) -> list[Features]:
    """Return two parts of one map that are scaled place by place and added as the first of them.

    As rotary positions do: the sums of both parts are joined later, or a part is read, and named.
    """
    if len(groups) != 2 or node.op not in ("Add", "Sub"):
        return groups
    one, other = groups
    scaled = MAP in one.operators and MAP in other.operators
    parts = [{(part.of, part.size) for part in group.taken} for group in groups]
    if not scaled or one.source != other.source or parts[0] != parts[1] or one.dims != other.dims:
        return groups
    return [one.after(*other.operators, MIXED)]


def _without_masks(state: ImportState, node: OnnxNode, groups: list[Features]) -> list[Features]:
    """Return maps without those made of token ids, which have no gradient: padding masks."""
    if state.input.is_tokens:
        groups = [features for features in groups if features.source != INPUT] or groups[:1]
    scores = [group for group in groups if state.layer(group.source).is_scores]
    if scores and len(groups) > 1:
        raise node.refuse("joins the scores of attention with another feature map")
    return groups


def _groups(node: OnnxNode, maps: list[Features]) -> list[Features]:
    """Return maps, those with the same elements merged."""
    out: list[Features] = []
    for features in maps:
        for index, other in enumerate(out):
            if (other.source, other.taken) == (features.source, features.taken):
                out[index] = _merged(node, other, features)
                break
        else:
            out.append(features)
    return out


def _merged(node: OnnxNode, a: Features, b: Features) -> Features:
    """Return an elementwise function of two tensors that hold the same map."""
    dims = fit([a.dims, b.dims])
    if dims is None:
        raise shape_error(node, a.shape, b.shape)
    if len(a.dims) == len(b.dims):
        # Copies stay where either of the two has them.
        dims = tuple(dim or x or y for dim, x, y in zip(dims, a.dims, b.dims, strict=True))
    operators = a.operators | b.operators | of_itself(node, a, b)
    common = a._replace(dims=dims, operators=operators, only=False)
    if a.pooled == b.pooled:
        return common._replace(norm=_one_norm(a.norm, b.norm))
    # A map and statistics of it: a norm, written out.
    whole, number = (b, a) if a.pooled else (a, b)
    if whole.pooled:
        raise node.refuse("combines two reductions of one feature map")
    norm = whole.norm or PendingNorm()
    if number.norm and number.norm.epsilon:
        norm = replace(norm, epsilon=number.norm.epsilon)
    centred = norm.centred or node.op == "Sub" or (node.op == "Add" and "Neg" in number.operators)
    over = norm.over | number.pooled
    return common._replace(pooled=frozenset(), norm=replace(norm, over=over, centred=centred))


def _one_norm(a: PendingNorm | None, b: PendingNorm | None) -> PendingNorm | None:
    if a is None or b is None:
        return a or b
    return PendingNorm(
        a.over | b.over,
        a.centred or b.centred,
        a.scale or b.scale,
        a.shift or b.shift,
        a.epsilon or b.epsilon,
        a.node or b.node,
    )


def _with_constant(state: ImportState, node: OnnxNode, features: Features, name: str) -> Features:
    """Return a map after a constant has been added to it or multiplied by it."""
    constant = state.constant(name)
    layer = state.layer(features.source)
    dims = broadcast(features, constant.shape, state.input.batch)
    if layer.is_scores:
        return features._replace(dims=dims)  # attention accounts for it
    places = len(dims) - len(constant.shape)
    held = tuple(dims[places + place] for place, size in enumerate(constant.shape) if size > 1)
    axes = axes_of(held) - {"b"}
    is_channels = axes == {"c"} and is_whole("c", layer.channels, held) and not features.taken
    done = with_constant(
        node, constant, absorbed=features.source == INPUT and state.input.is_tokens
    )
    bare = features._replace(dims=dims)
    widened = bare.after(*done)
    if constant.is_input and "c" in axes:
        raise node.refuse(f"reads a further input of the model, through {name!r}")
    if features.pooled and node.op in _SHIFTS and constant.elements == 1:
        epsilon = repr(float(constant.value.ravel()[0])) if constant.known else "?"
        return widened._replace(norm=replace(widened.norm or PendingNorm(), epsilon=epsilon))
    if constant.is_input or not axes or features.pooled:
        return widened
    if features.source == INPUT and state.input.is_tokens:
        shown = shown_by(state, node, name, layer.sizes.get("t", 1))
        return widened.after(shown) if shown else widened
    # On the network's input alone, constants are the scaling of its pixels.
    is_learned = is_channels and (features.source != INPUT or features.norm is not None)
    is_learned = is_learned and constant.is_stored
    if node.op in _SCALES and is_learned:
        norm = bare.norm or PendingNorm()
        if norm.scale or norm.shift:
            bare, norm = state.settle(bare, node), PendingNorm()
        return bare._replace(norm=replace(norm, scale=name, node=node))
    if node.op in _SHIFTS and is_learned:
        return _shifted(state, node, bare, name)
    if node.op in _SHIFTS and _is_table(state, features, constant, held):
        return _with_tables(state, node, bare, constant)
    return widened


def _shifted(state: ImportState, node: OnnxNode, features: Features, name: str) -> Features:
    """Return a map with a shift of each channel: a bias if the layer before can take one."""
    layer = state.layer(features.source)
    norm = features.norm
    takes_bias = layer.operator.adds_bias and not layer.keys.get("bias")
    if norm is None and takes_bias and activation(features.operators) is None:
        layer.add_bias(state.constant(name).stored)
        return features
    if norm is None or norm.shift:
        features, norm = state.settle(features, node), PendingNorm()
        state.note(node, "a shift of each channel is counted with a scale")
    return features._replace(norm=replace(norm, shift=name, node=node))


def _is_table(
    state: ImportState, features: Features, constant: Constant, held: tuple[Dim, ...]
) -> bool:
    """Whether a constant has a value for each feature of each token: a table of positions."""
    if features.source == INPUT:
        features = state.input.settled(features)
    sizes = state.layer(features.source).sizes
    axes = axes_of(held)
    if axes & {f"i{n}" for n in range(4)}:
        return constant.elements >= math.prod(sizes.values())
    places = axes & POSITIONS
    return (
        bool(places)
        and is_whole("c", sizes.get("c", 1), held)
        and all(is_whole(axis, sizes[axis], held) for axis in places)
    )


def _with_tables(
    state: ImportState, node: OnnxNode, features: Features, constant: Constant
) -> Features:
    """Return tokens with a learned table added, one row per position."""
    features = state.as_tokens(state.settle(features, node), node)
    layer = state.layer(features.source)
    if not layer.is_tokens:
        return features
    if not constant.regions:
        state.note(node, "positions that are computed")
        return features
    tokens, channels = layer.sizes["t"], layer.channels
    tables: dict[int, Features] = {}
    for region in constant.regions:
        table = state.constant(region.name)
        rows = max(1, table.elements // channels)
        # A table longer than the sequence, or shorter (two token types), is read by index, so that
        # all its rows are learned; one that fits is read whole, and so are the first rows.
        starts = region.first == 0 and region.flat().digits == whole_dim("e", tokens * channels)
        longer = rows > tokens and starts
        by_index = rows != tokens and state.input.is_tokens and not longer
        if by_index:
            state.note(
                node, "positions or types by which a table is read: the network's are token ids"
            )
        every = by_index or longer
        keys = {"features": channels, "vocabulary": rows if every else tokens}
        keys |= {"tokens": tokens} if longer else {}
        inputs = [INPUT] if by_index else []
        sizes = {"t": tokens, "c": channels}
        weights = LayerWeights(region.name, table.stored if every else (region,))
        dims = tuple(without(dim, "b") for dim in features.dims)
        made = state.emit_once(Layer("embedding", keys, inputs, sizes, node, weights, dims=dims))
        tables[made.source] = made
    return join(state, node, "add", [features, *tables.values()])


def rotary(state: ImportState, node: OnnxNode) -> Features:
    """The operator of rotary positions, whose tables are not learned."""
    state.fixed.update(name for name in node.inputs[1:] if name and state.is_constant(name))
    return state.features(node.inputs[0]).after(node.op)


def softmax(state: ImportState, node: OnnxNode) -> Features:
    """A softmax: part of attention, the network's end, or elementwise in between."""
    features = state.features(node.inputs[0])
    if state.layer(features.source).is_scores:
        axis = node.attributes().get("axis", -1) % len(features.dims)
        keys = state.layer(features.source).sizes["s"]
        if digits_of("s", [features.dims[axis]]) != whole_dim("s", keys):
            raise node.refuse("should be over the keys of attention")
        return features.after(node.op)
    if not _is_end(state, node.outputs[0]):
        return features.after(node.op)
    features = state.ordered(state.settled(node.inputs[0], node), node)
    source, sizes = state.read(features, node), state.layer(features.source).sizes
    return state.emit(Layer("output", {}, [source], sizes, node, dims=features.dims))


def _is_end(state: ImportState, name: str) -> bool:
    """Whether a tensor is an output of the graph, or nodes that return what they read make it one."""
    while name not in state.graph.outputs:
        readers = [node for node in state.graph.nodes if name in node.inputs]
        if len(readers) != 1 or readers[0].inputs[0] != name or not is_same(readers[0]):
            return False
        name = readers[0].outputs[0]
    return state.uses[name] == 1
