"""A solver's claims, checked against the table itself; a plan file's, against the baselines."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.costs.shared_nodes import level_tables
from hypar_opt.errors import HyparError, InputError, WrongClaimError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_table, total_cost
from hypar_opt.plan.costs import json_number
from hypar_opt.plan.stored_layouts import plan_tensors, rows_with_stored
from hypar_opt.search.memory.modes import excess_of_memory
from hypar_opt.solvers.base import SolveResult, Status
from hypar_opt.solvers.baselines import BASELINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.table import CostTable
    from hypar_opt.plan.plan import Plan


def check_claim(table: CostTable, result: SolveResult) -> SolveResult:
    """Return a solver's result with the cost of its assignment, after checking its claims.

    Raises
    ------
    WrongClaimError
        Naming the claim and what holds instead.
    """
    assignment = assignment_of(result)
    if len(assignment) != table.layers:
        raise WrongClaimError(f"assigned {len(assignment)} of {table.layers} layers")
    claims = (*assignment, result.objective or 0, result.bound or 0)
    # numpy's integers wrap around on overflow, and a float rounds: neither compares exactly.
    if not all(issubclass(kind, int) for kind in set(map(type, claims))):
        raise WrongClaimError("claims should be Python's whole numbers")
    if assignment and not 0 <= min(assignment) <= max(assignment) < table.choices:
        raise WrongClaimError(f"assigned a choice outside the table's {table.choices}")
    violation = _violation(table, assignment)
    if violation:
        raise WrongClaimError(f"assigned {violation}")
    # A solver's objective may be rounded, or that of a relaxation: the table decides.
    costs = price_table(table, assignment)
    if result.objective not in (None, costs):
        raise WrongClaimError(f"claims {result.objective}, its assignment costs {costs}")
    if result.bound is not None and result.bound > costs:
        raise WrongClaimError(f"claims the bound {result.bound}, above its assignment's {costs}")
    # A proof of optimality is a bound that equals the cost.
    if result.status is Status.OPTIMAL and result.bound != costs:
        raise WrongClaimError(f"claims an optimum of {costs} with the bound {result.bound}")
    return replace(result, objective=costs)


def keeps_to(table: CostTable, assignment: Sequence[int]) -> bool:
    """Return whether a table allows an assignment, and it fits the capacity."""
    return _violation(table, assignment) is None


def _violation(table: CostTable, assignment: Sequence[int]) -> str | None:
    """Return why a table does not allow an assignment; None if it does."""
    layers = range(table.layers)
    if table.allowed is not None and not table.allowed[layers, assignment].all():
        return "a choice that is not allowed"
    if (exceeded := table.exceeded(assignment)) is not None:
        return "{}, more than the capacity {}".format(*exceeded)
    return None


def assignment_of(result: SolveResult) -> tuple[int, ...]:
    """Return the assignment of a result that has one; callers have checked its status."""
    assert result.assignment is not None
    return result.assignment


def check_record(plan: Plan, *, file: str) -> None:
    """Refuse a plan file whose claim of optimality a baseline disproves.

    A baseline counts only if it satisfies the plan's constraints, and fits the memory of a device
    with the plan's training settings. With scope ``joint`` the bound is on all plans; with scope
    ``level`` an optimal plan claims the least cost of each level, given the choices above it.

    Raises
    ------
    InputError
        Naming the claim, and the baseline that costs less.
    """
    bound = plan.solver.bound
    joint = plan.solver.scope == "joint"
    if plan.is_staged:  # baselines have no stages
        return
    if bound is None or not plan.levels or not (joint or plan.solver.status == "optimal"):
        return
    instance = Instance.of_plan(plan)
    rows = _baseline_rows(instance)
    if joint:
        plans = {name: [row] * plan.levels for name, row in rows.items()}
        totals = {
            name: total_cost(instance, rows_of_plan)
            for name, rows_of_plan in plans.items()
            if is_allowed(instance, rows_of_plan)
        }
        if totals:
            name = min(totals, key=totals.__getitem__)
            check_bound(plan, totals[name], name, file=file)
        return
    for name, row in rows.items():
        level = _cheaper_level(plan, instance, row)
        if level is not None:
            problem = (
                f'should be "feasible": at {level}, given the choices above, {name} costs less'
            )
            raise InputError(problem, where="solver, status", file=file)


def refused_baselines(instance: Instance) -> dict[str, str]:
    """Return which of the paper's baselines a problem's constraints refuse, and why, by their keys.

    A device's memory is no reason where ways to train are open: a baseline may fit in another one.
    """
    refused = {}
    for name, row in _baseline_rows(instance).items():
        try:
            instance.constraints.check([row] * instance.problem.levels)
        except HyparError as error:
            refused[BASELINES[name]] = error.message.removeprefix("constraints: ")
    return refused


def too_large_baselines(instance: Instance) -> dict[str, str]:
    """Return which of the paper's baselines do not fit a device as a problem trains, by their keys.

    The values are their needs, as ``5.038 GB of 5 GB``.
    """
    excess = {
        BASELINES[name]: excess_of_memory(instance, [row] * instance.problem.levels)
        for name, row in _baseline_rows(instance).items()
    }
    return {key: amount for key, amount in excess.items() if amount is not None}


def is_allowed(instance: Instance, rows: Rows) -> bool:
    """Return whether a plan, ``(levels, layers)``, keeps to constraints and fits a device."""
    return instance.constraints.allow(rows) and excess_of_memory(instance, rows) is None


def _baseline_rows(instance: Instance) -> dict[str, Sequence[int]]:
    workload = instance.workload
    return {name: workload.baselines[key][workload.shared :] for name, key in BASELINES.items()}


def check_bound(
    plan: Plan, cost: Fraction | float, name: str = "another plan", *, file: str | None = None
) -> None:
    """Refuse a plan whose bound on all plans is disproved by another plan of the same problem.

    Parameters
    ----------
    cost
        The cost of the other plan, which satisfies the plan's constraints and fits a device.
    name
        The name of the other plan.

    Raises
    ------
    InputError
        If the cost is less than the bound.
    """
    bound = plan.solver.bound
    if plan.solver.scope == "joint" and bound is not None and cost < bound:
        total = json_number(Fraction(cost))
        problem = f"should be at most {total}, which {name} costs, got {bound}"
        raise InputError(problem, where="solver, bound", file=file)


def _cheaper_level(plan: Plan, instance: Instance, row: Sequence[int]) -> str | None:
    """Return the first level's name at which a baseline's choices cost less than a plan's."""
    workload, rows = instance.workload, plan.assignments()
    tensors = plan_tensors(plan, workload)
    tables = level_tables(workload, instance.cost, rows, tensors)
    for level, (table, row_of_plan) in enumerate(tables):
        # With the plan's layouts of shared tensors, which are allowed.
        (nodes,) = rows_with_stored(workload, [row], [tensors[level]])
        if price_table(table, nodes) < price_table(table, row_of_plan):
            # The baseline at all levels below completes the choices above, if anything does.
            below = [row] * (plan.levels - level)
            if is_allowed(instance, [*rows[:level], *below]):
                return plan.level_names[level]
    return None
