"""The joint optimum: independent chains against ILP and LP solvers, and product states.

Ratios of one run, on VGG-E at four levels unless said otherwise:

* the separable kernel, from W, F and A to how many levels each layer takes model parallelism
  at, against building and solving the tight ILP with PuLP and CBC (at least 300), and against
  the same LP given as arrays to HiGHS in this process (at least 40);
* the same through cost tables, against PuLP and CBC (at least 75);
* seconds a layer at 10^6 layers against those at 10^3 (at most 1.3);
* 64 levels against four (at most 20);
* unequal levels, 2^10 states: one boundary's step level by level against the table of all
  pairs of states (at least 100).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.product import factored
from hypar_opt.costs.separable import SeparableTable
from hypar_opt.costs.table import chain_ends
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.product_states import transition

DP, OPTIONS = DynamicProgramming(), SolverOptions()


def seconds(work: Callable[[], Any], least: float = 0.2) -> float:
    """Return the median seconds of a call, over enough calls to last ``least`` seconds."""
    started = time.perf_counter()
    work()
    first = max(time.perf_counter() - started, 1e-7)
    times = []
    for _ in range(max(5, min(2000, int(least / first)))):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return median(times)


def vgg_e() -> ho.Workload:
    return ho.Workload.of(ho.layer_graph(ho.load("vgg-e")), 256)


def separable(workload: ho.Workload, levels: int) -> SeparableTable:
    table = CommunicationCost().separable(workload, levels)
    assert table is not None
    return table


def kernel(workload: ho.Workload, levels: int) -> list[int]:
    """Return how many levels each layer takes model parallelism at."""
    answers = DP.solve(separable(workload, levels), OPTIONS).assignment
    assert answers is not None
    layers = len(workload.layers)
    return [sum(answers[layer::layers]) for layer in range(layers)]


def through_tables(workload: ho.Workload, levels: int) -> list[int]:
    """Do the same through one cost table of all the chains."""
    table = separable(workload, levels).as_one_table()
    answers = DP.solve(table, OPTIONS).assignment
    assert answers is not None
    layers = len(workload.layers)
    return [sum(answers[layer::layers]) for layer in range(layers)]


def against_ilp() -> None:
    workload = vgg_e()
    assert through_tables(workload, 4) == one_ilp(separable(workload, 4)) == kernel(workload, 4)
    ours = seconds(lambda: kernel(workload, 4))
    tables = seconds(lambda: through_tables(workload, 4))
    ilp = seconds(lambda: one_ilp(separable(workload, 4)), 1.0)
    print(
        f"kernel {ours * 1e6:.0f} us, through tables {tables * 1e6:.0f} us, CBC {ilp * 1e3:.0f} ms"
    )
    print(f"ratio {ilp / ours:.0f} (at least 300), through tables {ilp / tables:.0f} (at least 75)")


def one_ilp(table: SeparableTable) -> list[int]:
    """Build the tight ILP with PuLP and solve it with CBC once, ties as they come."""
    import pulp

    costs, ends = tight_program(table)
    layers = len(costs) - len(ends)
    problem = pulp.LpProblem("vgg_e", pulp.LpMinimize)
    x = [problem.add_variable(f"x{n}", 0, 1, pulp.LpInteger) for n in range(layers)]
    z = [problem.add_variable(f"z{n}", 0, 1) for n in range(len(ends))]
    problem.setObjective(pulp.LpAffineExpression(dict(zip([*x, *z], costs, strict=True))))
    for above, pair in zip(z, ends, strict=True):
        for end in pair:
            problem.addConstraint(
                pulp.LpConstraint(
                    pulp.LpAffineExpression({above: 1, x[end]: -1}), pulp.LpConstraintGE, rhs=0
                )
            )
    problem.solve(pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False))
    answers = [round(variable.value()) for variable in x]
    layers //= table.levels
    return [sum(answers[n::layers]) for n in range(layers)]


def tight_program(separable: SeparableTable) -> tuple[list[int], list[list[int]]]:
    """Return costs of a variable a layer and question, then one an edge; and the edges.

    An edge's variable z, at least x_u and x_v, stands for "either": with charges a, b, c, d of
    the four pairs and a + d <= b + c, the edge costs
    a + (d - b) x_u + (d - c) x_v + (b + c - a - d) z.
    """
    table = separable.as_one_table()
    (a, b), (c, d) = table.edge.transpose(1, 2, 0)
    layer = table.node[:, 1] - table.node[:, 0]
    np.add.at(layer, table.ends[:, 0], d - b)
    np.add.at(layer, table.ends[:, 1], d - c)
    return [*layer.tolist(), *(b + c - a - d).tolist()], table.ends.tolist()


def against_lp() -> None:
    """In a process of its own: highspy and ortools do not share one."""
    if importlib.util.find_spec("highspy") is None:
        print("HiGHS: highspy is not installed")
        return
    subprocess.run([sys.executable, "-m", "benchmarks.joint", "lp"], check=True)


def lp() -> None:
    """Give the relaxation of the tight ILP to HiGHS as arrays and solve it."""
    import highspy

    workload = vgg_e()
    model = lp_arrays(separable(workload, 4))
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)

    def solve() -> None:
        highs.passModel(model)
        highs.run()

    solve()
    layers = len(workload.layers)
    taken = np.rint(np.array(highs.getSolution().col_value[: 4 * layers])).reshape(4, layers)
    assert taken.sum(axis=0).astype(int).tolist() == kernel(workload, 4)
    theirs, ours = seconds(solve), seconds(lambda: kernel(workload, 4))
    print(f"kernel {ours * 1e6:.0f} us, HiGHS on the LP {theirs * 1e3:.2f} ms")
    print(f"ratio {theirs / ours:.0f} (at least 40)")


def lp_arrays(separable: SeparableTable) -> Any:
    """Return the LP with a variable a layer and question, and one an edge: z >= x_u, z >= x_v."""
    import highspy

    costs, pairs = tight_program(separable)
    cost, ends = np.array(costs, float), np.array(pairs)
    edges = len(ends)
    layers = len(cost) - edges
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = layers + edges, 2 * edges
    model.col_cost_ = cost
    model.col_lower_, model.col_upper_ = np.zeros(layers + edges), np.ones(layers + edges)
    model.row_lower_, model.row_upper_ = np.zeros(2 * edges), np.full(2 * edges, np.inf)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.arange(0, 4 * edges + 1, 2)
    z = np.repeat(layers + np.arange(edges), 2)
    model.a_matrix_.index_ = np.stack([z, ends.reshape(-1)], axis=1).reshape(-1)
    model.a_matrix_.value_ = np.tile([1.0, -1.0], 2 * edges)
    return model


def linear() -> None:
    random = np.random.default_rng(0)

    def chain(layers: int) -> SeparableTable:
        numbers = random.integers(1, 10**9, (3, layers)).tolist()
        sizes = numbers[2][1:]
        pairs = ([0] * len(sizes), sizes, sizes, sizes)
        return SeparableTable(numbers[0], numbers[1], chain_ends(layers), pairs, levels=4)

    short, long = chain(10**3), chain(10**6)
    rounds = []
    for _ in range(5):
        a = seconds(lambda: DP.solve(short, OPTIONS), 1.0) / 10**3
        started = time.perf_counter()
        DP.solve(long, OPTIONS)
        rounds.append((a, (time.perf_counter() - started) / 10**6))
    ratio = median(b / a for a, b in rounds)
    print(f"four levels, 10^3 layers: {median(a for a, _ in rounds) * 1e6:.2f} us a layer")
    print(f"10^6 layers: ratio {ratio:.2f} (at most 1.3)")
    workload = vgg_e()
    four, many = seconds(lambda: kernel(workload, 4)), seconds(lambda: kernel(workload, 64))
    print(f"VGG-E, 64 levels against four: ratio {many / four:.1f} (at most 20)")


def product_states() -> None:
    workload, levels = vgg_e(), 10
    cost = CommunicationCost(level_weights=tuple(range(levels, 0, -1)))
    table = factored(cost, workload, levels)
    assert table is not None
    costs = table.node[0]

    def all_pairs() -> Any:
        charge = np.zeros((1, 1), np.int64)
        for pairs in table.pairs:  # one digit more of both states
            wider = charge[:, None, :, None] + pairs[0, 0][None, :, None, :]
            charge = wider.reshape(2 * len(charge), -1)
        return (costs[:, None] + charge).min(axis=0)

    assert (transition(table, 0, costs) == all_pairs()).all()
    ours, theirs = seconds(lambda: transition(table, 0, costs)), seconds(all_pairs, 1.0)
    print(f"2^{levels} states: level by level {ours * 1e6:.0f} us, all pairs {theirs * 1e3:.1f} ms")
    print(f"ratio {theirs / ours:.0f} (at least 100)")


def main() -> None:
    if sys.argv[1:] == ["lp"]:
        lp()
        return
    against_ilp()
    against_lp()
    linear()
    product_states()


if __name__ == "__main__":
    main()
