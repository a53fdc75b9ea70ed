"""The state of an import: the layers and tensors so far, and the steps that rules share.

A tensor is *settled* when a layer stands for all that was pending, and *read* when a layer takes it
as input.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import (
    POSITIONS,
    Digit,
    Dim,
    axes_of,
    digits_of,
    is_whole,
    merged,
)
from hypar_opt.onnx.constant import Constant, placeholder
from hypar_opt.onnx.constants import Constants
from hypar_opt.onnx.exact import GELU_BY_ERF, left_out, without_norm
from hypar_opt.onnx.features import INPUT, Features, Layer, PendingNorm
from hypar_opt.onnx.inputs import InputAxes
from hypar_opt.onnx.mask_values import MaskValues
from hypar_opt.onnx.model import MAX_RANK, OnnxGraph, OnnxNode
from hypar_opt.onnx.omitted import Omitted
from hypar_opt.onnx.regions import LayerWeights
from hypar_opt.onnx.table import activation

_NONE = LayerWeights()

MAX_DIGITS = 64
"""The most parts of axes that a tensor's dimensions are made of."""


class ImportState:
    """The layers of a graph, and what its tensors hold, up to some node."""

    def __init__(self, graph: OnnxGraph, folder: Path | None = None) -> None:
        self.graph = graph
        self.constants = Constants(graph)
        self.mask_values = MaskValues(graph, self.constants, folder)
        self.input = InputAxes(graph)
        self.layers: list[Layer] = []
        self.tensors: dict[str, Features] = self.input.tensors()
        self.notes = list(graph.notes)
        self.omitted = Omitted()
        self.remarks: list[str] = []
        # How often each tensor is read, the graph's outputs included.
        self.uses = Counter(name for node in graph.nodes for name in node.inputs)
        self.uses.update(graph.outputs)
        self.fixed: set[str] = set()
        """Constants that are numbers of an operator's formula, and not learned."""
        self._emitted: dict[Hashable, int] = {}
        for name, shape in self.input.others.items():
            self.constants.add(name, _stand_in(shape, self.input.batch, graph.open_batch))

    @property
    def element_type(self) -> str | None:
        """The type of most elements of the initialisers, unless it is single precision."""
        held: Counter[int] = Counter()
        for tensor in self.graph.initialisers.values():
            held[tensor.data_type] += math.prod(max(size, 0) for size in tensor.dims)
        floats = {kind: count for kind, count in held.items() if kind in (1, 10, 11, 16)}
        # FLOAT, FLOAT16, DOUBLE, BFLOAT16 of ONNX.
        names = {10: "float16", 11: "float64", 16: "bfloat16"}
        return names.get(max(floats, key=lambda kind: floats[kind])) if floats else None

    # What a node's inputs hold.

    def is_constant(self, name: str) -> bool:
        return name not in self.tensors

    def constant(self, name: str) -> Constant:
        return self.constants.get(name)

    def layer(self, source: int) -> Layer:
        return self.input.layer if source == INPUT else self.layers[source]

    def features(self, name: str) -> Features:
        """Return what a tensor holds, the network's input by its axes where they are known."""
        features = self.seen(name)
        return self.input.renamed(features) if features.source == INPUT else features

    def seen(self, name: str) -> Features:
        """Return what a tensor holds, the network's input by its own axes.

        Raises
        ------
        ValueError
            Where it is a constant, or left out.
        """
        if name not in self.tensors:
            raise ValueError(f"{name!r} is not a feature map" if name else "an input is left out")
        return self.tensors[name]

    def put(self, node: OnnxNode, features: Features, index: int = 0) -> None:
        """Say what an output of a node holds."""
        if len(features.dims) > MAX_RANK or sum(map(len, features.dims)) > MAX_DIGITS:
            raise node.refuse(
                f"should write at most {MAX_RANK} dimensions, which divide axes into at most"
                f" {MAX_DIGITS} parts"
            )
        if index < len(node.outputs) and node.outputs[index]:
            name = node.outputs[index]
            only = features.only and self.uses[name] == 1
            if only != features.only:
                features = features._replace(only=only)
            self.tensors[name] = features

    def made(self, source: int, dims: Sequence[Dim]) -> Features:
        """Return the whole output of a new layer, in these dimensions."""
        layer = self.layer(source)
        layer.dims = tuple(dims)
        return Features(source, layer.dims, only=True)

    # Layers.

    def emit(
        self,
        node: OnnxNode | None,
        kind: str,
        keys: dict[str, Any],
        inputs: Sequence[int],
        sizes: Mapping[str, int],
        weights: LayerWeights = _NONE,
    ) -> int:
        """Add a layer and return its position."""
        self.layers.append(Layer(kind, keys, list(inputs), sizes, node, weights))
        return len(self.layers) - 1

    def emit_once(
        self,
        node: OnnxNode | None,
        kind: str,
        keys: dict[str, Any],
        inputs: Sequence[int],
        sizes: Mapping[str, int],
        weights: LayerWeights = _NONE,
        of: str = "",
    ) -> int:
        """Add a layer, or return the one that does the same already, of the same tensor."""
        key = (kind, tuple(sorted(keys.items())), tuple(inputs), weights, of)
        if key not in self._emitted:
            self._emitted[key] = self.emit(node, kind, keys, inputs, sizes, weights)
        return self._emitted[key]

    def note(self, node: OnnxNode, sentence: str) -> None:
        """Keep a phrase about what the network leaves out of the model: it is not the model then.

        What is to be known of how it was read, though nothing is missing, goes into ``remarks``.
        """
        self.omitted.add(sentence, node)

    # Settling and reading.

    def settled(self, name: str, node: OnnxNode) -> Features:
        """Return a tensor of which a layer stands for all that was pending."""
        features = self.settle(self.features(name), node)
        self.tensors[name] = features
        return features

    def settle(self, features: Features, node: OnnxNode, *, border: bool = False) -> Features:
        """Return features with pending norms, pools and single tokens made layers."""
        if features.border and not border:
            raise node.refuse("reads zeros that Pad adds; only convolutions and pools may")
        if features.source == INPUT:
            features = self.input.renamed(self.input.settle(features))
        if features.norm:
            features = self._settle_norm(features, node, features.norm)
        if features.pooled:
            features = self._settle_pool(features, node)
        if any(share.of.axis == "t" for share in features.taken):
            features = self._settle_token(features, node)
        return features

    def _settle_norm(self, features: Features, node: OnnxNode, norm: PendingNorm) -> Features:
        kept = without_norm(features.operators)
        bare = features._replace(norm=None, operators=kept)
        kind = _norm_kind(norm)
        if "part of c" in norm.over:
            if norm.scale:
                self.note(node, "a norm of each head is taken as elementwise")
            return bare
        if kind == "affine" and not (norm.scale or norm.shift):
            return bare
        keys: dict[str, Any] = {"norm": kind}
        if kind in ("layer", "rms") and not norm.scale:
            self.note(node, "a norm without a scale is counted with one")
        if bool(norm.shift) != (kind != "rms"):
            keys["bias"] = bool(norm.shift)
        ordered = self.ordered(bare, node)
        source = self.read(ordered, node)
        learned = [self.constant(name) for name in (norm.scale, norm.shift) if name]
        vectors = tuple(region for constant in learned for region in constant.stored)
        name = vectors[0].name if vectors else norm.scale or norm.shift
        # Its kind has a scale, also where the file does not.
        weights = LayerWeights(
            name, vectors=vectors, added=0 if norm.scale else self.layer(source).channels
        )
        sizes = self.layer(source).sizes
        layer = self.emit_once(node, "norm", keys, [source], sizes, weights)
        return Features(layer, ordered.dims, only=features.only)

    def _settle_pool(self, features: Features, node: OnnxNode) -> Features:
        layer = self.layer(features.source)
        wanted = {axis for axis in POSITIONS if layer.sizes.get(axis, 1) > 1}
        if not wanted <= features.pooled <= POSITIONS or features.taken:
            axes = "channels" if "c" in features.pooled else "some of the positions"
            raise node.refuse(f"a reduction over {axes} is read, but is not part of a norm")
        source = features.source
        if wanted:
            source = self._pooled(features, node, features.pool)
        return Features(source, features.dims, only=features.only)

    def _settle_token(self, features: Features, node: OnnxNode) -> Features:
        layer = self.layer(features.source)
        shares = [share for share in features.taken if share.of.axis == "t"]
        first, tokens = shares[0], layer.sizes["t"]
        whole = first.of == Digit("t", tokens) and len(features.taken) == 1 and first.size == 1
        if not whole or first.start not in (0, tokens - 1):
            raise node.refuse(
                f"reads {first.size} of {first.of.size} tokens; only all, the first or the last"
                " can be read"
            )
        over = "last" if first.start else "first"
        source = self._pooled(features._replace(taken=frozenset()), node, over)
        return Features(source, features.dims, only=features.only)

    def _pooled(self, features: Features, node: OnnxNode, over: str) -> int:
        layer = self.layer(features.source)
        layer.read_as.add(self.activation_of(features, node))
        keys = {} if over == "average" else {"over": over}
        sizes = {"c": layer.channels}
        return self.emit_once(node, "global_pool", keys, [features.source], sizes)

    def ordered(self, features: Features, node: OnnxNode) -> Features:
        """Return features whose channels are in order: dealt out in turn they are a shuffle.

        Raises
        ------
        InputError
            Where channels are in no order that a layer has.
        """
        layer = self.layer(features.source)
        if features.dims == layer.dims:
            return features
        channels = layer.channels
        digits = digits_of("c", features.dims)
        if len(digits) < 2 or features.taken:
            return features
        inner, outer = digits[0], digits[1]
        if len(digits) > 2 or (inner.stride, outer.stride) != (1, inner.size):
            raise node.refuse(f"permutes channels, as {_shown(digits)} of {channels}")
        source = self.read(features, node)
        keys = {"groups": outer.size}
        shuffle = self.emit_once(node, "shuffle", keys, [source], self.layer(source).sizes)
        new = {inner: Digit("c", inner.size, outer.size), outer: Digit("c", outer.size)}
        dims = tuple(merged(new.get(digit, digit) for digit in dim) for dim in features.dims)
        return Features(shuffle, dims, only=features.only)

    def as_tokens(self, features: Features, node: OnnxNode) -> Features:
        """Return an image whose rows and columns are one dimension as tokens; else as it is."""
        layer = self.layer(features.source)
        if not layer.is_image or features.taken:
            return features
        places = [axis for axis, dim in enumerate(features.dims) if axes_of([dim]) & POSITIONS]
        channels = [axis for axis, dim in enumerate(features.dims) if "c" in axes_of([dim])]
        if len(places) != 1 or axes_of([features.dims[places[0]]]) - POSITIONS:
            return features
        height, width = layer.sizes["h"], layer.sizes["w"]
        # Of a sequence (one row) the sequence of the dimensions tells: tokens have features last.
        is_row = 1 in (height, width)
        if is_row and (not channels or channels[-1] < places[0]):
            return features
        sizes = {"t": height * width, "c": layer.channels}
        source = self.read(features, node)
        tokens = self.emit_once(node, "flatten", {"to": "tokens"}, [source], sizes)
        dims = tuple(merged(_token(digit, width) for digit in dim) for dim in features.dims)
        return Features(tokens, dims, only=features.only)

    def read(self, features: Features, node: OnnxNode) -> int:
        """Return the layer whose whole map a node reads, and remember the activation.

        Raises
        ------
        InputError
            Where the node reads less than the whole map, or copies of it.
        """
        layer = self.layer(features.source)
        if layer.kind == "scores":
            raise node.refuse("reads the scores of attention; only their product with V may")
        word = self.activation_of(features, node)
        if features.taken:
            part = self._slice(features, node)
            self.layers[part].read_as.add(word)
            return part
        layer.read_as.add(word)
        if features.dims == layer.dims:
            return features.source
        for axis, size in layer.sizes.items():
            if not is_whole(axis, size, features.dims):
                raise node.refuse(f"reads {_shown(digits_of(axis, features.dims))} of {size}")
        return features.source

    def activation_of(self, features: Features, node: OnnxNode) -> str | None:
        """Return the activation through which a node reads a map, and note what is left out."""
        if not (features.source == INPUT and self.input.is_tokens):
            for phrase in left_out(features.operators):
                self.note(node, f"{phrase} of what it reads")
            if "Erf" in features.operators:
                self.note(node, GELU_BY_ERF)
        return activation(features.operators)

    def _slice(self, features: Features, node: OnnxNode) -> int:
        """Return a layer for a range of channels: an fc or conv is divided there later."""
        channels = self.layer(features.source).channels
        if len(features.taken) == 1:
            (share,) = features.taken
            axis, size, stride = share.of
            if axis == "c" and share.step == 1 and size * stride == channels:
                keys = {"start": share.start * stride, "size": share.size * stride}
                sizes = {**self.layer(features.source).sizes, "c": share.size * stride}
                return self.emit_once(node, "slice", keys, [features.source], sizes)
        raise node.refuse("reads a part of a feature map that is not a range of its channels")

    def sliced(self, features: Features, node: OnnxNode) -> Features:
        """Return a range of channels as a feature map of its own."""
        if not features.taken:
            return features
        source = self._slice(features, node)
        (share,) = features.taken
        dims = []
        for dim in features.dims:
            own = (
                Digit("c", digit.size, digit.stride) if digit.axis == share else digit
                for digit in dim
            )
            dims.append(merged(own))
        return Features(source, tuple(dims), features.operators, only=features.only)


