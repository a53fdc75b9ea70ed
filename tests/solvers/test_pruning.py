"""The states that assignments of at most a cost can have, against every assignment there is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.costs.row_names import RowNames
from hypar_opt.costs.table import CostTable
from hypar_opt.deadline import NEVER
from hypar_opt.errors import InfeasibleError
from hypar_opt.solvers.elimination.limited import classes_of
from hypar_opt.solvers.elimination.pruning import program_columns, pruned_states
from hypar_opt.solvers.ilp.formulate import formulate
from tests.slow import examples
from tests.strategies.tables import tables


def priced(table: CostTable) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Every assignment that is allowed, with its cost."""
    allowed = np.ones(table.node.shape, bool) if table.allowed is None else table.allowed
    for assignment in itertools.product(*(np.flatnonzero(row).tolist() for row in allowed)):
        yield table.price(assignment), assignment


def pruned(table: CostTable, most: int) -> PrunedTable:
    classes = classes_of(table)
    states, cutoff = pruned_states(classes, most, NEVER)
    every = [(state,) for state in range(table.choices)]
    words = [list(map(str, range(table.choices)))] * table.layers
    names = [f"layer {layer}" for layer in range(table.layers)]
    return PrunedTable.of(classes, states, cutoff, RowNames(names, words, ("H1",), every))


@examples(400)
@given(table=tables(longest=5), most=st.integers(0, 120))
def test_all_assignments_up_to_the_cutoff_are_left(table: CostTable, most: int) -> None:
    table = replace(table, limits=())
    every = list(priced(table))
    if not every:
        with pytest.raises(InfeasibleError):
            pruned(table, most)
        return
    left = pruned(table, most)
    lowest = min(cost for cost, _ in every)
    assert left.cutoff >= lowest
    for cost, assignment in every:
        if cost <= left.cutoff:
            assert all(state in row for state, row in zip(assignment, left.states, strict=True))
    count = program_columns(left.states, classes_of(table))
    assert count <= most or left.cutoff == lowest
    assert len(formulate(left).costs) == count
    for layer, row in enumerate(left.states):
        names = [left.labels.choice(layer, column) for column in range(len(row))]
        assert names == list(map(str, row))


@examples(100)
@given(table=tables(longest=5), most=st.integers(0, 120))
def test_what_is_left_costs_the_same(table: CostTable, most: int) -> None:
    table = replace(table, limits=(), allowed=None)
    left = pruned(table, most)
    assert left.max_total <= table.max_total
    for columns in itertools.product(*(range(len(row)) for row in left.states)):
        assert left.price(columns) == table.price(left.assignment(columns))
