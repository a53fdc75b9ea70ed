"""Certificates of plans in pipeline stages: no plan of as many stages is charged less."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import hypar_opt as ho
from hypar_opt.errors import CheckFailedError, HyparError, RefusedError
from hypar_opt.instance.staged import StagedPlan, charge_of
from hypar_opt.models import find_network
from hypar_opt.planning.stages import solve_in_stages
from hypar_opt.proofs.certificate import (
    Certificate,
    certify,
    check_certificate,
    proved_bound,
)
from hypar_opt.proofs.chains import bound_of_chain, prove_chain
from hypar_opt.proofs.check.cuts import CutProblem, UnitSpan
from hypar_opt.proofs.check.tables import MAX_PAIRS, ReferenceTable
from hypar_opt.proofs.graphs import bound_of, prove
from hypar_opt.workload.stages import cuts_between_blocks
from tests.cli.shell import Shell
from tests.search.test_stages import array_of, drawn, every_charge, problem_on
from tests.slow import slow_after
from tests.strategies.staged_plans import drawn_plan_of, nodes_of_a100s


def gpt(layers: int = 3, **keys: Any) -> ho.Network:
    small = {"hidden": 64, "heads": 4, "tokens": 32, "vocabulary": 256}
    return ho.gpt(layers=layers, **{**small, **keys})


def planned(network: ho.Network, stages: int | None = 2, **asked: Any) -> ho.Plan:
    given: dict[str, Any] = {"array": nodes_of_a100s(2, 2), "batch": 8, "micro_batches": 4}
    return ho.solve(network, stages=stages, **{**given, "optimizer": "adam", **asked})


def least_of(table: ReferenceTable) -> int:
    """The least of a table, as it is proved."""
    if table.is_chain:
        return int(bound_of_chain(table.by_edge, prove_chain(table.by_edge), ""))
    return bound_of(table, prove(table, table.max_total), "")


@cache
def small(*, tied: bool = True) -> ho.Plan:
    """Three blocks in two stages."""
    return planned(gpt(tied=tied))


def spans_of(problem: CutProblem) -> list[UnitSpan]:
    """All units that any stage may be of."""
    units, parts = len(problem.units), problem.parts
    return [
        UnitSpan(*ends, stage)
        for stage in range(parts)
        for ends in combinations(range(units + 1), 2)
        if (ends[0] == 0) == (stage == 0) and (ends[1] == units) == (stage == parts - 1)
    ]


@pytest.mark.parametrize("seed", slow_after(2, range(120)))
def test_no_cuts_are_charged_less_than_is_proved(seed: int) -> None:
    """By a search of each stage of all cuts; where memory is ample most optima are proved."""
    rng = Random(seed)
    network, parts = drawn(rng, 5), 2
    problem = problem_on(
        array_of(2, rng.choice([2, 4])),
        8,
        training={"micro_batches": rng.choice([1, 2, 4])},
        constraints={"optimizer": rng.choice(["adam", "sgd"])},
    )
    count = problem.training.micro_batches or 1
    try:
        plan = solve_in_stages(network, problem, parts, "1f1b")
    except HyparError:
        return
    certificate = certify(plan)
    bound = proved_bound(plan, certificate)
    exact = bound if certificate.bound is not None else CutProblem(plan).charge
    least = min(every_charge(network, problem, [parts], [count]))[0]
    assert exact <= least * CutProblem(plan).per_second
    assert (certificate.bound is None) == (exact == CutProblem(plan).charge)


@pytest.mark.parametrize(
    ("parts", "nodes", "tied"),
    slow_after(
        2,
        [
            *((2, 2, True), (4, 4, False), (2, 4, True)),
            *((2, 2, False), (4, 4, True), (2, 4, False)),
        ],
    ),
)
def test_optima_are_proved(parts: int, nodes: int, tied: bool) -> None:
    network = gpt(4, hidden=256, tokens=64, vocabulary=512, tied=tied)
    plan = planned(network, parts, array=nodes_of_a100s(2, nodes), batch=16)
    certificate = certify(plan)
    assert plan.solver.status == "optimal"
    assert certificate.bound is None
    assert check_certificate(plan, certificate) == plan.cost.total
    said = f"of all plans of {parts} stages, cut between blocks, and 4 micro-batches"
    assert said in certificate.claim(plan)


@pytest.mark.parametrize("seed", slow_after(1, range(30)))
def test_any_plan_is_charged_more_than_is_proved(seed: int) -> None:
    """Of any cuts, choices, layouts and ways to train."""
    rng = Random(seed)
    network = gpt(rng.randint(2, 3), tied=rng.random() < 0.5)
    plan = planned(network)
    certificate, problem = certify(plan), CutProblem(plan)
    bound = certificate.bound or problem.charge
    charged = [drawn_plan_of(rng, plan).seconds * problem.per_second for _ in range(10)]
    assert bound <= min(charged)


def tied_inside() -> ho.Network:
    """Two layers share weights, and others follow: all in one stage, or not."""
    layers: list[dict[str, Any]] = [
        {"name": "token", "kind": "embedding", "features": 1024},
        {"name": "up", "kind": "fc", "units": 1024},
        {"name": "head", "kind": "fc", "units": 65536, "tied": "token"},
        {"name": "down", "kind": "fc", "units": 16},
        {"name": "last", "kind": "fc", "units": 16},
    ]
    described: dict[str, Any] = {"schema": "hypar-opt/network/2", "name": "tied"}
    described |= {"input": {"tokens": 8, "vocabulary": 65536}}
    return ho.Network.model_validate({**described, "layer": layers})


@pytest.mark.parametrize("tied", slow_after(2, ["all", "inside", "none"]))
def test_units_take_no_more_by_themselves_than_in_a_stage(tied: str) -> None:
    """Gradients of small layers share latencies in buckets, and tied weights are a stage's once."""
    plan = planned(tied_inside()) if tied == "inside" else small(tied=tied == "all")
    problem = CutProblem(plan)
    alone = [
        least_of(problem.table(UnitSpan(unit, unit + 1))) for unit in range(len(problem.units))
    ]
    sums = [sum(alone[:count]) for count in range(len(alone) + 1)]
    for span in spans_of(problem):
        least = least_of(problem.table(span))
        assert problem.by_units(span, sums) <= least