def _stand_in(shape: tuple[int, ...], batch: int, open_batch: bool) -> Constant:
    """Return what stands for a further input: ones, the mask of a batch without padding.

    Of what has more than a number for each token of an image it is not known what it says.
    """
    known = len(shape) < 3 and shape[:1] in ((), (batch,))
    one = placeholder((1, *shape[1:])) if known and shape and open_batch else None
    return Constant(shape, lambda: placeholder(shape), known=known, is_input=True, one_image=one)


def _norm_kind(norm: PendingNorm) -> str:
    if "b" in norm.over:
        return "batch"
    if "c" in norm.over:
        return "layer" if norm.centred else "rms"
    return "affine"


def _token(digit: Digit, width: int) -> Digit:
    if digit.axis == "h":
        return Digit("t", digit.size, digit.stride * width)
    return Digit("t", digit.size, digit.stride) if digit.axis == "w" else digit


def _shown(digits: Dim) -> str:
    return " x ".join(str(digit.size) for digit in digits) or "1"


def shape_error(node: OnnxNode, *shapes: tuple[int, ...]) -> InputError:
    """Return the error of a node whose inputs do not fit one another."""
    shown = " and ".join("x".join(map(str, shape)) or "a number" for shape in shapes)
    return node.refuse(f"its inputs do not fit one another: {shown}")
