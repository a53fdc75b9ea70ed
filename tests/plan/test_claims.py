"""Whose claim "optimal" is: a plan file's, until a certificate or a search of ours says it too."""

from __future__ import annotations

import copy
import json
import pickle
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.costs import COSTS
from hypar_opt.display.labels import optimality
from hypar_opt.display.page.contents import gather
from hypar_opt.display.page.facts import facts, provenance
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price, price_levels
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.costs import json_number
from hypar_opt.proofs.certificate import certify, write_certificate
from hypar_opt.studies.alternatives import best_plans, regrets
from hypar_opt.studies.exploration import explore
from hypar_opt.workload.tensors import workload_of
from tests.slow import slow_after
from tests.strategies.graph_problems import random_graph_problem, solved
from tests.strategies.plans import Rows, every_plan
from tests.strategies.problems import keeps, priced_plans, random_problem
from tests.strategies.written_plans import claiming


def forged(plan: ho.Plan, rows: Rows, **claims: Any) -> str:
    """Return the file of a plan with other choices, whose solver claims what it may not."""
    return claiming(plan, Instance.of_plan(plan), rows, **claims).to_json()


def read(text: str, folder: Path) -> ho.Plan:
    file = folder / "plan.json"
    file.write_text(text)
    return ho.read_plan(file)


def baselines_of(network: ho.Network, levels: int) -> dict[str, Rows]:
    trick = tuple(int(layer.kind == "fc") for layer in network.layers)
    layers = len(network.layers)
    rows = {"Data Parallelism": (0,) * layers, "Model Parallelism": (1,) * layers}
    return {name: (row,) * levels for name, row in {**rows, "the Trick": trick}.items()}


