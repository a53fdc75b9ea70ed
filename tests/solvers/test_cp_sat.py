"""CP-SAT: its model's size, its exactness, the truth about its limits, and its files."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.errors import HyparError, InputError
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status
from hypar_opt.solvers.cp_sat.clauses import MAX_SUM
from hypar_opt.solvers.cp_sat.solver import ConstraintProgram
from tests.slow import examples
from tests.solvers.graphs import optimum
from tests.solvers.reference import exported_optimum
from tests.strategies.tables import tables


def solve(table: CostTable, **options: Any) -> SolveResult:
    solver = ConstraintProgram()
    assert solver.accepts(table) is None
    return solver.solve(table, SolverOptions(**options))


def assert_canonical_optimum(table: CostTable, result: SolveResult) -> None:
    best = optimum(table)
    assert (result.assignment and (result.objective, result.assignment)) == best
    assert result.status is (Status.OPTIMAL if best else Status.INFEASIBLE)
    assert (result.bound, result.stopped_by) == (result.objective, None)


def random_table(
    layers: int, choices: int, largest: int, ends: Any = None, seed: int = 0
) -> CostTable:
    rng = np.random.default_rng(seed)
    ends = chain_ends(layers) if ends is None else np.array(ends)
    node = rng.integers(0, largest + 1, (layers, choices))
    return CostTable(node, rng.integers(0, largest + 1, (len(ends), choices, choices)), ends)


def dense(layers: int, choices: int = 2) -> CostTable:
    """A third of all pairs of layers have an edge: no relaxation is tight."""
    rng = np.random.default_rng(3)
    pairs = [pair for pair in itertools.combinations(range(layers), 2) if rng.random() < 0.3]
    return random_table(layers, choices, 1000, pairs)


@examples(30)
@given(table=tables(longest=5, largest=2**44))
def test_large_costs_are_exact(table: CostTable) -> None:
    assert_canonical_optimum(table, solve(table))


@pytest.mark.parametrize("choices", [2, 3])
def test_ties_of_many_layers_are_settled_from_the_last_layer_back(choices: int) -> None:
    # Neighbours should differ: of the ways to do that, the last layer is at its first choice.
    edge = np.broadcast_to(np.eye(choices, dtype=np.int64), (89, choices, choices))
    table = CostTable(np.zeros((90, choices), np.int64), edge, chain_ends(90))
    assert solve(table).assignment == (1, 0) * 45


def test_a_capacity_of_gigabytes_keeps_the_optimum() -> None:
    # CP-SAT 9.15, left to itself, proves 1 to be the optimum: or-tools issue 5293.
    node, edge = np.zeros((4, 4), np.int64), np.zeros((3, 4, 4), np.int64)
    node[0, 0] = edge[1, 3, 3] = edge[2, 3, 3] = 1
    load = np.zeros((4, 4), np.int64)
    load[0, 1:] = 870477026, 874952491, 857653775
    load[1, 2], load[2, 1], load[3, 1] = 953350101, 568317712, 926501136
    ends = np.array([[0, 1], [0, 3], [1, 2]])
    table = CostTable(node, edge, ends, limits=((load, 3231615314),))
    assert_canonical_optimum(table, solve(table))


def test_a_second_run_finds_the_same() -> None:
    table = dense(15, 3)
    first, second = solve(table), solve(table)
    assert (first.assignment, first.objective) == (second.assignment, second.objective)
    assert (first.statistics, first.versions) == (second.statistics, second.versions)
    assert "ortools" in first.versions
    for options in ({"seed": 7}, {"threads": 2}, {"hint": True}, {"warm_start": (2,) * 15}):
        assert solve(table, **options).assignment == first.assignment


def test_a_hint_from_dynamic_programming_and_a_warm_start_keep_the_answer() -> None:
    table = replace(random_table(6, 3, 4), limits=((np.arange(18).reshape(6, 3), 50),))
    answer = solve(table).assignment
    assert answer is not None
    assert solve(table, hint=True).assignment == answer
    assert solve(table, warm_start=answer).assignment == answer
    assert solve(table, warm_start=(2,) * 6).assignment == answer  # more than the capacity
    for start in ((0,) * 5, (3,) * 6):
        with pytest.raises(HyparError, match="a warm start should have one of the choices"):
            solve(table, warm_start=start)


def test_a_limit_among_the_parameters_is_told_apart() -> None:
    result = solve(dense(40), parameters={"max_deterministic_time": "0.2"})
    assert result.status in {Status.FEASIBLE, Status.NO_ANSWER}
    assert result.stopped_by == "solver option"


def test_a_gap_that_was_asked_for_is_no_optimum() -> None:
    result = solve(dense(40), gap=0.5)
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, "gap")
    assert result.objective is not None
    assert result.bound is not None
    assert 0 < result.objective - result.bound <= result.objective / 2


@pytest.mark.parametrize("suffix", [".pb", ".pbtxt"])
@pytest.mark.parametrize("choices", [2, 3])
def test_the_exported_model_has_the_same_optimum(suffix: str, choices: int, tmp_path: Path) -> None:
    table = random_table(6, choices, 10**6, seed=choices)
    load = np.random.default_rng(0).integers(0, 10, (6, choices))
    table = replace(table, limits=((load, 25),))
    file = tmp_path / f"model{suffix}"
    result = solve(table, export=file)
    assert_canonical_optimum(table, result)
    assert list(tmp_path.iterdir()) == [file]
    assert exported_optimum(file) == (result.objective, result.statistics["columns"])


def test_an_export_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    table = random_table(4, 2, 9)
    with pytest.raises(InputError, match="nowhere"):
        solve(table, export=tmp_path / "nowhere" / "model.pb")
    (tmp_path / "model.pb").mkdir()
    with pytest.raises(InputError, match="folder"):
        solve(table, export=tmp_path / "model.pb")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pb"]


def test_the_log_goes_to_its_file_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    solve(random_table(5, 3, 9), log=tmp_path / "log")
    assert "CP-SAT" in (tmp_path / "log").read_text()
    assert capfd.readouterr() == ("", "")
    with pytest.raises(InputError, match="nowhere"):
        solve(random_table(5, 3, 9), log=tmp_path / "nowhere" / "log")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"linearisation_level": "1"}, "no parameter 'linearisation_level' .* linearization_level"),
        ({"subsolvers": "core"}, "no parameter 'subsolvers' that takes one value"),
        ({"linearization_level": "high"}, "should be a whole number, got 'high'"),
        ({"linearization_level": str(2**40)}, "should be a whole number"),
        ({"max_deterministic_time": "-1"}, "max_deterministic_time must be non-negative"),
        ({"cp_model_presolve": "no"}, "should be true, false, got 'no'"),
        ({"search_branching": "FIXED"}, "should be .*FIXED_SEARCH.*, got 'FIXED'"),
        ({"num_workers": "2"}, "num_workers is here the option threads"),
        ({"presolve_inclusion_work_limit": "9"}, "issue 5293"),
    ],
)
def test_a_parameter_is_refused_by_name(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(HyparError, match=message):
        solve(random_table(3, 2, 9), parameters=parameters)


def test_parameters_reach_the_solver(tmp_path: Path) -> None:
    table = random_table(8, 3, 9)
    parameters = {
        "cp_model_presolve": "false",
        "search_branching": "FIXED_SEARCH",
        "linearization_level": "0",
        "random_branches_ratio": "0.5",
    }
    assert_canonical_optimum(table, solve(table, parameters=parameters, log=tmp_path / "log"))
    log = (tmp_path / "log").read_text()
    assert "search_branching: FIXED_SEARCH" in log
    assert "cp_model_presolve: false" in log


def test_what_could_pass_64_bits_is_refused_with_what_would_do() -> None:
    solver = ConstraintProgram()
    table = CostTable(np.array([[0, MAX_SUM], [0, 1]]), np.zeros((1, 2, 2), int), chain_ends(2))
    assert "64 bits, and these costs" in (solver.accepts(table) or "")
    assert "dp" in (solver.accepts(table) or "")
    assert solver.accepts(replace(table, node=table.node // 8)) is None
    assert "columns" in (solver.accepts(random_table(20, 200, 1)) or "")


@pytest.mark.parametrize("beyond", [0, 1])
def test_loads_that_pass_64_bits_together_are_counted_in_digits_that_carry(beyond: int) -> None:
    loads = (10**18 + 60_001, 10**18 + 160_000)
    node = np.array([[1, 0], [1, 0]])
    load = np.array([[0, loads[0]], [0, loads[1]]])
    table = CostTable(node, np.zeros((1, 2, 2), int), chain_ends(2))
    limited = replace(table, limits=((load, sum(loads) - beyond),))
    assert_canonical_optimum(limited, solve(limited))


PROCESS = """
import sys
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.cp_sat.solver import ConstraintProgram
assert "ortools" not in sys.modules
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hypar_opt.solvers.cp_sat import search
from tests.solvers.test_cp_sat import dense
run = search.solve_interruptibly
def logged(solver, *rest):
    solver.parameters.log_search_progress = True
    solver.log_callback = lambda line: print(line, flush=True)
    return run(solver, *rest)
search.solve_interruptibly = logged
try:
    result = ConstraintProgram().solve(dense({layers}, 3), SolverOptions())
except KeyboardInterrupt:
    sys.exit(130)
print(result.status, flush=True)
"""


def process(layers: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROCESS.format(layers=layers)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupt_ends_a_search_that_would_go_on_for_days() -> None:
    with process(layers=60) as child:
        assert child.stdout is not None
        assert any(line.startswith("#1 ") for line in child.stdout)  # the first incumbent
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate()
        assert child.returncode == 130
        assert "optimal" not in out
