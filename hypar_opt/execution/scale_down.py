"""A network of the same structure and choices with small sizes that halve evenly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hypar_opt.errors import RefusedError
from hypar_opt.workload.expansion import INPUT
from hypar_opt.workload.network import SCHEMA, Network
from hypar_opt.workload.operators.maps import FeatureMap, TokenMap
from hypar_opt.workload.operators.windows import slide

if TYPE_CHECKING:
    from hypar_opt.workload.operators.attention import Attention
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.conv import Conv
    from hypar_opt.workload.operators.elementwise import Concat, Flatten, Pool
    from hypar_opt.workload.operators.maps import LayerMaps

_CHANNELS = 8
"""At least this many, or activations leave nothing to compare."""
_SIDE = 8
"""The least height and width of an image, if the original has as many."""
_MAX_SIDE = 512
_NORMALISED = 4
"""Images per device if the network has batch norms, which need several."""
_TOKENS = 4
"""Tokens of a sequence, or rows of a table, if no other tensor determines them."""
_HEAD = 2
"""Features of a head."""


class Scaled(NamedTuple):
    """A small network, its batch, and a description of the changes."""

    network: Network
    batch: int
    changes: tuple[str, ...]


class _Map(NamedTuple):
    """The sizes of a tensor: its channels, and either tokens or height and width."""

    channels: Size
    tokens: Size | None
    extent: tuple[int, int] = (1, 1)


def scaled_down(network: Network, batch: int, levels: int) -> Scaled:
    """Return a small network on which a plan of the network's layers runs.

    Raises
    ------
    RefusedError
        If no smaller sizes keep the structure.
    """
    stated = network.input.feature_map()
    image = isinstance(stated, FeatureMap)
    largest = max(stated.height, stated.width) if isinstance(stated, FeatureMap) else 1
    parts = max(2**levels, _CHANNELS)
    for side in range(min(_SIDE, largest), min(largest, _MAX_SIDE) + 1):
        try:
            small = _Scaling(network, parts, side).network()
        except ValueError:  # a window that does not fit its map
            continue
        break
    else:
        raise RefusedError(f"{network.name} has no smaller network of its structure")
    norms = any(getattr(layer, "norm", None) == "batch" for layer in network.layers)
    images = 2**levels * (_NORMALISED if norms else 1)
    changes = [f"batch {batch} -> {images}"]
    now = small.input.feature_map()
    if image and largest > 1:
        assert isinstance(stated, FeatureMap)
        assert isinstance(now, FeatureMap)
        changes.append(f"image {stated.height}x{stated.width} -> {now.height}x{now.width}")
    if isinstance(stated, TokenMap):
        changes.append(f"tokens {stated.tokens} -> {now.tokens}")
    changes.append(f"channels, features, heads, groups, words -> {parts} or small multiples")
    return Scaled(small, images, tuple(changes))


Size = Mapping[int | None, int]
"""A linear sum: the multiplicity of each free size, and a constant under None."""


def constant(number: int) -> Size:
    """Return a known size."""
    return {None: number}


def plus(sizes: Iterable[Size]) -> Size:
    """Return the sum of sizes."""
    total: dict[int | None, int] = {}
    for size in sizes:
        for key, count in size.items():
            total[key] = total.get(key, 0) + count
    return total


def times(size: Size, factor: int) -> Size:
    """Return a multiple of a size."""
    return {key: count * factor for key, count in size.items()}


class FreeSizes:
    """Free sizes, some of them determined by others.

    Parameters
    ----------
    default
        The value of a free size that nothing determines.
    """

    def __init__(self, default: int) -> None:
        self._default = default
        self._defaults: list[int] = []
        self._value: dict[int, Size] = {}

    def free(self, default: int | None = None) -> Size:
        """Return a new free size."""
        self._defaults.append(self._default if default is None else default)
        return {len(self._defaults) - 1: 1}

    def equate(self, one: Size, other: Size, layer: str) -> None:
        """Make two sizes equal, as a layer requires.

        Raises
        ------
        RefusedError
            If both are sums of several sizes, or different constants.
        """
        one, other = self._resolved(one), self._resolved(other)
        if one == other:
            return
        for left, right in ((one, other), (other, one)):
            (key, count), *more = left.items()
            if not more and key is not None and count == 1 and key not in right:
                self._value[key] = right
                return
        raise RefusedError(f"layer {layer!r} ties sizes for which no small ones are known")

    def of(self, size: Size) -> int:
        """Return a size as a number."""
        return sum(
            count * (1 if key is None else self._defaults[key])
            for key, count in self._resolved(size).items()
        )

    def _resolved(self, size: Size) -> Size:
        while True:
            known = next((key for key in size if key is not None and key in self._value), None)
            if known is None:
                return {key: count for key, count in size.items() if count}
            rest = {key: count for key, count in size.items() if key != known}
            size = plus([rest, times(self._value[known], size[known])])


class _Scaling:
    """One pass over the layers: sizes that a kind ties together stay tied, the rest is free.

    Parameters
    ----------
    parts
        The divisor of all free sizes.
    side
        The image's height and width, at most.
    """

    def __init__(self, network: Network, parts: int, side: int) -> None:
        self.original, self.parts, self.side = network, parts, side
        self.sizes = FreeSizes(parts)
        self.keys: list[dict[str, Size | list[int]]] = []
        self.maps: list[_Map] = []
        self.original_maps = list(network.maps())
        self.tables: dict[str, tuple[Size, Size]] = {}
        """Input and output sizes of weights, by the layer that others may share them with."""

    def network(self) -> Network:
        stated = self.original.input
        over = stated.feature_map()
        vocabulary = getattr(stated, "vocabulary", None)
        self.words = self.sizes.free()
        channels = constant(1) if vocabulary else self.sizes.free()
        self.tokens = constant(min(over.tokens, _TOKENS))
        extent = (1, 1)
        if isinstance(over, FeatureMap):
            extent = (min(over.height, self.side), min(over.width, self.side))
        first = _Map(channels, self.tokens if over.tokens else None, extent)
        layers = zip(self.original.layers, self.original.sources, self.original_maps, strict=True)
        for layer, sources, maps in layers:
            reads = [self.maps[source] if source >= 0 else first for source in sources]
            keys: dict[str, Size | list[int]] = {}
            self.maps.append(self.scale(layer, maps, reads, keys))
            self.keys.append(keys)
        return self.written(first, vocabulary)

    def scale(
        self, layer: Operator, maps: LayerMaps, reads: Sequence[_Map], keys: dict[str, Any]
    ) -> _Map:
        """Return the map that a layer writes, and record its sizes in ``keys``."""
        match layer.kind:
            case "conv":
                return self._conv(cast("Conv", layer), maps, reads[0], keys)
            case "fc":
                keys["units"] = units = self.sizes.free()
                self._tie(layer, reads[0].channels, units)
                return _Map(units, reads[0].tokens)
            case "embedding":
                return self._embedding(layer, maps, reads, keys)
            case "attention":
                return self._attention(cast("Attention", layer), reads, keys)
            case "add" | "mul":
                return self._broadcast(layer, maps, reads)
            case "concat":
                return self._concat(cast("Concat", layer), reads)
            case "pool":
                pooled = cast("Pool", layer).pool.pooled(
                    layer.name, FeatureMap(1, *reads[0].extent)
                )
                return reads[0]._replace(extent=(pooled.height, pooled.width))
            case "global_pool":
                return _Map(reads[0].channels, None)
            case "flatten":
                return self._flatten(cast("Flatten", layer), reads[0])
            case "shuffle":
                keys["groups"] = constant(min(2, cast(Any, layer).groups))
                return reads[0]
            case "norm" | "output":
                return reads[0]
        raise RefusedError(f"layer {layer.name!r}: kind {layer.kind!r} has no known small size")

    def _conv(self, layer: Conv, maps: LayerMaps, read: _Map, keys: dict[str, Any]) -> _Map:
        groups = layer.groups or 1
        filters = self.sizes.free()
        if groups > 1:
            keys["groups"] = constant(self.parts)
            if groups == maps.input.channels:  # depthwise: one group per channel
                keys["groups"] = read.channels
                filters = times(read.channels, layer.filters // groups)
        keys["filters"] = filters
        rows, columns = layer.dilation or (1, 1)
        window = ((layer.kernel[0] - 1) * rows + 1, (layer.kernel[1] - 1) * columns + 1)
        over = FeatureMap(1, *read.extent)
        output = slide(layer.name, "kernel", over, window, layer.stride, layer.padding, 1)
        output = layer.pool.pooled(layer.name, output) if layer.pool else output
        return _Map(filters, None, (output.height, output.width))

    def _tie(self, layer: Operator, read: Size, written: Size) -> None:
        """Record the sizes of a layer's weights, or equate them to the shared ones."""
        owner = layer.shares_weights_with
        if owner is None:
            self.tables[layer.name] = read, written
            return
        rows, columns = self.tables[owner]
        if next(one for one in self.original.layers if one.name == owner).reads_ids:
            rows, columns = columns, rows
        self.sizes.equate(read, rows, layer.name)
        self.sizes.equate(written, columns, layer.name)

    def _embedding(
        self, layer: Operator, maps: LayerMaps, reads: Sequence[_Map], keys: dict[str, Any]
    ) -> _Map:
        keys["features"] = features = self.sizes.free()
        if reads:
            inherits = layer.sizes(maps)["i"] == getattr(self.original.input, "vocabulary", None)
            words = self.words if inherits else self.sizes.free()
        else:
            tokens = maps.output.tokens
            words = constant(1) if tokens == 1 else self.sizes.free(min(tokens, _TOKENS))
        keys["vocabulary"] = words
        self._tie(layer, words, features)
        return _Map(features, self.tokens if reads else words)

    def _attention(self, layer: Attention, reads: Sequence[_Map], keys: dict[str, Any]) -> _Map:
        shared, heads = layer.kv_heads or layer.heads, layer.heads
        queries = min(heads // shared, 2)
        keys["heads"], keys["kv_heads"] = (
            constant(self.parts * queries),
            constant(self.parts),
        )
        one = self.parts * _HEAD
        widths = [queries * one, one, one] if len(reads) > 1 else [(queries + 2) * one]
        for read, width in zip(reads, widths, strict=True):
            self.sizes.equate(read.channels, constant(width), layer.name)
        return _Map(constant(queries * one), reads[0].tokens)

    def _broadcast(self, layer: Operator, maps: LayerMaps, reads: Sequence[_Map]) -> _Map:
        originals = (maps.input, *maps.others)
        first = next(r for r, was in zip(reads, originals, strict=True) if was == maps.output)
        for read, was in zip(reads, originals, strict=True):
            self.sizes.equate(read.channels, first.channels, layer.name)
            if was.positions == maps.output.positions and first.tokens and read.tokens:
                self.sizes.equate(read.tokens, first.tokens, layer.name)
        return first

    def _concat(self, layer: Concat, reads: Sequence[_Map]) -> _Map:
        first, *others = reads
        if layer.axis == "channels":
            for read in others:
                if first.tokens and read.tokens:
                    self.sizes.equate(read.tokens, first.tokens, layer.name)
            return first._replace(channels=plus(read.channels for read in reads))
        for read in others:
            self.sizes.equate(read.channels, first.channels, layer.name)
        return first._replace(tokens=plus(cast(Size, read.tokens) for read in reads))

    def _flatten(self, layer: Flatten, read: _Map) -> _Map:
        pixels = read.extent[0] * read.extent[1]
        if layer.to == "tokens":
            return _Map(read.channels, read.tokens or constant(pixels))
        positions = self.sizes.of(read.tokens) if read.tokens else pixels
        return _Map(times(read.channels, positions), None)

    def written(self, first: _Map, vocabulary: int | None) -> Network:
        """Return the network with the solved sizes."""
        of = self.sizes.of
        if first.tokens:
            stated: dict[str, int] = {"tokens": of(first.tokens)}
            stated |= (
                {"vocabulary": of(self.words)} if vocabulary else {"features": of(first.channels)}
            )
        elif "features" in self.original.input.model_dump():
            stated = {"features": of(first.channels)}
        else:
            height, width = first.extent
            stated = {"channels": of(first.channels), "height": height, "width": width}
        names = [layer.name for layer in self.original.layers]
        layers = []
        for layer, sources, keys in zip(
            self.original.layers, self.original.sources, self.keys, strict=True
        ):
            table = layer.model_dump(mode="json", by_alias=True, exclude_none=True)
            table["inputs"] = [names[source] if source >= 0 else INPUT for source in sources]
            table |= {key: of(cast(Size, size)) for key, size in keys.items()}
            layers.append(table)
        description = {"name": self.original.name, "schema": SCHEMA, "input": stated}
        return Network.model_validate(description | {"layer": layers})
