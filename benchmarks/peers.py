"""The joint kernel beside its peers: C, minimum cuts, an LP, and integer programs.

VGG-E at four levels, the optimum over all levels; ratios of one run. Each side is given the table
of questions, or its arrays, and must return how many levels each layer takes model parallelism at.

* C, the same dynamic programming compiled with cc where there is one: our kernel takes at most 100
  times a call of it, which is mostly the call;
* OR-Tools' minimum cuts: our kernel takes at most 4 times theirs;
* the tight LP by HiGHS in a process of its own: at least 2 times our kernel;
* the tight ILP built and solved with PuLP and CBC: at least 25 times our kernel, and 10 times it
  through cost tables;
* ILPs as Alpa writes them, with PuLP and CBC: one a question, at least 100 times our kernel; one on
  the product states of four levels, at least 400 times;
* our own solver `ilp`, which makes the tight ILP, checks CBC's claims and breaks ties: at most 2
  times the same program built and solved with PuLP and CBC alone.

Machines differ, and what others do on them: a process that CBC needs takes longer on a busy one.
Goals are about half, or twice, of what is measured on an idle machine.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.joint import DP, levels_of, thresholds, vgg_e
from benchmarks.measure import judged, ratio, seconds
from benchmarks.programs import alpa, bare_cuts, highs, one_ilp
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.state_charges import canonical_states
from hypar_opt.costs.state_table import StateTable
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions

LEVELS = 4
WORKLOAD = vgg_e()
TABLE = thresholds(WORKLOAD, LEVELS)


def ours() -> list[int]:
    return levels_of(TABLE)


C = """
#include <stdint.h>
#include <string.h>

/* How many levels each layer takes model parallelism at. pairs: dp-dp, dp-mp, mp-dp, mp-mp. */
void solve(int layers, int levels, const int64_t *data, const int64_t *model,
           const int64_t *pairs, int32_t *counts, int repeats)
{
    unsigned char from_model[layers][2];
    int edges = layers - 1;
    for (int repeat = 0; repeat < repeats; repeat++) {
        memset(counts, 0, layers * sizeof *counts);
        for (int t = 1; t <= levels; t++) {
            int64_t d = data[0] << (levels - t), m = model[0] << (t - 1);
            for (int n = 1; n < layers; n++) {
                const int64_t *pair = pairs + n - 1;
                int64_t dd = d + pair[0], dm = d + pair[edges];
                int64_t md = m + pair[2 * edges], mm = m + pair[3 * edges];
                from_model[n][0] = md < dd;
                from_model[n][1] = mm < dm;
                d = (md < dd ? md : dd) + (data[n] << (levels - t));
                m = (mm < dm ? mm : dm) + (model[n] << (t - 1));
            }
            int choice = m < d;
            for (int n = layers - 1; ; n--) {
                counts[n] += choice;
                if (n == 0) break;
                choice = from_model[n][choice];
            }
        }
    }
}
"""


def against_c() -> bool:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        print("C: there is no compiler")
        return False
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        source.write_text(C)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        solve = ctypes.CDLL(str(library)).solve
    data, model, pairs = (
        np.ascontiguousarray(column, np.int64) for column in (TABLE.data, TABLE.model, TABLE.pairs)
    )
    counts = np.zeros(len(data), np.int32)
    arrays = [ctypes.c_void_p(array.ctypes.data) for array in (data, model, pairs, counts)]

    def call(repeats: int = 1) -> None:
        solve(len(data), LEVELS, *arrays, repeats)

    call()
    assert counts.tolist() == ours()
    print(f"C alone: {seconds(lambda: call(1000)) / 1000 / seconds(ours):.4f} of our kernel")
    return judged("our kernel against a call of C", ratio(ours, call), 100)


def against_cuts() -> bool:
    return judged("our kernel against minimum cuts", ratio(ours, bare_cuts(TABLE)), 4)


def against_ilp() -> bool:
    def tight() -> list[int]:
        return one_ilp(TABLE)

    def through_tables() -> list[int]:
        return levels_of(TABLE.as_one_table())

    assert tight() == through_tables() == ours()
    missed = judged("PuLP and CBC against our kernel", ratio(tight, ours, 15), 25, at_least=True)
    tables = ratio(tight, through_tables, 15)
    missed |= judged("PuLP and CBC against it through tables", tables, 10, at_least=True)
    solver, table, options = SOLVERS["ilp"](), TABLE.as_one_table(), SolverOptions()
    assert solver.solve(table, options).assignment == DP.solve(table, options).assignment
    own = ratio(lambda: solver.solve(table, options), tight, 15)
    return missed | judged("our ilp against PuLP and CBC", own, 2)


def against_alpa() -> bool:
    def questions() -> list[int]:
        answers = [alpa(table) for table in TABLE.tables()]
        return [sum(each) for each in zip(*answers, strict=True)]

    def product_states() -> list[int]:
        states = np.array(canonical_states(LEVELS, 2))
        table = StateTable.of(CommunicationCost(), WORKLOAD, LEVELS).dense()
        return [int(states[state].sum()) for state in alpa(table)]

    assert questions() == ours() == product_states()
    goals = (("a question", questions, 100, 7), ("on 16 states", product_states, 400, 3))
    missed = False
    for name, program, goal, rounds in goals:
        value = ratio(program, ours, rounds)
        missed |= judged(f"Alpa's ILP {name} against our kernel", value, goal, at_least=True)
    return missed


def against_lp() -> bool:
    """In a process of its own: highspy and ortools do not share one."""
    if importlib.util.find_spec("highspy") is None:
        print("HiGHS: highspy is not installed")
        return False
    return subprocess.run([sys.executable, "-m", "benchmarks.peers", "lp"]).returncode != 0


def lp() -> bool:
    """Give the relaxation of the tight ILP to HiGHS as arrays and solve it."""
    solve, answers = highs(TABLE)
    assert np.reshape(answers, (LEVELS, -1)).sum(axis=0).tolist() == ours()
    return judged("HiGHS on the LP against our kernel", ratio(solve, ours), 2, at_least=True)


def main() -> None:
    if sys.argv[1:] == ["lp"]:
        sys.exit(lp())
    # Cuts first: PuLP would load highspy, beside which ortools does not load.
    sys.exit(any([against_c(), against_cuts(), against_lp(), against_ilp(), against_alpa()]))


if __name__ == "__main__":
    main()
