"""Exact solvers on graphs of operators: two choices at four levels together, tables built.

Ratios of one run, on ResNet-50 at batch 256 unless said otherwise:

* minimum cuts against OR-Tools' minimum cuts alone, on arrays made before (at most 5);
* the ILP built and solved with PuLP and CBC, against minimum cuts (at least 30);
* the LP of all four levels given as arrays to HiGHS in this process, and elimination;
* a GPT of 96 layers against one of 12, by minimum cuts (at most 8) and by elimination;
* three choices at two levels, 9 states a layer: elimination of 96 layers against 12.

The order of elimination is found once for a graph, and its time is not in these.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from importlib.resources import files

import numpy as np

import hypar_opt as ho
from benchmarks.measure import judged, ratio, seconds
from benchmarks.programs import bare_cuts, highs, one_ilp
from hypar_opt.costs.state_tables import expanded
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.problem import Problem
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.minimum_cut import MinimumCut
from hypar_opt.workload.parallelism import CHOICES

CUT, DP, OPTIONS = MinimumCut(), DynamicProgramming(), SolverOptions()
LEVELS = 4


def table_of(network: ho.Network) -> ThresholdTable:
    found = Instance(network, Problem(batch=256, levels=LEVELS, reading="executed"))
    table = found.cost.thresholds(found.workload, LEVELS)
    assert table is not None
    return table


def gpt(layers: int) -> ho.Network:
    """Return GPT-2 with another number of layers."""
    description = tomllib.loads(files("hypar_opt.models").joinpath("gpt2.toml").read_text())
    description["block"][0]["repeat"] = layers
    return ho.Network.model_validate(description)


def answers_by_layer(table: ThresholdTable) -> list[int]:
    answers = DP.solve(table, OPTIONS).assignment
    assert answers is not None
    assert answers == CUT.solve(table, OPTIONS).assignment
    by_threshold = np.reshape(answers, (table.levels, -1)).tolist()
    return list(map(sum, zip(*by_threshold, strict=True)))


def against_cuts() -> bool:
    table = table_of(find_network("resnet-50"))
    bare = bare_cuts(table)
    answers_by_layer(table)  # warm up
    print(f"ResNet-50, {len(table.data)} nodes: bare cuts {seconds(bare) * 1e6:.0f} us")
    missed = judged("cut against bare cuts", ratio(lambda: CUT.solve(table, OPTIONS), bare), 5)
    return missed | against_ilp(table)


def against_ilp(table: ThresholdTable) -> bool:
    assert one_ilp(table) == answers_by_layer(table)
    value = ratio(lambda: one_ilp(table), lambda: CUT.solve(table, OPTIONS), 11)
    return judged("CBC against cut", value, 30, at_least=True)


def against_lp() -> None:
    """In a process of its own: highspy and ortools do not share one."""
    if importlib.util.find_spec("highspy") is None:
        print("HiGHS: highspy is not installed")
        return
    subprocess.run([sys.executable, "-m", "benchmarks.graphs", "lp"], check=True)


def lp() -> None:
    table = table_of(find_network("resnet-50"))
    solve, answers = highs(table)
    result = DP.solve(table, OPTIONS)
    assert table.as_one_table().price(answers) == result.objective
    print(f"dp {seconds(lambda: DP.solve(table, OPTIONS)) * 1e6:.0f} us")
    print(f"HiGHS against dp: ratio {ratio(solve, lambda: DP.solve(table, OPTIONS)):.1f}")


def deep() -> bool:
    few, many = table_of(gpt(12)), table_of(gpt(96))
    answers_by_layer(few)  # warm up
    answers_by_layer(many)
    ours = ratio(lambda: DP.solve(many, OPTIONS), lambda: DP.solve(few, OPTIONS))
    print(f"GPT of 96 layers against 12, dp: ratio {ours:.1f}")
    cuts = ratio(lambda: CUT.solve(many, OPTIONS), lambda: CUT.solve(few, OPTIONS))
    return judged("GPT of 96 layers against 12, cut", cuts, 8)


def states() -> None:
    def states_seconds(layers: int) -> float:
        problem = Problem(batch=256, levels=2, reading="tables", choices=CHOICES)
        found = Instance(gpt(layers), problem)
        table = expanded(found.cost, found.workload, 2)
        return seconds(lambda: DP.solve(table, OPTIONS), 1.0)

    few, many = states_seconds(12), states_seconds(96)
    print(f"nine states a layer: 12 layers {few * 1e3:.0f} ms, 96 layers {many * 1e3:.0f} ms")


def main() -> None:
    if sys.argv[1:] == ["lp"]:
        lp()
        return
    missed = [against_cuts(), deep()]
    against_lp()
    states()
    sys.exit(any(missed))


if __name__ == "__main__":
    main()
