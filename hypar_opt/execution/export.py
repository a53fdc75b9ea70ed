"""Exports of a plan: its sharded network, a JAX module, a file for PyTorch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError, RefusedError, argument
from hypar_opt.execution.jax.mesh import AxesOf, mesh_axes
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.plan.degrees import degrees
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.sharding.layouts import COLUMN, ROW
from hypar_opt.sharding.program import Program
from hypar_opt.workload.omitted import omitted_parts

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.plan.plan import Plan


def sharded_plan(plan: Plan, *, pads: bool = False, axes_of: AxesOf = mesh_axes) -> ShardedNetwork:
    """Return a plan's network with the layouts of its tensors and weights.

    Parameters
    ----------
    pads
        Whether a batch that layers split unevenly is padded.
    axes_of
        Returns the axes of a program's mesh.

    Raises
    ------
    HyparError
        If the plan is for inference, has a layer without a JAX program, or splits a size
        unevenly.
    """
    _check_exports(plan)
    network, program = plan.network.description, _program(plan)
    return ShardedNetwork.of(network, program, pads=pads, axes_of=axes_of)


def torch_file(plan: Plan, *, approximate: bool = False) -> str:
    """Return a Python file that shards a user's PyTorch model according to a plan.

    Parameters
    ----------
    approximate
        Export a network that does not keep all of its model.

    Raises
    ------
    HyparError
        If the plan is for inference or on one accelerator, or splits a size unevenly; or if the
        network does not keep all of its model, unless that is wanted.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> text = torch_file(ho.solve("lenet-c", batch=256, levels=1))
    >>> text.splitlines()[0].strip('"')
    'Lenet-c, batch 256, on 2 devices: a plan of hypar-opt for PyTorch.'
    """
    from hypar_opt.execution.torch.flow import Flow, in_best_order
    from hypar_opt.execution.torch.mesh import mesh_of
    from hypar_opt.execution.torch.program import program_text
    from hypar_opt.execution.torch.stages import Pipeline, program_inside, sent

    check_kept(plan, approximate)
    check_splits(plan)
    pipeline = None
    if (stages := plan.stages) is None:
        _check_exports(plan)
        program = _program(plan)
    else:
        check_trains(plan)
        pipeline, program = Pipeline.of(plan, stages), program_inside(plan)
    _check_whole_images(program)
    crosses = sent(plan, stages) if stages else {}
    flow = Flow(plan.network.description, program, mesh_of(plan, program), crosses)
    flow = in_best_order(flow)
    title = _title(plan, "PyTorch")
    if plan.training.by_level:
        raise HyparError(f"{argument('shard')}: a file for PyTorch shards all levels alike")
    return program_text(flow, plan.training, title=title, pipeline=pipeline)


def _title(plan: Plan, framework: str) -> str:
    """Return the first paragraphs of a file for a user's own model.

    The plan may cover only a part of that model.
    """
    what = f"{plan.network.name}, batch {plan.batch}, on {plan.accelerators} devices"
    said = [f"{what}: a plan of hypar-opt for {framework}.", f"{degrees(plan)}."]
    return "\n\n".join([*said, *not_counted(plan)])


def not_counted(plan: Plan) -> list[str]:
    """Return a sentence on the parts of the model that the network omits, if any."""
    not_kept = "; ".join(omitted_parts(plan.network.description))
    said = f"Not kept of the model, so that the plan does not count it: {not_kept}."
    return [said] if not_kept else []


def check_kept(plan: Plan, approximate: bool) -> None:
    """Refuse a network that omits parts of its model, unless that is accepted."""
    not_kept = omitted_parts(plan.network.description)
    if not_kept and not approximate:
        raise HyparError(
            f"{plan.network.name}: not all of the model is kept: {'; '.join(not_kept)};"
            f" {argument('approximate', True)} exports it anyway"
        )


def check_splits(plan: Plan) -> None:
    """Refuse a plan on one accelerator."""
    if not plan.levels:
        raise HyparError("a plan on one accelerator splits nothing that could be exported")


def _check_exports(plan: Plan) -> None:
    if plan.is_staged:
        raise RefusedError(
            "the plan is in pipeline stages, each of which has a program of its own, and what is"
            f" exported is one program of all devices: {argument('to', 'torch')} has a file"
        )
    if plan.unequal_shares:
        shuffles = any(layer.shuffles for layer in plan.network.description.layers)
        in_json = f" {argument('to', 'json')} says which part of each tensor a device has;"
        raise RefusedError(
            "the plan divides H1 into unequal parts, and the framework splits into equal ones:"
            f"{'' if shuffles else in_json} plans of {argument('cost', 'bytes')} have equal parts"
        )
    check_trains(plan)


def check_trains(plan: Plan) -> None:
    """Refuse a plan for inference."""
    if plan.inference:
        raise HyparError("cannot export an inference plan: export writes a training step")


def _check_whole_images(program: Program) -> None:
    layouts = zip(program.read, program.written, program.stored, strict=True)
    for node, ends in zip(program.workload.nodes, layouts, strict=True):
        for layout in (ROW, COLUMN):
            if any(layout in one for one in ends):
                raise RefusedError(
                    f"{node.name} is split by {layout}, and DTensor's convolutions and pools do not"
                    " exchange what lies at the borders of such parts; choices without rows and"
                    f" columns have a file for PyTorch, and {argument('to', 'jax')} has these, too"
                )


def _program(plan: Plan) -> Program:
    network = plan.network.description
    workload = micro_batch_of(plan, network, shared_tensors=True)
    rows, joined = rows_of_plan(plan, workload), plan.joins_levels
    return Program(workload, rows, plan.hierarchy, plan.unequal_shares, joined=joined)


def divided_plan(plan: Plan) -> Division:
    """Return each device's parts of all tensors, as in a run on virtual devices.

    Raises
    ------
    HyparError
        If the plan is for inference, or layers with unequal parts shuffle channels.
    """
    from hypar_opt.execution.virtual.division import Division

    check_trains(plan)
    network = plan.network.description
    for layer in network.layers:
        if layer.shuffles:
            raise RefusedError(
                f"layer {layer.name!r} shuffles channels, of which unequal parts would keep others"
            )
    return Division(network, _program(plan))


def jax_shardings(plan: Plan, *, approximate: bool = False) -> str:
    """Return a Python file with PartitionSpecs for a user's JAX program, by layer name.

    Parameters
    ----------
    approximate
        Export a network that does not keep all of its model.

    Raises
    ------
    HyparError
        As `sharded_plan`, and on one accelerator; and if the network does not keep all of its
        model, unless that is wanted.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> text = jax_shardings(ho.solve("lenet-c", batch=256, levels=1))
    >>> next(line for line in text.splitlines() if '"fc1"' in line).strip()
    '"fc1": P("h1", None),'
    """
    from hypar_opt.execution.jax.shardings import shardings_text

    check_kept(plan, approximate)
    check_splits(plan)
    sharded = sharded_plan(plan, axes_of=partial(mesh_axes, as_planned=False))
    return shardings_text(sharded, title=_title(plan, "JAX"))


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

    check_kept(plan, approximate)
    title = f"A training step of {plan.network.name}, batch {plan.batch}, on {plan.accelerators}"
    devices = "devices" if plan.levels else "device"
    return module_text(
        sharded_plan(plan, pads=True),
        title=f"{title} {devices}.",
        not_kept=omitted_parts(plan.network.description),
        remarks=plan.network.description.remarks or (),
        element_bytes=plan.element_bytes,
    )
