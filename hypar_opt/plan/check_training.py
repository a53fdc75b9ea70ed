"""Refusals of what does not know the memory of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import RefusedError, argument

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem


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
