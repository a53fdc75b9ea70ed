"""What if: regrets, and the best plans, against every plan there is."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.plan import columns_of
from hypar_opt.planning.priced import plan_of
from hypar_opt.search.level_order import levels_permute
from hypar_opt.studies.alternatives import Regret
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.studies.simulation import contenders
from hypar_opt.units import format_bytes
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.slow import examples, slow_after
from tests.strategies.graph_problems import priced_graph_plans, random_graph_problem
from tests.strategies.networks import networks
from tests.strategies.plans import Asked, Rows, asked_of_arrays
from tests.strategies.problems import keeps, orders, priced_plans, random_network, random_problem

THREE = CHOICES
seeds = st.integers(0, 2**32)


def test_a_choice_that_no_plan_can_take_has_no_regret() -> None:
    plan = ho.solve("lenet-c", levels=1, constraints={"even": True})
    assert Regret("conv1", 1, "model", None) in ho.regrets(plan)


def expected(
    priced: list[tuple[Fraction, Rows]], *, alike: bool
) -> list[tuple[Fraction, Rows, int]]:
    """All plans in order, each with its cost; of those alike but for their levels' order one."""
    found: dict[object, tuple[Fraction, Rows, int]] = {}
    for total, rows in priced:
        if alike:
            found.setdefault(tuple(sorted(rows)), (total, rows, len(orders(rows))))
        else:
            found[rows] = total, rows, 1
    return list(found.values())


def best(plan: ho.Plan, number: int) -> list[tuple[Fraction, Rows, int]]:
    return [
        (
            Fraction(each.total),
            tuple(map(tuple, columns_of(each.parallelism, plan.words))),
            each.count,
        )
        for each in ho.best_plans(plan, number)
    ]


def check_regrets(plan: ho.Plan, priced: list[tuple[Fraction, Rows]]) -> None:
    """Each is the best of all plans with that choice, less the plan."""
    for regret in ho.regrets(plan):
        layer = plan.layers.index(regret.layer)
        column = plan.words[layer].index(regret.choice)
        having = [total for total, rows in priced if rows[regret.level - 1][layer] == column]
        extra = None if regret.extra is None else Fraction(regret.extra)
        assert extra == (min(having) - Fraction(plan.cost.total) if having else None)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("seed", slow_after(8, range(50)))
def test_best_plans_and_regrets_are_those_of_every_plan_in_order(seed: int, graph: bool) -> None:
    """Any reading, element size, weights, pins, even splits, two choices or three, and memory."""
    rng = Random(seed)
    if graph:
        network, asked = random_graph_problem(rng)
        priced = priced_graph_plans(network, asked)
    else:
        network, asked = random_problem(rng, 3, most_plans=2**7)
        priced = priced_plans(network, asked)
    if not priced:
        return
    plan = ho.solve(network, search="joint", **asked)
    check_regrets(plan, priced)
    if "memory" in asked["constraints"]:
        with pytest.raises(
            ho.HyparError, match=r"the best plans do not support constraints\.memory"
        ):
            ho.best_plans(plan, 2)
        return
    every = expected(priced, alike=levels_permute(plan.problem))
    number = rng.randint(1, 12)
    assert best(plan, number) == every[:number]
    assert best(plan, 10**4) == every  # more than there are
    assert every[0][:2] == (Fraction(plan.cost.total), plan.assignments())
    assert sum(count for _, _, count in every) == len(priced)


@pytest.mark.parametrize("search", ["levelwise", "joint"])
@pytest.mark.parametrize("seed", slow_after(4, range(32)))
def test_a_regret_is_what_solving_again_with_the_choice_pinned_costs_more(
    seed: int, search: str
) -> None:
    rng = Random(seed)
    network = random_graph(rng, most=4) if seed % 2 else random_network(rng, 3)
    asked: Asked = {"search": search, "batch": rng.randint(1, 9), "levels": rng.randint(1, 2)}
    plan = ho.solve(network, **asked)
    for regret in ho.regrets(plan)[::2]:
        pin = f"{regret.layer}@H{regret.level}={regret.choice}"
        other = ho.solve(network, constraints={"fix": (pin,)}, **asked)
        assert regret.extra == other.cost.total - plan.cost.total


@examples(20)
@given(
    networks(longest=3),
    asked_of_arrays(2),
    st.sampled_from(["bytes", "time", "energy"]),
    st.integers(1, 9),
)
def test_on_an_array_they_are_too(
    network: ho.Network, asked: Asked, cost: str, number: int
) -> None:
    plan = ho.solve(network, cost=cost, search="joint", **asked)
    interconnect = asked["array"].interconnect
    same = len({interconnect.bisection(bit) for bit in plan.placement or ()}) == 1
    alike = levels_permute(plan.problem) and same
    priced = priced_plans(network, asked | {"cost": cost})
    check_regrets(plan, priced)
    every = expected(priced, alike=alike)
    assert best(plan, number) == every[:number]
    for each in contenders(plan, min(number, 2)):
        assert each.plan.solver.bound == every[0][0] <= each.plan.cost.total


@examples(50)
@given(seeds)
def test_where_levels_are_interchangeable_every_order_of_them_is_as_good(seed: int) -> None:
    network, asked = random_problem(Random(seed), 3, most_plans=2**7)
    problem = problem_of(**asked)
    if not levels_permute(problem):
        return
    workload = workload_of(network, problem.batch, problem.choices)
    costs = {rows: total for total, rows in priced_plans(network, asked)}
    for rows, total in costs.items():
        assert all(keeps(workload, problem, other) for other in orders(rows))
        assert {costs[other] for other in orders(rows)} == {total}


