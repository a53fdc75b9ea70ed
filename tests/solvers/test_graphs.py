"""Exact solvers on graphs: minimum cuts, elimination and enumeration find the same plan."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.costs.table import CostTable, chain_ends, side_by_side
from hypar_opt.deadline import NEVER
from hypar_opt.errors import RefusedError
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import Solver, SolverOptions
from hypar_opt.solvers.elimination.order import elimination_order
from hypar_opt.solvers.elimination.solve import eliminated
from tests.slow import slow_after
from tests.solvers.graphs import (
    blocks,
    grid,
    optimum,
    random_graph,
    thresholds,
    with_forbidden,
)

OPTIONS = SolverOptions()
DP: Solver = SOLVERS["dp"]()
CUT: Solver = SOLVERS["cut"]()
SEEDS = st.integers(0, 2**32 - 1)


def solved(solver: Solver, table: object) -> tuple[int | None, tuple[int, ...] | None]:
    assert solver.accepts(table) is None
    result = solver.solve(table, OPTIONS)
    return result.objective, result.assignment


@pytest.mark.parametrize("submodular", [True, False])
@pytest.mark.parametrize("seed", slow_after(2, range(50)))
def test_a_cut_is_the_optimum_of_elimination_and_of_enumeration(
    submodular: bool, seed: int
) -> None:
    """Of 200 graphs at once: side by side they are one table, whose optimum is theirs."""
    rng = np.random.default_rng([seed, submodular])
    graphs = [
        random_graph(rng, int(layers), int(rng.integers(1, 2 * layers + 1)), submodular=submodular)
        for layers in rng.integers(2, 8, 200)
    ]
    if seed % 2:
        graphs = [with_forbidden(rng, table) for table in graphs]
    together = side_by_side(graphs)
    if seed % 2:
        allowed = [table.allowed for table in graphs if table.allowed is not None]
        together = replace(together, allowed=np.concatenate(allowed))
    best = [optimum(table) for table in graphs]
    costs = [found[0] for found in best if found is not None]
    plan = [choice for found in best if found is not None for choice in found[1]]
    assert solved(DP, together) == (sum(costs), tuple(plan))
    if submodular:
        assert solved(CUT, together) == (sum(costs), tuple(plan))
    else:
        assert "cost less with unlike choices" in (CUT.accepts(together) or "")


@given(SEEDS, st.integers(1, 7), st.integers(2, 4), st.booleans())
def test_elimination_finds_the_canonical_optimum_of_any_choices(
    seed: int, layers: int, choices: int, forbidden: bool
) -> None:
    rng = np.random.default_rng(seed)
    edges = int(rng.integers(0, 2 * layers)) if layers > 1 else 0
    table = random_graph(rng, layers, edges, choices, largest=int(rng.integers(0, 4)))
    if forbidden:
        table = with_forbidden(rng, table, 0.4)
    assert solved(DP, table) == optimum(table)
    huge = replace(
        table, node=table.node.astype(object) * 10**30, edge=table.edge.astype(object) * 10**30
    )
    cost, plan = optimum(table) or (0, ())
    assert solved(DP, huge) == (cost * 10**30, plan)


@given(SEEDS, st.integers(2, 4), st.integers(1, 4), st.sampled_from([2, 3, 6]), st.booleans())
def test_all_thresholds_are_solved_as_one_table_is(
    seed: int, layers: int, levels: int, parts: int, submodular: bool
) -> None:
    rng = np.random.default_rng(seed)
    table = random_graph(rng, layers, 2 * layers, submodular=submodular)
    joint = thresholds(table, levels, parts)
    expected = [optimum(threshold) for threshold in joint.tables()]
    cost = sum(found[0] for found in expected if found is not None)
    plan = tuple(choice for found in expected if found is not None for choice in found[1])
    assert solved(DP, joint) == (cost, plan)
    if submodular:
        assert solved(CUT, joint) == (cost, plan)
        answers = np.reshape(plan, (levels, -1))
        assert (answers[1:] <= answers[:-1]).all()  # at t levels or more: at t - 1 too


@given(SEEDS)
def test_the_largest_unit_is_divided_out_where_charges_exceed_64_bits(seed: int) -> None:
    table = random_graph(np.random.default_rng(seed), 5, 8, submodular=True)
    unit = 2**70
    huge = replace(
        table, node=table.node.astype(object) * unit, edge=table.edge.astype(object) * unit
    )
    cost, plan = optimum(table) or (0, ())
    assert solved(CUT, huge) == (cost * unit, plan)
    beside = replace(huge, node=huge.node + np.array([[0, 1]]))
    assert "int64" in (CUT.accepts(beside) or "")
    assert solved(DP, beside) == optimum(beside)


def test_a_cut_refuses_by_name() -> None:
    table = random_graph(np.random.default_rng(0), 4, 0, choices=3)
    assert "two choices per layer, and this table has 3" in (CUT.accepts(table) or "")
    table = random_graph(np.random.default_rng(0), 4, 0)
    limited = replace(table, limits=((table.node, 3),))
    assert "capacity" in (CUT.accepts(limited) or "")
    unlike = CostTable(table.node, np.array([[[1, 0], [0, 1]]]), np.array([[3, 1]]))
    assert "layers 1 and 3" in (CUT.accepts(unlike) or "")
    # Two edges of a pair are one: together they may be a cut.
    both = CostTable(
        table.node, np.array([[[1, 0], [0, 1]], [[0, 2], [2, 0]]]), np.array([[3, 1], [1, 3]])
    )
    assert solved(CUT, both) == optimum(both)


def limited_graph(rng: np.random.Generator) -> CostTable:
    """Return a small graph or chain with one to three limits, many of which allow little.

    Where one load is more another may be less, as in unequal groups. Most costs tie.
    """
    layers, choices = int(rng.integers(1, 8)), int(rng.integers(2, 4))
    chain = rng.random() < 0.5
    edges = layers - 1 if chain else int(rng.integers(0, 2 * layers)) * (layers > 1)
    table = random_graph(rng, layers, edges, choices, largest=int(rng.choice([0, 2, 9])))
    if chain:
        table = replace(table, ends=chain_ends(layers))
    if rng.random() < 0.4:
        table = with_forbidden(rng, table, 0.3)
    largest = int(rng.choice([2, 9]))
    loads = [rng.integers(0, 1 + largest, table.node.shape) for _ in range(rng.integers(1, 4))]
    if rng.random() < 0.5:
        loads[-1] = largest - loads[0]
    limits = []
    for load in loads:
        least, most = (int(of_layers.sum()) for of_layers in (load.min(axis=1), load.max(axis=1)))
        limits.append((load, int(least - 1 + rng.random() * (most - least + 3))))
    return replace(table, limits=tuple(limits))


@pytest.mark.parametrize("part", slow_after(1, range(20)))
def test_elimination_finds_the_canonical_optimum_within_capacities(part: int) -> None:
    for seed in range(50 * part, 50 * (part + 1)):
        table, unit = limited_graph(np.random.default_rng(seed)), 10**30
        cost, plan = optimum(table) or (None, None)
        assert solved(DP, table) == (cost, plan), seed
        (load, capacity), *others = table.limits
        huge = replace(
            table,
            node=table.node.astype(object) * unit,
            edge=table.edge.astype(object) * unit,
            limits=((load.astype(object) * unit, capacity * unit), *others),
        )
        assert solved(DP, huge) == (cost and cost * unit, plan), seed


def test_elimination_refuses_tables_beyond_memory() -> None:
    ring = random_graph(np.random.default_rng(0), 4, 0)
    ring = replace(
        ring, edge=np.zeros((4, 2, 2), np.int64), ends=np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    )
    refusal = DP.accepts(grid(40)) or ""
    assert "needs a table of 2^" in refusal
    assert "ilp or cpsat" in refusal
    pairs = np.stack(np.triu_indices(60, 1), axis=1)
    dense = CostTable(np.zeros((60, 2), np.int64), np.zeros((len(pairs), 2, 2), np.int64), pairs)
    assert "needs a table of 2^60 entries or more" in (DP.accepts(dense) or "")


def width(table: CostTable) -> float:
    return DP.solve(table, OPTIONS).statistics["width"]


def test_a_refusal_keeps_nothing_of_its_callers() -> None:
    class Table:
        pass

    def refused() -> weakref.ref[Table]:
        table = Table()
        with pytest.raises(RefusedError, match="needs a table of 2"):
            elimination_order((2,) * 30, tuple(combinations(range(30), 2)))
        return weakref.ref(table)

    gc.disable()
    try:
        # Without the collection of cycles, that of an error and of the frame that holds it.
        assert refused()() is None
    finally:
        gc.enable()


def test_the_width_is_that_of_the_graph() -> None:
    rng = np.random.default_rng(0)
    star = np.array([[0, leaf] for leaf in range(1, 9)])
    tree = CostTable(rng.integers(0, 9, (9, 2)), rng.integers(0, 9, (8, 2, 2)), star)
    assert width(tree) == 1
    assert width(blocks(12)) == 2
    assert width(replace(blocks(1), node=np.zeros((10, 2), np.int64))) == 2
    assert [width(grid(side)) for side in (2, 3, 4, 5)] == [2, 3, 4, 5]
    three = CostTable(rng.integers(0, 9, (9, 3)), rng.integers(0, 9, (8, 3, 3)), star)
    result = DP.solve(three, OPTIONS)
    assert (result.statistics["width"], result.statistics["entries"]) == (1, 9)


def test_a_network_of_many_blocks_has_one_plan() -> None:
    table = blocks(96, np.random.default_rng(3))
    assert solved(DP, table) == solved(CUT, table)
    assert solved(DP, thresholds(table, 4)) == solved(CUT, thresholds(table, 4))


def test_equal_blocks_are_eliminated_alike_from_inside() -> None:
    """Though each tells the ends of its chain further apart: many have the large tables of few."""

    def large(count: int) -> int:
        table = blocks(count)
        drift = np.broadcast_to([0, 1], table.node.shape)
        drifting = replace(table, node=drift, edge=10**6 * (table.edge > 0))
        found = eliminated(drifting, NEVER)
        scopes = zip(found.kinds, found.order.scopes, strict=True)
        return len({kind for kind, scope in scopes if len(scope) == 2})

    assert large(40) == large(8)


def test_an_order_is_found_by_the_size_of_tables() -> None:
    """The hub of a star has the fewest choices, and the fewest neighbours at the end."""
    order = elimination_order((2, 9, 9, 9), ((0, 1), (0, 2), (0, 3)))
    assert order.width == 1
    assert order.largest == 18
    assert all(order.layers.index(n) > order.layers.index(leaf) for leaf, n in [(1, 0), (2, 0)])
    long = elimination_order((3,) * 3000, tuple((n, n + k) for k in (1, 2) for n in range(2998)))
    assert (long.width, long.largest) == (2, 27)
    assert sorted(long.layers) == list(range(3000))


@given(SEEDS)
def test_messages_are_the_same_in_slices_of_any_size(seed: int) -> None:
    table = random_graph(np.random.default_rng(seed), 5, 7, choices=3)
    whole = eliminated(table, NEVER)
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("_AT_ONCE", "_CACHED"):
            patch.setattr(f"hypar_opt.solvers.elimination.buckets.{limit}", 1)
        sliced = eliminated(table, NEVER)
    for left, right in zip(whole.messages, sliced.messages, strict=True):
        assert (left.at(0) == right.at(0)).all()


def test_many_layers_of_one_choice_around_a_free_one_are_no_axes_of_its_table() -> None:
    """Each of 40 layers is charged with each other; numpy's arrays have 32 axes at most."""
    rng, layers = np.random.default_rng(1), 40
    ends = np.array([*combinations(range(layers), 2)])
    allowed = np.zeros((layers, 3), bool)
    allowed[:, 0] = True
    allowed[[7, 21]] = True
    node = rng.integers(0, 99, (layers, 3))
    table = CostTable(node, rng.integers(0, 99, (len(ends), 3, 3)), ends, allowed=allowed)

    best, _ = solved(DP, table)
    rest = [0] * 13
    assert best == min(
        table.price([*rest[:7], first, *rest, second, *rest, *rest[:5]])
        for first, second in product(range(3), repeat=2)
    )
