"""The step's timeline, with the shares of the step that each row computes and communicates."""

from __future__ import annotations

from hypar_opt.display.figures.timelines import lines_of, of_lines
from hypar_opt.display.labels import SHADES_OF_PASSES
from hypar_opt.display.page.figure import Chart, chart_of
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.simulator.result import StepResult

_CLOSER = "Hold Ctrl and turn the wheel to look closer, drag to move, double-click to see all."


def timeline(step: StepResult) -> Chart:
    """Draw the timeline of a few accelerators and the busiest links, or of all stages."""
    lines = lines_of(step)
    staged = isinstance(step, PipelineResult)
    caption = (
        "One row per stage; bars are numbered by micro-batch, and by chunk if a stage has several."
        " In the gaps a stage waits."
        if staged
        else SHADES_OF_PASSES
    )
    # What a stage exchanges inside itself is part of its passes.
    kinds = (False,) if staged else (False, True)
    header = (
        ("stage", "computing and exchanging") if staged else ("who", "computing", "communicating")
    )
    return chart_of(
        of_lines(lines, step.seconds),
        "timeline",
        "The step in time",
        f"{caption} {_CLOSER}",
        header,
        [
            (
                line.label.replace("\n", ", "),
                *(line.share(step.seconds, exchange=kind) for kind in kinds),
            )
            for line in lines
        ],
    )
