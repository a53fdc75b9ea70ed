"""Random networks, small enough for brute force."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st

from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.network import Network

_sizes = st.integers(1, 9)


@st.composite
def networks(draw: st.DrawFn, longest: int = 6) -> Network:
    """Chains of convolutions, some pooled, then fully-connected layers, all sizes odd or even."""
    count = draw(st.integers(1, longest))
    convolutions = draw(st.integers(0, count))
    layers: list[dict[str, object]] = []
    height, width = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    description: dict[str, object] = {"name": "random", "layer": layers}
    if convolutions:
        description["input"] = {"channels": draw(_sizes), "height": height, "width": width}
    else:
        description["input"] = {"features": draw(_sizes)}
    for place in range(convolutions):
        border = draw(st.integers(0, 1))
        stride = draw(st.integers(1, 2))
        kernel = [draw(st.integers(1, min(side + 2 * border, 3))) for side in (height, width)]
        height, width = (
            (side + 2 * border - k) // stride + 1
            for side, k in zip((height, width), kernel, strict=True)
        )
        layer = {"name": f"conv{place}", "kind": "conv", "filters": draw(_sizes)}
        layer |= {"kernel": kernel, "stride": stride, "padding": border}
        if min(height, width) >= 2 and draw(st.booleans()):
            rounding = draw(st.sampled_from(["down", "up"]))
            layer["pool"] = {"kind": "max", "size": 2, "rounding": rounding}
            up = rounding == "up"
            height, width = (height + up) // 2, (width + up) // 2
        layers.append(layer)
    layers += [
        {"name": f"fc{place}", "kind": "fc", "units": draw(_sizes)}
        for place in range(convolutions, count)
    ]
    return Network.model_validate(description)


def graph_networks(most: int = 4, largest: int = 9) -> st.SearchStrategy[Network]:
    """Graphs of every kind of layer: several readers, blocks, shared weights, several outputs."""
    return st.builds(partial(random_graph, most=most, largest=largest), st.randoms())
