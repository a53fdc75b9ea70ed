"""What every solver in the table must keep, whoever wrote it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.search.check_result import check_claim
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import Solver, SolverOptions, Status
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from tests.clocks import tick_when_read
from tests.solvers.graphs import optimum
from tests.strategies.tables import tables

EXACT = [name for name in SOLVERS if SOLVERS[name].searches]


@pytest.mark.parametrize("name", SOLVERS)
@given(table=tables(longest=8))
def test_an_answer_is_the_canonical_optimum_or_claims_none(name: str, table: CostTable) -> None:
    solver: Solver = SOLVERS[name]()
    if solver.accepts(table) is not None:
        # Every solver of ours takes a chain, but not any two choices are a cut.
        assert not table.is_chain or name == "cut"
        return
    result = solver.solve(table, SolverOptions())
    best = optimum(table)
    if result.status is Status.INFEASIBLE or best is None:
        assert result.status is Status.INFEASIBLE
        assert best is None or not solver.searches
        return
    check_claim(table, result)
    cost, assignment = best
    if result.status is Status.OPTIMAL:
        assert (result.bound, result.assignment) == (cost, assignment)
    else:
        assert result.bound is None or result.bound <= cost
    if solver.searches:
        assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("name", EXACT)
@given(table=tables(longest=4))
def test_costs_beyond_int64_are_exact(name: str, table: CostTable) -> None:
    """Programs take them where a common factor leaves little."""
    huge = 2**70
    beyond = replace(
        table, node=table.node.astype(object) * huge + 2**90, edge=table.edge.astype(object) * huge
    )
    solver: Solver = SOLVERS[name]()
    if solver.accepts(beyond) is None:
        result = solver.solve(beyond, SolverOptions())
        assert (result.assignment and (result.objective, result.assignment)) == optimum(beyond)


@given(tables(longest=8), st.integers(1, 4), st.sampled_from([2, 3, 6]))
def test_thresholds_are_answered_the_same_in_blocks_of_any_size(
    table: CostTable, levels: int, parts: int
) -> None:
    if table.is_chain and table.choices == 2:
        data, model = table.node.T.tolist()
        dd, dm, md, mm = table.edge.reshape(-1, 4).T.tolist()
        ends = [(int(u), int(v)) for u, v in table.ends]
        thresholds = ThresholdTable(data, model, ends, (dd, dm, md, mm), levels, parts)
        unblocked = DynamicProgramming().solve(thresholds, SolverOptions())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hypar_opt.solvers.dynamic_programming._BLOCK", 2)
            blocks = DynamicProgramming().solve(thresholds, SolverOptions())
        assert blocks == unblocked
        free = thresholds.as_one_table()
        assert unblocked == DynamicProgramming().solve(free, SolverOptions())


@pytest.mark.parametrize("name", SOLVERS)
def test_a_summary_says_what_is_guaranteed(name: str) -> None:
    assert SOLVERS[name].summary


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
    baselines = {"data": (0, 0, 0), "model": (1, 1, 1), "trick": (0, 0, 1)}
    table = CostTable(node, edge, chain_ends(3), baselines)
    result = SOLVERS[name]().solve(table, SolverOptions())
    assert result.assignment == assignment
    assert result.status is Status.FEASIBLE
    assert result.bound is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"node": np.zeros((2, 2))}, "whole number"),
        ({"node": np.full((2, 2), -1)}, "negative"),
        ({"node": np.full((2, 2), 2**62)}, "may not fit int64"),
        ({"node": np.zeros((2, 2), object)}, "one type"),
        ({"edge": np.zeros((1, 3, 3), np.int64)}, "do not fit"),
        ({"ends": np.array([[1, 1]])}, "from a layer to another"),
    ],
)
def test_a_table_that_would_not_be_exact_cannot_be_made(
    changes: dict[str, np.ndarray], complaint: str
) -> None:
    table = CostTable(np.zeros((2, 2), np.int64), np.zeros((1, 2, 2), np.int64), chain_ends(2))
    with pytest.raises(ValueError, match=complaint):
        replace(table, **changes)  # type: ignore[arg-type]


def hard_table(name: str) -> CostTable:
    """A table that the solver looks at the clock for many times, or that it cannot finish."""
    rng = np.random.default_rng(0)
    layers = {"dp": 100_000, "brute": 20, "cut": 400}.get(name, 60)
    ends = chain_ends(layers)
    if name not in {"dp", "brute"}:
        ends = np.stack(np.triu_indices(layers, 1), axis=1)
    edge = rng.integers(0, 10**6, (len(ends), 2, 2))
    if name == "cut":
        edge[:, [0, 1], [0, 1]] = 0
    return CostTable(node=rng.integers(0, 10**6, (layers, 2)), edge=edge, ends=ends)


@pytest.mark.parametrize(
    "name", [n for n in SOLVERS if "time_limit" in SOLVERS[n].supported_options]
)
def test_a_time_limit_ends_the_search_and_the_answer_says_so(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver: Solver = SOLVERS[name]()
    table = hard_table(name)
    limit = 3.0
    if name in {"ilp", "cpsat"}:  # the backend keeps to the limit itself, and would take days
        limit = 0.5
    else:
        tick_when_read(monkeypatch)
    if name == "cut":  # one minimum cut is not interrupted
        limit = 0.5
    result = solver.solve(table, SolverOptions(time_limit=limit))
    assert result.stopped_by == "time limit"
    if result.assignment is None:
        assert result.status is Status.NO_ANSWER
    else:
        assert result.status is Status.FEASIBLE
        check_claim(table, result)
