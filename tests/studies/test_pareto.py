"""Fronts of cost and memory: as every plan of small chains has them, monotone, written alike."""

from __future__ import annotations

import io
from dataclasses import replace
from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

import pytest
from rich.console import Console

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.terminal.tables import pareto_view
from hypar_opt.plan.arguments import problem_of
from hypar_opt.studies import pareto
from hypar_opt.studies.pareto import OBJECTIVES, ParetoFront, ParetoFronts
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.slow import slow_after
from tests.strategies.plans import Asked
from tests.strategies.problems import memory, priced_plans, random_network, random_problem

Capture = pytest.CaptureFixture[str]


def by_enumeration(network: ho.Network, asked: Asked) -> list[tuple[int, Fraction]]:
    """The memory and cost of every plan that no other dominates, from the most memory down."""
    problem = problem_of(**asked)
    workload = workload_of(network, problem.batch, problem.choices)
    front: list[tuple[int, Fraction]] = []
    every = sorted(
        (ceil(memory(workload, problem, rows)), total)
        for total, rows in priced_plans(network, asked)
    )
    for taken, total in every:
        if not front or total < front[-1][1]:
            front.append((taken, total))
    return front[::-1]


def points(front: ParetoFront) -> list[tuple[int, Fraction]]:
    return [(point.memory, Fraction(point.total)) for point in front]


@pytest.mark.parametrize("seed", slow_after(10, range(20)))
def test_the_front_in_bytes_is_that_of_every_plan(seed: int) -> None:
    """Any reading, choices, weights of levels and constraints."""
    network, asked = random_problem(Random(seed), longest=4, most_levels=3, most_plans=2**9)
    (front,) = ho.pareto(network, **asked)
    assert front.complete
    assert points(front) == by_enumeration(network, asked)


@pytest.mark.parametrize("seed", range(8))
def test_a_front_on_levels_of_other_sizes_is_that_of_every_plan(seed: int) -> None:
    rng = Random(seed)
    sizes = rng.choice([(3,), (6,), (2, 3), (4, 2), (3, 2, 2)])
    network = random_network(rng, 3 if len(sizes) < 3 else 2)
    asked: Asked = {
        "batch": 12 * rng.randint(1, 4),
        "hierarchy": sizes,
        "whole_levels": True,
        "choices": CHOICES[: rng.choice([2, 3])],
        "reading": "executed",
    }
    fronts = ho.pareto(network, **asked)
    (front,) = fronts
    assert front.complete
    assert points(front) == by_enumeration(network, asked)
    assert fronts.document()["parts"] == list(sizes)


@pytest.mark.parametrize("seed", slow_after(4, range(8)))
def test_the_fronts_in_time_and_energy_are_those_of_every_plan(seed: int) -> None:
    rng = Random(seed)
    choices = CHOICES[: rng.choice([2, 3])]
    network = random_network(rng, 4 if len(choices) == 2 else 2)
    asked: dict[str, Any] = {
        "array": "hmc-htree-4",
        "batch": rng.choice([1, 2, 5]),
        "choices": choices,
        "reading": "text",
    }
    for front in ho.pareto(network, ["time", "energy"], **asked):
        assert front.complete
        assert points(front) == by_enumeration(network, asked | {"cost": front.objective})


@pytest.mark.parametrize("objective", slow_after(1, ["energy", "bytes"]))
def test_a_front_on_ones_own_array_is_over_what_a_device_holds(objective: str) -> None:
    """Whatever the objective: the next point trains within less, and costs more."""
    (front,) = ho.pareto("lenet-c", [objective], array="a100-8", points=2)
    first, second = front
    assert [ho.memory(point.plan).tensors for point in front] == [first.memory, second.memory]
    assert second.memory < first.memory
    assert (first.amount(objective) or 0) < (second.amount(objective) or 0)
    assert second.plan.training.micro_batches


def test_less_memory_costs_more() -> None:
    fronts = ho.pareto("vgg-a", array="hmc-htree-16")
    assert [front.objective for front in fronts] == list(OBJECTIVES)
    for front in fronts:
        assert len(front) > 1
        memories, totals = zip(*points(front), strict=True)
        assert list(memories) == sorted(set(memories), reverse=True)
        assert list(totals) == sorted(set(totals))
        assert front.ratio(front[0]) == 1
        # A limit between two points is the lower one's problem; the solver agrees.
        second = front[1]
        assert front.within(front[0].memory - 1) == second
        limited = ho.solve(
            "vgg-a",
            array="hmc-htree-16",
            cost=front.objective,
            search="joint",
            constraints={"memory": front[0].memory - 1},
        )
        assert limited.cost.total == second.total
        assert front.within(front[-1].memory - 1) is None


