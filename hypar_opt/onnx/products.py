"""Layers with weights: convolutions and products with a constant matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hypar_opt.onnx.attention import product_of_maps
from hypar_opt.onnx.axes import (
    POSITIONS,
    Digit,
    axes_of,
    is_whole,
    merged,
    reshaped,
    unrolled,
    whole_dim,
)
from hypar_opt.onnx.constant import Constant
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.import_state import ImportState, shape_error
from hypar_opt.onnx.model import OnnxNode, stated
from hypar_opt.onnx.regions import LayerWeights, whole
from hypar_opt.onnx.samples import applied
from hypar_opt.onnx.windows import (
    filling,
    image_of,
    numbers,
    transposed_extents,
    transposed_padding,
    window_counts,
    window_padding,
)

# The numbers of a fused activation, in their order.
_PARAMETERS = {"Clip": ("min", "max"), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
_BOUNDS = {"min": -math.inf, "max": math.inf}


def _weight(state: ImportState, node: OnnxNode, index: int) -> Constant:
    name = node.inputs[index]
    if not state.is_constant(name):
        raise node.refuse(f"its weights {name!r} depend on the network's input")
    constant = state.constant(name)
    if constant.is_input:
        raise node.refuse(f"its weights {name!r} are a further input of the model")
    return constant


def convolution(state: ImportState, node: OnnxNode) -> Features:
    """A convolution; one of a single position is a fully-connected layer."""
    if state.is_constant(node.inputs[0]):
        raise node.refuse("reads a further input of the model")
    weight = _weight(state, node, 1)
    image = image_of(state, node, len(weight.shape) - 2)
    attributes = node.attributes()
    groups, transposed = attributes.get("group", 1), node.op == "ConvTranspose"
    first, second, *kernel = weight.shape
    # Of the weights' first two dimensions one has all channels, the other those of a group.
    whole, depth = (first, image.channels) if transposed else (second * groups, first)
    if groups < 1 or whole != image.channels or depth % groups:
        raise node.refuse(
            f"should have weights for {image.channels} channels in {groups} groups,"
            f" got {list(weight.shape)}"
        )
    filters = second * groups if transposed else first
    summed, written = ((0,), (1,)) if transposed else ((1,), (0,))
    features = image.features
    layer, windows = state.layer(features.source), math.prod(kernel) > 1 or groups > 1
    if windows and layer.is_tokens:
        raise node.refuse("is a convolution, but its input is not an image")
    if windows and not layer.is_image:  # a vector, which is an image of one pixel
        sizes = {"c": layer.channels, "h": 1, "w": 1}
        pixel = Layer(
            "unflatten", {"height": 1, "width": 1}, [state.read(features, node)], sizes, node
        )
        places = [whole_dim(axis, size) for axis, size in sizes.items()]
        features = state.emit_unique(pixel)._replace(dims=(features.dims[0], *places))
        image = replace(image, features=features)
    elif not layer.is_image:
        matrix = weight.matrix(node.inputs[1], summed, written)
        output = linear(state, node, features, (1,), (filters,), matrix, place=1)
        return _biased(state, output, node.input(2))
    stride = image.pair(attributes.get("strides"), 1)
    dilation = image.pair(attributes.get("dilations"), 1)
    window = image.pair(kernel, 1)
    if transposed:
        padding = transposed_padding(node, image, attributes, window, stride, dilation)
        height, width = transposed_extents(image, window, stride, dilation, padding)
    else:
        padding = window_padding(node, image, attributes, window, stride, dilation)
        height, width = window_counts(node, image, window, stride, dilation, padding)
    defaults = {"stride": 1, "padding": 0, "groups": 1, "dilation": 1, "transposed": False}
    convolution = (numbers(stride), numbers(padding), groups, numbers(dilation), transposed)
    keys = {"filters": filters, "kernel": numbers(window)}
    keys |= {key: n for key, n in zip(defaults, convolution, strict=True) if n != defaults[key]}
    sizes = {"c": filters, "h": height, "w": width}
    if features.border and features.border_value != 0:
        state.note(
            features.border.node, f"a border of {filling(features)}, which is taken as zeros"
        )
    inputs = [state.read(features._replace(border=None), node)]
    matrix = weight.matrix(node.inputs[1], (*summed, *range(2, len(weight.shape))), written)
    dims = image.dims(filters, height, width)
    output = state.emit(Layer("conv", keys, inputs, sizes, node, matrix, dims=dims))
    output = _biased(state, output, node.input(2))
    return _activated(output, attributes)


def _activated(output: Features, attributes: Mapping[str, Any]) -> Features:
    """Return the output of com.microsoft.FusedConv after its activation."""
    op = str(attributes.get("activation") or "Identity")
    activation_parameters = attributes.get("activation_params") or []
    names = _PARAMETERS.get(op, ())
    parameters = (
        dict(zip(names, activation_parameters, strict=False))
        if len(activation_parameters) <= len(names)
        else None
    )
    done = stated("activation", op)
    if parameters is None:
        return output._replace(function=output.function.unknown(done))
    operands: list[Any] = [output.function]
    if op == "Clip":
        operands += [np.float64(parameters.get(name, bound)) for name, bound in _BOUNDS.items()]
    function = applied(op, parameters, operands, {done}, frozenset({done}))
    return output._replace(function=function)


def _biased(state: ImportState, output: Features, name: str) -> Features:
    """Return a layer's output with its bias; copies of fewer numbers are not counted as one."""
    if name:
        bias, layer = state.constant(name), state.layer(output.source)
        if bias.elements == layer.channels and bias.is_stored:
            layer.add_bias(bias.stored)
        elif not (bias.has_values and not bias.value.any()):
            state.note(layer.node, "a bias that is not one number of the file for each channel")
    return output


