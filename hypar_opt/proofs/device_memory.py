"""The memory that a plan for time states, counted again: what a device holds, tensor by tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.proofs.check.stages import stages_of_plan
from hypar_opt.simulator.memory import memory_of
from hypar_opt.simulator.options import RunOptions

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan


def check_device_memory(plan: Plan) -> None:
    """Check that a plan that trains within the memory of a device fits what it states.

    In stages each one, with the micro-batches that it has in flight; also where nothing is stated,
    and a search claims a bound: it is of plans that fit.

    Raises
    ------
    CheckFailedError
        With what it takes.
    """
    capacity, stated = plan.problem.device_memory, plan.constraints.memory
    if capacity is None or plan.array is None:
        return
    if plan.is_staged and (stated or plan.solver.bound is not None):
        for stage in stages_of_plan(plan):
            _check_fits(stage.plan, stated or capacity, stage.name)
    elif stated is not None:
        _check_fits(plan, stated, "the plan")


def _check_fits(plan: Plan, stated: int, name: str) -> None:
    """Check that a plan without stages fits a memory, and a device's own; `name` is what it is."""
    workload = Instance.of_plan(plan).executed_workload
    options = RunOptions(**plan.training.stated)
    assert plan.array is not None
    array = plan.array.description
    memory = memory_of(plan, workload, rows_of_plan(plan, workload), options, array)
    # What is stated is of tensors; the device's own has the reserve, too.
    taken, available = memory.tensors, (memory.capacity or stated) - memory.reserve
    limit = min(stated, available)
    if taken > limit:
        raise CheckFailedError(f"constraints: {name} takes {taken:,} bytes of {limit:,}")
