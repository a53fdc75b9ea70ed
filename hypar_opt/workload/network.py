"""A network as described in one TOML file: its layers, in order, and their sizes.

`docs/network-format.md` is the format's page; its JSON Schema is written from these
classes by `json_schema`. Sizes in a file are a whole number or ``[height, width]``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Strict,
    Tag,
    model_validator,
)

from hypar_opt.documents import (
    LARGEST_SIZE,
    Document,
    Name,
    Printable,
    Size,
    parse_toml,
    read_text,
    rule,
    validate,
)

SCHEMA: Literal["hypar-opt/network/1"] = "hypar-opt/network/1"


def _both(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value, value
    if len(value) != 2:
        raise rule(f"should be one number or [height, width], got {value}")
    return value


Border = Annotated[int, Strict(), Field(ge=0, le=LARGEST_SIZE)]
Pair = Annotated[
    tuple[Size, Size], BeforeValidator(_both, json_schema_input_type=Size | tuple[Size, Size])
]
BorderPair = Annotated[
    tuple[Border, Border],
    BeforeValidator(_both, json_schema_input_type=Border | tuple[Border, Border]),
]


class FeatureMap(NamedTuple):
    """The size of one image's feature map; a vector has height and width 1."""

    channels: int
    height: int = 1
    width: int = 1

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width


class LayerMaps(NamedTuple):
    """What one layer reads and writes for one image."""

    input: FeatureMap
    output: FeatureMap
    pooled: FeatureMap
    """What the next layer reads: the output after pooling, where there is a pool."""


class ImageInput(Document):
    channels: Size
    height: Size
    width: Size

    def feature_map(self) -> FeatureMap:
        return FeatureMap(self.channels, self.height, self.width)


class VectorInput(Document):
    features: Size

    def feature_map(self) -> FeatureMap:
        return FeatureMap(self.features)


class Pool(Document):
    """A pooling step after a convolution. It has no weights and joins its layer."""

    kind: Literal["max", "average"]
    size: Pair
    stride: Pair = Field(default_factory=lambda data: data["size"])
    """As large as ``size`` unless given."""
    padding: BorderPair = (0, 0)
    rounding: Literal["down", "up"] = "down"
    """``up`` keeps a last window that is only partly covered, as Caffe does."""

    @model_validator(mode="after")
    def _window_sees_the_map(self) -> Self:
        if any(border >= size for border, size in zip(self.padding, self.size, strict=True)):
            raise rule(f"padding should be smaller than size, got {list(self.padding)}")
        return self


class Conv(Document):
    """A convolution with ``filters`` output channels; no biases."""

    name: Name
    kind: Literal["conv"]
    filters: Size
    kernel: Pair
    stride: Pair = (1, 1)
    padding: BorderPair = (0, 0)
    activation: Annotated[str, Field(min_length=1)] | None = None
    pool: Pool | None = None


class FullyConnected(Document):
    """A fully-connected layer of ``units`` outputs; it flattens what precedes it."""

    name: Name
    kind: Literal["fc"]
    units: Size
    activation: Annotated[str, Field(min_length=1)] | None = None


Layer = Conv | FullyConnected


def _input_kind(value: Any) -> str:
    if isinstance(value, dict):
        return "vector" if "features" in value else "image"
    return "vector" if isinstance(value, VectorInput) else "image"


class Network(Document):
    """A chain of weighted layers.

    Raises
    ------
    pydantic.ValidationError
        Where layers do not fit one another; `read_network` says it as an `InputError`.
    """

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/network/1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    source: Printable = ""
    input: Annotated[
        Annotated[ImageInput, Tag("image")] | Annotated[VectorInput, Tag("vector")],
        Discriminator(_input_kind),
    ]
    layers: Annotated[
        tuple[Annotated[Layer, Field(discriminator="kind")], ...],
        Field(min_length=1, alias="layer"),
    ]

    @model_validator(mode="after")
    def _layers_fit(self) -> Self:
        seen: set[str] = set()
        for layer in self.layers:
            if layer.name in seen:
                raise rule(f"layer {layer.name!r}, name: should be unique, stands twice")
            seen.add(layer.name)
        for _ in self.maps():
            pass
        return self

    def maps(self) -> Iterator[LayerMaps]:
        """Yield each layer's feature maps for one image, in order."""
        at = self.input.feature_map()
        flat = isinstance(self.input, VectorInput)
        for layer in self.layers:
            if isinstance(layer, FullyConnected):
                output = pooled = FeatureMap(layer.units)
                flat = True
            elif flat:
                raise rule(
                    f"layer {layer.name!r}, kind: should be 'fc', got 'conv': a convolution needs"
                    " channels, height and width, and a vector precedes it"
                )
            else:
                output = _slide(layer, "kernel", layer, layer.kernel, at, layer.filters)
                pool = layer.pool
                pooled = output
                if pool is not None:
                    pooled = _slide(layer, "pool", pool, pool.size, output, layer.filters)
            yield LayerMaps(at, output, pooled)
            at = pooled

    def description(self) -> dict[str, Any]:
        """The whole network as plain data, every default written out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def digest(self) -> str:
        """A fingerprint of the description that does not depend on how a file wrote it."""
        text = json.dumps(self.description(), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _slide(
    layer: Conv,
    key: str,
    window: Conv | Pool,
    size: tuple[int, int],
    over: FeatureMap,
    channels: int,
) -> FeatureMap:
    """Return the map of ``channels`` that a kernel or a pool makes of another map."""
    counts = []
    for extent, width, stride, border in zip(
        (over.height, over.width), size, window.stride, window.padding, strict=True
    ):
        free = extent + 2 * border - width
        if free < 0:
            raise rule(
                f"layer {layer.name!r}, {key}: should fit its padded input"
                f" ({over.height}x{over.width}, padding {list(window.padding)}),"
                f" got {size[0]}x{size[1]}"
            )
        count = free // stride + 1
        if isinstance(window, Pool) and window.rounding == "up" and free % stride:
            # A further window, if it starts on the map or its leading border.
            count += count * stride < extent + border
        counts.append(count)
    return FeatureMap(channels, *counts)


def read_network(path: str | Path) -> Network:
    """Read a network file.

    Raises
    ------
    InputError
        Naming the file, the layer and the key, and what would be right.
    """
    file = str(path)
    return validate(Network, parse_toml(read_text(path), file=file), file=file)


def json_schema() -> dict[str, Any]:
    """The format's JSON Schema (2020-12), for editors and other programs.

    It holds all that a schema can say; that names are unique and that layers fit one
    another is checked on reading.
    """
    schema = Network.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA} | schema
