"""The cost model of a problem; one of another package is checked against the interface."""

from __future__ import annotations

from itertools import zip_longest
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.costs import COSTS
from hypar_opt.costs.base import CostModel, derived_levels, sampled
from hypar_opt.documents.parsing import shown
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

PAGE = "see docs/adding-a-cost.md"


def cost_of(problem: Problem, workload: Workload) -> CostModel:
    """Return the cost model of a problem.

    Raises
    ------
    HyparError
        If there is no such cost or reading, or it cannot charge the problem.
    """
    if problem.has_unequal_parts or problem.cost == "time":
        timed = problem.array.description if problem.array and problem.cost == "time" else None
        check_loads(workload, timed, unequal_parts=problem.has_unequal_parts)
    # Imported late: most problems have no groups.
    if problem.cost == "bytes" and (problem.has_unequal_parts or problem.is_staged):
        from hypar_opt.costs.groups import GroupBytes

        return GroupBytes.of_groups(problem)
    if problem.cost == "time" and problem.groups:
        from hypar_opt.costs.groups import GroupTime

        return GroupTime.of_groups(problem, workload)
    # Looked up by name: a plug-in's cost is used as the built-in ones are.
    cost = COSTS[problem.cost].from_problem(problem, workload)
    if problem.cost not in COSTS.built_in_names():
        check_contract(cost, problem.cost, workload, problem.levels)
    return cost


def check_loads(workload: Workload, array: Array | None, *, unequal_parts: bool) -> None:
    """Refuse experts without a capacity where the load of the fullest part is unknown.

    Parameters
    ----------
    array
        The array on which a step is timed; None if it is not.
    unequal_parts
        Whether parts of H1 have shares.

    Raises
    ------
    HyparError
        Naming the layer, and what would be right.
    """
    problem = ""
    if unequal_parts:
        problem = "experts without a capacity need parts of H1 that are equal"
    elif workload.loads and array is not None and not array.step_model.by_largest_shard:
        problem = f"on the array {array.name} each part takes as long as the mean; should be 'even'"
    node = next((node for node in workload.layers if node.load), None)
    if problem and node is not None:
        raise HyparError(f"layer {node.name!r}: its router's load: {problem}")


def check_contract(cost: CostModel, name: str, workload: Workload, levels: int) -> None:
    """Check that a cost charges operations in integers, and alike at levels with equal keys.

    Raises
    ------
    HyparError
        Naming the member, and what it should be or return.
    """
    _check_members(cost, name)
    for operation in sampled(cost, workload, levels):
        try:
            charge = np.asarray(cost.charge(operation))
        except HyparError as error:
            raise HyparError(f"cost {name!r}: charge: {error}; {PAGE}") from None
        ends, shape = charge.shape[::-1], operation.quarters.shape
        if any(
            size not in (1, count) for size, count in zip_longest(ends, shape[::-1], fillvalue=1)
        ):
            raise HyparError(
                f"cost {name!r}: charge should return an integer for each of {shape} amounts, got"
                f" {charge.shape}; {PAGE}"
            )
        entries = charge.ravel().tolist()
        wrong = [entry for entry in entries if not isinstance(entry, int) or entry < 0]
        if wrong:
            raise HyparError(
                f"cost {name!r}: charge should return integers that are not negative, got"
                f" {wrong[0]!r}; {PAGE}"
            )
    first: dict[Hashable, int] = {}
    keys, _ = derived_levels(cost, workload, levels)
    for level in range(levels):
        key = cost.level_key(level)
        try:
            hash(key)
        except TypeError:
            raise HyparError(
                f"cost {name!r}: level_key should return a key that can be hashed, got {key!r};"
                f" {PAGE}"
            ) from None
        peer = first.setdefault(key, level)
        if keys[level] != keys[peer]:
            raise HyparError(
                f"cost {name!r}: level_key should tell H{peer + 1} and H{level + 1} apart, as"
                f" charge does; {PAGE}"
            )


def _check_members(cost: Any, name: str) -> None:
    """Check that there is a cost model, its unit and its resolution."""
    if not isinstance(cost, CostModel):
        kind = type(cost).__name__
        raise HyparError(
            f"cost {name!r}: from_problem should return a CostModel, got {kind}; {PAGE}"
        )
    unit: Any = cost.unit
    resolution: Any = cost.resolution
    if not isinstance(unit, str):
        raise HyparError(f"cost {name!r}: unit should be a string, got {shown(unit)}; {PAGE}")
    if not isinstance(resolution, Integral) or resolution < 1:
        raise HyparError(
            f"cost {name!r}: resolution should be an integer from 1 on, got {shown(resolution)};"
            f" {PAGE}"
        )
