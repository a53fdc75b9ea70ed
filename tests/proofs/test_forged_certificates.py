"""A certificate that is right of one plan, handed in with another: only what it proves passes."""

from __future__ import annotations

from random import Random

import pytest

import hypar_opt as ho
from hypar_opt.errors import CheckFailedError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import layouts_of, price
from hypar_opt.plan.plan import words_of
from hypar_opt.proofs.certificate import Certificate, TableProof, _digest
from tests.strategies.graph_problems import random_graph_problem
from tests.strategies.plans import Rows
from tests.strategies.written_plans import choosing, every_rows, fully_connected

NETWORK = fully_connected(3, 8, 2)


def optimum_and_proof(search: str, levels: int) -> tuple[ho.Plan, Certificate]:
    plan = ho.solve(NETWORK, search=search, levels=levels, batch=4)
    return plan, ho.certify(plan)


def priced(plan: ho.Plan, rows: Rows) -> ho.Plan:
    """Return a plan with other choices, and their own cost."""
    instance = Instance.of_plan(plan)
    update = {
        "parallelism": words_of(rows, plan.words),
        "layouts": layouts_of(instance, rows),
        "cost": price(instance, rows),
    }
    return plan.model_copy(update=update)


@pytest.mark.parametrize(("search", "levels"), [("joint", 2), ("levelwise", 1)])
def test_a_plan_that_states_the_optimums_cost_and_makes_dearer_choices_is_refused(
    search: str, levels: int
) -> None:
    plan, proof = optimum_and_proof(search, levels)
    dearer = 0
    for rows in every_rows(len(plan.layers), plan.levels, 2):
        forged = choosing(plan, rows)
        certificate = proof.model_copy(update={"plan": _digest(forged)})
        if priced(plan, rows).cost.total == plan.cost.total:
            ho.check_certificate(forged, certificate)
            continue
        dearer += 1
        with pytest.raises(CheckFailedError, match="cost, total: the plan's own choices cost"):
            ho.check_certificate(forged, certificate)
    assert dearer


@pytest.mark.parametrize(("search", "levels"), [("joint", 2), ("levelwise", 1)])
def test_what_proves_the_optimum_does_not_prove_a_dearer_plan(search: str, levels: int) -> None:
    plan, proof = optimum_and_proof(search, levels)
    for rows in every_rows(len(plan.layers), plan.levels, 2):
        other = priced(plan, rows)
        certificate = proof.model_copy(update={"plan": _digest(other)})
        if other.cost.total == plan.cost.total:
            ho.check_certificate(other, certificate)
        else:
            with pytest.raises(CheckFailedError, match="tables: the potentials prove"):
                ho.check_certificate(other, certificate)


@pytest.mark.parametrize("seed", range(20))
def test_potentials_prove_no_graph(seed: int) -> None:
    network, asked = random_graph_problem(Random(seed), constrained=False)
    plan = ho.solve(network, search="levelwise", **asked)
    proof = ho.certify(plan)
    zeros = [TableProof(potentials=((0,) * len(plan.choices),) * 99)] * len(proof.tables)
    forged = proof.model_copy(update={"tables": tuple(zeros)})
    if all(isinstance(table, TableProof) for table in proof.tables):
        return  # a chain
    with pytest.raises(
        CheckFailedError, match="potentials prove chains only; this graph is not a chain"
    ):
        ho.check_certificate(plan, forged)
