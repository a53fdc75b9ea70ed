"""What every solver in the table must keep, whoever wrote it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given

from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.partition import solve_checked
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import Solver, Status
from tests.strategies import tables


def every_assignment(table: CostTable) -> list[tuple[int, tuple[int, ...]]]:
    """Cost and assignment of each, the canonical order first: by cost, then last layer back."""
    rows = []
    for assignment in itertools.product(range(table.choices), repeat=table.layers):
        cost = sum(int(table.node[layer, choice]) for layer, choice in enumerate(assignment))
        for (u, v), edge in zip(table.ends.tolist(), table.edge.tolist(), strict=True):
            cost += edge[assignment[u]][assignment[v]]
        rows.append((cost, assignment))
    return sorted(rows, key=lambda row: (row[0], row[1][::-1]))


@pytest.mark.parametrize("name", SOLVERS)
@given(table=tables())
def test_an_answer_is_the_cheapest_and_canonical_or_claims_no_optimum(
    name: str, table: CostTable
) -> None:
    solver: Solver = SOLVERS[name]()
    if solver.accepts(table) is not None:
        assert name in {"data", "model", "trick"}  # they go by kinds, which this table lacks
        return
    result = solve_checked(solver, table)
    cost, assignment = every_assignment(table)[0]
    assert result.status is Status.OPTIMAL
    assert (result.objective, result.bound, result.assignment) == (cost, cost, assignment)


@pytest.mark.parametrize("name", ["dp", "brute"])
@given(table=tables())
def test_costs_beyond_int64_are_exact(name: str, table: CostTable) -> None:
    huge = 2**70
    beyond = CostTable(
        table.node.astype(object) + huge, table.edge.astype(object) * huge, table.ends
    )
    result = solve_checked(SOLVERS[name](), beyond)
    cost, assignment = every_assignment(beyond)[0]
    assert (result.objective, result.assignment) == (cost, assignment)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_summary_says_what_is_guaranteed(name: str) -> None:
    assert SOLVERS[name].summary


def test_ties_are_settled_from_the_last_layer_back_data_first() -> None:
    # (0, 1), (1, 0) cost 1, the others 2: of the two, the one whose last layer is data.
    edge = np.array([[[2, 1], [1, 2]]])
    table = CostTable(np.zeros((2, 2), np.int64), edge, chain_ends(2))
    for name in ("dp", "brute"):
        assert SOLVERS[name]().solve(table).assignment == (1, 0)


def test_a_graph_that_is_no_chain_is_refused_by_dp_and_solved_by_brute_force() -> None:
    triangle = CostTable(
        np.array([[0, 1], [0, 1], [5, 0]]),
        np.array([[[0, 3], [3, 0]]] * 3),
        np.array([[0, 1], [0, 2], [1, 2]]),
    )
    assert "chain" in (SOLVERS["dp"]().accepts(triangle) or "")
    result = solve_checked(SOLVERS["brute"](), triangle)
    assert (result.objective, result.assignment) == every_assignment(triangle)[0]


def test_brute_force_refuses_more_than_2_to_the_24_with_the_count() -> None:
    def table(layers: int) -> CostTable:
        node = np.zeros((layers, 2), np.int64)
        return CostTable(node, np.zeros((layers - 1, 2, 2), np.int64), chain_ends(layers))

    brute: Solver = SOLVERS["brute"]()
    assert brute.accepts(table(24)) is None
    assert "33,554,432" in (brute.accepts(table(25)) or "")
    assert "2^10000" in (brute.accepts(table(10_000)) or "")


@pytest.mark.parametrize(
    ("name", "assignment"), [("data", (0, 0, 0)), ("model", (1, 1, 1)), ("trick", (0, 0, 1))]
)
def test_the_baselines_go_by_the_kind_of_layer(name: str, assignment: tuple[int, ...]) -> None:
    node = np.arange(6).reshape(3, 2)
    edge = np.arange(8).reshape(2, 2, 2)
    table = CostTable(node, edge, chain_ends(3), kinds=("conv", "conv", "fc"))
    result = solve_checked(SOLVERS[name](), table)
    assert result.assignment == assignment
    assert result.status is Status.FEASIBLE
    assert result.bound is None
