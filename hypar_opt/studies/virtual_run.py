"""Runs of plans: one real training step, with its bytes and numbers compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from hypar_opt.checked import checked
from hypar_opt.documents.sizes import stated_bytes
from hypar_opt.errors import HyparError, RefusedError, UnknownNameError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_levels
from hypar_opt.instance.staged import StagedPlan
from hypar_opt.instance.stages_together import repeats_of_stages
from hypar_opt.plan.costs import json_number
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.plan.oversplit import oversplit_warnings
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stored_layouts import plan_tensors, rows_of_plan
from hypar_opt.search.result import Progress, silent
from hypar_opt.search.solver_settings import PlanArguments
from hypar_opt.sharding.program import Program
from hypar_opt.step.states import shard_counts
from hypar_opt.studies.sources import planned
from hypar_opt.workload.omitted import omitted_parts
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.splitting import divides_images, spatial_columns

if TYPE_CHECKING:
    from hypar_opt.execution.jax.tensors import ShardedNetwork
    from hypar_opt.execution.result import RunResult
    from hypar_opt.execution.virtual.shards import Array
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload

BACKENDS = ("numpy", "jax")
"""Backends that run a plan: virtual devices in numpy, or a JAX program."""

JAX_TOLERANCE = 1e-5
"""The largest relative difference of gradients in single precision."""
_JAX_FLOOR = 0.1
"""Rounding in single precision, in sums of tens of addends, is to the tolerance as this to one."""

MAX_DEVICES = 256
MAX_SEED = 2**32 - 1


@checked
def run(
    plan: Plan | str | Path | Network,
    *,
    backend: str = "numpy",
    seed: int = 0,
    scale_down: bool = False,
    max_memory: int | str | None = None,
    weights: str | Path | None = None,
    dims: Mapping[str, int] | None = None,
    progress: Progress = silent,
    **arguments: Unpack[PlanArguments],
) -> RunResult:
    """Run one step of a plan on devices that hold their shards only, and count every byte.

    Inputs, targets and weights are random numbers, or the weights are a model's, with whose
    output the network's is then compared, as onnx's reference evaluator computes it. Values and
    gradients are compared with those of one device, and bytes, by level, layer and pass, with the
    plan's program and with its price by the reading ``executed``.

    Parameters
    ----------
    plan
        A plan, the path of a plan file, or a network, which is solved first.
    backend
        ``numpy`` or ``jax``.
    seed
        Seed of all random numbers.
    scale_down
        Run the same choices on a network of the same structure, with small sizes that split evenly.
    max_memory
        Bytes, or a string such as ``8GB``: a run that would take more is refused. Default 4 GB.
    weights
        The path of the model, ONNX or a program of PyTorch's (``.pt2``), of which the plan's
        network is the import.
    dims
        The sizes of its dynamic dimensions by name.
    progress
        Called with the number of layers done, forward and backward, and the total.
    **arguments
        The arguments of `hypar_opt.solve`, for a network.

    Raises
    ------
    RefusedError
        If a layer cannot be run, a device would have no image, or memory would not suffice.
    HyparError
        If an argument is wrong, or the backend's extra is not installed.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> plan = ho.solve("lenet-c", levels=2, reading="executed")
    >>> result = ho.run(plan, scale_down=True)
    >>> result.agrees, result.counted == result.modelled
    (True, True)
    """
    # Imported late: planning alone needs no execution.
    from hypar_opt.execution.jax.tensors import ShardedNetwork
    from hypar_opt.execution.result import RunResult
    from hypar_opt.execution.run import run_program
    from hypar_opt.execution.virtual.checks import MAX_MEMORY, check_layers, check_limits
    from hypar_opt.studies.model_weights import with_weights

    plan, _ = planned(plan, arguments)
    _check_arguments(plan, backend, seed)
    if weights is not None and (backend != "numpy" or scale_down):
        raise HyparError("weights: a model's are taken by numpy alone, and at full size")
    limit = MAX_MEMORY if max_memory is None else stated_bytes("max_memory", max_memory)
    to_run = _to_run(plan, scale_down=scale_down)
    instance, workload, cannot_run = to_run.instance, to_run.workload, to_run.notes
    joined = plan.joins_levels
    program = Program(workload, to_run.rows, plan.hierarchy, plan.unequal_shares, joined=joined)
    model = None
    if weights is not None:
        check_layers(instance.network)
        check_limits(instance.network, program, max_memory=limit)
        model = with_weights(weights, dims, instance.network, program, seed)
    labels: dict[str, Any] = {
        "network": plan.network.name,
        "batch": instance.problem.batch,
        "hierarchy": plan.hierarchy,
        "backend": backend,
        "seed": seed,
        "reduced": to_run.changes,
        "not_kept": omitted_parts(plan.network.description),
    }
    if backend == "jax":
        # First, so that no smaller size is proposed for what JAX refuses at any.
        sharded = ShardedNetwork.of(instance.network, program)
        check_limits(instance.network, program, max_memory=limit, scaled=scale_down)
        return _noting(RunResult(**labels, **_in_jax(instance, sharded, seed)), cannot_run)
    compared = run_program(
        instance.network,
        program,
        seed=seed,
        element_bytes=Fraction(plan.element_bytes),
        inference=plan.inference,
        scaled=scale_down,
        max_memory=limit,
        data=model and model.data,
        progress=progress,
    )
    labels |= {"model": model and model.difference, "priced": _priced(instance, workload, plan)}
    notes = (*cannot_run, *(model.notes if model else ()))
    return _noting(RunResult(**labels, **compared._asdict()), notes)


class _ToRun(NamedTuple):
    """The problem that a run executes: the plan's network or a small one, and notes on it."""

    instance: Instance
    workload: Workload
    rows: Sequence[Sequence[int]]
    changes: tuple[str, ...] = ()
    notes: Sequence[str] = ()


