"""How often a step repeats each node's passes and exchanges."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.sharding.passes import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.tensors import Workload


def passes_of(workload: Workload, phase: Phase) -> NDArray[np.int64]:
    """Return how often a step computes each node's pass."""
    forward, others = workload.repeats.passes(len(workload.nodes))
    return forward if phase is Phase.FORWARD else others


@lru_cache(maxsize=64)
def exchanges_of(workload: Workload, phase: Phase) -> NDArray[np.int64]:
    """Return how often a step repeats each node's exchanges of feature maps or errors."""
    times = workload.repeats.forward_exchanges(len(workload.nodes))
    return times if phase is Phase.FORWARD else np.full_like(times, workload.repeats.micro_batches)
