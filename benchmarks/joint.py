"""The joint optimum: its kernel's growth, and product states.

Ratios of one run; `benchmarks.peers` has the kernel beside others:

* seconds a layer at 10^6 layers against those at 10^3 (at most 1.6);
* VGG-E, 64 levels against four (at most 20);
* unequal levels, 2^10 states: one boundary's step level by level against the table of all
  pairs of states (at least 100).
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

import numpy as np

import hypar_opt as ho
from benchmarks.measure import judged, ratio, seconds, size
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.product_states import transition

DP, OPTIONS = DynamicProgramming(), SolverOptions()


def vgg_e() -> ho.Workload:
    return ho.Workload.of(ho.layer_graph(ho.load("vgg-e")), 256)


def thresholds(workload: ho.Workload, levels: int) -> ThresholdTable:
    table = CommunicationCost().thresholds(workload, levels)
    assert table is not None
    return table


def levels_of(table: ThresholdTable | CostTable, layers: int = 19) -> list[int]:
    """Return how many levels each layer takes model parallelism at, by our kernel."""
    answers = DP.solve(table, OPTIONS).assignment
    assert answers is not None
    return [sum(answers[layer::layers]) for layer in range(layers)]


def linear() -> bool:
    random = np.random.default_rng(0)

    def chain(layers: int) -> ThresholdTable:
        numbers = random.integers(1, 10**9, (3, layers)).tolist()
        sizes = numbers[2][1:]
        pairs = ([0] * len(sizes), sizes, sizes, sizes)
        return ThresholdTable(numbers[0], numbers[1], chain_ends(layers), pairs, levels=4)

    few, many = size((10**3, 10**6), (10**2, 10**3))
    short, long = chain(few), chain(many)
    rounds = []
    for _ in range(size(5, 1)):
        a = seconds(lambda: DP.solve(short, OPTIONS), 1.0) / few
        started = time.perf_counter()
        DP.solve(long, OPTIONS)
        rounds.append((a, (time.perf_counter() - started) / many))
    print(f"four levels, {few:,} layers: {median(a for a, _ in rounds) * 1e6:.2f} us a layer")
    value = median(b / a for a, b in rounds)
    return judged(f"{many:,} layers against {few:,}, a layer", value, 1.6)


def levels() -> bool:
    workload = vgg_e()

    def solve(levels: int) -> list[int]:
        return levels_of(thresholds(workload, levels))

    many = ratio(lambda: solve(64), lambda: solve(4))
    return judged("VGG-E, 64 levels against four", many, 20)


def product_states() -> bool:
    workload, levels = vgg_e(), size(10, 4)
    cost = CommunicationCost(level_weights=tuple(range(levels, 0, -1)))
    table = StateTable.of(cost, workload, levels).by_level()
    assert table is not None
    costs = table.node[0]

    def all_pairs() -> Any:
        charge = np.zeros((1, 1), np.int64)
        for pairs in table.pairs:  # one digit more of both states
            wider = charge[:, None, :, None] + pairs[0, 0][None, :, None, :]
            charge = wider.reshape(2 * len(charge), -1)
        return (costs[:, None] + charge).min(axis=0)

    assert (transition(table, 0, costs) == all_pairs()).all()
    value = ratio(all_pairs, lambda: transition(table, 0, costs), 15)
    return judged(f"2^{levels} states: all pairs against level by level", value, 100, at_least=True)


def main() -> None:
    sys.exit(any([linear(), levels(), product_states()]))


if __name__ == "__main__":
    main()
