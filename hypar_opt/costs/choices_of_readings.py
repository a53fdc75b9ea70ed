"""Which problems may have the levels and choices that only some readings charge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError, argument
from hypar_opt.step.readings import READINGS, reading_of
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.operators.axes import ADDENDS
from hypar_opt.workload.parallelism import OF_IMAGES, OF_RUNS

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

_WITH_OUTPUT = " or ".join(
    ", ".join(name for name, row in READINGS.items() if row.input_error is not None).rsplit(", ", 1)
)
"""The readings with a charge for an input that all parts read whole."""


def check_reading(problem: Problem, workload: Workload) -> None:
    """Refuse levels and choices that the problem's reading does not charge, or that no layer has.

    Raises
    ------
    UnknownNameError
        If there is no such reading.
    HyparError
        Naming the levels, the choice or the layer.
    """
    reading = reading_of(problem.reading)
    if reading.halves and not problem.hierarchy.of_halves:
        sizes = ",".join(map(str, problem.hierarchy.sizes))
        executed = argument("reading", "executed")
        raise HyparError(f"levels of {sizes} parts need {executed}; the paper's are of two")
    for word in OF_RUNS:
        if word not in problem.choices:
            continue
        stated = f"{argument('choices')}: {word}"
        if reading.halves:
            executed = argument("reading", "executed")
            raise HyparError(f"{stated} needs {executed}, got {problem.reading}")
        if workload.forbidden[:, workload.choices.index(word)].all():
            needs = f"{word}; no layer of this has any"
            if word in OF_IMAGES:
                needs = f"images whose {word} can be split evenly; no layer's of this can"
            elif word == ADDENDS.word:
                needs = "sums that no activation follows; no layer of this is one"
            raise HyparError(f"{stated} needs a network of {needs}")
    if reading.input_error is not None:
        return
    needed = f"needs the reading {_WITH_OUTPUT}, got {problem.reading}"
    if "output" in problem.choices:
        raise HyparError(f"{argument('choices')}: output {needed}")
    reads_whole = (workload.layouts.inputs < FIRST_SPLIT).any(axis=(0, 1))
    if reads_whole.any():
        layer = workload.nodes[int(reads_whole.argmax())]
        raise HyparError(
            f"layer {layer.name!r} ({layer.kind}) has a choice that reads its input whole,"
            f" which {needed}"
        )
