"""The memory of an accelerator of each of two unequal groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.compute import load_of
from hypar_opt.costs.sides import Share, doubled, parts_of_share
from hypar_opt.costs.states import copies, of_rows
from hypar_opt.costs.table import exact_dtype
from hypar_opt.workload.layouts import FIRST_SPLIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.workload.tensors import Workload


def memory_of_groups(
    workload: Workload, rows: Sequence[Sequence[int]], problem: ProblemFields
) -> tuple[int, int]:
    """Return the bytes of memory of an accelerator of each group, rounded up.

    What it holds is what `hypar_opt.costs.compute.memory_load` says.

    Parameters
    ----------
    rows : (levels, nodes)
        The choices of all nodes.
    """
    nodes = np.arange(len(workload.nodes))
    states, hierarchy = of_rows(rows, len(nodes)), problem.hierarchy
    dtype = exact_dtype(8 * workload.elements * hierarchy.accelerators)
    loads = []
    for share in Share.both(parts_of_share(problem.share)):
        own = share.of_nodes(workload, nodes, states)

        def held(
            elements: tuple[int, ...], numbers: NDArray[np.intp], own: NDArray[np.int64] = own
        ) -> Integers:
            lacks = numbers < FIRST_SPLIT
            every = np.array(elements, dtype) * copies(lacks, nodes, states, hierarchy)
            return np.where(lacks[states[0][0], nodes], every, doubled(every, own))

        load = int(load_of(workload, problem, held).sum())
        loads.append(-(-load // hierarchy.accelerators))
    return loads[0], loads[1]
