"""Dynamic programming is linear: seconds a layer at 10^6 layers against those at 10^3."""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np

from benchmarks.measure import judged, size
from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.dynamic_programming import DynamicProgramming

SHORT, LONG = size((10**3, 10**6), (10**2, 10**3))
ROUNDS = size(7, 1)
TARGET = 1.3


def random_chain(layers: int) -> CostTable:
    """Return a chain whose costs are as large as VGG's bytes."""
    random = np.random.default_rng(0)
    node = random.integers(0, 10**9, (layers, 2))
    edge = random.integers(0, 10**9, (layers - 1, 2, 2))
    return CostTable(node, edge, chain_ends(layers))


def seconds_a_layer(table: CostTable, times: int) -> float:
    solver = DynamicProgramming()
    started = time.perf_counter()
    for _ in range(times):
        solver.solve(table, SolverOptions())
    return (time.perf_counter() - started) / (times * table.layers)


def main() -> None:
    short, long = random_chain(SHORT), random_chain(LONG)
    seconds_a_layer(short, 20)  # warm up
    # In turn, so that a machine whose speed drifts slows both.
    pairs = [
        (seconds_a_layer(short, LONG // SHORT), seconds_a_layer(long, 1)) for _ in range(ROUNDS)
    ]
    ratio = median(b / a for a, b in pairs)
    print(f"dp, {SHORT:,} layers: {median(a for a, _ in pairs) * 1e6:.3f} us a layer")
    print(f"dp, {LONG:,} layers: {median(b for _, b in pairs) * 1e6:.3f} us a layer")
    sys.exit(judged(f"dp, {LONG:,} layers against {SHORT:,}, a layer", ratio, TARGET))


if __name__ == "__main__":
    main()