def product(state: ImportState, node: OnnxNode) -> Features:
    """A matrix product: of a map and weights, or of two maps in attention."""
    a, b = node.inputs[:2]
    if node.attributes().get("transBatchA") or node.attributes().get("transBatchB"):
        raise node.refuse("transposes its batch, which is not supported")
    if state.is_constant(b):
        weight = _weight(state, node, 1)
        features = state.features(a)
        axes = _matrix(node, weight)
        features = state.settle(features, node)
        return _last_product(state, node, features, weight, axes)
    if state.is_constant(a):
        weight = _weight(state, node, 0)
        features = state.settle(state.features(b), node)
        axes = _matrix(node, weight)
        attributes = node.attributes()
        if attributes.get("transA") or attributes.get("transB"):
            raise node.refuse("multiplies transposed weights from the left, which is not supported")
        if (factor := attributes.get("alpha", 1.0)) != 1:
            state.note(node, stated("alpha", factor))
        place = max(0, len(features.dims) - 2)
        _fits(node, features, place, weight.shape[axes[-1]], weight)
        matrix = weight.matrix(node.inputs[0], axes[-1:], axes[:-1])
        units = tuple(weight.shape[axis] for axis in axes[:-1])
        return linear(state, node, features, (place,), units, matrix, place=place)
    left, right = (
        _as_multiplied(node, state.settled(name, node), side)
        for name, side in zip((a, b), "AB", strict=True)
    )
    return product_of_maps(state, node, left, right)


def _as_multiplied(node: OnnxNode, features: Features, side: str) -> Features:
    """Return an operand of a fused product as it is multiplied."""
    if node.attributes().get(f"trans{side}"):
        *rest, rows, columns = features.dims
        return features._replace(dims=(*rest, columns, rows))
    return features


def _matrix(node: OnnxNode, weight: Constant) -> tuple[int, ...]:
    """Return the dimensions of a weight matrix, leading ones of size 1 dropped."""
    shape = weight.shape
    axes = tuple(range(len(shape)))
    while len(axes) > 2 and shape[axes[0]] == 1:
        axes = axes[1:]
    if not 1 <= len(axes) <= 2:
        raise node.refuse(f"should have a matrix of weights, got {list(shape)}")
    return axes


def _fits(node: OnnxNode, features: Features, place: int, size: int, weight: Constant) -> None:
    if features.shape[place] != size:
        raise shape_error(node, features.shape, weight.shape)


