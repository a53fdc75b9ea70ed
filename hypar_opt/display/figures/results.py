"""The figure of each result, as its command's ``--picture`` draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.display.figures.bar_charts import StackedPart, bars, stacked
from hypar_opt.display.figures.batches import batch_ranges
from hypar_opt.display.figures.graph import network_graph
from hypar_opt.display.figures.maps import degrees_map, exploration_map
from hypar_opt.display.figures.plans import plan_dots
from hypar_opt.display.figures.points import fronts, time_and_memory, validated_steps
from hypar_opt.display.figures.sweeps import swept
from hypar_opt.display.figures.timelines import timeline
from hypar_opt.display.figures.topologies import topology
from hypar_opt.display.labels import BASELINES, MEMORY
from hypar_opt.display.palette import colours_of
from hypar_opt.display.plan_grid import layer_memory
from hypar_opt.errors import HyparError
from hypar_opt.simulator.device_memory import CATEGORIES
from hypar_opt.units import axis_byte_unit, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypar_opt.display.figures.style import Figure
    from hypar_opt.simulator.device_memory import DeviceMemory
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.studies.comparison import ComparisonRow
    from hypar_opt.studies.configurations import Configurations
    from hypar_opt.studies.pareto import ParetoFronts


PLAN_NAMES = {
    **BASELINES,
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


def figure_of(result: Any, **look: bool) -> Figure:
    """Return the figure of a result.

    Parameters
    ----------
    **look
        Keyword arguments of the function that draws such results.

    Raises
    ------
    HyparError
        If there is none of such results.
    """
    for kind in type(result).__mro__:
        if kind.__name__ in _FIGURES:
            return _FIGURES[kind.__name__](result, **look)
    drawn = ", ".join(_FIGURES)
    raise HyparError(f"there is no figure of a {type(result).__name__}, only of {drawn}")


def step(result: StepResult) -> Figure:
    """Draw a step in time.

    Raises
    ------
    HyparError
        If its events are not recorded.
    """
    return timeline(result, title=f"{result.plan.network.name} on {result.array}, a step in time")


def configured(configurations: Configurations) -> Figure:
    """Draw configurations by memory and seconds; where they are by degrees, as a map of these."""
    draw = degrees_map if configurations.by_degrees else time_and_memory
    return draw(configurations)


def device_memory(memory: DeviceMemory) -> Figure:
    """Draw the bytes of all layers and of each group, from top to bottom."""
    groups = [("total", dict(memory.categories)), *layer_memory(memory)]
    size, unit = axis_byte_unit(memory.total)
    parts = [
        StackedPart(CATEGORIES.get(name, name), colour, [amounts[name] for _, amounts in groups])
        for name, colour in colours_of(memory.categories).items()
    ]
    title = f"{memory.plan.network.name}, batch {memory.plan.batch}: {format_bytes(memory.total)}"
    limit, end = memory.capacity, None
    if limit is not None:
        title += f" of {format_bytes(limit)}"
        # Of far more memory than is held nothing would be seen.
        end = max(limit, memory.total) * 1.04 if limit < 2 * memory.total else None
    return stacked(
        [name for name, _ in groups],
        parts,
        size,
        f"{MEMORY} ({unit})",
        format_bytes,
        end=end,
        limit=limit,
        title=title,
    )


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
        PLAN_NAMES.get(plan, plan): [by_case.get(case) for case in cases]
        for plan, by_case in ratios.items()
    }
    reading = " and ".join(dict.fromkeys(row.reading for row in rows))
    what = "Performance over" if simulated else "Fewer bytes than"
    return bars(
        list(cases),
        series,
        ylabel="times Data Parallelism" if simulated else "times fewer bytes",
        title=f"{what} Data Parallelism, reading {reading}",
        baseline=1.0,
    )


def pareto_fronts(result: ParetoFronts) -> Figure:
    """Draw the fronts, each as a line of points."""
    problem = result.problem
    where = f" on {problem.array.name}" if problem.array else ""
    title = f"{result.network.name}{where}, batch {problem.batch}, reading {problem.reading}"
    return fronts(ratios_of(result), title=title)


def ratios_of(result: ParetoFronts) -> dict[str, list[tuple[int, float]]]:
    """Return the memory and the cost of each front's points, this as a ratio to the least."""
    # A front whose minimum is 0 has no other point.
    return {
        front.objective: [(point.memory, front.ratio(point) or 1.0) for point in front]
        for front in result
    }


_FIGURES: dict[str, Callable[..., Figure]] = {
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
