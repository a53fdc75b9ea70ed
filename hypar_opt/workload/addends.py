"""Additions whose inputs stay partial sums, so that one all-reduce serves all of them.

Source: docs/model.md.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.workload.operators.axes import ADDENDS, PARTIAL, output_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


def joins_partial_sums(network: Network) -> bool:
    """Return whether any addition has two or more terms that may be partial sums.

    With only one such term its reduction merely moves behind the addition, which hardly ever saves
    anything.
    """
    readers = Counter(source for reads in network.sources for source in {*reads})
    terms: list[int] = []
    for layer, reads in zip(network.layers, network.sources, strict=True):
        splits = layer.splits.values()
        if ADDENDS in splits:
            terms.append(sum(terms[n] for n in {*reads} if n >= 0 and readers[n] == 1))
            if terms[-1] > 1:
                return True
        else:
            leaves = any(output_layout(layer.axes.output, choice) == PARTIAL for choice in splits)
            terms.append(leaves and layer.leaves_addends)
    return False


@lru_cache(maxsize=16)
def accepts_partial_inputs(workload: Workload) -> bool:
    """Return whether any layer may read an input as partial sums."""
    return bool(workload.layouts.addends.any())


@lru_cache(maxsize=16)
def may_defer_reduction(workload: Workload) -> NDArray[np.bool_]:
    """Return the boundaries whose target may read its source's partial sums unreduced.

    The target must be the source's only reader. ``(boundaries,)``
    """
    layouts, (sources, targets) = workload.layouts, workload.ends.T
    only = np.bincount(sources, minlength=len(workload.nodes)) == 1
    keeps = np.array([node.operator.leaves_addends for node in workload.nodes], bool)
    leaves = only & keeps & np.any(layouts.output == 1, axis=0)
    passes: NDArray[np.bool_] = leaves[sources] & np.any(layouts.addends, axis=0)[targets]
    return passes