def _last_product(
    state: ImportState, node: OnnxNode, features: Features, weight: Constant, axes: tuple[int, ...]
) -> Features:
    """Return a product of a map's last dimension with a matrix of weights."""
    rank = len(features.dims) - 1
    attributes = node.attributes()
    if attributes.get("transB"):
        axes = axes[::-1]
    if node.op != "Gemm" and attributes.get("transA"):
        raise node.refuse("reads its input transposed, which a network has no layer for")
    if node.op != "Gemm" and (factor := attributes.get("alpha", 1.0)) != 1:
        state.note(node, stated("alpha", factor))
    _fits(node, features, -1, weight.shape[axes[0]], weight)
    matrix = weight.matrix(node.inputs[1], axes[:1], axes[1:])
    units = tuple(weight.shape[axis] for axis in axes[1:])
    return linear(state, node, features, (rank,), units, matrix, place=rank)


def general_product(state: ImportState, node: OnnxNode) -> Features:
    """Gemm: a fully-connected layer with its bias."""
    attributes = node.attributes()
    if state.is_constant(node.inputs[0]) or not state.is_constant(node.inputs[1]):
        raise node.refuse("should multiply a feature map by weights")
    if attributes.get("transA"):
        raise node.refuse("reads its input transposed, which mixes the images of a batch")
    weight = _weight(state, node, 1)
    axes = _matrix(node, weight)
    features = state.settled(node.inputs[0], node)
    if len(features.dims) != 2 or len(axes) != 2:
        raise shape_error(node, features.shape, weight.shape)
    output = _last_product(state, node, features, weight, axes)
    bias = node.input(2)
    if bias and not state.is_constant(bias):
        raise node.refuse("adds a feature map to its product; its third input should be a bias")
    for name in ("alpha", "beta") if bias else ("alpha",):
        if (factor := attributes.get(name, 1.0)) != 1:
            state.note(node, stated(name, factor))
    return _biased(state, output, bias)


def quantised_product(state: ImportState, node: OnnxNode) -> Features:
    """com.microsoft.MatMulNBits: weights packed in a few bits, whose sizes are attributes."""
    attributes = node.attributes()
    features = state.settled(node.inputs[0], node)
    weight = _weight(state, node, 1)
    _fits(node, features, -1, attributes["K"], weight)
    rank = len(features.dims) - 1
    units = (attributes["N"],)
    # The tensor is packed: its elements are not the weights.
    name = weight.named(node.inputs[1])
    weights = LayerWeights(name, (whole(name, (attributes["K"], *units)),))
    return linear(state, node, features, (rank,), units, weights, place=rank)


def linear(
    state: ImportState,
    node: OnnxNode,
    features: Features,
    places: tuple[int, ...],
    units: tuple[int, ...],
    weights: LayerWeights,
    *,
    place: int,
) -> Features:
    """Return a map after a product with weights that sums over the dimensions at ``places``.

    The output's dimensions, of sizes ``units``, replace them from dimension ``place`` on. Over the
    channels of an image the product is a convolution of one pixel; over a whole image or sequence
    it flattens.
    """
    features = state.sliced(state.as_tokens(features, node), node)
    layer = state.layer(features.source)
    batch_of_one = Digit("b", 1)
    summed = [tuple(x for x in features.dims[n] if x != batch_of_one) for n in places]
    remaining = [dim for axis, dim in enumerate(features.dims) if axis not in places]
    axes = axes_of(summed)
    if unrolled(summed) != tuple(map(merged, summed)):
        raise node.refuse("multiplies a rolled feature map by weights of each position")
    if any(not is_whole(axis, layer.sizes.get(axis, 1), summed) for axis in axes) or not (
        "c" in axes or layer.channels == 1
    ):
        what = "a part of the channels" if axes == {"c"} else "the tokens of a sequence"
        raise node.refuse(f"multiplies {what} by weights, which a network has no layer for")
    width = math.prod(units)
    keys: dict[str, Any] = {"units": width}
    sizes: dict[str, int] = {"c": width}
    kind, source = "fc", state.read(features, node)
    if layer.is_tokens and "t" in axes:
        flat = {"c": math.prod(layer.sizes.values())}
        source = state.emit_unique(Layer("flatten", {}, [source], flat, node)).source
    elif layer.is_tokens:
        sizes["t"] = layer.sizes["t"]
    elif layer.is_image and not axes & POSITIONS and layer.sizes["h"] * layer.sizes["w"] > 1:
        kind, keys = "conv", {"filters": width, "kernel": 1}
        sizes |= {axis: layer.sizes[axis] for axis in ("h", "w")}
    new = reshaped([whole_dim("c", width)], units)
    weights = replace(weights, rows=tuple(digit for dim in summed for digit in dim))
    dims = (*remaining[:place], *new, *remaining[place:])
    return state.emit(Layer(kind, keys, [source], sizes, node, weights, dims=dims))


