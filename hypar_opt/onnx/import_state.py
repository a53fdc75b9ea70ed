"""The state of an import: the layers and tensors so far, and the steps that rules share.

A tensor is *settled* when layers represent everything that was pending on it, and *read* when a
layer takes it as input.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import (
    POSITIONS,
    Digit,
    DigitRange,
    Dim,
    axes_of,
    digits_of,
    extent,
    head_size,
    is_part,
    is_whole,
    merged,
    part_size,
    unit,
    unrolled,
    whole_dim,
)
from hypar_opt.onnx.constant import Constant, placeholder
from hypar_opt.onnx.constants import Constants
from hypar_opt.onnx.exact import phrases
from hypar_opt.onnx.features import Features, Layer, PendingNorm
from hypar_opt.onnx.heads import channels_of
from hypar_opt.onnx.inputs import network_inputs
from hypar_opt.onnx.mask_values import Known, MaskValues
from hypar_opt.onnx.model import FLOATS, MAX_RANK, OnnxGraph, OnnxNode
from hypar_opt.onnx.regions import LayerWeights
from hypar_opt.onnx.samples import HEAD, IDENTITY, dims_over, factor_of, normed, reduced, stand_in
from hypar_opt.workload.operators.norm import EPSILON

OF_HEADS = "a norm of each head's features"
"""What is said of such a norm that a network does not have."""

MAX_LETTERS = 400
"""Longer phrases on omitted parts are cut."""

MAX_DIGITS = 64
"""A tensor's dimensions divide axes into at most this many digits."""


