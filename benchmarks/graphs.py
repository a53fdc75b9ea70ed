"""Exact solvers on graphs of operators: two choices at four levels together, tables built.

Ratios of one run, on ResNet-50 at batch 256 unless said otherwise:

* minimum cuts and elimination against OR-Tools' minimum cuts alone, on arrays made before
  (both at most 5);
* against the LP of all four levels given as arrays to HiGHS in this process (at least 10), and
  the ILP built and solved with PuLP and CBC (at least 30);
* a GPT of 96 layers against one of 12, by elimination (at most 3);
* three choices at two levels, 9 states a layer: elimination of 96 layers against 12.

The order of elimination is found once for a graph, and its time is printed apart.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from importlib.resources import files

import numpy as np

import hypar_opt as ho
from benchmarks.measure import judged, ratio, seconds, size
from benchmarks.programs import bare_cuts, highs, one_ilp
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.problem import Problem
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.elimination.schedule import schedule_of
from hypar_opt.solvers.minimum_cut import MinimumCut
from hypar_opt.solvers.pseudo_boolean import PseudoBoolean
from hypar_opt.workload.parallelism import CHOICES

CUT, DP, OPTIONS = MinimumCut(), DynamicProgramming(), SolverOptions()
LEVELS = 4
FEW, MANY = size((12, 96), (2, 4))
"""Layers of GPTs."""


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
    missed |= judged("dp against bare cuts", ratio(lambda: DP.solve(table, OPTIONS), bare), 5)
    return missed | against_ilp(table)


def against_ilp(table: ThresholdTable) -> bool:
    assert one_ilp(table) == answers_by_layer(table)
    value = ratio(lambda: one_ilp(table), lambda: DP.solve(table, OPTIONS), 11)
    return judged("CBC against dp", value, 30, at_least=True)


def against_lp() -> bool:
    """In a process of its own: highspy and ortools do not share one."""
    if importlib.util.find_spec("highspy") is None:
        print("HiGHS: highspy is not installed")
        return False
    return subprocess.run([sys.executable, "-m", "benchmarks.graphs", "lp"]).returncode != 0


def lp() -> bool:
    table = table_of(find_network("resnet-50"))
    solve, answers = highs(table)
    result = DP.solve(table, OPTIONS)
    assert table.as_one_table().price(answers) == result.objective
    print(f"dp {seconds(lambda: DP.solve(table, OPTIONS)) * 1e6:.0f} us")
    value = ratio(solve, lambda: DP.solve(table, OPTIONS))
    return judged("HiGHS against dp", value, 10, at_least=True)


def order_seconds(table: ThresholdTable) -> float:
    """Return the seconds that it takes to find the order of elimination."""
    graph = PseudoBoolean.of(table).graph
    return seconds(lambda: schedule_of(graph.layers, graph.low, graph.high))


def deep() -> bool:
    few, many = table_of(gpt(FEW)), table_of(gpt(MANY))
    answers_by_layer(few)  # warm up
    answers_by_layer(many)
    orders = order_seconds(few), order_seconds(many)
    print(f"orders: {FEW} layers {orders[0] * 1e3:.1f} ms, {MANY} layers {orders[1] * 1e3:.1f} ms")
    cuts = ratio(lambda: CUT.solve(many, OPTIONS), lambda: CUT.solve(few, OPTIONS))
    print(f"GPT of {MANY} layers against {FEW}, cut: ratio {cuts:.1f}")
    ours = ratio(lambda: DP.solve(many, OPTIONS), lambda: DP.solve(few, OPTIONS))
    return judged(f"GPT of {MANY} layers against {FEW}, dp", ours, 3)


def states() -> None:
    def states_seconds(layers: int) -> float:
        problem = Problem(batch=256, levels=2, reading="tables", choices=CHOICES)
        found = Instance(gpt(layers), problem)
        table = StateTable.of(found.cost, found.workload, 2).dense()
        return seconds(lambda: DP.solve(table, OPTIONS), 1.0)

    few, many = states_seconds(FEW), states_seconds(MANY)
    print(f"nine states a layer: {FEW} layers {few * 1e3:.0f} ms, {MANY} {many * 1e3:.0f} ms")


def main() -> None:
    if sys.argv[1:] == ["lp"]:
        sys.exit(lp())
    missed = [against_cuts(), against_lp(), deep()]
    states()
    sys.exit(any(missed))


if __name__ == "__main__":
    main()
