"""An irreducible set of conflicting constraints, for a problem without a feasible plan.

A deletion filter leaves out one constraint after the other: without it the others still conflict,
and it is not needed, or they do not, and it stays. What remains is irreducible: without any one of
its members there is a plan.

Source: Chinneck and Dravnieks, "Locating minimal infeasible constraint sets in linear programs",
ORSA Journal on Computing 3, 1991.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import InfeasibleError, argument
from hypar_opt.instance.constraints import ConstraintSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.plan.constraints import Constraints
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

MAX_MEMBERS = 64
"""The most constraints that the filter takes: each check takes a while on large networks."""

_SPLITS = ("even", "runnable")
"""The constraints on all splits."""

Member = tuple[str, str]
"""One constraint: ``("fix", "fc1=data")``, or ``even``, ``runnable`` or ``memory`` and ``""``."""


def feasible_constraints(problem: Problem, workload: Workload) -> ConstraintSet:
    """Return the constraints of a problem.

    Raises
    ------
    HyparError
        If a pin names a layer, level or choice that does not exist.
    InfeasibleError
        If no plan satisfies them, naming those that are in conflict.
    """
    try:
        return _checked(problem, workload)
    except InfeasibleError as error:
        names = list(map(described_member, conflict(problem, workload)))
        if len(names) < 2 or all(name in error.message for name in names):
            raise
        together = f"{', '.join(names[:-1])} and {names[-1]}"
        raise InfeasibleError(f"{error.message}; in conflict: {together}") from None


def conflict(problem: Problem, workload: Workload) -> tuple[Member, ...]:
    """Return an irreducible set of constraints that no plan satisfies together.

    None if there are too many constraints to check, or a plan satisfies all.
    """
    members = members_of(problem.constraints)
    if len(members) > MAX_MEMBERS or not _conflict(members, problem, workload):
        return ()
    for member in members:
        rest = [other for other in members if other != member]
        if _conflict(rest, problem, workload):
            members = rest
    return tuple(members)


def members_of(constraints: Constraints) -> list[Member]:
    """Return the constraints one by one; a pin that is stated twice counts once."""
    members = [("fix", pin) for pin in dict.fromkeys(constraints.fix)]
    members += [(name, "") for name in _SPLITS if getattr(constraints, name)]
    return members + ([("memory", "")] if constraints.memory is not None else [])


def described_member(member: Member) -> str:
    """Return a constraint for a message."""
    name, pin = member
    return argument(f"constraints.{name}", pin or None)


def with_members(constraints: Constraints, members: Sequence[Member]) -> Constraints:
    """Return some of the constraints, without the others."""
    flags: Mapping[str, object] = {name: (name, "") in members for name in _SPLITS}
    pins = tuple(pin for name, pin in members if name == "fix")
    memory = constraints.memory if ("memory", "") in members else None
    return constraints.model_copy(update={**flags, "fix": pins, "memory": memory})


def forbidden_by(
    problem: Problem, workload: Workload, states: Sequence[tuple[int, ...]]
) -> Iterator[tuple[Member, NDArray[np.bool_]]]:
    """Yield each constraint but the memory, and whether it forbids a state, ``(nodes, states)``.

    Constraints on splits interact with pins: a layer may be whole where no split fits.
    """
    members = members_of(problem.constraints)
    pins = [member for member in members if member[0] == "fix"]

    def allowed(*selected: Member) -> NDArray[np.bool_]:
        constraints = with_members(problem.constraints, selected)
        alone = problem.model_copy(update={"constraints": constraints})
        return ConstraintSet(alone, workload).allowed(states)

    free = allowed()
    for member in members:
        if member in pins:
            yield member, free & ~allowed(member)
        elif member[0] != "memory":
            further_pins = () if _conflict(pins, problem, workload) else pins
            yield member, allowed(*further_pins) & ~allowed(*further_pins, member)


def _checked(problem: Problem, workload: Workload) -> ConstraintSet:
    constraints = ConstraintSet(problem, workload)
    constraints.check_feasible()
    return constraints


def _conflict(members: Sequence[Member], problem: Problem, workload: Workload) -> bool:
    constraints = with_members(problem.constraints, members)
    try:
        _checked(problem.model_copy(update={"constraints": constraints}), workload)
    except InfeasibleError:
        return True
    return False
