"""Sums of what several layers leave as addends: these are reduced once, where sums take addends."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypar_opt.workload.operators.axes import ADDENDS, PARTIAL, made

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


def joins_addends(network: Network) -> bool:
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
            leaves = any(made(layer.axes.output, own) == PARTIAL for own in splits)
            terms.append(leaves and layer.keeps_addends)
    return False
