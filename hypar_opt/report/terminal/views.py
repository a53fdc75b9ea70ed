"""The view of each result, on a terminal and in a notebook."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType

from hypar_opt.execution.result import RunResult
from hypar_opt.hardware.array import Array
from hypar_opt.plan.plan import Plan
from hypar_opt.proofs.certificate import Certificate
from hypar_opt.report.terminal.alternatives import best_parts, regret_parts
from hypar_opt.report.terminal.array import array_view
from hypar_opt.report.terminal.certificate import certificate_view
from hypar_opt.report.terminal.comparison import comparison_view
from hypar_opt.report.terminal.exploration import exploration_view
from hypar_opt.report.terminal.many import many_view
from hypar_opt.report.terminal.network import described, network_view
from hypar_opt.report.terminal.notebook import html_of
from hypar_opt.report.terminal.pareto import front_view, pareto_view
from hypar_opt.report.terminal.plan import plan_view
from hypar_opt.report.terminal.plan_notebook import plan_html
from hypar_opt.report.terminal.run import run_view
from hypar_opt.report.terminal.step import step_view
from hypar_opt.report.terminal.sweep import sweep_view
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies.alternatives import BestPlans, Regrets
from hypar_opt.studies.comparison import Comparison, disagreements, geometric_means
from hypar_opt.studies.exploration import Exploration
from hypar_opt.studies.many import ManyPlans
from hypar_opt.studies.pareto import ParetoFront, ParetoFronts
from hypar_opt.studies.sweep import SweepResult
from hypar_opt.workload.network import Network


def view(result: Any) -> RenderableType:
    """Return the command line's view of a result.

    Raises
    ------
    TypeError
        If it is not a result.
    """
    match result:
        case Plan():
            return plan_view(result)
        case StepResult():
            return step_view(result)
        case RunResult():
            return run_view(result)
        case Network():
            return network_view(described(result, 1), result.repeats)
        case Array():
            return array_view(result)
        case Certificate():
            return certificate_view(result)
        case ManyPlans():
            return many_view(result)
        case Comparison():
            return comparison_view(result, geometric_means(result), disagreements(result))
        case Exploration():
            return exploration_view(result)
        case ParetoFronts():
            return pareto_view(result)
        case ParetoFront():
            return front_view(result)
        case SweepResult():
            return sweep_view(result)
        case Regrets():
            return Group(*regret_parts(result.plan, result))
        case BestPlans():
            return Group(*best_parts(result.plan, result))
    raise TypeError(f"no view is known of {result!r}")


def html(result: Any) -> str:
    """Return a result as a fragment of HTML: a plan as a grid, others as their views."""
    if isinstance(result, Plan):
        return plan_html(result)
    return f"<div>\n{html_of(view(result))}\n</div>"