@pytest.mark.parametrize(
    ("asked", "alike"),
    [
        ({}, True),
        ({"level_weights": (2, 2), "constraints": {"fix": ("fc1=data",), "even": True}}, True),
        ({"level_weights": (2, 1)}, False),
        ({"choices": THREE}, False),
        ({"constraints": {"fix": ("fc1@H2=data",)}}, False),
        ({"array": "hmc-htree-4", "cost": "time"}, False),
        ({"array": "hmc-htree-4", "cost": "energy"}, False),
    ],
)
def test_levels_are_interchangeable_where_nothing_tells_them_apart(
    asked: Asked, alike: bool
) -> None:
    assert levels_permute(problem_of(**{"levels": 2, **asked})) is alike


@pytest.mark.parametrize("constraints", [{}, {"fix": ("conv3_1@H2=model",)}])
def test_at_ten_levels_a_regret_is_what_solving_again_costs_more(constraints: Asked) -> None:
    plan = ho.solve("vgg-a", levels=10, search="joint", constraints=constraints)
    for regret in ho.regrets(plan)[3::25]:
        pin = f"{regret.layer}@H{regret.level}={regret.choice}"
        fix = (*constraints.get("fix", ()), pin)
        other = ho.solve("vgg-a", levels=10, search="joint", constraints={"fix": fix})
        assert regret.extra == other.cost.total - plan.cost.total


def test_where_levels_are_alike_a_choice_costs_the_same_extra_at_each() -> None:
    """At more levels than a table of states can have, too."""
    plan = ho.solve("vgg-a", levels=60, search="joint")
    extras = defaultdict(set)
    for regret in ho.regrets(plan):
        extras[regret.layer, regret.choice].add(regret.extra)
    # A choice that the plan makes at another level costs no more at this one.
    for layer, *made in zip(plan.layers, *plan.parallelism, strict=True):
        for choice in set(made) if len(set(made)) > 1 else ():
            extras[layer, choice].add(0)
    assert {len(extra) for extra in extras.values()} == {1}


def test_a_bound_above_a_plan_is_no_bound() -> None:
    plan = ho.solve("lenet-c", levels=2)
    with pytest.raises(ho.HyparError, match=f"bound 1e\\+99, above its plan's {plan.cost.total}"):
        plan_of(plan, plan.parallelism, bound=1e99, considered=1)


@pytest.mark.parametrize(
    ("levels", "number", "remedy"),
    [
        (1, 500_000, "1 level take too many steps; ask for 53,515 or fewer"),
        (16, 3, "16 levels take too many steps; use fewer choices or levels"),
        (64, 3, "64 levels take too many steps; use fewer choices or levels"),
    ],
)
def test_more_best_plans_than_a_few_seconds_find_are_refused_first(
    levels: int, number: int, remedy: str
) -> None:
    plan = ho.solve("vgg-e", levels=levels)
    with pytest.raises(ho.HyparError) as raised:
        ho.best_plans(plan, number)
    assert str(raised.value) == f"the {number:,} best plans over {remedy}"


def test_more_best_plans_than_there_are_may_be_asked_for() -> None:
    assert len(ho.best_plans(ho.solve("lenet-c", levels=1), 10**30)) == 2**4
    assert [best.total for best in ho.best_plans(ho.solve("lenet-c", levels=0), 3)] == [0]


def test_what_totals_hide_in_four_digits_the_extra_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["solve", "lenet-c", "--levels", "2", "--best", "2"]) == 0
    *_, head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["communication", "extra", "plans"]
    one, two = ho.best_plans(ho.solve("lenet-c", levels=2), 2)
    assert first.split()[3:6] == ["0", "B", "2"]
    assert second.split()[3:6] == [*format_bytes(two.total - one.total).split(), "1"]


def test_a_plan_taken_for_its_simulated_time_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["solve", "vgg-a", "--batch", "16", "--array", "a100-4x8", "--simulate", "12"]
    asked += ["--cost", "bytes", "--choices", "data,model", "--uneven"]
    assert run(asked) == 0
    title = " ".join(capsys.readouterr().out.split())
    assert "dp joint (fastest simulated of the 12 best and the search's own)" in title


@pytest.mark.parametrize("kind", ["add", "mul"])
def test_what_ends_a_network_may_be_whole_as_it_is_priced_and_run(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "net.toml"
    file.write_text(
        'schema = "hypar-opt/network/2"\nname = "ends"\ninput = { features = 64 }\n'
        '[[layer]]\nname = "fc1"\nkind = "fc"\nunits = 64\n'
        '[[layer]]\nname = "fc2"\nkind = "fc"\nunits = 64\ninputs = ["fc1"]\n'
        f'[[layer]]\nname = "last"\nkind = "{kind}"\ninputs = ["fc1", "fc2"]\n'
    )
    asked: Any = {"levels": 2, "batch": 8, "choices": CHOICES, "search": "joint"}
    plan = ho.solve(file, **asked, reading="executed")
    extras = {(r.level, r.choice): r.extra for r in ho.regrets(plan) if r.layer == "last"}
    for level in (1, 2):
        pinned = ho.solve(
            file, **asked, reading="executed", constraints={"fix": (f"last@H{level}=whole",)}
        )
        extra = pinned.cost.total - plan.cost.total
        assert extras[level, "whole"] == extra > 0
        result = ho.run(pinned)
        assert result.agrees
        assert sum(result.counted) == pinned.cost.total
