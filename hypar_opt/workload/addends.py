"""Sums that take what layers leave as addends, so that all of it is reduced once.

Source: docs/model.md.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.workload.operators.axes import ADDENDS, PARTIAL, made

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


def joins_partial_sums(network: Network) -> bool:
    """Return whether any sum has two terms or more that may be addends, directly or by sums.

    The sum of one is reduced as that would be: taking addends then hardly ever saves anything.
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
            leaves = any(made(layer.axes.output, choice) == PARTIAL for choice in splits)
            terms.append(leaves and layer.keeps_addends)
    return False


@lru_cache(maxsize=16)
def accepts_partial_inputs(workload: Workload) -> bool:
    """Return whether any layer may take addends of an input."""
    return bool(workload.layouts.addends.any())


@lru_cache(maxsize=16)
def may_defer_reduction(workload: Workload) -> NDArray[np.bool_]:
    """Return the boundaries whose target may take addends as its source leaves them.

    They are reduced as the target reads them: of a layer with no other reader. ``(boundaries,)``
    """
    layouts, (sources, targets) = workload.layouts, workload.ends.T
    only = np.bincount(sources, minlength=len(workload.nodes)) == 1
    keeps = np.array([node.operator.keeps_addends for node in workload.nodes], bool)
    leaves = only & keeps & np.any(layouts.output == 1, axis=0)
    passes: NDArray[np.bool_] = leaves[sources] & np.any(layouts.addends, axis=0)[targets]
    return passes
