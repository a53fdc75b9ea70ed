"""Layers of a network file, each of the kind it names, and blocks of repeated layers."""

from __future__ import annotations

from typing import Annotated, Any, Union

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    SerializeAsAny,
    Strict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails

from hypar_opt.documents.document import LARGEST_SIZE, Document, Name, Size, rule
from hypar_opt.documents.parsing import shown
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.base import Operator, default


def _operator(value: object) -> Operator:
    """Return the layer of the kind that a table names; plug-ins may add kinds."""
    if isinstance(value, Operator):
        return value
    if not isinstance(value, dict):
        raise rule(f"should be a table, got {shown(value)}")
    if "kind" not in value:
        raise rule("missing key 'kind'")
    kind = value["kind"]
    if kind == "linear":  # the name that frameworks give it
        value, kind = {**value, "kind": "fc"}, "fc"
    if not isinstance(kind, str) or kind not in OPERATORS:
        kinds = ", ".join(map(repr, OPERATORS))
        problem = rule(f"should be one of {kinds}, got {kind!r}")
        # A separate location makes the message name the key `kind`, not the whole table.
        error: InitErrorDetails = {"type": problem, "loc": ("kind",), "input": kind}
        raise ValidationError.from_exception_data("layer", [error])
    return OPERATORS[kind].model_validate(value)


class _BuiltInKinds:
    """The JSON Schema of a layer: lists, and therefore imports, all built-in kinds."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        kinds: Any = Union[tuple(OPERATORS.built_in())]  # noqa: UP007
        union: Any = Annotated[kinds, Field(discriminator="kind")]
        return handler(TypeAdapter(union).core_schema)


# A plain validator, since a discriminated union is fixed at import and could not hold the kinds
# that plug-ins register.
Layer = Annotated[SerializeAsAny[Operator], PlainValidator(_operator), _BuiltInKinds]


class Block(Document):
    """Layers that repeat: each repetition reads the one before it."""

    name: Name
    repeat: Size | None = None
    first: Annotated[int | None, Strict(), Field(ge=0, le=LARGEST_SIZE), default(0)] = None
    """The number of the first repetition in its layers' names: a network's runs of blocks of
    several kinds are often numbered as one, and have one name."""
    inputs: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1)] | None = None
    """The layer or block that the first repetition reads as ``input``."""
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, alias="layer")]

    @field_validator("first")
    @classmethod
    def _numbers_repetitions(cls, given: int | None, info: ValidationInfo) -> int | None:
        if given is not None and info.data.get("repeat") is None:
            raise rule("numbers the repetitions of a block with 'repeat'")
        return given

    def repetitions(self, numbers: range) -> Block:
        """Return a block of some consecutive repetitions, whose layers keep their names.

        Parameters
        ----------
        numbers
            From 0; a block without ``repeat`` has one repetition.
        """
        if self.repeat is None:
            return self
        update = {
            "repeat": len(numbers),
            "first": (self.first or 0) + numbers.start or None,
            "layers": tuple(layer.in_repetitions(numbers) for layer in self.layers),
        }
        return self.model_copy(update=update)
