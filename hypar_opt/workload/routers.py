"""A mixture of experts has one router: what is dispatched by one is combined by the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypar_opt.workload.operators.experts import Combine, Dispatch

if TYPE_CHECKING:
    from hypar_opt.workload.operators.base import Operator


def check_routers(layers: Sequence[Operator], sources: Sequence[Sequence[int]]) -> None:
    """Refuse to combine tokens by other logits than those that they were dispatched by.

    Raises
    ------
    ValueError
        Naming the layer, and whose logits it should read.
    """
    # By layer the dispatches of what it writes: of no other kind's are any left at the end.
    dispatched: list[frozenset[int]] = []
    for position, (layer, reads) in enumerate(zip(layers, sources, strict=True)):
        own = frozenset().union(*(dispatched[read] for read in reads if read >= 0))
        if isinstance(layer, Dispatch):
            own = frozenset((position,))
        elif isinstance(layer, Combine):
            for dispatch in sorted(own):
                if sources[dispatch][1] != reads[1]:
                    right = layers[sources[dispatch][1]].name
                    raise layer.refuse(
                        "inputs",
                        f"the second should be {right!r}, which {layers[dispatch].name!r} reads,"
                        f" got {layers[reads[1]].name!r}",
                    )
            own = frozenset()
        dispatched.append(own)