class ImportState:
    """The layers and tensors of the nodes that have been read."""

    def __init__(
        self, graph: OnnxGraph, folder: Path | None = None, *, causal: bool = False
    ) -> None:
        self.graph = graph
        self.causal = causal
        self.constants = Constants(graph)
        self.mask_values = MaskValues(graph, self.constants, folder)
        self.constants.read_integers = self.mask_values.integers
        self.inputs = network_inputs(graph)
        """By their sources, which are below zero."""
        self.batch = self.inputs[-1].batch
        self.layers: list[Layer] = []
        self.tensors = {axes.name: axes.features() for axes in self.inputs.values()}
        self.notes = list(graph.notes)
        self._omitted: dict[str, dict[str, None]] = {}
        self.remarks: list[str] = []
        # How often each tensor is read, including as an output of the graph.
        self.uses = Counter(name for node in graph.nodes for name in node.inputs)
        self.uses.update(graph.outputs)
        self.fixed: set[str] = set()
        """Constants that are not learned, such as masks."""
        self.tables: dict[str, Known] = {}
        """Tables of rotary positions that are in files in the model's folder, as far as read."""
        self._emitted: dict[Hashable, int] = {}
        for value in graph.inputs:
            if value.name not in self.tensors:
                one = _stand_in(value.shape, self.batch, graph.open_batch)
                self.constants.add(value.name, one)

    @property
    def element_type(self) -> str | None:
        """The floating-point type of most initializer elements; None for single precision."""
        elements: Counter[int] = Counter()
        for tensor in self.graph.initialisers.values():
            elements[tensor.data_type] += math.prod(max(size, 0) for size in tensor.dims)
        floats = {kind: count for kind, count in elements.items() if kind in FLOATS}
        names = {10: "float16", 11: "float64", 16: "bfloat16"}
        return names.get(max(floats, key=lambda kind: floats[kind])) if floats else None

    # A node's inputs.

    def is_constant(self, name: str) -> bool:
        return name not in self.tensors

    def constant(self, name: str) -> Constant:
        return self.constants.get(name)

    def layer(self, source: int) -> Layer:
        return self.inputs[source].layer if source < 0 else self.layers[source]

    def is_ids(self, features: Features) -> bool:
        """Whether features are made of ids."""
        return features.source < 0 and self.inputs[features.source].is_tokens

    def features(self, name: str) -> Features:
        """Return the features of a tensor; of an input with its axes named, if known."""
        features = self.seen(name)
        axes = self.inputs.get(features.source)
        return features if axes is None else axes.renamed(features)

    def name_image(self, features: Features) -> None:
        """Name the axes of an input as a convolution reads it: channels, rows, columns."""
        if features.source < 0:
            self.inputs[features.source].name_image(features.dims)

    def named(self, features: Features) -> Features:
        """Return features, an input's axes named by its rank unless a layer determined them."""
        axes = self.inputs.get(features.source)
        return features if axes is None else axes.settled(features)

    def seen(self, name: str) -> Features:
        """Return the features of a tensor; an input of the network with its axes unnamed.

        Raises
        ------
        ValueError
            Where it is a constant or omitted.
        """
        if name not in self.tensors:
            raise ValueError(f"{name!r} is not a feature map" if name else "an input is left out")
        return self.tensors[name]

    def put(self, node: OnnxNode, features: Features, index: int = 0) -> None:
        """Set the features of a node's output."""
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

    # Layers.

    def emit(self, layer: Layer) -> Features:
        """Add a layer and return its whole output."""
        self.layers.append(layer)
        return Features(len(self.layers) - 1, layer.dims, only=True)

    def emit_unique(self, layer: Layer, of: str = "") -> Features:
        """Return a layer's output; an equal layer of the same tensor is not added again."""
        keys = repr(sorted(layer.keys.items()))
        key = (layer.kind, keys, tuple(layer.inputs), layer.weights, of)
        if key not in self._emitted:
            self._emitted[key] = self.emit(layer).source
        source = self._emitted[key]
        self.layers[source].dims = layer.dims
        return Features(source, layer.dims, only=True)

    def note(self, node: OnnxNode | None, phrase: str) -> None:
        """Record what the network leaves out of the model, as ``rotary positions``, and its node.

        Sentences on how the model was read, where nothing is missing, go into ``remarks``.
        """
        nodes = self._omitted.setdefault(phrase, {})
        if node is not None:
            nodes[f"node {node.label!r} ({node.op})"] = None

    def omitted(self) -> list[str]:
        """Return each phrase noted with its first node and the number of others."""
        out = []
        for phrase, nodes in self._omitted.items():
            more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
            text = f"{phrase} ({next(iter(nodes))}{more})" if nodes else phrase
            # Names of nodes may be any text; a network file holds only printable characters.
            out.append("".join(c if c.isprintable() else "?" for c in text)[:MAX_LETTERS])
        return out

    # Settling and reading.

    def settled(self, name: str, node: OnnxNode) -> Features:
        """Return a tensor settled, and record that."""
        features = self.settle(self.features(name), node)
        self.tensors[name] = features
        return features

    def settle(self, features: Features, node: OnnxNode, *, border: bool = False) -> Features:
        """Return features after making layers of pending norms, pools and single tokens."""
        if features.border and not border:
            raise node.refuse("reads a border that Pad adds; only convolutions and pools may")
        features = self.named(features)
        if features.norm and not (features.pooled and not features.norm.over):
            features = self._settle_norm(features, node, features.norm)
        if features.pooled:
            features = self._settle_pool(features, node)
        if any(part.of.axis == "t" for part in features.taken):
            features = self._settle_token(features, node)
        return features

    def _settle_norm(self, features: Features, node: OnnxNode, norm: PendingNorm) -> Features:
        if features.pooled:
            raise node.refuse("a reduction of what is normed is read, but is not part of the norm")
        bare = features._replace(norm=None, function=norm.of, operators=norm.of.rest)
        kind = _norm_kind(norm)
        size, channels = self.heads_of(bare, norm.over)
        epsilon = EPSILON if norm.epsilon == "?" else float(norm.epsilon or 0.0)
        groups = self.groups_of(bare, norm.over)
        if groups is not None:
            of_groups = "layer" if norm.centred else "rms"
            over = dims_over(norm.over, self.layer(bare.source).sizes)
            if self._is_norm(features, norm, of_groups, epsilon, over):
                kind, size = of_groups, None
            else:
                groups = None
        if groups is None and any(map(is_part, norm.over)) and size is None:
            self.note(norm.divides or node, OF_HEADS)
            return bare
        if size is not None or groups is not None:
            bare = self.sliced(bare, node)
        if groups is None and not self._is_norm(features, norm, kind, epsilon):
            self._note_rest(features, node, norm.node or node)
        if kind == "affine" and not (norm.scale or norm.shift):
            return bare
        keys: dict[str, Any] = {"norm": kind}
        if size is not None:
            keys |= {"heads": channels // size} if size < channels else {}
            channels = size
        if groups is not None:
            keys["groups"] = groups
        if kind in ("layer", "rms") and not norm.scale:
            self.note(node, "a norm without a scale is counted with one")
        if kind != "affine":
            if norm.epsilon == "?":
                self.note(node, f"a norm's epsilon, which is not known; {EPSILON:g} is taken")
            keys |= epsilon_key(epsilon)
        if bool(norm.shift) != (kind != "rms"):
            keys["bias"] = bool(norm.shift)
        source = self.read(bare, node)
        learned = [self.constant(name) for name in (norm.scale, norm.shift) if name]
        vectors = tuple(region for constant in learned for region in constant.stored)
        name = vectors[0].name if vectors else norm.scale or norm.shift
        # A network's norm has a scale, even where the file has none.
        weights = LayerWeights(name, vectors=vectors, added=0 if norm.scale else channels)
        sizes = self.layer(source).sizes
        origin = norm.node or node
        dims = self.layer(source).dims
        layer = Layer("norm", keys, [source], sizes, origin, weights, dims=dims, is_nameless=True)
        return Features(self.emit_unique(layer).source, bare.dims, only=features.only)

    def heads_of(self, features: Features, over: Collection[str]) -> tuple[int | None, int]:
        """Return the channels per normed head, and of all heads.

        None if it does not normalise heads, or heads are not a range of a layer's channels.
        """
        size, sizes = head_size(over), self.layer(features.source).sizes
        channels = self._channels(features)
        fits = size is not None and "t" in sizes and self.is_range(features)
        return (size if fits and size and channels % size == 0 else None), channels

    def _channels(self, features: Features) -> int:
        """Return the channels of a map, or of the range of them that features are."""
        if features.taken and self.is_range(features):
            (part,) = features.taken
            return part.size * part.of.stride
        return self.layer(features.source).channels

    def groups_of(self, features: Features, over: Collection[str]) -> int | None:
        """Return the number of channel groups of a norm over all positions.

        None where its statistics are of a position, or of some, or of images.
        """
        sizes, channels = self.layer(features.source).sizes, self._channels(features)
        places = {axis for axis in POSITIONS if sizes.get(axis, 1) > 1}
        size = channels if "c" in over else part_size(over) if any(map(is_part, over)) else 1
        is_token = not places and ("t" in sizes or "c" in over)
        if "b" in over or is_token or not (places <= {*over} and self.is_range(features)):
            return None
        return channels // size if size and channels % size == 0 else None

    def _note_rest(self, features: Features, node: OnnxNode, last: OnnxNode) -> None:
        """Note the unread operators on a map, at least its last one."""
        for phrase in phrases(features.function.rest) or [last.op]:
            self.note(node, f"{phrase} of what it reads")

    def _is_norm(
        self,
        features: Features,
        norm: PendingNorm,
        kind: str,
        epsilon: float,
        over: tuple[int, ...] | None = None,
    ) -> bool:
        """Whether what has been made of a map is a network's norm of it.

        Parameters
        ----------
        over
            The dimensions of its statistics, where they are over groups of channels.
        """
        if norm.of.values is None:
            return False
        scale, shift = (
            stand_in(self.constant(name)) if name and not norm.is_plain else None
            for name in (norm.scale, norm.shift)
        )
        over = (HEAD,) if head_size(norm.over) is not None else over
        expected = normed(norm.of.values, kind, epsilon, scale, shift, over=over)
        return features.function.agrees(expected)

    def _settle_pool(self, features: Features, node: OnnxNode) -> Features:
        layer = self.layer(features.source)
        wanted = {axis for axis in POSITIONS if layer.sizes.get(axis, 1) > 1}
        if not wanted <= features.pooled <= POSITIONS or features.taken:
            of_channels = any(axis == "c" or is_part(axis) for axis in features.pooled)
            axes = "channels" if of_channels else "some of the positions"
            raise node.refuse(f"a reduction over {axes} is read, but is not part of a norm")
        bare = features._replace(pooled=frozenset(), norm=None, function=features.unpooled)
        over = dims_over(features.pooled, layer.sizes)
        expected = reduced(features.pool, {}, bare.function.values, over, 1)
        if expected is None or not features.function.agrees(expected):
            self._note_rest(features, node, node)
        if not wanted:
            return bare
        source = self._pooled(bare, node, features.pool)
        return Features(source, features.dims, only=features.only)

    def _settle_token(self, features: Features, node: OnnxNode) -> Features:
        layer = self.layer(features.source)
        first = next(part for part in features.taken if part.of.axis == "t")
        tokens = layer.sizes["t"]
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
        pooled = Layer("global_pool", keys, [features.source], {"c": layer.channels}, node)
        return self.emit_unique(pooled).source

    def ordered(self, features: Features, node: OnnxNode) -> Features:
        """Return features whose channels are in order, after a shuffle layer if need be.

        Raises
        ------
        InputError
            Where no layer puts the channels in order.
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
        new = {inner: Digit("c", inner.size, outer.size), outer: Digit("c", outer.size)}
        dims = tuple(merged(new.get(digit, digit) for digit in dim) for dim in features.dims)
        shuffle = Layer("shuffle", keys, [source], self.layer(source).sizes, node, dims=dims)
        return self.emit_unique(shuffle)._replace(only=features.only)

    def as_tokens(self, features: Features, node: OnnxNode, *, in_parts: bool = False) -> Features:
        """Return an image as tokens if its rows and columns are one dimension; else unchanged.

        Or, ``in_parts``, wherever they are, as those of windows.
        """
        layer = self.layer(features.source)
        if not layer.is_image:
            return features
        positions = [axis for axis, dim in enumerate(features.dims) if axes_of([dim]) & POSITIONS]
        channels = [axis for axis, dim in enumerate(features.dims) if "c" in axes_of([dim])]
        mixed = axes_of([features.dims[place] for place in positions]) - POSITIONS
        if (len(positions) != 1 or mixed) and not in_parts:
            return features
        height, width = layer.sizes["h"], layer.sizes["w"]
        # An image of one row is a sequence of tokens if its channels come last.
        is_row = 1 in (height, width)
        if is_row and (not channels or channels[-1] < positions[0]):
            return features
        sizes = {"t": height * width, "c": layer.channels}
        dims = tuple(merged(_token(digit, width) for digit in dim) for dim in features.dims)
        if not features.taken:
            pending = not features.function.activation  # a number, which attention may take
            bare = features._replace(function=IDENTITY, operators=frozenset())
            source = self.read(bare if pending else features, node)
            tokens = Layer("flatten", {"to": "tokens"}, [source], sizes, node)
            flattened = Features(self.emit_unique(tokens).source, dims, only=features.only)
            if not pending:
                return flattened
            return flattened._replace(function=features.function, operators=features.operators)
        # Parts of the channels are parts of those of the tokens.
        if any(axes_of([(part.of,)]) != {"c"} for part in features.taken):
            return features
        layer.read_as.add(None)
        tokens = Layer("flatten", {"to": "tokens"}, [features.source], sizes, node)
        return features._replace(source=self.emit_unique(tokens).source, dims=dims)

    def vector_as_token(self, features: Features, node: OnnxNode) -> Features:
        """Return a vector as a sequence of one token; other features unchanged."""
        layer = self.layer(features.source)
        if layer.sizes.keys() != {"c"} or features.source < 0:
            return features
        features = self.sliced(features, node)
        sizes = {"t": 1, "c": self.layer(features.source).channels}
        source = self.read(features, node)
        token = self.emit_unique(Layer("flatten", {"to": "tokens"}, [source], sizes, node))
        return Features(token.source, features.dims, only=features.only)

    def as_image(self, features: Features, node: OnnxNode) -> Features:
        """Return features with channels, rows and columns as the image of a layer.

        Tokens or a vector become one, and channels and pixels of blocks each other; else unchanged.
        """
        layer = self.layer(features.source)
        if "c" not in layer.sizes or features.taken or len(features.dims) not in (3, 4):
            return features
        channels, *rest = features.dims[1:]
        rows, columns = ((), *rest)[-2:]
        height, width = extent(rows), extent(columns)
        if len(rest) == 2 and not (channels or rows) and not layer.is_tokens:
            return features  # one pixel, whose channels are the last dimension
        if layer.is_image:
            match = block_layer(layer, channels, rows, columns)
        else:
            match = _image_keys(layer, channels, rows, columns)
        if match is None:
            return features
        kind, keys = match
        sizes = {"c": extent(channels), "h": height, "w": width}
        source = self.read(features, node)
        dims = [whole_dim(axis, size) for axis, size in sizes.items()]
        if layer.is_tokens:  # their channels stay in the order that they have
            dims[0] = channels
        image = self.emit_unique(Layer(kind, keys, [source], sizes, node))
        places = dims if len(features.dims) == 4 else [dims[0], dims[2]]
        return Features(image.source, (features.dims[0], *places), only=features.only)

    def read(self, features: Features, node: OnnxNode) -> int:
        """Return the layer whose whole map a node reads, and record the activation.

        Raises
        ------
        InputError
            Where the node reads less than the whole map, or copies of it.
        """
        layer = self.layer(features.source)
        if layer.is_scores:
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
            if not is_whole(axis, size, unrolled(features.dims)):
                raise node.refuse(f"reads {_shown(digits_of(axis, features.dims))} of {size}")
        return features.source

    def activation_of(self, features: Features, node: OnnxNode) -> str | None:
        """Return the activation through which a node reads a map; note other operators on it."""
        if self.is_ids(features):
            return None
        if features.source >= 0 and self.layer(features.source).kind == "embedding":
            factor = factor_of(features.function)
            self.layer(features.source).scaled_by.setdefault(factor, []).append(node)
            if factor is not None:
                return None
        for phrase in phrases(features.function.rest):
            self.note(node, f"{phrase} of what it reads")
        word = features.function.activation
        if word and features.source < 0:
            self.note(node, f"the activation {word!r} of the network's input")
        return word

    def _slice(self, features: Features, node: OnnxNode) -> int:
        """Return a layer for some of the channels, where an fc or conv is divided later."""
        keys: dict[str, Any] | None = None
        if self.is_range(features):
            (taken,) = features.taken
            keys = {"start": taken.start * taken.of.stride, "size": taken.size * taken.of.stride}
        elif axes_of([(part.of,) for part in features.taken]) == {"c"}:
            # The same channels of each head.
            only = features._replace(dims=(_channel_digits(features),))
            of = channels_of(only, [0]).flat()
            keys = {"start": of.first, "size": of.elements, "of": of}
        if keys is None:
            raise node.refuse("reads a part of a feature map that is not a range of its channels")
        whole = self.layer(features.source)
        sizes = {**whole.sizes, "c": keys["size"]}
        if whole.kind != "flatten" or "of" not in keys:
            return self.emit_unique(Layer("slice", keys, [features.source], sizes, node)).source
        # Of an image's pixels as tokens it is the image that is divided.
        of_image = {**self.layer(whole.inputs[0]).sizes, "c": keys["size"]}
        part = self.emit_unique(Layer("slice", keys, [*whole.inputs], of_image, node)).source
        self.layers[part].read_as.add(None)
        return self.emit_unique(Layer("flatten", whole.keys, [part], sizes, node)).source

    def is_range(self, features: Features) -> bool:
        """Whether features are a range of their layer's channels, or all of them."""
        channels = self.layer(features.source).channels
        steps = (
            (part.of.axis, part.step, part.of.size * part.of.stride) for part in features.taken
        )
        return len(features.taken) < 2 and all(step == ("c", 1, channels) for step in steps)

    def contiguous(self, features: Features, node: OnnxNode) -> Features:
        """Return non-contiguous channels, such as some of each head, as a new layer's map."""
        return features if self.is_range(features) else self.sliced(features, node)

    def sliced(self, features: Features, node: OnnxNode) -> Features:
        """Return a range of channels as the whole map of a new layer."""
        if not features.taken:
            return features
        source = self._slice(features, node)
        if not self.is_range(features):
            digits = sorted(_channel_digits(features), key=_stride)
            strides = accumulate((digit.size for digit in digits), mul, initial=1)
            new = {
                digit: Digit("c", digit.size, stride)
                for digit, stride in zip(digits, strides, strict=False)
            }
            dims = tuple(merged(new.get(digit, digit) for digit in dim) for dim in features.dims)
            return Features(source, dims, features.operators, features.function, only=features.only)
        (part,) = features.taken
        dims = tuple(
            merged(
                Digit("c", digit.size, digit.stride * part.of.stride)
                if digit.axis == part
                else digit
                for digit in dim
            )
            for dim in features.dims
        )
        return Features(source, dims, features.operators, features.function, only=features.only)


def _stand_in(shape: tuple[int, ...], batch: int, open_batch: bool) -> Constant:
    """Return a stand-in for an additional input: ones, the mask of a batch without padding.

    The meaning of an input with more than one number per token is unknown.
    """
    has_values = len(shape) < 3 and shape[:1] in ((), (batch,))
    one = placeholder((1, *shape[1:])) if has_values and shape and open_batch else None
    return Constant(
        shape, lambda: placeholder(shape), has_values=has_values, is_input=True, one_image=one
    )


def epsilon_key(epsilon: float) -> dict[str, float]:
    """Return the key of a norm's epsilon, unless it is the default."""
    shown = float(f"{epsilon:.7g}")  # as it was before it was stored in single precision
    return {} if shown == EPSILON else {"epsilon": shown}


def _norm_kind(norm: PendingNorm) -> str:
    if "b" in norm.over:
        return "batch"
    if "c" in norm.over or head_size(norm.over) is not None:
        return "layer" if norm.centred else "rms"
    return "affine"


def _channel_digits(features: Features) -> Dim:
    """Return the digits of a map's channels, also of ranges of them."""
    return tuple(digit for dim in features.dims for digit in dim if axes_of([(digit,)]) == {"c"})


def _stride(digit: Digit) -> int:
    """Return the stride of a digit in channels."""
    return digit.stride * unit(digit.axis)


def _image_keys(
    layer: Layer, channels: Dim, rows: Dim, columns: Dim
) -> tuple[str, dict[str, Any]] | None:
    """Return the layer that makes an image of tokens or a vector, if that is how one is seen."""
    axis = "t" if layer.is_tokens else "c"
    pixels = merged((*rows, *columns))
    dims = [pixels] if layer.is_tokens else [merged((*channels, *pixels))]
    if axes_of([pixels]) != {axis} or dims[0] != whole_dim(axis, layer.sizes[axis]):
        return None
    if layer.is_tokens and axes_of([channels]) - {"c"}:
        return None
    return "unflatten", {"height": extent(rows), "width": extent(columns)}


def block_layer(
    layer: Layer, channels: Dim, rows: Dim, columns: Dim
) -> tuple[str, dict[str, Any]] | None:
    """Return the layer that makes pixels of an image's channels, or the reverse, if one does."""
    whole, to = layer.sizes, "space" if "c" in axes_of([rows, columns]) else "depth"
    down, across = (
        math.prod(digit.size for digit in dim if digit.axis == name)
        for name, dim in (
            [("c", rows), ("c", columns)] if to == "space" else [("h", channels), ("w", channels)]
        )
    )
    if down * across == 1:
        return None
    for order in ("chw", "hwc", "whc"):
        sizes, stride = {"c": extent(channels), "h": down, "w": across}, 1
        digits: dict[str, Dim] = {}
        if to == "depth":
            sizes["c"] = whole["c"]
            seen = (
                merged(digit for axis in order for digit in whole_dim(axis, sizes[axis])),
                whole_dim("h", whole["h"] // down, down),
                whole_dim("w", whole["w"] // across, across),
            )
        else:
            for axis in reversed(order):
                digits[axis] = whole_dim("c", sizes[axis], stride)
                stride *= sizes[axis]
            seen = (
                digits["c"],
                (*whole_dim("h", whole["h"]), *digits["h"]),
                (*whole_dim("w", whole["w"]), *digits["w"]),
            )
        if seen == (channels, rows, columns):
            keys: dict[str, Any] = {} if to == "space" else {"to": to}
            if (down, across) != (2, 2):
                keys["factor"] = down if down == across else [down, across]
            return "pixel_shuffle", keys | ({} if order == "chw" else {"order": order})
    return None


def _token(digit: Digit, width: int) -> Digit:
    if isinstance(digit.axis, DigitRange):
        roll = replace(digit.axis, of=_token(digit.axis.of, width))
        return digit._replace(axis=roll)
    if digit.axis == "h":
        return Digit("t", digit.size, digit.stride * width)
    return Digit("t", digit.size, digit.stride) if digit.axis == "w" else digit


def _shown(digits: Dim) -> str:
    return " x ".join(str(digit.size) for digit in digits) or "1"


def shape_error(node: OnnxNode, *shapes: tuple[int, ...]) -> InputError:
    """Return the error for a node whose inputs do not fit one another."""
    shown = " and ".join("x".join(map(str, shape)) or "a number" for shape in shapes)
    return node.refuse(f"its inputs do not fit one another: {shown}")


def maps_error(node: OnnxNode, maps: Sequence[Features]) -> InputError:
    """Return the error for a node that combines maps whose axes do not fit one another."""
    if len({features.shape for features in maps}) > 1:
        return shape_error(node, *(features.shape for features in maps))
    shown = " and ".join(f"[{', '.join(map(_named, x.dims))}]" for x in maps)
    return node.refuse(f"its inputs are of one size, but not of the same axes: {shown}")


_NAMES = {"b": "images", "c": "channels", "h": "rows", "w": "columns", "t": "tokens"}
_NAMES |= {"s": "keys", "r": "copies"}


def _named(dim: Dim) -> str:
    axes = [_NAMES.get(name, name) for digit in dim for name in axes_of([(digit,)])]
    return " by ".join(axes) or "1"
