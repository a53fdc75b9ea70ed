"""Random cost tables, small enough for brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from hypar_opt.costs.table import CostTable, chain_ends


@st.composite
def tables(
    draw: st.DrawFn, longest: int = 7, largest: int = 4, *, limited: bool = True
) -> CostTable:
    """Tables of two or three choices with costs so small that many plans tie.

    Chains, chains side by side, now and then another graph, with edges that lead backwards and
    several between two layers; some choices forbidden and a capacity, if ``limited``.
    """
    layers = draw(st.integers(1, longest))
    choices = draw(st.integers(2, 3))

    def array(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        count = int(np.prod(shape))
        drawn = draw(st.lists(st.integers(0, largest), min_size=count, max_size=count))
        return np.array(drawn, np.int64).reshape(shape)

    ends = chain_ends(layers)
    match draw(st.sampled_from(["chain", "chain", "chains", "graph"])):
        case "chains":
            ends = ends[[draw(st.booleans()) for _ in ends]]
        case "graph":
            pairs = [(u, v) for v in range(layers) for u in range(v)]
            kept = [pair for pair in pairs if draw(st.booleans())]
            kept += [(v, u) for u, v in pairs if draw(st.sampled_from([True, False, False]))]
            ends = np.array(kept, np.intp).reshape(-1, 2)
    table = CostTable(
        node=array(layers, choices),
        edge=array(len(ends), choices, choices),
        ends=ends,
        baselines={
            "data": (0,) * layers,
            "model": (1,) * layers,
            "trick": tuple(draw(st.sampled_from([0, 1])) for _ in range(layers)),
        },
    )
    if limited and draw(st.booleans()):
        table = replace(table, allowed=array(layers, choices) > 0)
    if limited and draw(st.booleans()):
        load = array(layers, choices)
        table = replace(table, limits=((load, draw(st.integers(0, largest * layers))),))
    return table