def test_spans_of_a_kind_have_equal_tables() -> None:
    """And those of other links, or of other units, have other ones."""
    choices = ("data", "model")
    problem = CutProblem(planned(gpt(4), 4, array=nodes_of_a100s(2, 4), choices=choices))
    by_kind: dict[Any, list[UnitSpan]] = {}
    for span in (*spans_of(problem), *(UnitSpan(n, n + 1) for n in range(len(problem.units)))):
        by_kind.setdefault(problem.kind(span), []).append(span)
    alike = 0
    for first, *others in by_kind.values():
        table = problem.table(first) if others else None
        for span in others:
            other = problem.table(span)
            assert table is not None
            alike += 1
            assert np.array_equal(table.node, other.node)
            assert np.array_equal(table.ends, other.ends)
            edges = zip(table.kinds, other.kinds, strict=True)
            assert all(np.array_equal(table.charges[n], other.charges[m]) for n, m in edges)
    assert alike > 10
    # Between nodes a message takes longer than inside one.
    between, inside = UnitSpan(2, 3, 1), UnitSpan(2, 3, 2)
    assert problem.kind(between) != problem.kind(inside)


@pytest.mark.parametrize("parts", [2, 4])
def test_the_bound_is_that_of_the_best_cuts(parts: int) -> None:
    """Of any charges of stages, by exhaustion."""
    rng = Random(parts)
    plan = planned(gpt(2, tied=False), parts, array=nodes_of_a100s(2, 4))
    problem = CutProblem(plan)
    units, spans = len(problem.units), spans_of(problem)
    for _ in range(50):
        least: dict[Any, int] = {problem.kind(UnitSpan(n, n + 1)): 0 for n in range(units)}
        top = 10 ** rng.randint(7, 15)
        least |= {problem.kind(span): rng.randint(10**7, 10**7 + top) for span in spans}
        bound = problem.bound(least)
        every = []
        for ends in combinations(range(1, units), parts - 1):
            stages = [UnitSpan(*own, n) for n, own in enumerate(pairwise((0, *ends, units)))]
            charges = [
                Fraction(max(least[problem.kind(own)], problem.by_units(own, [0] * (units + 1))))
                for own in stages
            ]
            every.append((charge_of(charges, problem.micro_batches), tuple(stages)))
        assert bound.charge == min(every)[0]
        assert (bound.charge, bound.stages) in every


def test_what_is_cut_is_what_the_search_cuts() -> None:
    for plan in (small(), small(tied=False), planned(find_network("lenet-c"))):
        network = plan.network.description
        ends = [unit.stop for unit in CutProblem(plan).units]
        assert ends == [*cuts_between_blocks(network), len(network.layers)]


def test_within_memory_a_bound_is_proved() -> None:
    network = gpt(hidden=256, tokens=64)
    ample = planned(network, batch=64, micro_batches=4)
    held = max(own.tensors for own in ho.memory(ample).stages)
    plan = planned(network, batch=64, micro_batches=4, memory=int(held * 0.7))
    certificate = certify(plan)
    assert certificate.bound is not None
    assert proved_bound(plan, certificate) == certificate.bound < plan.cost.total
    assert CutProblem(ample).charge >= certificate.bound
    assert "proved to " in certificate.claim(plan)
    if plan.solver.status == "optimal":
        with pytest.raises(CheckFailedError, match="claims to be optimal"):
            check_certificate(plan, certificate)


# -- Certificates that prove nothing ----------------------------------------------------------


@pytest.fixture(scope="module")
def proved() -> tuple[ho.Plan, Certificate]:
    return small(), certify(small())


