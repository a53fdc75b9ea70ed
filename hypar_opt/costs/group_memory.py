"""The memory of an accelerator of each part of H1, where their shares are unequal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.compute import load_of
from hypar_opt.integers import exact_dtype
from hypar_opt.step.shares import Parts, Share
from hypar_opt.step.states import copies, of_rows
from hypar_opt.workload.layouts import FIRST_SPLIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload


def memory_of_parts(
    workload: Workload,
    rows: Sequence[Sequence[int]],
    problem: ProblemFields,
    corners: Sequence[Parts] = (),
) -> list[int]:
    """Return the bytes of memory of an accelerator of each part of H1, rounded up.

    What it holds is what `hypar_opt.costs.compute.memory_load` says.

    Parameters
    ----------
    rows : (levels, nodes)
        The choices of all nodes.
    corners
        As for `loads_of_parts`.
    """
    nodes = np.arange(len(workload.nodes))
    loads = loads_of_parts(workload, nodes, of_rows(rows, len(nodes)), problem, corners)
    return [-(-int(own.sum()) // problem.hierarchy.accelerators) for own in loads]


def loads_of_parts(
    workload: Workload,
    nodes: Indices,
    states: States,
    problem: ProblemFields,
    corners: Sequence[Parts] = (),
) -> list[Integers]:
    """Return the bytes that nodes hold in each part of H1, as if all accelerators held as much.

    Parameters
    ----------
    states
        Over all levels.
    corners
        Those of a simplex of shares, for the least that each part holds between them.
    """
    hierarchy = problem.hierarchy
    each = [Share.each(parts) for parts in corners or (problem.part_shares,)]
    shares = [min(own, key=lambda share: share.own) for own in zip(*each, strict=True)]
    element_bytes = problem.element_bytes
    each_bytes = 2 * element_bytes + problem.constraints.optimizer_bytes(element_bytes)
    largest = len(shares) * each_bytes * workload.elements * hierarchy.accelerators
    dtype = exact_dtype(largest)

    def held_by(share: Share) -> Integers:
        def held(elements: tuple[int, ...], numbers: NDArray[np.intp]) -> Integers:
            lacks = numbers < FIRST_SPLIT
            every = np.array(elements, dtype)[nodes] * copies(lacks, nodes, states, hierarchy)
            return share.of_amounts(every, lacks, workload, nodes, states)

        return load_of(workload, problem, held)

    return [held_by(share) for share in shares]