def einsum(state: ImportState, node: OnnxNode) -> Features:
    """A product of two tensors in Einstein's notation, or one with its dimensions in another order.

    So diffusion transformers put their patches together.
    """
    equation = str(node.attributes().get("equation", "")).replace(" ", "")
    terms, arrow, out = equation.partition("->")
    labels = terms.split(",")
    if len(node.inputs) == 1 and sorted(terms) == sorted(out) and len({*out}) == len(out):
        features = state.features(node.inputs[0])
        if len(features.dims) == len(out):
            return _in_order(features, [*terms], out)
    if len(labels) != 2 or not arrow or "." in equation or len(node.inputs) != 2:
        raise node.refuse(
            f"should be the product of two tensors, as 'btc,cd->btd'; got {equation!r}"
        )
    if any(len(set(term)) != len(term) for term in (*labels, out)):
        raise node.refuse(f"repeats an index, in {equation!r}")
    constants = [state.is_constant(name) for name in node.inputs]
    if not any(constants):
        return _einsum_of_maps(state, node, labels, out)
    index = constants.index(True)
    weight = _weight(state, node, index)
    features = state.settled(node.inputs[1 - index], node)
    mine, theirs = labels[1 - index], labels[index]
    if len(mine) != len(features.dims) or len(theirs) != len(weight.shape):
        raise shape_error(node, features.shape, weight.shape)
    summed = [label for label in mine if label in theirs]
    new = [label for label in theirs if label not in mine]
    if set(summed) & set(out) or set(new) - set(out):
        raise node.refuse(f"is not a product of a feature map and weights: {equation!r}")
    sizes = dict(zip(theirs, weight.shape, strict=True))
    places = tuple(mine.index(label) for label in summed)
    units = tuple(sizes[label] for label in new)
    for label in summed:
        _fits(node, features, mine.index(label), sizes[label], weight)
    rest = [label for label in mine if label not in summed]
    rows, columns = ([theirs.index(label) for label in of] for of in (summed, new))
    matrix = weight.matrix(node.inputs[index], rows, columns)
    output = linear(state, node, features, places, units, matrix, place=len(rest))
    return _in_order(output, [*rest, *new], out)


def _in_order(output: Features, written: list[str], out: str) -> Features:
    """Return what has labelled dimensions, in the order of the equation's output."""
    return output._replace(dims=tuple(output.dims[written.index(label)] for label in out))


def _einsum_of_maps(state: ImportState, node: OnnxNode, labels: list[str], out: str) -> Features:
    a, b = labels
    both = [label for label in a if label in b and label in out]
    summed = [label for label in a if label in b and label not in out]
    rows = [label for label in a if label not in b]
    columns = [label for label in b if label not in a]
    if not len(summed) == len(rows) == len(columns) == 1:
        raise node.refuse(f"is not a product of attention: {labels[0]},{labels[1]}->{out}")
    left, right = (state.settled(name, node) for name in node.inputs)
    if len(left.dims) != len(a) or len(right.dims) != len(b):
        raise shape_error(node, left.shape, right.shape)
    first = [left.dims[a.index(label)] for label in (*both, *rows, *summed)]
    second = [right.dims[b.index(label)] for label in (*both, *summed, *columns)]
    output = product_of_maps(
        state, node, left._replace(dims=tuple(first)), right._replace(dims=tuple(second))
    )
    return _in_order(output, [*both, *rows, *columns], out)
