"""The JSON Schema of what each command prints with ``--json``.

It follows from a type, against which the tests validate every document that they read.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from hypar_opt.cli.commands import SUMMARIES
from hypar_opt.cli.documents import (
    BatchPlans,
    CheckedParts,
    ComparedPlans,
    ConfiguredPlans,
    ExploredSubspace,
    FittedArray,
    MemoryCount,
    NamedRows,
    Reproduced,
    ShownArray,
    ShownNetwork,
    SimulatedStep,
    SolvedPlan,
    SweptTable,
    TracedFronts,
    ValidatedSets,
    Verified,
    VirtualRun,
)
from hypar_opt.errors import HyparError, UnknownNameError

DOCUMENTS: dict[str, tuple[type[BaseModel], ...]] = {
    "solve": (SolvedPlan,),
    "configure": (ConfiguredPlans,),
    "simulate": (SimulatedStep,),
    "memory": (MemoryCount,),
    "run": (VirtualRun,),
    "compare": (ComparedPlans,),
    "explore": (ExploredSubspace,),
    "pareto": (TracedFronts,),
    "sweep": (SweptTable, BatchPlans),
    "verify": (Verified,),
    "validate": (ValidatedSets,),
    "calibrate": (FittedArray,),
    "reproduce": (Reproduced,),
    "show": (SolvedPlan, ShownArray, ShownNetwork),
    "doctor": (CheckedParts,),
    "list": (NamedRows,),
}
"""What each command may print, by its name."""


class _WithoutDefaults(GenerateJsonSchema):
    # A default mapping, which JSON has no notation for, is left out without a word.
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {  # noqa: RUF012
        "skipped-choice",
        "non-serializable-default",
    }


@cache
def document_type(command: str) -> TypeAdapter[Any]:
    """Return the type of what a command prints with ``--json``.

    Raises
    ------
    HyparError
        If there is no such command, or it has no ``--json``.
    """
    if command in SUMMARIES and command not in DOCUMENTS:
        raise HyparError(f"{command} has no --json, which --schema describes: it writes a file")
    if command not in DOCUMENTS:
        raise UnknownNameError("command with --json", command, list(DOCUMENTS))
    kinds: Any = DOCUMENTS[command]
    union = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return TypeAdapter(union)


def json_schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what a command prints with ``--json``."""
    schema = document_type(command).json_schema(by_alias=True, schema_generator=_WithoutDefaults)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": command}
    return head | {key: value for key, value in schema.items() if key != "title"}