@pytest.mark.parametrize("seed", slow_after(7, range(40)))
def test_a_baseline_that_keeps_to_the_constraints_disproves_a_bound_above_it(
    seed: int, tmp_path: Path
) -> None:
    network, asked = random_problem(Random(seed), most_plans=2**9)
    plans, problem = priced_plans(network, asked), problem_of(**asked)
    workload = workload_of(network, problem.batch, problem.choices)
    totals = {rows: total for total, rows in plans}
    cheapest = min(
        (
            totals[rows]
            for rows in baselines_of(network, problem.levels).values()
            if keeps(workload, problem, rows)
        ),
        default=plans[-1][0],
    )
    honest = ho.solve(network, search="joint", **asked)
    for total, rows in (plans[0], plans[len(plans) // 2], plans[-1]):
        text = forged(honest, rows, bound=json_number(total))
        if total <= cheapest:
            assert optimality(read(text, tmp_path)).startswith("its file says optimal over all")
            continue
        least = json_number(cheapest)
        with pytest.raises(ho.HyparError, match=f"solver, bound: should be at most {least}, which"):
            read(text, tmp_path)
        # Without the claim it is a plan as any other.
        read(forged(honest, rows, status="feasible", bound=None), tmp_path)


@pytest.mark.parametrize("seed", slow_after(7, range(40)))
def test_a_baseline_that_costs_less_at_a_level_disproves_that_the_level_is_optimal(
    seed: int, tmp_path: Path
) -> None:
    network, asked = random_problem(Random(seed), longest=2, most_levels=2)
    problem = problem_of(**asked)
    workload = workload_of(network, problem.batch, problem.choices)
    cost = COSTS["bytes"].from_problem(problem, workload)
    honest = solved(network, "dp", "levelwise", asked)
    if isinstance(honest, str):  # no plan keeps to the memory level by level
        return

    def levels_of(rows: Rows) -> tuple[Fraction, ...]:
        return price_levels(workload, cost, rows)

    for rows in every_plan(len(network.layers), problem.levels, len(problem.choices)):
        if not keeps(workload, problem, rows):
            continue
        others = (
            (level, rows[:level] + baseline[level:])
            for baseline in baselines_of(network, problem.levels).values()
            for level in range(problem.levels)
        )
        disproved = any(
            levels_of(other)[level] < levels_of(rows)[level]
            for level, other in others
            if keeps(workload, problem, other)
        )
        text = forged(honest, rows, bound=json_number(sum(levels_of(rows), Fraction())))
        if disproved:
            with pytest.raises(ho.HyparError, match='solver, status: should be "feasible": at H'):
                read(text, tmp_path)
        else:
            assert optimality(read(text, tmp_path)).startswith(
                "its file says optimal level by level"
            )


@pytest.mark.parametrize("seed", slow_after(9, range(60)))
def test_no_baseline_disproves_what_a_search_of_ours_found(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    network, asked = (random_graph_problem if seed % 2 else random_problem)(rng, most_plans=2**9)
    if not asked["constraints"] and rng.random() < 0.5:
        array = f"hmc-htree-{2 ** asked['levels']}"
        asked |= {"cost": "time", "array": array, "level_weights": ()}
    for search in ("levelwise", "joint"):
        plan = solved(network, "dp", search, asked)
        if not isinstance(plan, str):
            assert read(plan.to_json(), tmp_path) == plan


@pytest.fixture(scope="module")
def between() -> tuple[ho.Plan, str]:
    """The optimum of a network, and a dearer plan, cheaper than any baseline, that claims to be."""
    plan = ho.solve("cifar-c", search="joint", array="hmc-htree-4")
    trick = ho.solve("cifar-c", solver="trick", array="hmc-htree-4")
    least = min(plan.cost.baselines.data, plan.cost.baselines.model, trick.cost.total)
    instance = Instance.of_plan(plan)
    for rows in every_plan(len(plan.layers), plan.levels, 2):
        total = price(instance, rows).total
        if plan.cost.total < total < least:
            text = forged(plan, rows, bound=total)
            return plan, text
    raise AssertionError("no plan is between")


def test_whoever_reads_a_plan_says_whose_claim_optimal_is(
    between: tuple[ho.Plan, str], tmp_path: Path
) -> None:
    plan, _ = between
    found = read(plan.to_json(), tmp_path)
    assert optimality(plan) == "optimal over all levels"
    assert optimality(found) == "its file says optimal over all levels"
    assert "dp joint: optimal" in repr(plan.solver)
    assert "dp joint: its file says optimal" in repr(found.solver)
    assert "(its file says optimal over all levels)" in found._repr_html_()
    assert "(optimal over all levels)" in plan._repr_html_()
    # Not of the plan: it is the same, and its file the same to the byte.
    assert found == plan
    assert found.to_json() == plan.to_json()


def test_no_file_can_vouch_for_itself(between: tuple[ho.Plan, str], tmp_path: Path) -> None:
    for key in ("vouched", "_vouched", "says"):
        document = between[0].document()
        document["solver"][key] = True
        with pytest.raises(ho.HyparError, match=f"unknown key '{key}'"):
            read(json.dumps(document), tmp_path)


def test_a_copy_says_whose_claim_it_is_as_the_plan_does(
    between: tuple[ho.Plan, str], tmp_path: Path
) -> None:
    for plan in (between[0], read(between[1], tmp_path)):
        for other in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
            assert optimality(other) == optimality(plan)


def test_a_limited_search_and_a_simulation_are_the_files_claims_too(tmp_path: Path) -> None:
    plan = ho.solve("lenet-c", search="joint")
    bound = plan.cost.total - 1000
    feasible = plan.solver.model_copy(
        update={"status": "feasible", "bound": bound, "gap": 1000 / plan.cost.total}
    )
    found = read(plan.model_copy(update={"solver": feasible}).to_json(), tmp_path)
    assert optimality(found).startswith("not proved optimal, its file says gap")
    settings = feasible.options.model_copy(update={"simulate": 8})
    simulated = feasible.model_copy(update={"options": settings})
    found = read(plan.model_copy(update={"solver": simulated}).to_json(), tmp_path)
    assert optimality(found).startswith("its file says fastest simulated of the 8 best")


def test_show_names_the_claim_until_it_has_solved_the_problem_again(
    between: tuple[ho.Plan, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, forged = between
    honest, dearer = tmp_path / "honest.json", tmp_path / "forged.json"
    honest.write_text(plan.to_json())
    dearer.write_text(forged)

    def said(*args: str) -> str:
        assert run([*args]) == 0
        return " ".join(capsys.readouterr().out.split())

    for file in (honest, dearer):
        assert "dp joint (its file says optimal over all levels)" in said("show", str(file))
    for args in (["show", str(honest), "--rerun"], ["solve", "cifar-c", "--search", "joint"]):
        assert "dp joint (optimal over all levels)" in said(*args)
    assert run(["show", str(dearer), "--rerun"]) == 1


def test_the_page_names_the_claim_unless_it_has_a_certificate(
    between: tuple[ho.Plan, str], tmp_path: Path
) -> None:
    plan = between[0]
    assert plan.array is not None
    array = plan.array.description
    found = read(plan.to_json(), tmp_path)
    # So small that the page makes a certificate of its own.
    assert "joint: optimal over all levels; bound" in provenance(gather(found, array))
    assert certify(plan) == certify(found)


def test_other_plans_of_the_problem_disprove_a_bound_too(
    between: tuple[ho.Plan, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, forged = between
    found = read(forged, tmp_path)
    assert found.array is not None
    proof = f"should be at most {plan.cost.total}, which another plan costs, got {found.cost.total}"
    for study in (
        lambda: regrets(found),
        lambda: best_plans(found, 1),
        lambda: explore(found, "all"),
        lambda: gather(found, found.array.description),
    ):
        with pytest.raises(ho.HyparError, match=proof):
            study()
    file, page = tmp_path / "plan.json", tmp_path / "page.html"
    assert run(["report", str(file), "--output", str(page)]) == 2
    said = capsys.readouterr().err
    assert "solver, bound: " + proof in said
    assert said.count("\n") == 1
    assert not page.exists()


def test_a_plan_whose_certificate_is_wrong_is_not_vouched_for(
    between: tuple[ho.Plan, str], tmp_path: Path
) -> None:
    plan, forged = between
    found = read(forged, tmp_path)
    assert found.array is not None
    with pytest.raises(ho.HyparError, match="no certificate: potentials prove"):
        certify(found)
    proof = certify(plan)
    write_certificate(proof, tmp_path / "proof.json")
    with pytest.raises(ho.HyparError, match="the certificate belongs to another plan"):
        gather(found, found.array.description, proof=proof)


def test_without_any_proof_the_page_says_that_the_file_says_so(
    between: tuple[ho.Plan, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hypar_opt.display.page.contents.MAX_CERTIFIED_STATES", 1)
    plan = between[0]
    assert plan.array is not None
    contents = gather(read(plan.to_json(), tmp_path), plan.array.description)
    assert not contents.proved
    assert "joint: its file says optimal over all levels; its file says bound" in provenance(
        contents
    )
    said = dict(facts(contents))
    assert said["status"] == "its file says optimal"
    assert said["bound"].startswith("its file says ")
    ours = gather(plan, plan.array.description)
    assert "joint: optimal over all levels; bound" in provenance(ours)
