"""Exports of a plan for other programs: its sharded network, and a JAX module of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError, RefusedError, argument
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.sharding.program import Program
from hypar_opt.workload.kept import left_out

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan


def sharded_plan(plan: Plan) -> ShardedNetwork:
    """Return a plan's network with the layouts of its tensors and weights.

    Raises
    ------
    HyparError
        If the plan is for inference, has a layer without a JAX program, or splits a size
        unevenly.
    """
    if plan.is_shared_out:
        raise RefusedError(
            "a plan with unequal parts in two groups of accelerators cannot be exported"
        )
    if plan.inference:
        raise HyparError("cannot export an inference plan: export writes a training step")
    network = plan.network.description
    workload = micro_batch_of(plan, network, shared_tensors=True)
    program = Program(workload, rows_of_plan(plan, workload), plan.hierarchy)
    return ShardedNetwork.of(network, program)


def jax_module(plan: Plan, *, approximate: bool = False) -> str:
    """Return a Python module that trains a plan's network for a step, and needs jax alone.

    Parameters
    ----------
    approximate
        Export a network that does not keep all of its model; the module's docstring lists what
        is missing.

    Raises
    ------
    HyparError
        As `sharded_plan`; and if the network does not keep all of its model, unless that is
        wanted.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> text = jax_module(ho.solve("lenet-c", batch=256, levels=1))
    >>> text.splitlines()[0].strip('"')
    'A training step of Lenet-c, batch 256, on 2 devices.'
    """
    from hypar_opt.execution.jax.module import module_text

    not_kept = left_out(plan.network.description)
    if not_kept and not approximate:
        raise HyparError(
            f"{plan.network.name}: not all of the model is kept: {'; '.join(not_kept)};"
            f" {argument('approximate', True)} exports it anyway"
        )
    title = f"A training step of {plan.network.name}, batch {plan.batch}, on {plan.accelerators}"
    devices = "devices" if plan.levels else "device"
    return module_text(
        sharded_plan(plan),
        title=f"{title} {devices}.",
        not_kept=not_kept,
        element_bytes=plan.element_bytes,
    )
