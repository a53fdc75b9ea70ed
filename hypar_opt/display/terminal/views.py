"""The view of each result, on a terminal and in a notebook."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from hypar_opt.checked import checked

if TYPE_CHECKING:
    from altair import TopLevelMixin

_VIEWS = {
    "AllBatches": "batches.batches_view",
    "Array": "array.array_view",
    "BestPlans": "alternatives.best_view",
    "Calibration": "validation.calibration_view",
    "Certificate": "tables.certificate_view",
    "Comparison": "tables.comparison_view",
    "Configurations": "configurations.configurations_view",
    "DeviceMemory": "memory.memory_view",
    "Exploration": "exploration.exploration_view",
    "Installation": "validation.installation_view",
    "ManyPlans": "tables.many_view",
    "Network": "network.network_view",
    "ParetoFront": "tables.front_view",
    "ParetoFronts": "tables.pareto_view",
    "PipelineResult": "step.pipeline_view",
    "Plan": "plan.plan_view",
    "Regrets": "alternatives.regrets_view",
    "RunResult": "tables.run_view",
    "StepResult": "step.step_view",
    "SweepResult": "tables.sweep_view",
    "Validation": "validation.validation_view",
    "Verification": "validation.verification_view",
}
"""The function that shows each class, imported when one is shown: most need much else."""


def view(result: Any) -> RenderableType:
    """Return the command line's view of a result.

    Raises
    ------
    TypeError
        If it is not a result.
    """
    for kind in type(result).__mro__:
        if kind.__name__ in _VIEWS:
            module, _, name = _VIEWS[kind.__name__].partition(".")
            shown: RenderableType = getattr(import_module(f"{__package__}.{module}"), name)(result)
            return shown
    raise TypeError(f"no view is known of {result!r}")


@checked
def figure(result: Any, file: str | Path | None) -> TopLevelMixin:
    """Return a result's figure, and save it if a file is named."""
    from hypar_opt.display import figures

    drawn = figures.figure_of(result)
    if file is not None:
        figures.save(drawn, file)
    return drawn


def html(result: Any) -> str:
    """Return a result as a fragment of HTML: a plan as a grid, others as their views."""
    from hypar_opt.display.terminal.notebook import html_of, plan_html
    from hypar_opt.plan.plan import Plan

    if isinstance(result, Plan):
        return plan_html(result)
    return f"<div>\n{html_of(view(result))}\n</div>"
