"""Best plans, regrets and models of steps that train in parts, against every plan."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.plan import words_of
from hypar_opt.planning.solve import write_model
from hypar_opt.proofs.certificate import certify, check_certificate, proved_bound
from hypar_opt.studies import alternatives
from hypar_opt.studies.alternatives import best_plans
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED
from tests.cli.shell import command
from tests.search.test_within_memory import drawn
from tests.slow import slow_after
from tests.strategies.ways_of_training import counted, every_trained, words_on
from tests.strategies.written_plans import every_rows


def trained(seed: int) -> tuple[Random, ho.Network, dict[str, Any]]:
    """A small problem whose step trains in parts."""
    rng = Random(seed)
    network, asked = drawn(seed)
    counts = [n for n in range(1, asked["batch"] + 1) if asked["batch"] % n == 0]
    training = {
        "micro_batches": rng.choice(counts),
        "recompute": rng.choice(RECOMPUTED),
        "shard": rng.choice(SHARDED),
    }
    return rng, network, {**asked, "bucket": 0, "training": training}


@pytest.mark.parametrize("seed", slow_after(6, range(300)))
def test_best_plans_are_those_that_train_alike_and_fit(seed: int) -> None:
    rng, network, asked = trained(seed)
    problem = problem_of(network, **asked)
    every = [*counted(problem, network, problem.training)]
    limit = rng.choice(sorted(held for _, held in every))
    fitting = sorted(seconds for seconds, held in every if held <= limit)
    plan = ho.solve(network, **{**asked, "constraints": {"runnable": False, "memory": limit}})
    found = [
        Fraction(one.total) / per_second(plan)
        for one in best_plans(plan, len(fitting))
        for _ in range(one.count)
    ]
    assert found == pytest.approx(fitting)


@pytest.mark.parametrize("seed", slow_after(4, range(300)))
def test_a_regret_is_of_the_best_plan_that_trains_alike(seed: int) -> None:
    _, network, asked = trained(seed)
    problem = problem_of(network, **asked)
    plan = ho.solve(network, **asked)
    every = [*every_rows(len(network.layers), problem.levels, len(problem.choices))]
    costs: dict[tuple[int, int, str], Fraction] = {}
    taken = counted(problem, network, problem.training, only=every)
    for rows, (seconds, _) in zip(every, taken, strict=True):
        for level, row in enumerate(words_of(rows, plan.words), 1):
            for layer, word in enumerate(row):
                key = level, layer, word
                costs[key] = min(costs.get(key, seconds), seconds)
    for regret in ho.regrets(plan):
        least = costs[regret.level, plan.layers.index(regret.layer), regret.choice]
        assert regret.extra is not None
        found = Fraction(regret.extra + plan.cost.total) / per_second(plan)
        assert found == pytest.approx(least)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_optimum_of_a_model_trains_as_it_is_stated(tmp_path: Path, seed: int) -> None:
    _, network, asked = trained(seed)
    assert write_model(network, tmp_path / "model.lp", **asked).columns > 0
    by_model = ho.solve(network, **asked, search="joint", solver="ilp")
    assert by_model.cost.total == ho.solve(network, **asked, search="joint").cost.total
    limited = {**asked, "constraints": {"memory": "1GB", "runnable": False}}
    with pytest.raises(RefusedError, match=r"in any memory: leave constraints\.memory out, and"):
        write_model(network, tmp_path / "model.lp", **limited)


@pytest.mark.parametrize("seed", slow_after(1, [8, 20, *range(60)]))
def test_a_regret_within_a_memory_is_of_the_best_plan_that_fits_however_it_trains(
    seed: int,
) -> None:
    """Of all layouts, ways of each layer and micro-batches."""
    network, asked = drawn(seed)
    asked["bucket"] = 0
    problem = problem_of(network, **asked)
    words = words_on(asked["array"], problem.placement or ())
    every = [*every_rows(len(network.layers), problem.levels, len(problem.choices))]
    held_by = {rows: [*every_trained(problem, network, words, only=[rows])] for rows in every}
    limit = Random(seed).choice(sorted(held for own in held_by.values() for _, held in own))
    plan = ho.solve(network, **{**asked, "constraints": {"runnable": False, "memory": limit}})
    found = ho.regrets(plan)
    assert found
    for regret in found:
        layer = plan.layers.index(regret.layer)
        fitting = [
            seconds
            for rows, own in held_by.items()
            if words_of(rows, plan.words)[regret.level - 1][layer] == regret.choice
            for seconds, held in own
            if held <= limit
        ]
        if regret.extra is None:
            assert not fitting
        else:
            taken = Fraction(regret.extra + plan.cost.total) / per_second(plan)
            rounded = Fraction(100 * plan.batch * len(plan.layers), per_second(plan))
            assert abs(taken - min(fitting)) <= rounded


def test_where_the_best_that_trains_alike_does_not_fit_others_are_compared_within_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(40):
        _, network, asked = trained(seed)
        problem = problem_of(network, **asked)
        every = sorted(counted(problem, network, problem.training))
        small = min(every, key=lambda own: own[1])
        if small[0] > every[0][0] and small[1] < every[0][1]:
            break
    array = asked["array"].description()
    array["accelerator"] = {**array["accelerator"], "dram_capacity": f"{small[1]} B"}
    plan = ho.solve(network, **{**asked, "array": ho.Array.model_validate(array)})
    assert ho.memory(plan).total == small[1]
    stated = {**asked, "constraints": {"runnable": False, "memory": small[1]}}
    assert ho.regrets(plan).rows() == ho.regrets(ho.solve(network, **stated)).rows()
    assert best_plans(plan, 1)[0].total == plan.cost.total
    monkeypatch.setattr(alternatives, "MAX_COUNTED", 0)
    with pytest.raises(RefusedError, match="0 fit the memory of an accelerator; state more micro"):
        best_plans(plan, 1)


def cautious(plan: ho.Plan) -> ho.Plan:
    """The plan without a claim."""
    claims = {"status": "feasible", "bound": None, "gap": None}
    return plan.model_copy(update={"solver": plan.solver.model_copy(update=claims)})


def test_a_certificate_is_of_plans_in_any_memory_or_bounds_those_that_fit() -> None:
    found = set()
    for seed in range(16):
        rng, network, asked = trained(seed)
        problem = problem_of(network, **asked)
        every = sorted(counted(problem, network, problem.training))
        limit = rng.choice(every)[1]
        plan = ho.solve(network, **{**asked, "constraints": {"runnable": False, "memory": limit}})
        certificate = certify(plan)
        assert certificate.training is None  # of stated training settings
        assert check_certificate(cautious(plan), certificate) == proved_bound(plan, certificate)
        fastest = Fraction(plan.cost.total) / per_second(plan) == every[0][0]
        assert fastest == (certificate.bound is None)
        if certificate.bound is not None:
            least = min(seconds for seconds, held in every if held <= limit)
            assert 0 < certificate.bound / per_second(plan) <= least
        found.add(fastest)
    assert found == {True, False}


def test_lists_and_proofs_say_of_which_plans_they_are(tmp_path: Path) -> None:
    asked = ["solve", "lenet-c", "--array", "tpu-v4-8", "--batch", "64", "--bucket", "0"]
    typed = ["--micro-batches", "2", "--best", "2", "--regret", "--certificate", "proof.json"]
    done = command([*asked, *typed, "--output", "plan.json"], tmp_path)
    assert done.status == 0, done.errors
    qualified = "runnable plans, of plans with the same training settings:"
    assert " ".join(done.output.split()).count(qualified) == 2
    done = command(["verify", "plan.json", "--certificate", "proof.json"], tmp_path)
    assert "runnable plans, of all plans of 2 micro-batches)" in " ".join(done.output.split())
