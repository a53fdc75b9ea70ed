"""Elementwise operators: of one feature map, with constants, and of several maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hypar_opt.onnx.axes import (
    POSITIONS,
    Dim,
    axes_of,
    digits_of,
    head_size,
    is_whole,
    merged,
    part_of_channels,
    whole_dim,
    without,
)
from hypar_opt.onnx.constant import Constant
from hypar_opt.onnx.exact import MAP, MIXED, self_combination, with_constant
from hypar_opt.onnx.features import Features, Layer, PendingNorm
from hypar_opt.onnx.import_state import ImportState, maps_error
from hypar_opt.onnx.joins import fit, join, layer_of
from hypar_opt.onnx.masks import shown_by
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import LayerWeights
from hypar_opt.onnx.samples import (
    IDENTITY,
    SAMPLE,
    Operand,
    applied,
    operand_of,
    precision,
    soft_cap_of,
    stand_in,
)
from hypar_opt.onnx.table import EXACT
from hypar_opt.onnx.views import broadcast
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.norm import EPSILON

# Operators whose constants are learned: shifts and scales. Exporters do not subtract weights or
# divide by them.
_SHIFTS = frozenset({"Add", "Sum", "BiasAdd", "BiasGelu", "BiasDropout", "FastGelu"})
_SCALES = frozenset({"Mul", "PRelu"})

# Operators that add a bias to a map first, and the operator applied to the sum.
_OF_BIASED_MAPS = {
    "BiasGelu": "Gelu",
    "FastGelu": "FastGelu",
    "BiasAdd": "Identity",
    "BiasDropout": "Identity",
}

_BOUNDS = (-np.inf, np.inf)
"""What a Clip has that states none."""


def elementwise(state: ImportState, node: OnnxNode) -> Features:
    """An elementwise operator, which keeps any layout.

    Its word may be a kind of layer of one input; attributes with the names of keys are these.
    """
    word = node.word
    if word in OPERATORS.built_in_names() and OPERATORS[word].reads == (1, 1):
        keys = OPERATORS[word].model_fields.keys() & node.attributes().keys()
        attributes = {key: node.attributes()[key] for key in sorted(keys)}
        return layer_of(state, node, word, attributes, state.settled(node.inputs[0], node))
    _check_dropout(state, node)
    names = [name for name in node.inputs if name]
    maps = [name for name in names if not state.is_constant(name)]
    constants = [name for name in names if state.is_constant(name)]
    if word not in ("", "add", "mul"):
        # No scale or shift after an activation can join a norm.
        for name in maps:
            if state.features(name).norm:
                state.settled(name, node)
    for name in maps:
        if _ends_norm(state, state.features(name), constants):
            state.settled(name, node)
    sources = {state.features(name).source for name in maps}
    whole = _joined_maps(state, node, word, maps)
    # A node that joins maps is a layer, not an operator on one.
    joins = whole.source not in sources
    op = "Add" if node.op in _OF_BIASED_MAPS else node.op
    one_by_one = joins or op in ("Add", "Sum", "Mul")
    result, marks = whole, {node.stated}
    for name in constants:
        result, done, is_absorbed = _with_constant(state, node, result, name)
        marks |= done
        operators = result.operators | done
        if is_absorbed:
            one_by_one = True
        elif one_by_one:
            operand = _operand(state, node, result, name)
            function = applied(op, {}, [result.function, operand], {op, *done}, operators | {op})
            result = result._replace(function=function.rounded(precision(state.constant(name))))
        result = result._replace(operators=operators)
    if not one_by_one and MIXED not in whole.function.rest:
        function = applied(
            node.op,
            node.attributes(),
            _operands(state, node, whole),
            marks | self_combination(node, [state.features(name) for name in maps]),
            result.operators | {node.stated},
        )
        rounded = max((precision(state.constant(name)) for name in constants), default=0.0)
        result = result._replace(function=function.rounded(rounded))
    if node.op in _OF_BIASED_MAPS:
        op = _OF_BIASED_MAPS[node.op]
        function = applied(op, {}, [result.function], {op}, result.operators | {op})
        result = result._replace(function=function)
    return result if joins else result._replace(operators=result.operators | {node.op})


def _operands(state: ImportState, node: OnnxNode, whole: Features) -> list[Operand]:
    """Return each input of a node, evaluated on sample numbers."""
    if node.op in ("Dropout", "SimplifiedDropout"):
        return [state.features(node.inputs[0]).function]
    if node.op != "Clip":
        return [_operand(state, node, whole, name) for name in node.inputs]
    attributes = node.attributes()
    bounds: list[Operand] = []
    for place, (name, bound) in enumerate(zip(("min", "max"), _BOUNDS, strict=True), start=1):
        tensor = node.input(place)
        number = np.asarray(attributes.get(name, bound), np.float64)
        bounds.append(_operand(state, node, whole, tensor) if tensor else number)
    return [state.features(node.inputs[0]).function, *bounds]


def _operand(state: ImportState, node: OnnxNode, whole: Features, name: str) -> Operand:
    """Return an input of a node, evaluated on sample numbers; None if unknown."""
    if not name:
        return None
    if not state.is_constant(name):
        return state.features(name).function
    constant = state.constant(name)
    if whole.pooled and not constant.has_values and constant.elements == 1 and node.op in _SHIFTS:
        return np.asarray(EPSILON)  # as is said where the norm is settled
    return operand_of(constant, by_channel=_is_of_channels(state, whole, constant))


def _is_of_channels(state: ImportState, features: Features, constant: Constant) -> bool:
    """Return whether a constant has one number per channel of a map, and no other axis.

    Of heads that are normalised one by one, for each channel of a head.
    """
    if len(constant.shape) > len(features.dims):
        return False
    dims = _dims_of_constant(features.dims, constant)
    if axes_of(dims) - {"b"} != {"c"}:
        return False
    if size := _head_size(state, features):
        return head_size({part_of_channels(dims)}) == size
    return not features.taken and is_whole("c", state.layer(features.source).channels, dims)


def _head_size(state: ImportState, features: Features) -> int | None:
    """Return the channels of a head where a map is normed head by head."""
    norm = features.norm
    if norm is None or state.groups_of(features, norm.over) is not None:
        return None
    return head_size(norm.over)


def _dims_of_constant(dims: Sequence[Dim], constant: Constant) -> tuple[Dim, ...]:
    """Return those dimensions of a map in which a constant has more than one index."""
    places = len(dims) - len(constant.shape)
    return tuple(dims[places + place] for place, size in enumerate(constant.shape) if size > 1)


def _check_dropout(state: ImportState, node: OnnxNode) -> None:
    """Note dropout where a model has switched it on."""
    if node.op != "Dropout":
        return
    if state.graph.version < 7 and not node.attributes().get("is_test"):
        state.note(node, "dropout")  # of old it is switched on, unless the file says otherwise
    if training := node.input(2):
        switch = state.constant(training)
        is_off = switch.has_values and switch.elements == 1 and not switch.value.any()
        if not is_off:
            state.note(node, "dropout")


def _joined_maps(state: ImportState, node: OnnxNode, word: str, names: list[str]) -> Features:
    """Return the maps of a node as one map, joined by a layer if there are several."""
    groups = _turned(node, _groups(node, [state.features(name) for name in names]))
    if len(groups) > 1:
        groups = _groups(node, [state.settle(features, node) for features in groups])
    if len(groups) > 1:
        groups = _without_masks(state, node, groups)
    if len(groups) == 1:
        return groups[0]
    if node.op == "Mul" and (terms := _one_plus_product(state, node, groups)):
        return terms
    if node.op not in EXACT:
        means = "product" if word == "mul" else "sum"
        state.note(node, f"{node.op} of two feature maps, which is taken as their {means}")
    return join(state, node, word if word in ("add", "mul") else "add", groups)


def _one_plus_product(
    state: ImportState, node: OnnxNode, groups: list[Features]
) -> Features | None:
    """Rewrite the product of a map and one plus another as a sum: x (1 + y) is x + x y.

    None if neither map has that form.
    """
    for place, features in enumerate(groups if len(groups) == 2 else ()):
        if features.function.rest and features.function.agrees(SAMPLE + 1.0):
            added = features._replace(operators=frozenset(), function=IDENTITY)
            partner = groups[1 - place]
            product = join(state, node, "mul", [partner, added])
            return join(state, node, "add", [partner, product])
    return None


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
    """Return maps without those computed from token ids: padding masks, without gradient."""
    groups = [features for features in groups if not state.is_ids(features)] or groups[:1]
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
        raise maps_error(node, [a, b])
    if len(a.dims) == len(b.dims):
        # Copies stay where either of the two has them.
        dims = tuple(dim or x or y for dim, x, y in zip(dims, a.dims, b.dims, strict=True))
    done = self_combination(node, [a, b])
    operators = a.operators | b.operators | done
    op = "Add" if node.op in _OF_BIASED_MAPS else node.op
    function = applied(
        op, node.attributes(), [a.function, b.function], done | {op}, operators | {op}
    )
    common = a._replace(dims=dims, operators=operators, function=function, only=False)
    if a.pooled == b.pooled:
        return common._replace(norm=_one_norm(a.norm, b.norm))
    # A map and statistics of it: a norm, written out.
    whole, number = (b, a) if a.pooled else (a, b)
    if whole.pooled:
        raise node.refuse("combines two reductions of one feature map")
    norm = whole.norm or PendingNorm(of=whole.function)
    if number.norm and number.norm.epsilon:
        norm = replace(norm, epsilon=number.norm.epsilon)
    centred = norm.centred or node.op == "Sub" or (node.op == "Add" and "Neg" in number.operators)
    over = norm.over | number.pooled
    norm = replace(norm, over=over, centred=centred, divides=node)
    return common._replace(pooled=frozenset(), norm=norm)


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
        (a if a.over else b).of,
        a.divides or b.divides,
    )


def _with_constant(
    state: ImportState, node: OnnxNode, features: Features, name: str
) -> tuple[Features, frozenset[str], bool]:
    """Return a map with a constant that is added to it or multiplied by it.

    With marks of the operation, and whether a layer or a norm learns the constant.
    """
    constant = state.constant(name)
    layer = state.layer(features.source)
    bare = features._replace(dims=broadcast(features, constant.shape, state.batch))
    if layer.is_scores:
        return bare, frozenset(), False  # attention accounts for it
    dims = _dims_of_constant(bare.dims, constant)
    axes = axes_of(dims) - {"b"}
    done = with_constant(node.op, constant, absorbed=state.is_ids(features))
    if constant.is_input and "c" in axes:
        raise node.refuse(f"reads a further input of the model, through {name!r}")
    if features.pooled and node.op in _SHIFTS and constant.elements == 1:
        epsilon = repr(float(constant.value.ravel()[0])) if constant.has_values else "?"
        norm = replace(bare.norm or PendingNorm(of=bare.unpooled), epsilon=epsilon)
        return bare._replace(norm=norm), done, False
    if constant.is_input or not axes or features.pooled:
        return bare, done, False
    if state.is_ids(features):
        shown = shown_by(state, node, name, layer.sizes.get("t", 1))
        return bare, done | ({shown} if shown else set()), False
    # On the network's input alone, constants are the scaling of its pixels.
    is_learned = _is_of_channels(state, bare, constant) and constant.is_stored
    is_learned = is_learned and (features.source >= 0 or features.norm is not None)
    if is_learned and node.op in _SCALES | _SHIFTS:
        in_order = merged(digit for dim in dims for digit in dim)
        if not _head_size(state, features) and in_order != whole_dim("c", layer.channels):
            # The channels of this view are in another order than the layer's.
            bare = state.ordered(state.settle(bare, node), node)
        add = _scaled if node.op in _SCALES else _shifted
        return add(state, node, bare, name), frozenset(), True
    if node.op in _SHIFTS and _is_table(state, features, constant, dims):
        return _with_tables(state, node, bare, constant), frozenset(), True
    return bare, done, False


def _ends_norm(state: ImportState, features: Features, constants: Sequence[str]) -> bool:
    """Return whether a map is normed, and constants do not scale or shift its channels.

    As rotary positions do, which read parts of it, too.
    """
    norm = features.norm
    if norm is None or features.pooled:
        return False
    if norm.shift and any(state.constant(one).elements == 1 for one in constants):
        return True  # a number behind its shift is no part of it
    return bool(norm.epsilon) and any(
        not _is_of_channels(state, features, state.constant(one)) for one in constants
    )


def _scaled(state: ImportState, node: OnnxNode, features: Features, name: str) -> Features:
    """Return a map with a scale of each channel, which a norm has."""
    norm = features.norm or PendingNorm(of=features.function)
    if norm.is_plain:
        state.fixed.update((norm.scale, norm.shift))
        norm = replace(norm, scale="", shift="", is_plain=False)
    if norm.scale or norm.shift:
        features = state.settle(features, node)
        norm = PendingNorm(of=features.function)
    operands: list[Operand] = [features.function, stand_in(state.constant(name))]
    function = applied(node.op, {}, operands, {node.op}, features.operators | {node.op})
    return features._replace(norm=replace(norm, scale=name, node=node), function=function)


def _shifted(state: ImportState, node: OnnxNode, features: Features, name: str) -> Features:
    """Return a map with a shift of each channel: a bias if the layer before can take one."""
    layer = state.layer(features.source)
    norm = features.norm
    takes_bias = layer.operator.adds_bias and not layer.keys.get("bias") and features.only
    takes_bias = takes_bias and layer.pooled_as is None  # a bias comes before the activation
    if norm is None and takes_bias and features.function.activation is None:
        layer.add_bias(state.constant(name).stored)
        # The layer does none of the operations before the bias.
        done = IDENTITY if features.function.is_identity else features.function.unknown()
        return features._replace(function=done)
    if norm is None or norm.shift:
        features = state.settle(features, node)
        norm = PendingNorm(of=features.function)
        state.note(node, "a shift of each channel is counted with a scale")
    operands: list[Operand] = [features.function, stand_in(state.constant(name))]
    function = applied("Add", {}, operands, {node.op}, features.operators | {node.op})
    return features._replace(norm=replace(norm, shift=name, node=node), function=function)


def _is_table(
    state: ImportState, features: Features, constant: Constant, dims: tuple[Dim, ...]
) -> bool:
    """Whether a constant has a value for each feature of each token: a table of positions."""
    features = state.named(features)
    sizes = state.layer(features.source).sizes
    axes = axes_of(dims)
    if axes & {f"i{n}" for n in range(4)}:
        return constant.elements >= math.prod(sizes.values())
    places = axes & POSITIONS
    return (
        bool(places)
        and is_whole("c", sizes.get("c", 1), dims)
        and all(is_whole(axis, sizes[axis], dims) for axis in places)
    )


def _with_tables(
    state: ImportState, node: OnnxNode, features: Features, constant: Constant
) -> Features:
    """Return tokens with a learned table added, one row per position."""
    features = state.ordered(state.as_tokens(state.settle(features, node), node), node)
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
        ids = state.inputs[-1]
        by_index = rows != tokens and ids.is_tokens and not longer
        if by_index:
            state.note(
                node, "positions or types by which a table is read: the network's are token ids"
            )
        all_rows = by_index or longer
        keys = {"features": channels, "vocabulary": rows if all_rows else tokens}
        keys |= {"tokens": tokens} if longer else {}
        inputs = [-1] if by_index else []
        if by_index and ids.layer.sizes.get("t", 1) != tokens:
            inputs, keys = [], keys | {"ids": tokens}
        sizes = {"t": tokens, "c": channels}
        weights = LayerWeights(region.name, table.stored if all_rows else (region,))
        dims = tuple(without(dim, "b") for dim in features.dims)
        embedding = state.emit_unique(
            Layer("embedding", keys, inputs, sizes, node, weights, dims=dims)
        )
        tables[embedding.source] = embedding
    return join(state, node, "add", [features, *tables.values()])


def rotary(state: ImportState, node: OnnxNode) -> Features:
    """The operator of rotary positions, whose tables are not learned."""
    state.fixed.update(name for name in node.inputs[1:] if name and state.is_constant(name))
    return state.features(node.inputs[0]).after(node.op)


def softmax(state: ImportState, node: OnnxNode) -> Features:
    """A softmax: part of attention, the network's end, or elementwise in between."""
    features = state.features(node.inputs[0])
    axis = node.attributes().get("axis", -1 if state.graph.version >= 13 else 1)
    axis %= len(features.dims)
    if state.layer(features.source).is_scores:
        keys = state.layer(features.source).sizes["s"]
        if digits_of("s", [features.dims[axis]]) != whole_dim("s", keys):
            raise node.refuse("should be over the keys of attention")
        return features.after(node.op)
    if not state.graph.ends(node.outputs[0]):
        return features.after(node.stated)
    features = state.ordered(state.settled(node.inputs[0], node), node)
    # Before version 13 a softmax is over this dimension and all that follow.
    over = features.dims[axis:] if state.graph.version < 13 else features.dims[axis : axis + 1]
    if not is_whole("c", state.layer(features.source).channels, over) or axes_of(over) - {"c"}:
        return features.after(node.stated)
    cap = soft_cap_of(features.function)
    if cap is not None:
        features = features._replace(operators=frozenset(), function=IDENTITY)
    source, sizes = state.read(features, node), state.layer(features.source).sizes
    stated = {} if cap is None else {"softcap": cap}
    return state.emit(Layer("output", stated, [source], sizes, node, dims=features.dims))
