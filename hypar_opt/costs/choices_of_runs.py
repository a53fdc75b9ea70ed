"""Which problems may have the choices that only the readings of a run charge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError
from hypar_opt.workload.operators.axes import ADDENDS
from hypar_opt.workload.parallelism import OF_IMAGES, OF_RUNS, SIDES

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload


def check_choices_of_runs(problem: Problem, workload: Workload, *, halves: bool) -> None:
    """Refuse to split positions, or to take addends, in the paper's readings, or where none may.

    Parameters
    ----------
    halves
        Whether the problem's reading is the paper's.

    Raises
    ------
    HyparError
        Naming the choice.
    """
    for word in OF_RUNS:
        if word not in problem.choices:
            continue
        if halves:
            raise HyparError(f"choices: {word} needs the reading executed, got {problem.reading}")
        of_images, of_sums = word in OF_IMAGES, word == ADDENDS.word
        between_groups = problem.is_shared_out or not {*SIDES}.isdisjoint(problem.choices)
        if between_groups and (of_images or of_sums):
            raise HyparError(f"choices: {word} has equal parts, unlike groups of accelerators")
        if workload.forbidden[:, workload.choices.index(word)].all():
            needs = f"images whose {word} can be split evenly; no layer's of this can"
            if of_sums:
                needs = "sums that no activation follows; no layer of this is one"
            elif not of_images:
                needs = f"{word}; no layer of this has any"
            raise HyparError(f"choices: {word} needs a network of {needs}")
