"""The page's view of a plan in pipeline stages: a table of them, and the memory of each."""

from __future__ import annotations

from typing import Any

from hypar_opt.display.figures.bar_charts import StackedPart, stacked
from hypar_opt.display.labels import MEMORY
from hypar_opt.display.page.figure import Chart, chart_of
from hypar_opt.display.palette import colours_of
from hypar_opt.simulator.device_memory import CATEGORIES
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.units import (
    axis_byte_unit,
    format_bytes,
    format_hundredths,
    format_percent,
    format_si,
)


def stages_table(step: PipelineResult) -> dict[str, Any]:
    """Return each stage's times, waiting and memory for the template."""
    tied = ("tied",) if any(stage.tied for stage in step.stages) else ()
    times = "forward", "backward", "once", "message", *tied, "seconds"
    shared = " sums of gradients of weights that stages share, tied;" if tied else ""
    return {
        "caption": "Simulated: forward and backward of a micro-batch; once a step, reductions and"
        f" update; a message to the next stage;{shared} and all that a stage computes and exchanges"
        " inside itself in a step. The rest of the step is its bubble.",
        "header": (
            *("stage", "layers", *times[:-1], "total"),
            *("bubble", "in flight", "memory"),
        ),
        "rows": [
            (
                f"{number}",
                row["layers"],
                *(format_si(row[key], "s") for key in times),
                format_percent(row["bubble"], 1),
                format_hundredths(row["in_flight"]),
                format_bytes(row["memory"]),
            )
            for number, row in enumerate(step.rows(), 1)
        ],
        "without": "Stages are simulated one by one, so that bytes by level, energy and links are"
        " not shown of the whole array; nor are the baselines, which have no stages.",
    }


def memory_by_stage(step: PipelineResult) -> Chart:
    """Draw what the fullest accelerator of each stage holds, by category."""
    memories = [stage.memory for stage in step.stages]
    names = [f"stage {number}" for number in range(1, len(memories) + 1)]
    amounts = {
        name: [memory.categories[key] for memory in memories] for key, name in CATEGORIES.items()
    }
    size, unit = axis_byte_unit(max(sum(memory.categories.values()) for memory in memories))
    colours = colours_of(CATEGORIES)
    parts = [
        StackedPart(name, colours[key], amounts[name])
        for key, name in CATEGORIES.items()
        if any(amounts[name])
    ]
    return chart_of(
        stacked(names, parts, size, f"{MEMORY} ({unit})", format_bytes),
        "by-stage",
        "Memory by stage",
        "Peak memory of an accelerator of each stage, without the array's reserve; activations"
        " are of all micro-batches in flight.",
        ("stage", *amounts, "reserve", "total", "to spare"),
        [
            (
                stage,
                *(format_bytes(counts[n]) for counts in amounts.values()),
                format_bytes(memory.reserve),
                format_bytes(memory.total),
                format_bytes(memory.margin or 0),
            )
            for n, (stage, memory) in enumerate(zip(names, memories, strict=True))
        ],
    )
