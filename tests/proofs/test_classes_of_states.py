"""Certificates of classes of states: a bound whatever the classes, tight where levels are alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.certificate import read_certificate, write_certificate
from hypar_opt.proofs.check.tables import ReferenceTable, tables_of
from hypar_opt.proofs.graphs import (
    Cells,
    EliminationProof,
    alike_levels,
    bound_of,
    optimum,
    prove,
)
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after
from tests.solvers.graphs import optimum as optimum_by_exhaustion

SEEDS = st.integers(0, 2**32 - 1)
GROUPS = [(0, 0), (0, 1), (0, 0, 0), (0, 1, 0), (0, 1, 1)]
ENDS = np.array([[0, 1], [2, 1], [0, 2], [3, 2], [0, 1]])
"""A triangle, with an edge twice, and a layer beside it."""


def table_of(seed: int, groups: tuple[int, ...], *, swaps: bool = True) -> ReferenceTable:
    """Return a table of two choices at each level, some of whose states are forbidden.

    Parameters
    ----------
    swaps
        Whether edges charge what swaps levels of a group, in both ends, as before; nodes do not.
    """
    rng = np.random.default_rng(seed)
    states = np.array([*itertools.product(range(2), repeat=len(groups))]).T
    charges = [rng.integers(0, 9, (states.shape[1],) * 2) for _ in range(2)]
    if swaps:  # by how often a group has each pair of choices
        pairs = 2 * states[:, :, None] + states[:, None]
        counts = np.stack(
            [
                (pairs[np.equal(groups, group)] == pair).sum(axis=0)
                for group in sorted({*groups})
                for pair in range(4)
            ]
        )
        kinds = np.unique(counts.reshape(len(counts), -1), axis=1, return_inverse=True)[1]
        charges = [
            rng.integers(0, 9, kinds.max() + 1)[kinds].reshape(pairs.shape[1:]) for _ in "ab"
        ]
    node = rng.integers(0, 1 + 4 * (seed % 3), (4, states.shape[1]))
    allowed = rng.random(node.shape) < 0.8
    allowed[:, rng.integers(states.shape[1])] = True
    return ReferenceTable(
        node, charges, np.array([0, 1, 1, 0, 1]), ENDS, 1, states, allowed if seed % 2 else None
    )


def minimum(table: ReferenceTable) -> int:
    optimal = optimum_by_exhaustion(table.by_edge)
    assert optimal is not None
    return optimal[0]


def proof_of(table: ReferenceTable, enough: int) -> EliminationProof:
    proof = prove(table, enough)
    assert isinstance(proof, EliminationProof)
    return proof


def bound(table: ReferenceTable, proof: EliminationProof) -> int | None:
    """Return what a proof proves; None if it is refused."""
    try:
        return bound_of(table, proof, "tables[0]")
    except CheckFailedError:
        return None


@given(SEEDS, st.sampled_from(GROUPS))
def test_classes_prove_the_optimum_of_all_states(seed: int, groups: tuple[int, ...]) -> None:
    """Of classes alone it is a bound; refined where these cost less it is the optimum."""
    table = table_of(seed, groups)
    group_of = alike_levels(table)
    if len({*groups}) < len(groups):
        assert group_of is not None
        assert all(group_of[n] == group_of[m] for n, m in pairs_of(groups))
    assert bound(table, proof_of(table, minimum(table))) == minimum(table)
    by_class = bound(table, proof_of(table, 0))
    assert by_class is not None
    assert by_class <= minimum(table)


def pairs_of(groups: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the pairs of levels that are of one group."""
    levels = itertools.combinations(range(len(groups)), 2)
    return [(n, m) for n, m in levels if groups[n] == groups[m]]


