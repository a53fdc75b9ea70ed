"""The models that `ilp` and `cpsat` build: their sizes, their files, and known traps."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.errors import HyparError
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.backends.base import load_pulp
from hypar_opt.solvers.base import SolverOptions, Status
from tests.solvers.reference import exported_optimum

LAYERS = 7


def chain(choices: int, seed: int = 0, layers: int = LAYERS) -> CostTable:
    """A chain whose pairs of model parallelism save, as a communication model's do."""
    rng = np.random.default_rng(seed)
    edge = rng.integers(0, 1000, (layers - 1, choices, choices))
    if choices == 2:
        size = rng.integers(1, 1000, layers - 1)
        edge = size[:, None, None] * np.array([[0, 1], [1, 1]])
    return CostTable(rng.integers(0, 1000, (layers, choices)), edge, chain_ends(layers))


def solve(name: str, table: CostTable, **options: object) -> tuple[int, dict[str, float]]:
    result = SOLVERS[name]().solve(table, SolverOptions(**options))  # type: ignore[arg-type]
    assert result.status is Status.OPTIMAL
    assert result.objective == result.bound == optimum(table)
    return result.objective, dict(result.statistics)


def optimum(table: CostTable) -> int:
    objective = SOLVERS["brute"]().solve(table, SolverOptions()).objective
    assert isinstance(objective, int)
    return objective


def test_two_choices_take_one_threshold_variable_an_edge() -> None:
    _, size = solve("ilp", chain(2))
    assert (size["columns"], size["rows"]) == (LAYERS + LAYERS - 1, 2 * (LAYERS - 1))
    assert size["nonzeros"] == 4 * (LAYERS - 1)


def test_three_choices_take_a_flow_an_edge_and_pair() -> None:
    _, size = solve("ilp", chain(3))
    edges = LAYERS - 1
    assert size["columns"] == 3 * LAYERS + 9 * edges
    # One choice a layer; flows out of and into each choice add up to it.
    assert size["rows"] == LAYERS + 6 * edges


def test_a_capacity_is_one_row() -> None:
    table = chain(2)
    load = np.tile(np.array([2, 3]), (LAYERS, 1))
    _, free = solve("ilp", table)
    _, limited = solve("ilp", replace(table, load=load, capacity=2 * LAYERS + 2))
    assert limited["rows"] == free["rows"] + 1


@pytest.mark.parametrize("choices", [2, 3])
@pytest.mark.parametrize("suffix", [".mps", ".lp"])
def test_an_exported_program_has_the_same_optimum_for_another_solver(
    choices: int, suffix: str, tmp_path: Path
) -> None:
    """Written for CBC, read back by PuLP or by HiGHS, and solved by HiGHS."""
    table, file = chain(choices, seed=choices), tmp_path / f"model{suffix}"
    objective, size = solve("ilp", table, export=file)
    # HiGHS in a process of its own: its wheel and that of OR-Tools do not share one.
    script = (
        "import sys, highspy\n"
        "highs = highspy.Highs(); highs.setOptionValue('output_flag', False)\n"
        "highs.readModel(sys.argv[1]); highs.run()\n"
        "info = highs.getInfo()\n"
        "print(round(info.objective_function_value), highs.getNumCol(), highs.getNumRow())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, file], capture_output=True, text=True, check=True
    )
    optimum, columns, rows = map(int, done.stdout.split()[-3:])
    assert optimum == objective
    assert columns >= size["columns"]  # a constant may take a column of its own
    assert rows == size["rows"]
    if suffix == ".mps":
        _, problem = load_pulp().LpProblem.fromMPS(str(file))
        assert len(problem.variables()) == columns


@pytest.mark.parametrize("choices", [2, 3])
def test_an_exported_constraint_program_has_the_same_optimum(choices: int, tmp_path: Path) -> None:
    table, file = chain(choices, seed=choices), tmp_path / "model.pb"
    objective, size = solve("cpsat", table, export=file)
    assert exported_optimum(file) == (objective, size["columns"])


@pytest.mark.parametrize("name", ["ilp", "cpsat"])
def test_another_suffix_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(HyparError, match=r"\.txt"):
        SOLVERS[name]().solve(chain(2), SolverOptions(export=tmp_path / "model.txt"))


@pytest.mark.parametrize("name", ["ilp", "cpsat"])
def test_costs_that_thirteen_digits_do_not_tell_apart_are_told_apart(name: str) -> None:
    """2^47 + 1 and 2^47 + 3 have fifteen digits, of which PuLP writes twelve or thirteen."""
    node = np.array([[2**47 + 3, 2**47 + 1], [2**47 + 1, 2**47 + 3]])
    table = CostTable(node, np.zeros((1, 2, 2), np.int64), chain_ends(2))
    result = SOLVERS[name]().solve(table, SolverOptions())
    assert (result.assignment, result.objective) == ((1, 0), 2**48 + 2)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("choices", [2, 3])