def test_a_points_amounts_are_those_of_its_plan() -> None:
    (front,) = ho.pareto("vgg-a", ["energy"], array="hmc-htree-16")
    for point in front:
        step = ho.simulate(point.plan)
        assert step.memory == point.memory
        assert point.bytes == ho.repriced(point.plan, cost="bytes").cost.total
        assert point.seconds == pytest.approx(step.seconds)
        assert point.joules == pytest.approx(step.joules)


def test_a_front_may_end_early_and_start_within_a_limit() -> None:
    case: dict[str, Any] = {"array": "hmc-htree-64", "cost": "time"}
    (whole,) = ho.pareto("vgg-a", **case)
    (start,) = ho.pareto("vgg-a", points=1, **case)
    assert start.rows() == whole.rows()[:1]
    assert (whole.complete, start.complete) == (True, False)
    (rest,) = ho.pareto("vgg-a", constraints={"memory": whole[1].memory}, **case)
    assert points(rest) == points(whole)[1:]


def test_a_front_ends_at_two_plans_in_a_row_that_are_not_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless its points are stated; of what takes less memory it says that it is not known."""
    asked: dict[str, Any] = {"array": "hmc-htree-64", "cost": "bytes"}
    found, gaps = pareto._optimum, iter([0.0, 0.5, 0.0, 0.5] + 4 * [0.5])

    def optimum(*given: Any) -> ho.Plan:
        plan = found(*given)
        return plan.model_copy(update={"solver": plan.solver.vouched(gap=next(gaps))})

    (whole,) = ho.pareto("vgg-a", **asked)
    assert len(whole) == 4
    monkeypatch.setattr(pareto, "_optimum", optimum)
    (apart,) = ho.pareto("vgg-a", **asked)
    (early,) = ho.pareto("vgg-a", **asked)
    assert (points(apart), points(early)) == (points(whole), points(whole)[:2])
    assert (apart.reason, early.complete) == (None, False)
    assert "points" in (early.reason or "")
    gaps = iter(4 * [0.5])
    (stated,) = ho.pareto("vgg-a", points=3, **asked)
    assert (points(stated), stated.reason) == (points(whole)[:3], None)


def test_without_an_array_there_are_bytes_alone() -> None:
    (front,) = ho.pareto("lenet-c", levels=2)
    assert front.objective == "bytes"
    assert front[0].seconds is None
    with pytest.raises(ho.HyparError, match="array"):
        ho.pareto("lenet-c", ["time"], levels=2)


def test_what_is_not_proven_is_no_front() -> None:
    with pytest.raises(ho.HyparError, match="needs proven optima, or bounds on them; try dp"):
        ho.pareto("vgg-a", levels=2, solver="trick")
    with pytest.raises(ho.HyparError, match="points should be 1 or more, got 0"):
        ho.pareto("vgg-a", levels=2, points=0)


def test_a_front_that_a_solver_cannot_follow_says_so(capsys: Capture) -> None:
    assert run(["pareto", "gpt2", "--batch", "8", "--cost", "bytes", "--solver", "cut"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Not known within less than" in out
    assert "try dp" in out


def test_neighbours_in_the_column_of_memory_differ() -> None:
    """GPT-2 gives up one small tensor after the other: points differ in the seventh digit."""
    fronts = ho.pareto("gpt2", ["bytes"], levels=2, batch=8, points=4)
    shown = Console(width=200, file=io.StringIO())
    with shown.capture() as captured:
        shown.print(pareto_view(fronts))
    memories = [line.split(" GB")[0] for line in captured.get().splitlines() if " GB" in line]
    assert len(set(memories)) == len(fronts[0]) == 4


def test_a_front_that_ends_early_is_not_called_exact() -> None:
    fronts = ho.pareto("lenet-c", levels=2)
    shown = Console(width=200, file=io.StringIO())

    def title(own: ParetoFronts) -> str:
        with shown.capture() as captured:
            shown.print(pareto_view(own))
        return captured.get().splitlines()[0]

    assert fronts[0].complete
    assert title(fronts).endswith("reading text, exact")
    # One that a limit of points ends is exact as far as it goes.
    assert title(ho.pareto("lenet-c", levels=2, points=1)).endswith("reading text, exact")
    early = replace(fronts[0], complete=False, reason="the solver refused")
    assert title(replace(fronts, entries=(early,))).endswith("reading text, incomplete")
