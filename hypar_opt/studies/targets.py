"""The target of a study: a plan's array or another one, and one of its micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import ARRAY, HyparError, RefusedError, argument
from hypar_opt.hardware.arrays import find_array
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.problem import ArrayRecord
from hypar_opt.plan.settings import changed
from hypar_opt.plan.training import Training

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan


def micro_batch(plan: Plan, count: int) -> Instance:
    """Return the problem of one of ``count`` equal micro-batches of a plan.

    Raises
    ------
    HyparError
        If the batch does not divide evenly.
    """
    if plan.batch % count:
        raise HyparError(
            f"{argument('micro_batches')} should divide the batch of {plan.batch:,}, got {count:,}"
        )
    update = {"batch": plan.batch // count, "training": Training()}
    problem = plan.problem.model_copy(update=update)
    return Instance(plan.network.description, problem)


def fitting(plan: Plan, array: Array) -> Array:
    """Return an array with levels as in the plan: whole, or split into prime factors.

    Raises
    ------
    RefusedError
        If the array has other levels.
    """
    if plan.array is not None and plan.array.digest == array.digest():
        return array
    for levels in (array, array.with_whole_levels()):
        if levels.hierarchy() == plan.hierarchy:
            return levels
    count = array.interconnect.accelerators
    if count != plan.accelerators:
        raise RefusedError(
            f"the plan is for {plan.accelerators} accelerators, and the array {array.name} has"
            f" {count}"
        )
    raise RefusedError(
        f"the plan has levels of {plan.hierarchy.shown}, and the array {array.name} of"
        f" {array.hierarchy().shown}"
    )


def trained_on(plan: Plan, array: Array | None, stated: Mapping[str, Any]) -> Plan:
    """Return a staged plan's choices on another array, or with other training settings.

    Parameters
    ----------
    array
        None for the plan's own.
    stated
        Fields of `Training` among others.

    Raises
    ------
    RefusedError
        If the array has no such levels.
    """
    trained = {name: value for name, value in stated.items() if name in Training.model_fields}
    update: dict[str, Any] = {"training": plan.training.model_copy(update=trained)}
    if array is not None and (plan.array is None or plan.array.digest != array.digest()):
        if array.hierarchy().merged(plan.hierarchy.sizes[0]) != plan.hierarchy:
            raise RefusedError(
                f"the plan has levels of {plan.hierarchy.shown}, and the array {array.name} of"
                f" {array.hierarchy().shown}"
            )
        update |= {"array": ArrayRecord.of(array), "placement": array.placement}
    return plan.model_copy(update=update)


def array_with(
    plan: Plan, array: str | Path | Array | None, settings: Mapping[str, Any]
) -> Array | None:
    """Return the target array of a plan, with other values of some keys.

    Raises
    ------
    HyparError
        If a key or a value is wrong, or a key is the network's, which the plan fixes.
    """
    network = plan.network.description
    place = own_array(plan) if array is None else find_array(array)
    result = changed(network, place, settings)
    if result.network != network:
        name = argument("settings")
        raise HyparError(f"{name}: the plan fixes its network; set keys of the array alone")
    return result.array


def own_array(plan: Plan) -> Array:
    """Return the array that a plan was solved for.

    Raises
    ------
    HyparError
        If it was solved without one.
    """
    if plan.array is None:
        accelerators = f", for {plan.hierarchy.shown} accelerators" if plan.parts else ""
        raise HyparError(f"the plan was solved without an array{accelerators}; name one: {ARRAY}")
    return plan.array.description
