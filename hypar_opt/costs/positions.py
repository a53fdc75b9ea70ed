"""Which problems may split positions: tokens, rows and columns of images, experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError
from hypar_opt.workload.parallelism import OF_IMAGES, OF_POSITIONS, SIDES

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload


def check_positions(problem: Problem, workload: Workload, *, halves: bool) -> None:
    """Refuse to split positions in the paper's readings, and where no layer may.

    Parameters
    ----------
    halves
        Whether the problem's reading is the paper's.

    Raises
    ------
    HyparError
        Naming the choice.
    """
    for word in OF_POSITIONS:
        if word not in problem.choices:
            continue
        if halves:
            raise HyparError(f"choices: {word} needs the reading executed, got {problem.reading}")
        of_images = word in OF_IMAGES
        if of_images and (problem.is_shared_out or not {*SIDES}.isdisjoint(problem.choices)):
            raise HyparError(f"choices: {word} has equal parts, unlike groups of accelerators")
        if workload.forbidden[:, workload.choices.index(word)].all():
            needs = f"images whose {word} can be split evenly; no layer's of this can"
            if not of_images:
                needs = f"{word}; no layer of this has any"
            raise HyparError(f"choices: {word} needs a network of {needs}")
