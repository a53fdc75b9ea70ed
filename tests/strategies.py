"""Random networks and cost tables, small enough for brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.network import Network

_sizes = st.integers(1, 9)


@st.composite
def networks(draw: st.DrawFn, longest: int = 6) -> Network:
    """Chains of convolutions, some pooled, then fully-connected layers, all sizes odd or even."""
    count = draw(st.integers(1, longest))
    convolutions = draw(st.integers(0, count))
    layers: list[dict[str, object]] = []
    side = draw(st.integers(1, 12))
    description: dict[str, object] = {"name": "random", "layer": layers}
    if convolutions:
        description["input"] = {"channels": draw(_sizes), "height": side, "width": side}
    else:
        description["input"] = {"features": draw(_sizes)}
    for place in range(convolutions):
        kernel = draw(st.integers(1, min(side, 3)))
        layer = {"name": f"conv{place}", "kind": "conv", "filters": draw(_sizes), "kernel": kernel}
        side -= kernel - 1
        if side >= 2 and draw(st.booleans()):
            rounding = draw(st.sampled_from(["down", "up"]))
            layer["pool"] = {"kind": "max", "size": 2, "rounding": rounding}
            side = side // 2 if rounding == "down" else (side + 1) // 2
        layers.append(layer)
    layers += [
        {"name": f"fc{place}", "kind": "fc", "units": draw(_sizes)}
        for place in range(convolutions, count)
    ]
    return Network.model_validate(description)


@st.composite
def tables(draw: st.DrawFn, longest: int = 7, largest: int = 4) -> CostTable:
    """Chain tables of two or three choices with costs so small that many plans tie."""
    layers = draw(st.integers(1, longest))
    choices = draw(st.integers(2, 3))
    costs = st.integers(0, largest)

    def array(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        count = int(np.prod(shape))
        drawn = draw(st.lists(costs, min_size=count, max_size=count))
        return np.array(drawn, np.int64).reshape(shape)

    node, edge = array(layers, choices), array(layers - 1, choices, choices)
    return CostTable(node, edge, chain_ends(layers))
