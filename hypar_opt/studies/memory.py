"""The memory of a plan's training step as a device holds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, argument
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.problem import Constraints
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.studies.targets import fitting, micro_batch

if TYPE_CHECKING:
    from hypar_opt.simulator.device_memory import DeviceMemory


@checked
def memory(
    plan: Plan,
    array: str | Path | Array | None = None,
    *,
    micro_batches: int | None = None,
    recompute: str | None = None,
    shard: str | None = None,
    optimizer: str | int | None = None,
    gradient_bytes: int | None = None,
    exact_shares: bool = False,
) -> DeviceMemory:
    """Count what an accelerator holds in a plan's training step: each tensor once.

    Parameters
    ----------
    array
        A preset's name, a path or an `Array`; None for the plan's, which may have none.
    micro_batches, recompute, shard
        None for the plan's own, else as for `hypar_opt.simulate`.
    exact_shares
        As for `hypar_opt.simulate`.
    optimizer
        ``sgd``, ``momentum``, ``adam``, or its bytes for a weight; None for the plan's.
    gradient_bytes
        Of a weight; None for 4, or as many as an element has if it has more.

    Raises
    ------
    HyparError
        If an option is wrong, or the array has two groups of accelerators.
    RefusedError
        If the array is not as large as the plan's.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> plan = ho.solve("gpt2", batch=8, array="h100-1x8")
    >>> held = ho.memory(plan, optimizer="adam", recompute="full")
    >>> held.moment.layer, held.categories["state"] == 6 * held.categories["weights"]
    ('loss', True)
    """
    # Imported late: planning alone needs no simulator.
    from hypar_opt.simulator import RunOptions
    from hypar_opt.simulator.memory import WeightBytes, memory_of

    stated = {"micro_batches": micro_batches, "recompute": recompute, "shard": shard}
    stated = {name: value for name, value in stated.items() if value is not None}
    options = RunOptions(**{**plan.training.stated, **stated}, exact_shares=exact_shares)
    target = None if plan.array is None else plan.array.description
    if array is not None:
        target = fitting(plan, find_array(array))
    if plan.is_shared_out or (target is not None and target.groups):
        raise HyparError("memory as a device holds it is not counted on two groups of accelerators")
    if gradient_bytes is not None and gradient_bytes < 1:
        raise HyparError(f"{argument('gradient_bytes')} should be 1 or more, got {gradient_bytes}")
    kept = plan.constraints.optimizer
    if optimizer is not None:
        kept = Constraints(optimizer=optimizer).optimizer
    workload = micro_batch(plan, options.micro_batches).executed_workload
    return memory_of(
        plan,
        workload,
        rows_of_plan(plan, workload),
        options,
        None if target is None else target.accelerator,
        WeightBytes.of(plan.element_bytes, kept, gradient_bytes),
    )
