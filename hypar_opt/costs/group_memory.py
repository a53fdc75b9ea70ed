"""The memory of an accelerator of each of two unequal groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.sides import Share, doubled, parts_of_share
from hypar_opt.costs.states import copies, of_rows
from hypar_opt.costs.table import exact_dtype
from hypar_opt.workload.layouts import FIRST_SPLIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
    layouts, nodes = workload.layouts, np.arange(len(workload.nodes))
    states, hierarchy = of_rows(rows, len(nodes)), problem.hierarchy
    dtype = exact_dtype(8 * workload.elements * hierarchy.accelerators)

    def held(elements: Sequence[int], numbers: NDArray[np.intp], own: NDArray[np.int64]) -> int:
        lacks = numbers < FIRST_SPLIT
        every = np.array(elements, dtype) * copies(lacks, nodes, states, hierarchy)
        return int(np.where(lacks[states[0][0], nodes], every, doubled(every, own)).sum())

    loads = []
    for share in Share.both(parts_of_share(problem.share)):
        own = share.of_nodes(workload, nodes, states)
        shard = held(workload.stored, layouts.weight, own)
        maps = held(workload.outputs, layouts.output, own)
        for elements, numbers in zip(workload.operand_sizes, layouts.inputs, strict=True):
            maps += held(elements, numbers, own)
        load = problem.element_bytes * (shard + maps)
        if not problem.inference:
            # Gradients are as large as weights, and errors as feature maps.
            state = problem.constraints.optimizer_bytes(problem.element_bytes)
            load = 2 * load + state * shard
        loads.append(-(-load // hierarchy.accelerators))
    return loads[0], loads[1]
