"""The picture of each result, as its command's ``--picture`` draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.display.pictures.bar_chart import bars
from hypar_opt.display.pictures.batches import batch_ranges
from hypar_opt.display.pictures.configurations import configured
from hypar_opt.display.pictures.dots import plan_dots
from hypar_opt.display.pictures.fronts import fronts
from hypar_opt.display.pictures.graph import network_graph
from hypar_opt.display.pictures.heat import exploration_map
from hypar_opt.display.pictures.memory import device_memory
from hypar_opt.display.pictures.swept import swept
from hypar_opt.display.pictures.time import timeline
from hypar_opt.display.pictures.topology import topology
from hypar_opt.display.pictures.validation import validated_steps
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.figure import Figure

    from hypar_opt.simulator.result import StepResult
    from hypar_opt.studies.comparison import ComparisonRow
    from hypar_opt.studies.pareto import ParetoFronts


_MOST_STAGES = 32
"""Stages that are drawn, the first ones."""

_PLANS = {
    "model": "Model Parallelism",
    "trick": "the Trick",
    "hypar": "HyPar",
    "joint": "joint optimum",
    "time": "least time",
    "three": "three choices",
    "equal": "equal parts",
    "ratio": "compute ratio",
    "accpar": "AccPar's types",
    "configured": "best configuration",
    "configured-stages": "best configuration in stages",
    "stages": "best in stages",
}


def picture(result: Any) -> Figure:
    """Return the picture of a result.

    Raises
    ------
    HyparError
        If there is none of such results, or matplotlib is not installed.
    """
    for kind in type(result).__mro__:
        if kind.__name__ in _PICTURES:
            return _PICTURES[kind.__name__](result)
    drawn = ", ".join(_PICTURES)
    raise HyparError(f"there is no picture of a {type(result).__name__}, only of {drawn}")


def step(result: StepResult) -> Figure:
    """Draw a step in time.

    Raises
    ------
    HyparError
        If its events are not recorded.
    """
    if result.trace is None:
        raise HyparError("a step is drawn from its events: simulate it with trace=True")
    title = f"{result.plan.network.name} on {result.array}, a step in time"
    # A track for each stage: all of them, up to a page of these.
    stages = getattr(result, "stages", None)
    rows = None if stages is None else range(min(len(stages), _MOST_STAGES))
    return timeline(result.trace, accelerators=rows, title=title)


def speed_ups(rows: Sequence[ComparisonRow]) -> Figure:
    """Draw each plan's ratio to Data Parallelism, with one group of bars per case.

    It is the speed-up, or without an array that of bytes.
    """
    simulated = any(row.seconds is not None for row in rows)
    several_batches = len({row.batch for row in rows}) > 1
    several_arrays = len({row.array for row in rows}) > 1
    ratios: dict[str, dict[str, float | None]] = {}
    cases: dict[str, None] = {}  # a set that keeps the order
    for row in rows:
        # Labels contain only what differs between the groups.
        parts = [row.network]
        parts += [f"batch {row.batch}"] if several_batches else []
        parts += [row.array] if several_arrays else []
        case = "\n".join(parts)
        cases[case] = None
        # Data Parallelism is the baseline, so its bars would have length 0.
        if row.plan != "data":
            ratio = row.speedup if simulated else row.reduction
            ratios.setdefault(row.plan, {})[case] = ratio
    # Only networks with attention have Megatron's plans.
    series = {
        _PLANS.get(plan, plan): [by_case.get(case) for case in cases]
        for plan, by_case in ratios.items()
    }
    reading = " and ".join(dict.fromkeys(row.reading for row in rows))
    what = "performance over" if simulated else "fewer bytes than"
    return bars(
        list(cases),
        series,
        ylabel="times Data Parallelism" if simulated else "times fewer bytes",
        title=f"{what} Data Parallelism, reading {reading}",
        baseline=1.0,
    )


def pareto_fronts(result: ParetoFronts) -> Figure:
    """Draw the fronts, each as a line of points."""
    # A front whose minimum is 0 has no other point.
    series = {
        front.objective: [(point.memory, front.ratio(point) or 1.0) for point in front]
        for front in result
    }
    problem = result.problem
    where = f" on {problem.array.name}" if problem.array else ""
    title = f"{result.network.name}{where}, batch {problem.batch}, reading {problem.reading}"
    return fronts(series, title=title)


_PICTURES: dict[str, Callable[[Any], Figure]] = {
    "AllBatches": batch_ranges,
    "Array": topology,
    "Comparison": speed_ups,
    "Configurations": configured,
    "DeviceMemory": device_memory,
    "Exploration": exploration_map,
    "Network": network_graph,
    "ParetoFronts": pareto_fronts,
    "PipelineResult": step,
    "Plan": plan_dots,
    "StepResult": step,
    "SweepResult": swept,
    "Validation": validated_steps,
}
