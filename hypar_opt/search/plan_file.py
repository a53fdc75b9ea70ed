"""Plans from a file or a caller: checked, and repriced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from hypar_opt.checked import checked
from hypar_opt.documents.files import (
    exists,
    file_name,
    is_standard_input,
    read_text,
    take_standard_input,
)
from hypar_opt.errors import HyparError, InputError, RefusedError, worded
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import layouts_of, price, with_layouts
from hypar_opt.instance.staged import StagedPlan
from hypar_opt.plan.plan import Plan, parse_plan
from hypar_opt.plan.stored_layouts import plan_tensors, rows_of_plan
from hypar_opt.search.check_result import check_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.plan.costs import Cost


@checked
def repriced(plan: Plan, reading: str | None = None, *, cost: str | None = None) -> Plan:
    """Return the same choices priced by another reading, or by another cost on the same array.

    The solver's proof was for the previous cost, so the plan is then feasible, without a bound.

    Raises
    ------
    HyparError
        If there is no such reading or cost, or the cost is not one of the plan's problem.
    """
    update = {"reading": reading or plan.cost.reading, "cost": cost or plan.cost.kind}
    if update == {"reading": plan.cost.reading, "cost": plan.cost.kind}:
        return plan
    problem = plan.problem.model_copy(update=update)
    return priced_as(plan, Instance(plan.network.description, problem))


def priced_as(plan: Plan, instance: Instance) -> Plan:
    """Return the same choices priced by another problem."""
    if plan.is_staged:
        raise RefusedError("a plan in stages is priced by the time on its array alone")
    tensors = plan_tensors(plan, instance.executed_workload)
    priced = price(instance, plan.assignments(), tensors)
    claims = {"status": "feasible", "bound": None, "gap": None}
    solver = plan.solver.model_copy(update=claims)
    return plan.model_copy(update={"cost": priced, "solver": solver})


@checked
def read_plan(path: str | Path) -> Plan:
    """Read a plan file, or standard input (``-``), and price it again.

    Raises
    ------
    InputError
        If it is not a plan, has a newer schema, a cost or a time with overlap that its choices do
        not have, choices that violate its own constraints, or a bound that a baseline disproves.
    """
    file = file_name(path)
    if is_standard_input(path):
        take_standard_input("plan")
    elif not Path(path).suffix and not exists(Path(path)):
        solved = worded(f"solve({str(path)!r}).save(file)", f"solve {path} --output plan.json")
        raise InputError(f"is not a plan file; {solved} writes one", file=repr(str(path)))
    plan = _with_layouts(parse_plan(read_text(path), file=file), file=file)
    check_plan(plan, file=file)
    # Checked on reading, since a file can be edited: studies rely on a plan being feasible.
    if plan.constraints.any:
        try:
            if plan.is_staged:
                StagedPlan.of_plan(plan).check()
            else:
                instance = Instance.of_plan(plan)
                instance.constraints.check(
                    plan.assignments(), rows_of_plan(plan, instance.workload)
                )
        except HyparError as error:
            raise InputError(error.message, file=file) from None
    check_record(plan, file=file)
    if plan.solver.with_overlap is not None:
        # Imported late: other plans need no simulator.
        from hypar_opt.search.overlap import check_with_overlap

        check_with_overlap(plan, file=file)
    return plan


def _with_layouts(plan: Plan, *, file: str) -> Plan:
    try:
        return with_layouts(plan)
    except HyparError as error:  # an error in its problem
        raise InputError(error.message, file=file) from None


def check_plan(plan: Plan, *, file: str) -> None:
    """Refuse a plan whose stated cost or layouts are not those of its choices.

    The solver's status is a claim, which is only checked for consistency; a certificate proves it.

    Raises
    ------
    InputError
        Naming the first key that disagrees, what it says and what it should say.
    """
    try:
        cost, stored = _derived(plan)
    except HyparError as error:
        raise InputError(error.message, file=file) from None
    stated = plan.cost.model_dump(mode="json")
    for key, derived in cost.model_dump(mode="json").items():
        if stated[key] != derived:
            problem = f"should be {derived}, as the parallelism is priced, got {stated[key]}"
            raise InputError(problem, where=f"cost, {key}", file=file)
    for name, layouts in (plan.layouts or {}).items():
        if tuple(layouts) != stored[name]:
            words = [json.dumps(list(map(str, layout))) for layout in (stored[name], layouts)]
            problem = f"should be {words[0]}, as the parallelism stores it, got {words[1]}"
            raise InputError(problem, where=f"layouts, {name}", file=file)
    solver, total = plan.solver, plan.cost.total
    if solver.status == "optimal" and solver.bound != total:
        problem = f"should be the cost's total {total} of an optimal plan, got {solver.bound}"
        raise InputError(problem, where="solver, bound", file=file)
    if solver.bound is not None and solver.bound > total:
        problem = f"should be at most the cost's total {total}, got {solver.bound}"
        raise InputError(problem, where="solver, bound", file=file)


def _derived(plan: Plan) -> tuple[Cost, Mapping[str, Sequence[str]]]:
    """Return a plan's cost and stored layouts, derived from its choices."""
    if plan.is_staged:
        staged = StagedPlan.of_plan(plan)
        return staged.cost, staged.stored
    instance, rows = Instance.of_plan(plan), plan.assignments()
    tensors = plan_tensors(plan, instance.executed_workload)
    return price(instance, rows, tensors), layouts_of(instance, rows, tensors)