def _to_run(plan: Plan, *, scale_down: bool) -> _ToRun:
    from hypar_opt.execution.scale_down import scaled_down

    instance = _instance(plan, plan.network.description, plan.problem)
    workload = instance.executed_workload
    if plan.is_staged:
        workload = with_repeats(workload, repeats_of_stages(StagedPlan.of_plan(plan), workload))
        instance = instance.running(workload)
    rows = rows_of_plan(plan, workload)
    if not scale_down:
        return _ToRun(instance, workload, rows)
    notes = [f"at full size it cannot run: it {why}" for why in oversplit_warnings(plan)]
    repeats = workload.repeats

    spatial = spatial_columns(workload)
    # Where nothing splits images, and the choices are the first ones.
    without = bool(spatial) and max(map(max, rows)) < min(spatial)

    def keeps(network: Network) -> bool:
        workload = Instance(network, plan.problem).executed_workload
        may = without or not workload.forbidden[:, list(spatial)].all(axis=0).any()
        return may and divides_images(workload, parts)

    parts = shard_counts(rows, len(workload.nodes), len(workload.choices), plan.hierarchy)
    small = scaled_down(
        *(instance.network, plan.batch, plan.hierarchy, plan.unequal_shares),
        micro_batches=repeats.micro_batches,
        keeps=keeps if spatial else None,
    )
    # The plan's constraints, which name sizes and arrays, say nothing about a small network.
    update: dict[str, object] = {"batch": small.batch}
    if without:
        # The small images may be too small to split.
        update["choices"] = plan.problem.choices[: min(spatial)]
    instance = _instance(plan, small.network, plan.problem.model_copy(update=update))
    # The plan's own layers run again: the small network states no blocks.
    workload = with_repeats(instance.executed_workload, repeats)
    return _ToRun(instance, workload, rows, small.changes, notes)


def _instance(plan: Plan, network: Network, problem: Problem) -> Instance:
    """Return a problem to run; tensors that cross stages are nodes of their own."""
    instance = Instance(network, problem)
    if plan.stages is None:
        return instance
    crossing = tuple(border.writer for border in plan.stages.borders)
    workload = micro_batch_of(problem, network, shared_tensors=True, crossing=crossing)
    return instance.running(workload)


