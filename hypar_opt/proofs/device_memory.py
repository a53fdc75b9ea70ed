"""The memory limit of a plan for time, checked: what a device holds, tensor by tensor."""

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
    """Check that a plan that trains within the memory of a device fits the stated memory.

    In stages, each stage is checked with its micro-batches in flight. Also if no memory is stated
    but a search claims a bound, since it covers plans that fit.

    Raises
    ------
    CheckFailedError
        Naming what the plan takes.
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
    """Check that a plan without stages fits a stated memory and the device; `name` is shown."""
    workload = Instance.of_plan(plan).executed_workload
    options = RunOptions(**plan.training.stated)
    assert plan.array is not None
    array = plan.array.description
    memory = memory_of(plan, workload, rows_of_plan(plan, workload), options, array)
    # The stated memory is for tensors only; the device's includes the reserve.
    taken, available = memory.tensors, (memory.capacity or stated) - memory.reserve
    limit = min(stated, available)
    if taken > limit:
        raise CheckFailedError(f"constraints: {name} takes {taken:,} bytes of {limit:,}")
