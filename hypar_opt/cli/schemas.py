"""The JSON Schema of what each command prints with ``--json``.

It follows from a type, against which the tests validate every document that they read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from typing import Any

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from hypar_opt.cli.commands import SUMMARIES
from hypar_opt.documents.document import Document
from hypar_opt.errors import HyparError, UnknownNameError
from hypar_opt.execution.result import RunResult
from hypar_opt.hardware.array import Array
from hypar_opt.paper import REPRODUCED
from hypar_opt.plan.plan import Plan
from hypar_opt.results import Column, Columns, Documented
from hypar_opt.simulator.device_memory import DeviceMemory
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies.alternatives import Alternative, Regret
from hypar_opt.studies.batches import AllBatches
from hypar_opt.studies.calibration import Calibration
from hypar_opt.studies.comparison import Comparison
from hypar_opt.studies.configurations import Configurations
from hypar_opt.studies.exploration.export import SUMMARY
from hypar_opt.studies.installation import Installation
from hypar_opt.studies.pareto import ParetoFronts
from hypar_opt.studies.simulation import SIMULATED
from hypar_opt.studies.sweep import SweepResult
from hypar_opt.studies.validation import Validation
from hypar_opt.studies.verification import Verification
from hypar_opt.workload.description import DESCRIBED

_PLAN: dict[str, Any] = {
    name: (field.annotation, field) for name, field in Plan.model_fields.items()
}
_SOLVED = create_model(
    "SolvedPlan",
    __base__=Document,
    regret=(tuple[Regret, ...] | None, None),
    best=(tuple[Alternative, ...] | None, None),
    **_PLAN,
)
"""A plan file's content, with what ``--regret`` and ``--best`` add."""

_LISTED = Columns(Column("rows", type=list[Mapping[str, Any]]))

DOCUMENTS: dict[str, tuple[type[BaseModel | Documented] | Columns, ...]] = {
    "solve": (_SOLVED,),
    "configure": (Configurations,),
    "simulate": tuple(
        Columns(*SIMULATED.typed, *result.contents.typed) for result in (StepResult, PipelineResult)
    ),
    "memory": (DeviceMemory,),
    "run": (RunResult,),
    "compare": (Comparison,),
    "explore": (SUMMARY,),
    "pareto": (ParetoFronts,),
    "sweep": (SweepResult, AllBatches),
    "verify": (Verification,),
    "validate": (Validation,),
    "calibrate": (Calibration,),
    "reproduce": (REPRODUCED,),
    "show": (_SOLVED, Array, DESCRIBED),
    "doctor": (Installation,),
    "list": (_LISTED,),
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
    kinds = (_model(kind, f"{command} {n}") for n, kind in enumerate(DOCUMENTS[command], 1))
    return TypeAdapter(reduce(or_, kinds))


def _model(kind: type[BaseModel | Documented] | Columns, name: str) -> Any:
    if isinstance(kind, Columns):
        return kind.model(name.title().replace(" ", ""))
    return kind.contents.model(kind.__name__) if issubclass(kind, Documented) else kind


def json_schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what a command prints with ``--json``."""
    schema = document_type(command).json_schema(by_alias=True, schema_generator=_WithoutDefaults)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": command}
    return head | {key: value for key, value in schema.items() if key != "title"}
