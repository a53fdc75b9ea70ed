"""A network as described in one TOML file: its layers, in order, and their sizes.

`docs/network-format.md` documents the format; `json_schema` derives its JSON Schema from
these classes. Sizes in a file are a whole number or ``[height, width]``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, Union

from pydantic import (
    Discriminator,
    Field,
    PlainValidator,
    SerializeAsAny,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails

from hypar_opt.documents import (
    Document,
    Name,
    Printable,
    Size,
    parse_toml,
    read_text,
    rule,
    shown,
    validate,
)
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.base import FeatureMap, LayerMaps, Operator
from hypar_opt.workload.parallelism import Parallelism

SCHEMA: Literal["hypar-opt/network/1"] = "hypar-opt/network/1"


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


def _operator(value: object) -> Operator:
    """Return a layer of the kind that its table names; plug-ins may add kinds."""
    if isinstance(value, Operator):
        return value
    if not isinstance(value, dict):
        raise rule(f"should be a table, got {shown(value)}")
    if "kind" not in value:
        raise rule("missing key 'kind'")
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in OPERATORS:
        known = ", ".join(map(repr, OPERATORS))
        problem = rule(f"should be one of {known}, got {kind!r}")
        # With a location of its own the message names the key `kind`, not the whole table.
        error: InitErrorDetails = {"type": problem, "loc": ("kind",), "input": kind}
        raise ValidationError.from_exception_data("layer", [error])
    return OPERATORS[kind].model_validate(value)


# A plain validator, since a discriminated union is fixed at import and could not hold the kinds
# that plug-ins register. The JSON Schema lists the built-in kinds only.
Layer = Annotated[
    SerializeAsAny[Operator],
    PlainValidator(
        _operator,
        json_schema_input_type=Annotated[
            Union[tuple(OPERATORS.built_in())],  # noqa: UP007
            Field(discriminator="kind"),
        ],
    ),
]


# The two inputs are told apart by their keys, so that an error is about the one that was meant and
# not about both (docs/decisions/0002-validation.md).
def _input_kind(value: Any) -> str:
    if isinstance(value, dict):
        return "vector" if "features" in value else "image"
    return "vector" if isinstance(value, VectorInput) else "image"


class Network(Document):
    """A chain of weighted layers.

    Raises
    ------
    pydantic.ValidationError
        Where layers do not fit one another; `read_network` turns it into an `InputError`.
    """

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/network/1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    source: Printable = ""
    input: Annotated[
        Annotated[ImageInput, Tag("image")] | Annotated[VectorInput, Tag("vector")],
        Discriminator(_input_kind),
    ]
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, alias="layer")]

    @model_validator(mode="after")
    def _layers_fit(self) -> Self:
        seen: set[str] = set()
        for layer in self.layers:
            if layer.name in seen:
                raise rule(f"layer {layer.name!r}, name: should be unique, stands twice")
            seen.add(layer.name)
        # Propagating the shapes is the check: `maps` raises where a layer does not fit its input.
        for _ in self.maps():
            pass
        return self

    def maps(self) -> Iterator[LayerMaps]:
        """Yield each layer's feature maps for one image, in order.

        Raises
        ------
        ValueError
            At the first layer that does not fit its input.
        """
        read = self.input.feature_map()
        is_vector = isinstance(self.input, VectorInput)
        for layer in self.layers:
            if is_vector and layer.reads_images:
                raise rule(
                    f"layer {layer.name!r}, kind: should be 'fc', got {layer.kind!r}, which"
                    " needs channels, height and width, and a vector precedes it"
                )
            maps = layer.maps(read)
            yield maps
            read = maps.pooled
            # Once flattened, feature maps do not become images again.
            is_vector = is_vector or layer.writes_vectors

    def choices(self, count: int) -> tuple[tuple[Parallelism, ...], ...]:
        """Return each layer's choices: the first ``count`` of those of its kind, or fewer."""
        return tuple(
            tuple(Parallelism(choice.word) for choice in layer.choices[:count])
            for layer in self.layers
        )

    def description(self) -> dict[str, Any]:
        """Return the network as plain data, with every default written out."""
        # TOML has no null: an optional key that is absent stays absent.
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def digest(self) -> str:
        """Return a hash of the description, independent of how a file formats it."""
        # Canonical JSON: neither the order of keys nor white space may change the digest.
        text = json.dumps(self.description(), sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


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
    """Return the format's JSON Schema (2020-12), for editors and other programs.

    A schema cannot express that names are unique and that layers fit one another; reading a
    file checks both.
    """
    schema = Network.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA} | schema