def _noting(result: RunResult, notes: Sequence[str]) -> RunResult:
    return replace(result, notes=(*notes, *result.notes))


def _priced(instance: Instance, workload: Workload, plan: Plan) -> tuple[int | float, ...]:
    """Return the bytes that a run moves at each level, by the cost model.

    None of unequal groups, whose price has fractions of images. What stages join of levels is
    priced stage by stage, and of a small network, whose blocks are not stated, not at all.
    """
    if plan.has_unequal_parts:
        return ()
    if plan.is_staged and plan.joins_levels:
        is_small = instance.network != plan.network.description
        levels = () if is_small else StagedPlan.of_plan(plan).executed_levels
        return tuple(map(json_number, levels))
    tensors = plan_tensors(plan, workload)
    levels = price_levels(workload, instance.executed, plan.assignments(), tensors)
    return tuple(map(json_number, levels))


def _check_arguments(plan: Plan, backend: str, seed: int) -> None:
    if plan.is_staged and backend != "numpy":
        raise RefusedError(
            "a plan in pipeline stages runs on virtual devices alone, since JAX has one program of"
            f" all devices: {argument('backend', 'numpy')}"
        )
    if plan.unequal_shares and backend != "numpy":
        raise RefusedError(
            "a plan with unequal parts in groups of accelerators runs on virtual devices alone:"
            f" {argument('backend', 'numpy')}"
        )
    if backend not in BACKENDS:
        raise UnknownNameError("backend", backend, list(BACKENDS))
    if not 0 <= seed <= MAX_SEED:
        raise HyparError(f"seed: should be a number from 0 to {MAX_SEED}, got {seed!r}")
    if plan.accelerators > MAX_DEVICES:
        raise HyparError(
            f"the plan is for {plan.accelerators:,} accelerators, and a run has at most"
            f" {MAX_DEVICES}"
        )


def _in_jax(instance: Instance, sharded: ShardedNetwork, seed: int) -> dict[str, Any]:
    """Compile and run a step in JAX, and return the fields of a `RunResult`.

    The compiler may merge the all-reduces of different passes, so bytes are compared by kind and
    level only; it drops errors that no weights need.
    """
    from hypar_opt.execution.jax.run import ELEMENT_BYTES, one_device, random_data, run_step
    from hypar_opt.execution.run import by_level

    if instance.problem.inference:
        raise HyparError("cannot run an inference plan in JAX: the program is a training step")
    data = random_data(sharded, seed)
    step = run_step(sharded, data)
    reference_loss, gradients = one_device(sharded, data)
    notes = ["bytes are those of float32 in the compiled program, but for scalars"]
    if instance.problem.element_bytes != ELEMENT_BYTES:
        notes[0] += f"; the plan's elements have {instance.problem.element_bytes} bytes"
    notes += [f"not as in the plan: {difference}" for difference in sharded.differences]
    if step.unused:
        again = any(f is not None for f in sharded.program.workload.repeats.recomputed.values())
        what = "errors, and of what is computed again," if again else "errors"
        notes.append(f"{int(step.unused):,} bytes of {what} that no weights need are not moved")
    if padding := sharded.padding:
        than = f"{abs(int(step.padding)):,} bytes {'more' if step.padding >= 0 else 'less'}"
        notes.append(f"{padding.done.lower()}, which move {than} than the plan counts")
    return {
        "exchanges": step.exchanges,
        "bias_bytes": by_level(step.bias_bytes.items(), sharded.by_level.hierarchy.levels),
        "notes": tuple(notes),
        "priced": (),
        "loss": step.loss,
        "reference_loss": reference_loss,
        "values": None,
        "gradients": max(
            step.updated,
            difference_in_jax(gradients, step.gradients),
        ),
        "tolerance": JAX_TOLERANCE,
    }


def difference_in_jax(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> float:
    """Return the largest difference of gradients, by names, as `RunResult` has it."""
    from hypar_opt.execution.result import largest_difference

    compared = ((whole, [(whole, actual[name])]) for name, whole in expected.items())
    return largest_difference(compared, floor=_JAX_FLOOR)
