"""A plan for other programs: as a module for JAX, or as shardings by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.plan.nodes import plan_nodes
from hypar_opt.sharding.program import Program
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan


def sharded_plan(plan: Plan) -> ShardedNetwork:
    """Return a plan's network with the layouts of its tensors and weights.

    Raises
    ------
    HyparError
        If the plan is of inference, has a layer that is no program in JAX, or splits a size into
        parts that are not equal.
    """
    if plan.inference:
        raise HyparError("the plan is of inference; what is exported is a training step")
    network = plan.network.description
    workload = workload_of(network, plan.batch, shared_tensors=True)
    return ShardedNetwork(network, Program(workload, plan_nodes(plan, workload)))


def jax_module(plan: Plan) -> str:
    """Return a Python module that trains a plan's network for a step, and needs jax alone.

    Raises
    ------
    HyparError
        As `sharded_plan`.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> text = jax_module(ho.solve("lenet-c", batch=256, levels=1))
    >>> text.splitlines()[0].strip('"')
    'A training step of Lenet-c, batch 256, on 2 devices.'
    """
    from hypar_opt.execution.jax.module import module_text

    title = f"A training step of {plan.network.name}, batch {plan.batch}, on {1 << plan.levels}"
    devices = "devices" if plan.levels else "device"
    return module_text(sharded_plan(plan), title=f"{title} {devices}.")


def shardings(plan: Plan) -> dict[str, Any]:
    """Return a plan's shardings by name, as plain data: ``hypar-opt/shardings/1``.

    Raises
    ------
    HyparError
        As `sharded_plan`.
    """
    from hypar_opt.execution.shardings import document

    return document(sharded_plan(plan), plan.batch)
