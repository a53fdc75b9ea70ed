"""Groups of any counts: every plan at their shares, a bound on all shares, and a second price."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.device_load import papers_memory
from hypar_opt.costs.groups import GroupTime
from hypar_opt.deadline import NEVER, TIME_LIMIT, Deadline
from hypar_opt.errors import HyparError, InfeasibleError, NoAnswerError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import nodes_of, price_plans, total_cost
from hypar_opt.plan.arguments import part_words, problem_of
from hypar_opt.plan.share_of_group import SHARES, shares_of_parts
from hypar_opt.proofs.certificate import check_price
from hypar_opt.search.joint import joint
from hypar_opt.search.levelwise import level_by_level
from hypar_opt.search.result import SearchRequest, SearchResult
from hypar_opt.search.shares import GAP, LEAST, shared_out
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.elimination.classes import classes_within
from hypar_opt.step.shares import Share
from hypar_opt.workload.parallelism import CHOICES, PAPERS_CHOICES, PART_WORDS
from tests.slow import slow_after
from tests.strategies.groups import GROUPS, nodes, of_counts, some_share
from tests.strategies.problems import random_network

Rows = tuple[tuple[int, ...], ...]


def every_plan(instance: Instance) -> Iterator[Rows]:
    """Every choice of every layer at every level, those of one part at H1 alone."""
    choices, layers = instance.problem.choices, len(instance.workload.layers)
    below = [n for n, choice in enumerate(choices) if choice not in PART_WORDS]
    of_level = [range(len(choices)), *[below] * (instance.problem.levels - 1)]
    return itertools.product(*(itertools.product(own, repeat=layers) for own in of_level))


def costs_of(instance: Instance, plans: list[Rows]) -> list[Fraction]:
    levels = price_plans(instance.workload, instance.cost, plans, [None] * len(plans))
    return [sum(rows, Fraction()) for rows in levels]


def request(instance: Instance) -> SearchRequest:
    return SearchRequest(instance, DynamicProgramming())


def instance_of(
    rng: Random,
    counts: tuple[int, ...],
    cost: str = "time",
    network: ho.Network | None = None,
    **more: Any,
) -> Instance:
    array = of_counts(counts, **more)
    network = network or random_network(rng, 2)
    problem = problem_of(
        network,
        array=array,
        cost=cost,
        batch=48,
        share=some_share(rng, array),
        choices=(*PAPERS_CHOICES, *part_words(array)),
        constraints={"runnable": False},
    )
    return Instance(network, problem)


@pytest.mark.parametrize("counts", GROUPS)
def test_h1_has_the_fewest_parts_of_which_groups_are_whole_numbers(counts: tuple[int, ...]) -> None:
    array = of_counts(counts)
    parts = array.hierarchy().sizes[0]
    each = sum(counts) // parts
    assert [own * each for own in array.parts_of_groups] == [*counts]
    assert not any(
        all(count * fewer % sum(counts) == 0 for count in counts) for fewer in range(1, parts)
    )
    names = [group.name for group in array.groups_of_parts]
    assert [names[n // each] for n in range(sum(counts))] == [
        group.name for group in array.groups for _ in range(group.count)
    ]


@pytest.mark.parametrize("seed", slow_after(3, range(36)))
def test_the_search_finds_the_least_of_all_plans_at_shares_and_bounds_those_between(
    seed: int,
) -> None:
    rng = Random(seed)
    counts = [*GROUPS][seed % len(GROUPS)]
    more: dict[str, Any] = {
        "collective": rng.choice(["pairwise", "ring"]),
        "kernels": rng.random() < 0.5,
    }
    instance = instance_of(rng, counts, **more)
    cost = instance.cost
    assert isinstance(cost, GroupTime)
    plans = list(every_plan(instance))
    costs = costs_of(instance, plans)
    assert joint(request(instance)).bound == min(costs)
    # No plan of at most some cost has states that are left out.
    table, most = instance.classes(NEVER), rng.choice(sorted(costs)[:9])
    left = classes_within(table, int(most * table.resolution), NEVER)
    for plan in itertools.compress(plans, [own <= most for own in costs]):
        rows = np.array(nodes_of(instance.workload, cost, plan, None, rule=instance.rule))
        columns = (table.states[:, :, None] == rows[:, None]).all(axis=0).argmax(axis=0)
        assert left[range(len(left)), columns].all()
    # Corners of a simplex, and shares between them.
    array = instance.problem.array
    assert array is not None
    parts = array.description.parts_of_groups
    corners = []
    for _ in counts:
        weights = [rng.randrange(1, 9) for _ in counts]
        shares = [SHARES * own // sum(weights) for own in weights]
        corners.append((SHARES - sum(shares[1:]), *shares[1:]))
    bounds = []
    tight = [rng.random() for _ in corners]
    for linear in cost.between(*(shares_of_parts(own, parts) for own in corners), weights=tight):
        bounds.append(joint(request(instance.with_cost(linear))).bound)
        assert bounds[-1] is not None
    bound = min(filter(None, bounds))
    for _ in range(4):
        weights = [rng.randrange(9) + (n == 0) for n, _ in enumerate(counts)]
        shares = [
            sum(w * own[n] for w, own in zip(weights, corners, strict=True)) // sum(weights)
            for n in range(len(counts))
        ]
        between = (SHARES - sum(shares[1:]), *shares[1:])
        at = instance.with_cost(cost.at(shares_of_parts(between, parts)))
        # Whole shares need not lie quite between the corners.
        assert bound <= min(costs_of(at, plans)) * (1 + Fraction(4 * len(counts), SHARES))


@pytest.mark.parametrize("dram", ["10 GB/s", "100 GB/s"])
@pytest.mark.parametrize("batch", slow_after(1, [200, 50, 1000]))
def test_a_bound_holds_where_a_pass_waits_for_its_dram_at_some_shares(
    dram: str, batch: int
) -> None:
    network = ho.Network.model_validate(
        {
            "name": "one",
            "input": {"features": 1000},
            "layer": [{"name": "fc", "kind": "fc", "units": 1000}],
        }
    )
    array = nodes(1, latency="0 s", dram=dram)
    instance = Instance(
        network,
        problem_of(network, array=array, cost="time", batch=batch, share=0.5, choices=CHOICES),
    )
    cost = instance.cost
    assert isinstance(cost, GroupTime)
    for choice in range(len(CHOICES)):
        rows = ((choice,),)

        def at(share: int, rows: Rows = rows) -> Fraction:
            return total_cost(instance.with_cost(cost.at((share, SHARES - share))), rows)

        corners = cost.between((1000, 9000), (9000, 1000))
        bound = min(total_cost(instance.with_cost(linear), rows) for linear in corners)
        assert bound <= min(at(share) for share in range(1000, 9001, 250))


@pytest.mark.parametrize("counts", slow_after(1, [[2, 2, 2], [4, 2]]))
def test_searched_shares_are_within_the_gap_of_their_bound(counts: list[int]) -> None:
    asked: dict[str, Any] = {"array": of_counts(tuple(counts)), "cost": "time", "batch": 24}
    network = random_network(Random(7), 2)
    plan = ho.solve(network, **asked)
    (least,) = (row[LEAST] for row in plan.solver.statistics if LEAST in row)
    assert least <= plan.cost.total <= least / (1 - float(GAP))
    stated = ho.solve(network, share=plan.share, **asked)
    assert stated.cost.total == plan.cost.total


@pytest.mark.parametrize("seed", slow_after(3, range(60)))
def test_a_plan_is_simulated_as_it_is_priced_and_priced_alike_a_second_time(seed: int) -> None:
    rng = Random(seed)
    array = of_counts(
        [*GROUPS][seed % len(GROUPS)],
        collective=rng.choice(["pairwise", "ring", "hierarchical"]),
        bucket=rng.choice(["1 B", "200 B", "1 MB"]),
        kernels=seed % 2 == 1,
        energy={"mac": "4 pJ", "dram": "640 pJ", "remote": "1920 pJ", "hop": "10 pJ"},
    )
    wanted: dict[str, Any] = {
        "array": array,
        "batch": rng.choice([48, 93]),
        "element_bytes": rng.choice([1, 2, 4, 8]),
        "share": some_share(rng, array),
        "choices": (*CHOICES, "first", "second"),
    }
    network = random_network(rng, 4)
    plan = ho.solve(network, cost="time", **wanted)
    check_price(plan)
    step = ho.simulate(plan)
    assert step.closed_form == pytest.approx(plan.cost.total / _per_second(plan), rel=1e-9)
    assert step.lower_bound * (1 - 1e-9) <= step.seconds
    moved = sum(level.bytes for level in step.levels)
    # Amounts are rounded to halves or thirds of a charge, tensor by tensor.
    assert moved == pytest.approx(plan.cost.executed_bytes, rel=1e-3)
    check_price(ho.solve(network, cost="bytes", reading="executed", **wanted))
    joules = ho.solve(network, cost="energy", **wanted)
    assert ho.simulate(joules).joules == pytest.approx(
        joules.cost.total / _per_second(joules), rel=1e-3
    )
    with pytest.raises(HyparError, match="for bytes or time"):
        ho.certify(joules)


def _per_second(plan: ho.Plan) -> float:
    prefixes = {"femto": 1e15, "pico": 1e12, "nano": 1e9}
    return next(parts for prefix, parts in prefixes.items() if plan.cost.unit.startswith(prefix))


@pytest.mark.parametrize(
    ("counts", "share"), [((2, 2), None), ((4, 2), 0.4), ((2, 2, 2), (0.2, 0.3, 0.5))]
)
def test_an_optimum_at_its_shares_is_proved(counts: tuple[int, ...], share: Any) -> None:
    array = of_counts(counts, bucket="1 B", collective="ring")
    asked: dict[str, Any] = {"array": array, "cost": "time", "batch": 48, "share": share}
    plan = ho.solve(random_network(Random(2), 3), **asked)
    assert plan.solver.status == "optimal"
    certificate = ho.certify(plan)
    ho.check_certificate(plan, certificate)
    other = plan.model_copy(
        update={"cost": plan.cost.model_copy(update={"total": plan.cost.total - 1})}
    )
    with pytest.raises(HyparError, match="choices cost"):
        check_price(other)


@pytest.mark.parametrize("kernels", [False, True])
def test_levels_one_after_the_other_are_proved_and_h1_knows_what_parts_compute(
    kernels: bool,
) -> None:
    asked: dict[str, Any] = {"array": of_counts((4, 2), kernels=kernels), "batch": 4800}
    asked |= {"share": 0.4, "training": {"micro_batches": 1}}
    joint_plan = ho.solve("lenet-c", **asked)
    plan = ho.solve("lenet-c", search="levelwise", **asked)
    ho.check_certificate(plan, ho.certify(plan))
    # All in one part would exchange least, and compute three times as long.
    assert plan["conv2"]["H1"] == "data"
    assert plan.cost.total < 1.3 * joint_plan.cost.total


RESIDUAL = ho.Network.model_validate(
    {
        "schema": "hypar-opt/network/2",
        "name": "residual",
        "input": {"features": 6},
        "layer": [
            {"name": "first", "kind": "fc", "units": 12},
            {"name": "second", "kind": "fc", "units": 12},
            {"name": "sum", "kind": "add", "inputs": ["first", "second"]},
        ],
    }
)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("seed", slow_after(2, range(24)))
def test_memory_is_each_groups_own_and_a_search_finds_the_least_within_it(
    seed: int, graph: bool
) -> None:
    rng = Random(seed)
    # Of time a device's memory is that of a whole step: tests/search/test_within_groups.py.
    network = RESIDUAL if graph else random_network(rng, 2)
    counts = (1, 1) if graph else [*GROUPS][seed % len(GROUPS)]
    instance = instance_of(rng, counts, cost="bytes", network=network)
    problem, workload = instance.problem, instance.workload
    plans = list(every_plan(instance))
    costs = costs_of(instance, plans)
    full = (nodes_of(workload, instance.cost, rows, None, rule=None) for rows in plans)
    shares = Share.of_parts(problem.part_shares)
    bytes_ = [papers_memory(workload, rows, problem, shares) for rows in full]
    cheapest = min(zip(costs, bytes_, strict=True))[1]
    limit = max(max(cheapest) * rng.randint(5, 9) // 10, 1)
    fits = [cost for cost, taken in zip(costs, bytes_, strict=True) if max(taken) <= limit]
    limited = problem.constraints.model_copy(update={"memory": limit})
    try:
        assert joint(request(instance.with_constraints(limited))).bound == min(fits)
    except InfeasibleError:
        assert not fits
    # A group never has more than its own, whatever is stated.
    array = problem.array
    assert array is not None
    description = array.description.description()
    for own in description["accelerator"]:
        own["dram_capacity"] = f"{limit} B"
    if fits:
        again = ho.solve(
            instance.network,
            array=ho.Array.model_validate(description),
            cost="bytes",
            batch=48,
            share=problem.share,
            choices=problem.choices,
            search="joint",
            constraints={"memory": 10**12, "runnable": False},
        )
        assert again.cost.total == min(fits)


@pytest.mark.parametrize("seed", slow_after(1, range(24)))
def test_even_shares_divide_the_axes_and_the_best_of_them_is_found(seed: int) -> None:
    rng = Random(seed)
    array = of_counts([(1, 1), (2, 2), (3, 1)][seed % 3])
    network = random_network(rng, 3)
    wanted: dict[str, Any] = {"array": array, "cost": "time", "batch": 8, "even": True}
    found = ho.solve(network, **wanted)
    assert ho.run(found).agrees

    def at(share: float) -> int | float | None:
        try:
            return ho.solve(network, share=share, **wanted).cost.total
        except InfeasibleError:
            return None

    # Eighths of the batch are whole images.
    totals = [at(number / 8) for number in range(1, 8)]
    least = min(total for total in totals if total is not None)
    assert least <= found.cost.total <= least / (1 - float(GAP))


def test_level_by_level_no_bound_between_shares_is_asked_for_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its linear functions need not grow from level to level: a table may have negative charges."""
    asked: list[int] = []

    def recorded(search: SearchRequest) -> list[list[tuple[int, ...]]]:
        assert isinstance(search.instance.cost, GroupTime)
        asked.append(len(search.instance.cost.shares))
        return level_by_level(search)

    monkeypatch.setattr("hypar_opt.search.joint.level_by_level", recorded)
    instance = instance_of(Random(0), (1, 1), kernels=True)
    problem = instance.problem.model_copy(update={"share": None})
    search = request(Instance(instance.network, problem))
    limited = replace(search, deadline=Deadline.after(1e6))
    found = [shared_out(own, joint, joint=True) for own in (limited, search)]
    assert asked
    assert {*asked} == {1}
    assert found[0][1] == found[1][1]
    assert found[0][0].instance.problem.share == found[1][0].instance.problem.share


def test_a_limit_leaves_the_plan_that_is_known_at_the_best_shares() -> None:
    network, array = ho.load("lenet-c"), of_counts((2, 2, 2))
    asked: dict[str, Any] = {"choices": (*PAPERS_CHOICES, *part_words(array)), "cost": "time"}
    search = request(Instance(network, problem_of(network, array=array, batch=48, **asked)))
    solved: list[SearchResult] = []

    def once(asked: SearchRequest) -> SearchResult:
        if solved:
            raise NoAnswerError("no answer within the time limit", TIME_LIMIT)
        solved.append(joint(asked))
        return solved[0]

    found, [least] = shared_out(search, once, joint=True)
    assert found.incumbent == solved[0].assignments
    assert least == {LEAST: 0}  # nothing bounds the shares between those tried
    stopped = joint(replace(found, deadline=Deadline.after(-1.0), uses_fallback=False))
    assert stopped.assignments == found.incumbent
    assert stopped.found_by == "the best of the search of shares"