def raised(document: dict[str, Any], table: int) -> None:
    """Raise a number of a proof: what it proves rises, or does not hold."""
    own = document["tables"][table]
    numbers = own["constants"] if "constants" in own else own["potentials"][-1]
    numbers[:] = [number + 10**9 for number in numbers]


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a bound": (lambda own: own.update(bound="1"), "bound: should be the "),
    "a number of a unit": (lambda own: raised(own, 0), r"tables\[0\]"),
    "a number of a stage": (lambda own: raised(own, -1), r"tables\[\d+\]"),
    "no unit": (
        lambda own: (own["tables"].pop(0), own["spans"].pop(0)),
        "spans: unit 0 should be there by itself",
    ),
    "no stages": (
        lambda own: own.update(tables=own["tables"][:-2], spans=own["spans"][:-2]),
        "bound: should be the ",
    ),
    "fewer spans": (lambda own: own["spans"].pop(), "spans: should be"),
    "another stage": (lambda own: own["spans"][-1].__setitem__(2, 0), "spans: there is none from"),
    "a stage beyond": (lambda own: own["spans"][-1].__setitem__(2, 7), "spans: there is none from"),
    "below the first unit": (
        lambda own: own["spans"][0].__setitem__(0, -1),
        "spans: there is none",
    ),
    "more units": (lambda own: own["spans"][-2].__setitem__(1, 2), r"tables\[\d+\]|bound"),
    "another plan": (
        lambda own: own.update(plan="sha256:0"),
        "plan: the certificate belongs to another plan",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_certificate_proves_nothing(
    name: str, proved: tuple[ho.Plan, Certificate]
) -> None:
    plan, certificate = proved
    document = json.loads(certificate.to_json())
    edit, said = FORGERIES[name]
    edit(document)
    with pytest.raises(CheckFailedError, match=said):
        check_certificate(plan, Certificate.model_validate(document))


def test_a_certificate_of_stages_is_of_plans_in_stages(proved: tuple[ho.Plan, Certificate]) -> None:
    plan, certificate = proved
    asked: dict[str, Any] = {"batch": 8, "micro_batches": 4, "optimizer": "adam"}
    asked |= {"recompute": "none", "shard": "none"}
    plain = {key: own for key, own in json.loads(certificate.to_json()).items() if key != "spans"}
    alone = ho.solve(gpt(), array=nodes_of_a100s(2, 2), overlap="none", **asked)
    of_alone = certify(alone)
    for own, other in ((alone, certificate), (plan, of_alone)):
        same = other.model_copy(update={"plan": certify(own).plan})
        with pytest.raises(CheckFailedError, match="spans: should be there of a plan in stages"):
            proved_bound(own, same)
    for document in (plain, json.loads(certificate.to_json()) | {"price": 0}):
        with pytest.raises(ValidationError, match="spans"):
            Certificate.model_validate(document)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"degrees": "pp=2,tp=2", "stages": None}, "stages with pins"),
        ({"fix": ["head=output"]}, "stages with pins"),
        ({"degrees": "pp=2,v=2,tp=2", "stages": None}, "interleaved stages"),
    ],
)
def test_what_has_no_certificate_is_named(asked: dict[str, Any], said: str) -> None:
    plan = planned(gpt(4), **asked)
    with pytest.raises(RefusedError, match=f"no certificate: a plan in {said} has no certificate"):
        certify(plan)


def test_a_stage_of_too_many_states_is_bounded_by_its_units(
    proved: tuple[ho.Plan, Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, certificate = proved
    table = CutProblem.table

    def refusing(self: CutProblem, span: UnitSpan) -> ReferenceTable:
        if span.stage is not None:
            raise RefusedError(f"more than {MAX_PAIRS} pairs")
        return table(self, span)

    monkeypatch.setattr(CutProblem, "table", refusing)
    bounded = certify(plan)
    assert bounded.bound is not None
    assert 0 < bounded.bound < CutProblem(plan).charge
    assert bounded.spans == tuple(own for own in certificate.spans or () if own[2] is None)
    assert proved_bound(plan, bounded) == bounded.bound


def test_a_certificate_is_written_and_verified(tmp_path: Path, shell: Shell) -> None:
    file, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    asked = ["--array", "rtx4090x4", "--batch", "16", "--stages", "2", "--optimizer", "adam"]
    asked += ["--micro-batches", "4"]
    model = "gpt:layers=2,hidden=64,heads=4,tokens=32,vocabulary=256"
    shell.output("solve", model, *asked, "--output", file, "--certificate", proof)
    (row,) = shell.document("verify", file, "--certificate", proof)["rows"]
    assert row["priced"] == "agrees"
    assert row["optimal"].startswith("proved (joint")
    assert "2 stages, cut between blocks" in row["optimal"]
    assert json.loads(proof.read_text())["schema"] == "hypar-opt/certificate/4"
    assert StagedPlan.of_plan(ho.read_plan(file)).seconds > 0
