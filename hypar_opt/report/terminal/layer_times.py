"""The time of a simulated step by layer, over all passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.report.plan_grid import GridRow, plan_grid

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.result import StepResult


def layer_times(plan: Plan, step: StepResult) -> list[tuple[GridRow, float, float]]:
    """Return each group of layers with its seconds of compute and of communication.

    Layers of a short chain are shown separately, repetitions in a graph that make the same choices
    together. A step has an entry for each pass of a layer.
    """
    compute = dict.fromkeys(plan.layers, 0.0)
    communication = dict.fromkeys(plan.layers, 0.0)
    for time in step.layers:
        compute[time.layer] += time.compute
        communication[time.layer] += time.communication
    return [
        (
            group,
            sum(compute[plan.layers[n]] for n in group.positions),
            sum(communication[plan.layers[n]] for n in group.positions),
        )
        for group in plan_grid(plan, runs=False).rows
    ]
