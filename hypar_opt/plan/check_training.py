"""Refusals of what does not know repeated passes, or the memory of a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypar_opt.errors import RefusedError, argument

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem, ProblemFields


def check_trains_at_once(problem: ProblemFields, what: str) -> None:
    """Refuse what only knows steps that repeat nothing and share nothing out.

    Raises
    ------
    RefusedError
        If a step repeats or shares out anything.
    """
    if own := problem.training.unlike_defaults:
        stated = ", ".join(
            f"{argument(name)} {'by layer' if isinstance(value, Mapping) else value}"
            for name, value in own.items()
        )
        raise RefusedError(f"{what} is not supported for a plan that trains by {stated}")


def check_memory_is_free(problem: Problem, what: str) -> None:
    """Refuse what looks at all plans, where only those within a device are to be.

    Raises
    ------
    RefusedError
        If the memory of a device is a constraint.
    """
    if problem.device_memory is not None and problem.constraints.memory is not None:
        memory = argument("constraints.memory")
        raise RefusedError(
            f"{what} is of plans of any memory: leave {memory} out, and state how layers train"
        )
