"""Proofs cannot be forged: of every plan of small problems only an optimal one is ever proved."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.table import CostTable
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_table
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.certificate import Certificate, Proof, _digest
from hypar_opt.proofs.chains import TableProof, prove_chain
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.proofs.check.tables import tables_of
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import examples, slow_after
from tests.strategies.graph_problems import every_plan_of, random_graph_problem
from tests.strategies.networks import networks
from tests.strategies.plans import Asked, Rows
from tests.strategies.tables import tables
from tests.strategies.written_plans import (
    choosing,
    every_rows,
    fully_connected,
    in_parts,
    written,
)

CASES: list[tuple[tuple[int, ...], str, Asked]] = [
    *(
        (features, scope, {"reading": reading, "element_bytes": size})
        for size, reading, scope, features in [
            (1, "text", "joint", (8, 1)),
            (2, "text", "joint", (8, 1)),
            (2, "tables", "joint", (3, 2, 5)),
            (1, "figures", "joint", (3, 2, 5)),
            (2, "executed", "joint", (2, 7, 3)),
            (2, "figures", "level", (5, 1, 4)),
        ]
    ),
    ((3, 2, 5, 2), "joint", {"reading": "text", "levels": 1}),
    ((3, 2, 5), "joint", {"reading": "text", "level_weights": (3, 1)}),
    ((3, 2, 5), "joint", {"reading": "tables", "levels": 1, "choices": CHOICES}),
    ((5, 3), "joint", {"reading": "text", "choices": CHOICES}),
    ((5, 3, 2), "level", {"reading": "text", "levels": 1, "choices": CHOICES}),
    ((3, 2, 5), "joint", {"reading": "executed", "levels": 1, "choices": CHOICES}),
    ((5, 3), "joint", {"reading": "executed", "choices": CHOICES}),
    ((3, 2, 5), "joint", {"reading": "text", "constraints": {"fix": ("fc1=model",)}}),
    ((3, 2, 5), "joint", {"reading": "figures", "constraints": {"fix": ("fc2=data",)}}),
    ((4, 2, 6), "joint", {"reading": "text", "batch": 2, "constraints": {"even": True}}),
    ((4, 2, 6), "level", {"reading": "text", "batch": 2, "constraints": {"even": True}}),
    *(
        (features, scope, {"reading": "executed", "whole_levels": True, **asked})
        for features, scope, asked in [
            ((3, 2, 5), "joint", {"batch": 6, "hierarchy": (6,), "levels": 1}),
            ((5, 3), "joint", {"batch": 3, "hierarchy": (3, 3)}),
            ((5, 3), "joint", {"batch": 12, "hierarchy": (4, 6), "element_bytes": 1}),
            ((5, 3), "level", {"batch": 6, "hierarchy": (2, 3), "choices": CHOICES}),
            ((6, 4, 6), "joint", {"batch": 6, "hierarchy": (3, 2), "constraints": {"even": True}}),
            ((5, 3, 2), "level", {"batch": 5, "hierarchy": (5,), "levels": 1, "choices": CHOICES}),
        ]
    ),
]
"""Features of fully-connected layers, a scope, and what is asked."""

MORE_CASES: list[tuple[tuple[int, ...], str, Asked]] = [
    ((3, 2, 5), "joint", {"reading": "text", "element_bytes": 4}),
    ((5, 1, 4), "joint", {"reading": "figures", "element_bytes": 8}),
    ((3, 2, 5), "level", {"reading": "text", "element_bytes": 1}),
    ((2, 7, 3), "level", {"reading": "tables", "element_bytes": 8}),
]


def plans_of(features: tuple[int, ...], scope: str, asked: Asked) -> dict[Rows, ho.Plan]:
    """Return every plan of a small problem that keeps to its constraints."""
    network = fully_connected(*features)
    asked = {"batch": 4, "levels": 2, **asked}
    write = written(network, scope, **asked)
    limits = Instance(network, problem_of(**asked)).constraints
    choices = len(asked.get("choices", "dp"))
    every = every_rows(len(network.layers), asked["levels"], choices)
    return {rows: write(rows) for rows in every if limits.allow(rows)}


def is_optimal(rows: Rows, plans: dict[Rows, ho.Plan]) -> bool:
    """Whether no plan costs less; level by level: whether no other choice of a level does."""
    plan = plans[rows]
    if plan.solver.scope == "joint":
        return plan.cost.total == min(other.cost.total for other in plans.values())
    return all(
        plan.cost.per_level[h] <= other.cost.per_level[h]
        for h in range(plan.levels)
        for choices, other in plans.items()
        if choices[:h] == rows[:h]
    )


def changed(potentials: Any, by: int, where: Any) -> Any:
    """Return the potentials of one table with some of them changed."""
    table = np.array(potentials, object)
    table[where] += by
    return table.tolist()


def forgeries(proofs: Sequence[TableProof], gap: int) -> Iterator[list[TableProof]]:
    """Sets of potentials made of a table's tight ones, or of another plan's."""
    yield list(proofs)
    for factor in (2, 4):
        times = [(np.array(p.potentials, object) * factor).tolist() for p in proofs]
        yield [TableProof(potentials=t, scale=p.scale) for t, p in zip(times, proofs, strict=True)]
        yield [TableProof(potentials=t, scale=factor) for t in times]
        yield [TableProof(potentials=p.potentials, scale=factor) for p in proofs]
    for place, proof in enumerate(proofs):
        table = np.array(proof.potentials, object)
        rows = [(slice(None), slice(None)), *((row, slice(None)) for row in range(len(table)))]
        entries = itertools.product(range(len(table)), range(len(table[0])))
        for where in (*rows, *entries):
            for by in sorted({1, -1, gap, -gap} - {0}):
                forged = TableProof(potentials=changed(table, by, where))
                yield [*proofs[:place], forged, *proofs[place + 1 :]]


def of_the_last_plan(derivation: Callable[[ho.Plan], Any]) -> Callable[[ho.Plan], Any]:
    """Return a function that derives again only when it gets another plan."""
    last: list[Any] = [None, None]

    def derived(plan: ho.Plan) -> Any:
        if last[0] is not plan:
            last[:] = plan, derivation(plan)
        return last[1]

    return derived


def is_proved(plan: ho.Plan, proofs: Sequence[Proof]) -> bool:
    proof = Certificate(plan=_digest(plan), scope=plan.solver.scope, tables=tuple(proofs))
    try:
        ho.check_certificate(plan, proof)
    except CheckFailedError:
        return False
    return True


@pytest.mark.parametrize(
    ("features", "scope", "asked"), [*CASES, *slow_after(0, MORE_CASES)], ids=str
)
def test_no_potentials_prove_a_plan_that_is_not_optimal(
    features: tuple[int, ...], scope: str, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All forgeries of a plan are checked against the same tables.
    for derivation in (tables_of, price_of, _digest):
        once = of_the_last_plan(derivation)
        monkeypatch.setattr(f"hypar_opt.proofs.certificate.{derivation.__name__}", once)
    plans = plans_of(features, scope, asked)
    best = next(plan for rows, plan in plans.items() if is_optimal(rows, plans))
    of_best = list(ho.certify(best).tables)
    for rows, plan in plans.items():
        tables = tables_of(plan)
        tight = [prove_chain(table.by_edge) for table in tables]
        if is_optimal(rows, plans):
            assert is_proved(plan, tight)
            assert list(ho.certify(plan).tables) == tight
            continue
        gap = tables[0].resolution * (Fraction(plan.cost.total) - Fraction(best.cost.total))
        assert not any(is_proved(plan, proofs) for proofs in forgeries(tight, int(gap)))
        assert not is_proved(plan, of_best)
        with pytest.raises(ho.HyparError, match="no certificate: potentials prove"):
            ho.certify(plan)


@pytest.mark.parametrize(("search", "levels"), [("joint", 2), ("levelwise", 1)])
def test_a_plan_that_states_the_optimums_cost_and_makes_dearer_choices_is_refused(
    search: str, levels: int
) -> None:
    network = fully_connected(3, 8, 2)
    plan = ho.solve(network, search=search, levels=levels, batch=4)
    proof, write = ho.certify(plan), written(network, plan.solver.scope, levels=levels, batch=4)
    dearer = 0
    for rows in every_rows(len(plan.layers), plan.levels, 2):
        forged = choosing(plan, rows)
        certificate = proof.model_copy(update={"plan": _digest(forged)})
        if write(rows).cost.total == plan.cost.total:
            ho.check_certificate(forged, certificate)
            continue
        dearer += 1
        with pytest.raises(CheckFailedError, match="cost, total: the plan's own choices cost"):
            ho.check_certificate(forged, certificate)
    assert dearer


@examples(25)
@given(networks(longest=3), st.sampled_from(["levelwise", "joint"]), st.data())
def test_potentials_of_choices_that_are_not_allowed_do_not_matter(
    network: ho.Network, search: str, data: st.DataObject
) -> None:
    last = network.layers[-1].name
    pins = data.draw(st.sampled_from([("*=model",), (f"{last}=data",), (f"{last}@H2=model",), ()]))
    rules = st.sampled_from(["even", "runnable"])
    constraints = {"fix": pins, data.draw(rules): data.draw(st.booleans())}
    try:
        plan = ho.solve(network, search=search, batch=8, levels=2, constraints=constraints)
    except ho.HyparError:
        return  # no plan splits evenly
    certificate = ho.certify(plan)
    proofs = []
    for table, proof in zip(tables_of(plan), certificate.tables, strict=True):
        assert isinstance(proof, TableProof)
        potentials = np.array(proof.potentials, object)
        if table.allowed is not None:
            for where in zip(*np.nonzero(~table.allowed), strict=True):
                potentials[where] = data.draw(st.integers(-(10**20), 10**20))
        proofs.append(proof.model_copy(update={"potentials": potentials.tolist()}))
    ho.check_certificate(plan, certificate.model_copy(update={"tables": tuple(proofs)}))


def test_weights_of_more_bytes_than_64_bits_count_are_proved_where_layers_share_them() -> None:
    size = 2 * 10**9
    described = {
        "schema": "hypar-opt/network/2",
        "name": "large",
        "input": {"tokens": 4, "vocabulary": size},
        "layer": [
            {"name": "token", "kind": "embedding", "features": size},
            {"name": "head", "kind": "linear", "units": size, "tied": "token", "bias": False},
        ],
    }
    plan = ho.solve(ho.Network.model_validate(described), levels=2)
    ho.check_certificate(plan, ho.certify(plan))


FIXED = ("sum=whole", "fc=output,head=data", "fc=model,sum=data,head=data", "fc=data,sum=channel")


@pytest.mark.parametrize("fixed", FIXED)
def test_more_copies_and_messages_than_64_bits_count_are_priced_alike_twice(fixed: str) -> None:
    described = {
        "schema": "hypar-opt/network/2",
        "name": "small",
        "input": {"tokens": 8, "vocabulary": 12},
        "layer": [
            {"name": "token", "kind": "embedding", "features": 8},
            {"name": "place", "kind": "embedding", "inputs": [], "vocabulary": 8, "features": 8},
            {"name": "sum", "kind": "add", "inputs": ["token", "place"]},
            {"name": "fc", "kind": "linear", "units": 8},
            {"name": "head", "kind": "linear", "units": 12, "tied": "token", "bias": False},
        ],
    }
    plan = ho.solve(
        ho.Network.model_validate(described),
        batch=4,
        reading="executed",
        choices=("data", "model", "output"),
        hierarchy=(1024,) * 8,
        whole_levels=True,
        constraints={"fix": fixed.split(",")},
    )
    assert price_of(plan) == plan.cost.total


def test_potentials_that_prove_less_than_a_float_holds_are_refused_in_a_line() -> None:
    plan = ho.solve("lenet-c", search="joint")
    certificate = ho.certify(plan)
    document = json.loads(certificate.to_json())
    document["tables"][0]["potentials"][-1][0] = -(10**400)
    with pytest.raises(CheckFailedError, match=r"prove -1\.0+e\+400 bytes, and the plan costs"):
        ho.check_certificate(plan, Certificate.model_validate(document))


def test_potentials_of_any_size_neither_overflow_nor_round() -> None:
    plan = ho.solve("lenet-c", search="joint")
    certificate = ho.certify(plan)
    document = json.loads(certificate.to_json())
    for scale in (1, 3, 10**30):
        for shift in (0, 1, 2**63, 10**40):
            table = np.array(document["tables"][0]["potentials"], object) * scale
            table[-1] += shift
            proof = TableProof(potentials=table.tolist(), scale=scale)
            forged = certificate.model_copy(update={"tables": (proof,)})
            assert is_proved(plan, list(forged.tables)) == (shift == 0)


@given(tables(longest=5, limited=False))
def test_potentials_never_prove_more_than_the_optimum(table: CostTable) -> None:
    every = itertools.product(range(table.choices), repeat=table.layers)
    least = min(price_table(table, assignment) for assignment in every)
    if not table.is_chain:
        with pytest.raises(RefusedError, match="solves chains only; this graph is not a chain"):
            prove_chain(table)
        return
    assert min(prove_chain(table).potentials[-1]) == least


@pytest.mark.parametrize("seed", slow_after(12, range(60)))
def test_of_all_plans_of_a_graph_only_the_cheapest_are_proved(seed: int) -> None:
    """The others, with proofs of their own, are refused with the same bound."""
    network, asked = random_graph_problem(Random(seed), constrained=False)
    if asked["reading"] == "executed" and seed % 2:
        asked = in_parts(Random(seed), asked)
    counts = asked["levels"], len(asked["choices"]), asked["reading"]
    write = written(network, "joint", **asked)
    problem = problem_of(network, **asked, constraints={"runnable": False})
    allow = Instance(network, problem).constraints.allow
    plans = [write(rows) for rows in every_plan_of(network, *counts) if allow(rows)]
    least = min(plan.cost.total for plan in plans)
    best = next(plan for plan in plans if plan.cost.total == least)
    certificate = ho.certify(best)
    ho.check_certificate(best, certificate)
    dearer = [plan for plan in plans if plan.cost.total > least]
    for plan in Random(seed).sample(dearer, min(len(dearer), 4)):
        with pytest.raises(ho.HyparError, match=f"prove {float(least):.15g} .*, the plan costs"):
            ho.certify(plan)
    if not all(isinstance(table, TableProof) for table in certificate.tables):
        potentials = TableProof(potentials=((0,) * len(best.choices),) * 99)
        forged = certificate.model_copy(update={"tables": (potentials,)})
        with pytest.raises(CheckFailedError, match="potentials prove chains only; this graph is"):
            ho.check_certificate(best, forged)
