"""Of all flows that a file may hold, none proves more than the optimum, and one proves it.

Every flow of small numbers is tried on small tables: whatever the check of a flow leaves out is
in one of them.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hypar_opt.costs.table import CostTable
from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.graphs import EliminationProof, FlowProof, bound_of, prove
from tests.solvers.graphs import optimum

PAIR = [(0, 1)]
CHAIN = [(0, 1), (2, 1)]
"""The second edge leads back."""


def submodular(
    rng: np.random.Generator, ends: list[tuple[int, int]], *, largest: int, fixed: bool
) -> CostTable:
    """Return a table of two choices with costs so small that its flows can be listed."""
    layers = 1 + max(map(max, ends))
    node = rng.integers(0, largest + 1, (layers, 2))
    edge = rng.integers(0, 2, (len(ends), 2, 2))
    # Submodular: alike costs no more than unlike.
    edge[:, 1, 1] = np.minimum(edge[:, 1, 1], edge[:, 0, 1] + edge[:, 1, 0])
    edge[:, 0, 0] = np.minimum(edge[:, 0, 0], edge[:, 0, 1] + edge[:, 1, 0] - edge[:, 1, 1])
    allowed = rng.integers(0, 2, (layers, 2)).astype(bool)
    allowed[~allowed.any(axis=1)] = True
    return CostTable(node, edge, np.array(ends), allowed=allowed if fixed else None)


def proved(table: CostTable, layer_flows: tuple[int, ...], pair_flows: tuple[int, ...]) -> int:
    """Return what a flow proves; less than any cost where it is refused."""
    try:
        return bound_of(table, FlowProof(layer_flows=layer_flows, pair_flows=pair_flows), "")
    except CheckFailedError:
        return -(10**9)


def least(table: CostTable) -> int:
    found = optimum(table)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("ends", "largest", "flows"), [(PAIR, 2, range(-4, 5)), (CHAIN, 1, range(-2, 3))]
)
@pytest.mark.parametrize("fixed", [False, True])
def test_every_flow_of_a_small_table_proves_its_optimum_or_less(
    ends: list[tuple[int, int]], largest: int, flows: range, fixed: bool
) -> None:
    rng = np.random.default_rng(0)
    for _ in range(15):
        table = submodular(rng, ends, largest=largest, fixed=fixed)
        most = max(
            proved(table, layers, pairs)
            for layers in itertools.product(flows, repeat=table.layers)
            for pairs in itertools.product(range(-1, 4), repeat=len(ends))
        )
        assert most == least(table)


@pytest.mark.parametrize("choices", list(itertools.product([0, 1], repeat=3)))
def test_layers_of_a_single_choice_are_charged_their_pairs(choices: tuple[int, ...]) -> None:
    """Of a table in which every layer is fixed there is one assignment: its cost is the bound."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        table = submodular(rng, [(0, 1), (1, 2), (2, 0)], largest=9, fixed=False)
        allowed = np.eye(2, dtype=bool)[list(choices)]
        fixed = CostTable(table.node, table.edge, table.ends, allowed=allowed)
        assert proved(fixed, (0,) * 3, (0,) * 3) == least(fixed)


def test_a_table_that_allows_a_layer_no_choice_is_proved_by_nothing() -> None:
    table = submodular(np.random.default_rng(2), PAIR, largest=2, fixed=False)
    allowed = np.array([[True, True], [False, False]])
    none = CostTable(table.node, table.edge, table.ends, allowed=allowed)
    flow = prove(table)
    assert isinstance(flow, FlowProof)
    for proof in (flow, EliminationProof(order=(0, 1), messages=((), (0,)))):
        with pytest.raises(CheckFailedError, match="a layer is allowed no choice"):
            bound_of(none, proof, "tables[0]")


def test_more_flow_out_of_a_layer_than_into_it_is_refused_by_name() -> None:
    """It would prove nothing wrong, and yet is no flow."""
    node = np.array([[5, 0], [0, 5]])
    table = CostTable(node, np.array([[[0, 3], [3, 0]]]), np.array(PAIR))
    full = prove(table)
    assert isinstance(full, FlowProof)
    lesser = tuple(min(flow, 0) for flow in full.layer_flows)
    with pytest.raises(CheckFailedError, match=r"-\d more flow into layer \d than out of it"):
        bound_of(table, FlowProof(layer_flows=lesser, pair_flows=full.pair_flows), "tables[0]")
