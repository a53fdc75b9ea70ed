"""The memory of a plan's training step as a device holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hypar_opt.checked import checked
from hypar_opt.documents.document import validate
from hypar_opt.errors import HyparError, argument
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.constraints import Constraints
from hypar_opt.plan.node_levels import shards_of_plan
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.plan.training import Training
from hypar_opt.planning.priced import plans_of_stages
from hypar_opt.search.solver_settings import SourceArguments
from hypar_opt.studies.sources import is_network, planned
from hypar_opt.studies.targets import fitting, micro_batch, trained_on

if TYPE_CHECKING:
    from hypar_opt.simulator.device_memory import DeviceMemory
    from hypar_opt.workload.network import Network


@checked
def memory(
    plan: Plan | str | Path | Network,
    array: str | Path | Array | None = None,
    *,
    exact_shares: bool = False,
    stage: int | None = None,
    **arguments: Unpack[SourceArguments],
) -> DeviceMemory:
    """Count what an accelerator holds in a plan's training step: each tensor once.

    Parameters
    ----------
    plan
        A plan, the path of a plan file, or a network, which is solved first.
    array
        A preset's name, a path or an `Array`; None for the plan's, which may have none, and for a
        network the paper's.
    exact_shares
        As for `hypar_opt.simulate`.
    stage
        Of a plan in stages the number of one, from 1; None for the one whose accelerators have
        least left. The result's ``stages`` has all of them.
    **arguments
        The arguments of `hypar_opt.solve`, for a network. For a plan ``micro_batches``,
        ``recompute``, ``shard``, ``gather`` and ``reduce_bytes`` as for `hypar_opt.simulate`, and
        ``optimizer``, ``sgd``, ``momentum``, ``adam`` or its bytes for a weight, replace the
        plan's own.

    Raises
    ------
    HyparError
        If an option is wrong, or the plan is of groups of accelerators and the array has none.
    RefusedError
        If the array is not as large as the plan's.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> plan = ho.solve("gpt2", batch=8, array="h100-8")
    >>> held = ho.memory(plan, optimizer="adam", recompute="full")
    >>> held.moment.layer, held.categories["state"] == 6 * held.categories["weights"]
    ('loss', True)
    """
    # Imported late: planning alone needs no simulator.
    from hypar_opt.simulator.memory import memory_of
    from hypar_opt.simulator.options import RunOptions
    from hypar_opt.simulator.step import check_groups
    from hypar_opt.step.holds import WeightBytes

    training_options = {*Training.model_fields, "optimizer"} - {"schedule"}
    stated = {
        name: value
        for name, value in arguments.items()
        if name in training_options and value is not None
    }
    rest = (
        arguments
        if is_network(plan)
        else {k: v for k, v in arguments.items() if k not in training_options}
    )
    plan, array = planned(plan, rest, array, needs_array=True)
    optimizer = stated.pop("optimizer", None)
    if plan.is_staged:
        stated |= {} if optimizer is None else {"optimizer": optimizer}
        return _of_stages(plan, array, stage, stated, exact_shares=exact_shares)
    if stage is not None:
        raise HyparError(f"{argument('stage')} needs a plan in stages")
    train: dict[str, Any] = {**plan.training.stated, **stated}
    target = None if plan.array is None else plan.array.description
    if array is not None:
        target = fitting(plan, find_array(array))
    if target is not None and "shard" in train:
        train["shard"] = shards_of_plan(train["shard"], plan, target)
    options = RunOptions(**train, exact_shares=exact_shares)
    options.check_levels(plan.levels)
    if target is not None:
        check_groups(plan, target, options)
    state = plan.constraints.optimizer
    if optimizer is not None:
        state = validate(Constraints, {"optimizer": optimizer}).optimizer
    workload = micro_batch(plan, options.micro_batches).executed_workload
    return memory_of(
        plan,
        workload,
        rows_of_plan(plan, workload),
        options,
        target,
        WeightBytes.of(plan.element_bytes, state, options.reduce_bytes),
    )


def _of_stages(
    plan: Plan,
    array: str | Path | Array | None,
    stage: int | None,
    stated: Mapping[str, Any],
    *,
    exact_shares: bool,
) -> DeviceMemory:
    """Return the memory of one stage of a plan, with that of all."""
    parts = plan.hierarchy.sizes[0]
    if stage is not None and not 1 <= stage <= parts:
        raise HyparError(f"{argument('stage')} should be from 1 to {parts}, got {stage}")
    target = None if array is None else find_array(array)
    optimizer = {name: word for name, word in stated.items() if name == "optimizer"}
    plans = plans_of_stages(trained_on(plan, target, stated))
    counted = (memory(of_stage, exact_shares=exact_shares, **optimizer) for of_stage in plans)
    footprints = [
        replace(footprint, group=f"stage {n} of {parts}", levels_above=1)
        for n, footprint in enumerate(counted, 1)
    ]
    fullest = max(footprints, key=lambda held: Fraction(held.total, held.capacity or 1))
    return replace(fullest if stage is None else footprints[stage - 1], stages=tuple(footprints))