def test_costs_of_sixteen_digits_are_told_apart_and_ties_settled(seed: int, choices: int) -> None:
    """Most digits are the same, and the last few decide, or tie."""
    rng = np.random.default_rng(seed)
    large = rng.integers(1, 3, (4, choices)) * 3 * 10**15
    node = large + rng.integers(0, 3, (4, choices)) * 7
    edge = rng.integers(0, 2, (3, choices, choices)) * (10**13 + 1)
    table = CostTable(node, edge, chain_ends(4))
    for solver in (SOLVERS["ilp"](), SOLVERS["brute"]()):
        assert solver.accepts(table) is None
    ilp, brute = (SOLVERS[name]().solve(table, SolverOptions()) for name in ("ilp", "brute"))
    assert (ilp.assignment, ilp.objective, ilp.bound, ilp.status) == (
        brute.assignment,
        brute.objective,
        brute.bound,
        Status.OPTIMAL,
    )


def test_what_has_too_many_digits_for_the_program_is_refused_by_name() -> None:
    node = np.array([[0, 2**65 - 1], [3**39, 0]], object)
    table = CostTable(node, np.zeros((1, 2, 2), object), chain_ends(2))
    refusal = SOLVERS["ilp"]().accepts(table)
    assert refusal is not None
    assert "digits" in refusal
    assert "dp" in refusal
    small = replace(table, node=node // 10**7)
    assert SOLVERS["cpsat"]().accepts(small) is None
    solve("cpsat", small)


def test_what_overflows_cp_sat_is_refused_by_name() -> None:
    node = np.array([[0, 2**70 + 1], [2**69 + 3, 0]], object)
    table = CostTable(node, np.zeros((1, 2, 2), object), chain_ends(2))
    assert "dp" in (SOLVERS["cpsat"]().accepts(table) or "")


@pytest.mark.parametrize("name", ["ilp", "cpsat"])
def test_a_common_factor_changes_nothing(name: str) -> None:
    table = chain(2, seed=5)
    multiple = replace(table, node=table.node * 10**9, edge=table.edge * 10**9)
    result = SOLVERS[name]().solve(multiple, SolverOptions())
    assert result.objective == 10**9 * optimum(table)


@pytest.mark.parametrize("name", ["ilp", "cpsat"])
def test_two_runs_give_one_answer(name: str) -> None:
    table = chain(3, seed=9)
    first, second = (SOLVERS[name]().solve(table, SolverOptions()) for _ in range(2))
    assert first.assignment == second.assignment
    assert first.statistics == second.statistics


def test_a_gap_is_heeded_and_said() -> None:
    """Half of the optimum as a gap: what is answered is within it, and called what it is."""
    table = chain(3, seed=3, layers=30)
    optimum = SOLVERS["dp"]().solve(table, SolverOptions()).objective
    assert optimum is not None
    for name in ("ilp", "cpsat"):
        result = SOLVERS[name]().solve(table, SolverOptions(gap=0.5))
        assert result.objective is not None
        assert optimum <= result.objective <= 2 * optimum
        if result.status is Status.FEASIBLE:
            assert result.stopped_by == "gap"


@pytest.mark.parametrize("backend", ["cbc", "highs"])
def test_every_backend_gives_the_canonical_optimum(backend: str) -> None:
    for seed in range(3):
        table = chain(3, seed)
        result = SOLVERS["ilp"]().solve(table, SolverOptions(backend=backend))
        expected = SOLVERS["brute"]().solve(table, SolverOptions())
        assert (result.objective, result.assignment) == (expected.objective, expected.assignment)


def test_a_backend_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(HyparError, match="cbc"):
        SOLVERS["ilp"]().solve(chain(2), SolverOptions(backend="nobody"))


@pytest.mark.parametrize("name", ["ilp", "cpsat"])
def test_no_warning_is_raised_under_dash_w_error(name: str) -> None:
    code = (
        "from hypar_opt.cli.app import run; import sys;"
        f"sys.exit(run(['solve', 'lenet-c', '--levels', '1', '--solver', '{name}', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("backend", ["cbc", "highs"])
def test_one_unit_in_10_to_the_11_decides(backend: str) -> None:
    """Scaled towards 1 the difference would be below every tolerance: it is not scaled."""
    unit = 10**11
    edge = np.array([[[unit, 5 * unit], [5 * unit, unit - 1]]])
    table = CostTable(np.zeros((2, 2), np.int64), edge, chain_ends(2))
    result = SOLVERS["ilp"]().solve(table, SolverOptions(backend=backend))
    assert (result.assignment, result.objective) == ((1, 1), unit - 1)
    assert result.status is Status.OPTIMAL
