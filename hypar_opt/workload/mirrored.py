"""Whether parts of a sequence have tokens of both of its ends, so that a causal mask suits all.

Of tokens in order the last of n parts would see 2 - 1/n times as many before them as the mean. Of
2 n chunks each part has one from the front and the one as far from the end. In a sliding window
all but the first tokens see as many, and such parts are not quite alike.

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
    """Return the nodes whose tokens see only those before them: ``(nodes,)``."""
    return np.array([bool(getattr(node.operator, "causal", False)) for node in workload.nodes])


@lru_cache(maxsize=64)
def windowed_nodes(workload: Workload) -> NDArray[np.bool_]:
    """Return the causal nodes whose tokens see fewer of those before them: ``(nodes,)``."""
    causal = causal_nodes(workload).tolist()
    return np.array(
        [
            is_causal and 0 < (getattr(node.operator, "window", None) or 0) < node.sizes["t"]
            for node, is_causal in zip(workload.nodes, causal, strict=True)
        ]
    )


@lru_cache(maxsize=64)
def are_mirrored(workload: Workload, accelerators: int) -> bool:
    """Return whether parts of sequences are mirrored, in which any order of tokens will do.

    They are where a layer is causal, all layers of tokens may split them, and twice as many chunks
    as there are accelerators are equal: then all parts are, at any of their levels. One token by
    itself, as of attention's sinks, has no order.
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
