"""The models that `ilp` and `cpsat` build: their sizes, their files, and known traps."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.errors import HyparError
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions, Status
from hypar_opt.solvers.ilp.formulate import formulate
from tests.commands import ended
from tests.slow import fewer, slow_after

PROGRAMS = ("ilp", "cpsat")
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


BY_PAIR = {
    "submodular": ([[0, 3], [3, 1]], 9, 2 * 4, 4 * 4),  # a threshold above both ends
    "supermodular": ([[3, 0], [1, 3]], 9, 4, 3 * 4),  # a product of both ends
    "separable": ([[0, 2], [3, 5]], 5, 0, 0),  # the ends cost what they cost apart
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("pair", BY_PAIR)
def test_two_choices_take_a_column_a_layer_and_one_an_edge_that_interacts(
    name: str, pair: str
) -> None:
    charges, columns, rows, nonzeros = BY_PAIR[pair]
    table = CostTable(np.arange(10).reshape(5, 2), np.array([charges] * 4), chain_ends(5))
    _, size = solve(name, table)
    assert (size["columns"], size["rows"], size["nonzeros"]) == (columns, rows, nonzeros)
    load = np.tile(np.array([2, 3]), (5, 1))
    _, limited = solve(name, replace(table, limits=((load, 12),)))
    assert (limited["rows"], limited["nonzeros"]) == (rows + 1, nonzeros + 5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_capacity_has_names_of_files_and_carries_in_integers(name: str) -> None:
    loads = np.random.default_rng(3).integers(10**6, 10**7, (2, LAYERS, 3))
    limits = tuple((load, int(load.min(axis=1).sum() * 1.5)) for load in loads)
    table = replace(chain(3), limits=limits)
    assert solve(name, table)[0] > optimum(chain(3))
    program = formulate(table)
    carries = [column for column in program.costs if "carry" in column]
    assert carries == ["carry_0", "carry_0_1"]
    assert all(program.domain(column, program.binary)[2] for column in carries)
    # A name of an LP file begins with a letter.
    assert all(row.name[0].isalpha() for row in program.constraints)


@pytest.mark.parametrize("name", PROGRAMS)
def test_three_choices_take_a_column_a_choice_and_one_a_transition(name: str) -> None:
    _, size = solve(name, chain(3))
    edges = LAYERS - 1
    assert size["columns"] == 3 * LAYERS + 9 * edges
    # One choice a layer; the transitions out of and into each choice add up to it.
    assert size["rows"] == LAYERS + 6 * edges
    assert size["nonzeros"] == 3 * LAYERS + 6 * edges * 4


def test_cp_sat_needs_no_transitions_where_choices_do_not_interact() -> None:
    table = chain(3)
    separable = replace(table, edge=table.node[:-1, :, None] + table.node[1:, None])
    _, size = solve("cpsat", separable)
    assert (size["columns"], size["rows"]) == (3 * LAYERS, LAYERS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_suffix_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(HyparError, match=r"\.txt"):
        SOLVERS[name]().solve(chain(2), SolverOptions(export=tmp_path / "model.txt"))


@pytest.mark.parametrize("seed", slow_after(4, range(8)))
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


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_common_factor_changes_nothing(name: str) -> None:
    table = chain(2, seed=5)
    multiple = replace(table, node=table.node * 10**9, edge=table.edge * 10**9)
    result = SOLVERS[name]().solve(multiple, SolverOptions())
    assert result.objective == 10**9 * optimum(table)


def test_a_gap_is_heeded_and_said() -> None:
    """Half of the optimum as a gap: what is answered is within it, and called what it is."""
    table = chain(3, seed=3, layers=30)
    optimum = SOLVERS["dp"]().solve(table, SolverOptions()).objective
    assert optimum is not None
    for name in PROGRAMS:
        result = SOLVERS[name]().solve(table, SolverOptions(gap=0.5))
        assert result.objective is not None
        assert optimum <= result.objective <= 2 * optimum
        if result.status is Status.FEASIBLE:
            assert result.stopped_by == "gap"


@pytest.mark.parametrize("backend", ["cbc", "highs"])
def test_every_backend_gives_the_canonical_optimum(backend: str) -> None:
    for seed in range(fewer(3)):
        table = chain(3, seed)
        result = SOLVERS["ilp"]().solve(table, SolverOptions(backend=backend))
        expected = SOLVERS["brute"]().solve(table, SolverOptions())
        assert (result.objective, result.assignment) == (expected.objective, expected.assignment)


def test_a_backend_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(HyparError, match="cbc"):
        SOLVERS["ilp"]().solve(chain(2), SolverOptions(backend="nobody"))


def test_no_warning_is_raised_under_dash_w_error() -> None:
    code = (
        "from hypar_opt.cli.app import run; import sys;"
        "solve = ['solve', 'lenet-c', '--levels', '1', '--json', '--solver'];"
        f"sys.exit(max(run([*solve, name]) for name in {PROGRAMS!r}))"
    )
    assert ended(sys.executable, "-W", "error", "-c", code).stderr == ""


@pytest.mark.parametrize("backend", ["cbc", "highs"])
def test_one_unit_in_10_to_the_11_decides(backend: str) -> None:
    """Scaled towards 1 the difference would be below every tolerance: it is not scaled."""
    unit = 10**11
    edge = np.array([[[unit, 5 * unit], [5 * unit, unit - 1]]])
    table = CostTable(np.zeros((2, 2), np.int64), edge, chain_ends(2))
    result = SOLVERS["ilp"]().solve(table, SolverOptions(backend=backend))
    assert (result.assignment, result.objective) == ((1, 1), unit - 1)
    assert result.status is Status.OPTIMAL
