"""A plan in pipeline stages, looked at: its step simulated, and what each stage holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import RefusedError
from hypar_opt.pipeline import plans_of_stages
from hypar_opt.plan.training import Training
from hypar_opt.studies.memory import memory
from hypar_opt.studies.simulation import per_second, simulated_passes
from hypar_opt.studies.targets import own_array, trained_on
from hypar_opt.workload.parallelism import part_word

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.pipeline_result import PipelineResult


def simulated_stages(plan: Plan, array: Array, run: Mapping[str, Any]) -> PipelineResult:
    """Simulate the passes of each stage, and then its schedule.

    Parameters
    ----------
    run
        As for `hypar_opt.simulate`.

    Raises
    ------
    RefusedError
        If the array has no such parts, or an option is not of steps in stages.
    """
    # Imported late: planning alone needs no simulator.
    from hypar_opt.simulator.options import RunOptions
    from hypar_opt.simulator.pipeline import pipeline_step
    from hypar_opt.simulator.pipeline_order import in_flight
    from hypar_opt.simulator.pipeline_result import PipelineResult, StageTime, trace_of_stages

    for name in ("profile", "input_sizes"):
        if run.get(name):
            raise RefusedError(f"{name} is not supported with stages")
    plan = trained_on(plan, array, run)
    stages, training = plan.stages, plan.training
    assert stages is not None
    count = training.micro_batches or 1
    of_all = {*Training.model_fields, "trace"}
    inside = {name: own for name, own in run.items() if name not in of_all}
    plans = plans_of_stages(plan)
    passes = [simulated_passes(own, own_array(own), **inside) for own in plans]
    step = pipeline_step(passes, training.schedule, count)
    times = [
        StageTime(
            part_word(part),
            " and ".join(stages.labels[part :: stages.parts]),
            own,
            count * own.micro_batch + own.once,
            step.bubbles[part],
            in_flight(step.passes[part], [len(chunk) for chunk in stages.chunks_of(part)]),
            memory(plans[part], exact_shares=inside.get("exact_shares", False)),
        )
        for part, own in enumerate(passes)
    ]
    names = [f"stage {number}" for number in range(1, stages.parts + 1)]
    trace = trace_of_stages(step, names) if run.get("trace") else None
    where = plan, array.name, *RunOptions(**inside).on(array)
    charged = plan.cost.total / per_second(plan)
    return PipelineResult(*where, step.seconds, charged, tuple(times), trace)
