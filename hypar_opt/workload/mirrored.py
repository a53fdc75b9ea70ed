"""Mirrored parts of sequences, which balance the work that a causal mask leaves.

If n parts took tokens in order, the last part would compute 2 - 1/n times as many scores as the
mean. Instead a sequence is cut into 2 n chunks, of which part i takes the i-th from the front and
the i-th from the end. In a sliding window all but the first tokens see equally many keys, and
mirrored parts are not quite balanced.

Source: docs/model.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.tensors import Workload


@lru_cache(maxsize=64)
def causal_nodes(workload: Workload) -> NDArray[np.bool_]:
    """Return the nodes with a causal mask: ``(nodes,)``."""
    return np.array([bool(getattr(node.operator, "causal", False)) for node in workload.nodes])


@lru_cache(maxsize=64)
def windowed_nodes(workload: Workload) -> NDArray[np.bool_]:
    """Return the causal nodes whose sliding window is shorter than the sequence: ``(nodes,)``."""
    causal = causal_nodes(workload).tolist()
    return np.array(
        [
            is_causal and 0 < (getattr(node.operator, "window", None) or 0) < node.sizes["t"]
            for node, is_causal in zip(workload.nodes, causal, strict=True)
        ]
    )


@lru_cache(maxsize=64)
def are_mirrored(workload: Workload, accelerators: int) -> bool:
    """Return whether parts of sequences are mirrored.

    They are if some layer is causal, every layer on tokens may split them, and sequences divide
    into twice as many equal chunks as there are accelerators, so that parts are mirrored at every
    level. A single token, such as attention's sinks, has no order.
    """
    causal = causal_nodes(workload)
    if "tokens" not in workload.choices or not causal.any():
        return False
    sizes = workload.split_sizes[workload.choices.index("tokens")].tolist()
    # A sequence has three axes, that of experts' slots five.
    return all(
        (size > 0 and size % (2 * accelerators) == 0) or (size == 1 and not is_causal)
        for node, size, is_causal in zip(workload.nodes, sizes, causal, strict=True)
        if {3, 5} & {len(shape) for shape in (node.input, *node.further_inputs, node.output)}
    )
