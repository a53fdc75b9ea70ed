"""Proofs level by level around rings: where no reduction joins several levels."""

from __future__ import annotations

from fractions import Fraction

import pytest

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.errors import RefusedError
from hypar_opt.hardware import arrays as presets
from hypar_opt.hardware.array import Array
from hypar_opt.instance.pricing import price_table
from hypar_opt.proofs.reference.tables import tables_of
from hypar_opt.workload.parallelism import CHOICES
from tests.strategies.plans import Asked
from tests.strategies.written_plans import fully_connected, with_collective, written


def rings(name: str) -> Array:
    """A preset of pairs whose reductions go around rings of links that take energy."""
    array = with_collective(presets.load(name), "ring")
    energy = array.energies.model_copy(update={"hop": Fraction(1, 10**12)})
    return array.model_copy(update={"energy": energy})


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("cost", ["time", "energy"])
def test_a_level_has_no_proof_where_a_ring_joins_it_with_others(
    cost: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COSTS._built_in, "theirs", COSTS._built_in[cost])
    asked: Asked = {"cost": "theirs" if own else cost, "array": rings("hmc-htree-4")}
    write = written(fully_connected(4, 4, 4), "level", **asked)
    refusal = "a reduction joins several levels, as around a ring: a proof needs search='joint'"
    with pytest.raises(RefusedError, match=refusal):
        tables_of(write(((0, 1), (1, 1))))
    rows = ((0, 1), (1, 0))  # gradients are reduced at one level, sums of the output at the other
    plan = write(rows)
    added = [
        table.in_units(price_table(table, row))
        for table, row in zip(tables_of(plan), rows, strict=True)
    ]
    assert sum(added) == plan.cost.total


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("cost", ["time", "energy"])
@pytest.mark.parametrize("choices", [2, 3])
def test_a_ring_of_one_level_is_proved_by_the_table_of_all_levels(
    cost: str, choices: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COSTS._built_in, "theirs", COSTS._built_in[cost])
    asked: Asked = {"cost": "theirs" if own else cost, "array": rings("hmc-htree-2")}
    asked["choices"] = CHOICES[:choices]
    level, joint = (
        tables_of(written(fully_connected(4, 6, 2, 5), scope, **asked)(((1, 0, 1),)))
        for scope in ("level", "joint")
    )
    for ours, theirs in zip(level, joint, strict=True):
        assert (ours.node == theirs.node).all()
        assert (ours.edge == theirs.edge).all()
    plan = ho.solve("lenet-c", search="levelwise", **asked)
    ho.check_certificate(plan, ho.certify(plan))