@given(SEEDS, st.sampled_from(GROUPS), st.booleans())
def test_classes_of_levels_that_are_not_alike_prove_no_more_than_the_optimum(
    seed: int, groups: tuple[int, ...], refined: bool
) -> None:
    """No proof rests on levels that are alike: it is only less tight where they are not."""
    table = table_of(seed, groups, swaps=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hypar_opt.proofs.graphs.alike_levels", lambda _: groups)
        proof = proof_of(table, minimum(table) if refined else 0)
    proved = bound(table, proof)
    assert proved is not None
    assert proved == minimum(table) if refined else proved <= minimum(table)


@given(SEEDS, st.sampled_from(GROUPS))
def test_the_optimum_by_classes_is_the_canonical_one(seed: int, groups: tuple[int, ...]) -> None:
    table = table_of(seed, groups)
    cost, assignment = optimum(table, alike_levels(table))
    assert (cost, tuple(assignment)) == optimum_by_exhaustion(table.by_edge)


def changes(value: Any, steps: tuple[int, ...]) -> Iterator[Any]:
    """Yield a number, or rows of numbers of which one is, changed by each of some steps."""
    if isinstance(value, int):
        yield from (value + step for step in steps)
        return
    for index, part in enumerate(value):
        yield from ((*value[:index], new, *value[index + 1 :]) for new in changes(part, steps))


@pytest.mark.parametrize("seed", slow_after(5, range(40)))
def test_no_number_of_a_certificate_can_be_changed_to_prove_more(seed: int) -> None:
    table = table_of(seed, GROUPS[seed % len(GROUPS)])
    proof, optimal = proof_of(table, minimum(table)), minimum(table)
    for key, numbers in proof:
        for changed in changes(numbers or (), (-1, 1, 2, 10**30)):
            proved = bound(table, proof.model_copy(update={key: changed}))
            assert proved is None or proved <= optimal
        if key in ("messages", "constants"):
            for changed in changes(numbers, (1, 10**30)):  # each is the least of its bucket
                assert bound(table, proof.model_copy(update={key: changed})) is None


@given(SEEDS, st.sampled_from(GROUPS))
def test_cells_are_charged_what_the_cheapest_of_their_states_are(
    seed: int, groups: tuple[int, ...]
) -> None:
    table = table_of(seed, groups, swaps=False)
    cells = Cells(table, groups, ((0,), (), (1, 2), ()))
    of_layer = [
        [part.tolist() for part in np.split(layer.columns, layer.starts[1:])]
        for layer in cells.layers
    ]
    for row, parts, columns in zip(cells.node, of_layer, table.columns, strict=True):
        assert sorted(itertools.chain(*parts)) == columns.tolist()
        assert len(row) == len(parts)
    for layer, parts in enumerate(of_layer):
        for part, charge in zip(parts, cells.node[layer], strict=True):
            assert charge == table.node[layer, part].min()
    for charges, kind, (u, v) in zip(cells.edge, table.kinds, ENDS, strict=True):
        for (n, rows), (m, columns) in itertools.product(
            enumerate(of_layer[u]), enumerate(of_layer[v])
        ):
            assert charges[n, m] == table.charges[kind][np.ix_(rows, columns)].min()


def gpt2(**options: Any) -> ho.Plan:
    asked: Any = {"search": "joint", "reading": "executed", "choices": CHOICES, "overlap": "none"}
    return ho.solve("gpt2", **asked, **options)


def test_gpt2_is_proved_at_five_levels_in_a_small_file(tmp_path: Path) -> None:
    """Blocks share messages: with one for each layer's states they would be 243^3 entries."""
    plan, file = gpt2(batch=64, levels=5), tmp_path / "proof.json"
    write_certificate(ho.certify(plan), file)
    certificate = read_certificate(file)
    assert ho.check_certificate(plan, certificate) == plan.cost.total
    assert file.stat().st_size < 2**20
    (proof,) = certificate.tables
    assert isinstance(proof, EliminationProof)
    assert proof.groups == (0,) * 5
    assert len(proof.messages) < len(proof.order) / 4
    assert max(map(len, proof.messages)) == 21**2  # counts of three choices that add up to five


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ({"batch": 48, "hierarchy": (2, 3, 2)}, (0, 1, 0)),
        ({"batch": 16, "levels": 3, "level_weights": (4, 1, 1)}, (0, 1, 1)),
        ({"batch": 16, "levels": 3, "constraints": {"fix": ("decoder.*.add1=data",)}}, (0, 0, 0)),
        # A single layer is told at which level to be split: its class has fewer states.
        ({"batch": 16, "levels": 3, "constraints": {"fix": ("head@H2=model",)}}, (0, 0, 0)),
        ({"batch": 16, "array": "h100-8", "bucket": 0}, (0, 0, 0)),
    ],
)
def test_levels_are_alike_that_swap_places_at_the_same_charge(
    options: dict[str, Any], groups: tuple[int, ...]
) -> None:
    plan = gpt2(**options)
    certificate = ho.certify(plan)
    assert ho.check_certificate(plan, certificate) == plan.cost.total
    (proof,) = certificate.tables
    assert isinstance(proof, EliminationProof)
    assert proof.groups == groups


def test_a_network_whose_classes_leave_a_gap_is_proved_by_states_of_some() -> None:
    options: dict[str, Any] = {"batch": 48, "hierarchy": (2, 3, 2, 2), "choices": CHOICES}
    plan = ho.solve("resnet-18", **options, search="joint", reading="executed")
    certificate = ho.certify(plan)
    (proof,) = certificate.tables
    assert isinstance(proof, EliminationProof)
    assert proof.refined is not None
    assert ho.check_certificate(plan, certificate) == plan.cost.total
    (table,) = tables_of(plan)
    by_class = bound(table, proof_of(table, 0))
    assert by_class is not None
    assert table.in_units(by_class) < plan.cost.total
