"""The versions of a plan's file, and what each introduced.

A file has the oldest version that can state its problem: of ``hypar-opt/plan/2`` where none of
`STATED_SINCE` is needed. Version 1, which did not state how tensors are stored, is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from hypar_opt.workload.parallelism import IMAGE_CHOICES, PART_WORDS, WHOLE_LAYER

if TYPE_CHECKING:
    from hypar_opt.plan.problem import ProblemFields

SCHEMA: Literal["hypar-opt/plan/2"] = "hypar-opt/plan/2"
WITHOUT_LAYOUTS: Literal["hypar-opt/plan/1"] = "hypar-opt/plan/1"
NEWEST = "hypar-opt/plan/15"


_NEW = {*IMAGE_CHOICES, "experts"}
"""The choices that version 9 introduced."""


def _has_more_parts(problem: ProblemFields) -> bool:
    """Return whether a problem states the shares of three groups or more, or a third part of H1."""
    third = any(PART_WORDS.get(word, 0) > 1 for word in problem.choices)
    return isinstance(problem.share, tuple) or third


STATED_SINCE: Mapping[str, tuple[str, Callable[[ProblemFields], bool]]] = MappingProxyType(
    {
        NEWEST: ("choices: parts of H1 as stages", lambda own: own.is_staged),
        "hypar-opt/plan/14": ("choices: queries", lambda own: "queries" in own.choices),
        "hypar-opt/plan/13": ("training: recompute by op", lambda own: own.training.by_op),
        "hypar-opt/plan/12": (
            "training: gather or reduce_bytes",
            lambda own: own.training.gathers_or_reduces,
        ),
        "hypar-opt/plan/11": ("choices: addends", lambda own: "addends" in own.choices),
        "hypar-opt/plan/10": ("choices: whole", lambda own: WHOLE_LAYER in own.choices),
        "hypar-opt/plan/9": (
            "choices: rows, columns or experts",
            lambda own: bool(_NEW & {*own.choices}),
        ),
        "hypar-opt/plan/8": (
            "training: shards from a level down",
            lambda own: own.training.by_level,
        ),
        "hypar-opt/plan/7": ("share: of three groups or more", _has_more_parts),
        "hypar-opt/plan/6": ("training: words by layer", lambda own: own.training.by_layer),
        "hypar-opt/plan/5": ("choices: tokens", lambda own: "tokens" in own.choices),
        "hypar-opt/plan/4": ("share:", lambda own: own.has_unequal_parts),
        "hypar-opt/plan/3": ("parts:", lambda own: own.parts is not None),
    }
)
"""The key that each version introduced, and whether a problem has it; newest first."""


def schema_of(problem: ProblemFields) -> str:
    """Return the schema of a problem's plan files: the oldest that can state the problem."""
    versions = (version for version, (_, states) in STATED_SINCE.items() if states(problem))
    return next(versions, SCHEMA)
