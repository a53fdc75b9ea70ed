"""What if: regrets, and the best plans, against every plan there is."""

from __future__ import annotations

import itertools
from collections import Counter
from math import factorial, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.alternatives import Regret
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.verify import price_levels
from tests.strategies import networks


@settings(max_examples=20)
@given(networks(longest=3), st.integers(1, 9), st.integers(1, 2), st.booleans())
def test_a_regret_is_what_solving_again_with_the_choice_pinned_costs_more(
    network: ho.Network, batch: int, levels: int, joint: bool
) -> None:
    search = "joint" if joint else "levelwise"
    plan = ho.solve(network, search=search, batch=batch, levels=levels)
    found = ho.regrets(plan)
    assert len(found) == levels * len(network.layers)
    for regret in found:
        pin = f"{regret.layer}@H{regret.level}={regret.choice}"
        other = ho.solve(
            network, search=search, batch=batch, levels=levels, constraints={"fix": (pin,)}
        )
        assert regret.extra == other.cost.total - plan.cost.total
        if joint:
            assert regret.extra >= 0


def test_a_choice_that_no_plan_can_take_has_no_regret() -> None:
    plan = ho.solve("lenet-c", levels=1, constraints={"even": True})
    assert Regret("conv1", 1, ho.Parallelism.MODEL, None) in ho.regrets(plan)


def every_plan(shapes: ho.Shapes, levels: int, reading: str) -> list[tuple[int, frozenset[object]]]:
    """Each plan's cost and what it is but for the order of its levels, cheapest first."""
    cost = CommunicationCost(reading)
    rows = itertools.product(itertools.product(range(2), repeat=len(shapes.layers)), repeat=levels)
    return sorted(
        (
            (int(sum(price_levels(shapes, cost, plan))), frozenset(Counter(plan).items()))
            for plan in rows
        ),
        key=lambda row: row[0],
    )


@settings(max_examples=25)
@given(networks(longest=3), st.integers(1, 9), st.integers(1, 3), st.integers(1, 12))
def test_the_best_plans_are_the_cheapest_of_all_with_their_number(
    network: ho.Network, batch: int, levels: int, number: int
) -> None:
    while 2 ** (levels * len(network.layers)) > 2**9:
        levels -= 1
    shapes = ho.Shapes.of(ho.layer_graph(network), batch)
    priced = every_plan(shapes, levels, "text")
    orbits = Counter(orbit for _, orbit in priced)
    costs = sorted({orbit: cost for cost, orbit in priced}.values())
    found = ho.best_plans(ho.solve(network, batch=batch, levels=levels), number)
    assert [each.total for each in found] == costs[:number]
    seen = set()
    for each in found:
        rows = tuple(tuple(map(list(ho.Parallelism).index, row)) for row in each.parallelism)
        orbit = frozenset(Counter(rows).items())
        assert each.count == orbits[orbit]
        seen.add(orbit)
    assert len(seen) == len(found)


def test_plans_that_differ_by_the_order_of_levels_are_one_row() -> None:
    plan = ho.solve("vgg-a", search="joint")
    best = ho.best_plans(plan, 4)
    assert best[0].total == plan.cost.total
    same = prod(factorial(n) for n in Counter(best[0].parallelism).values())
    assert best[0].count == factorial(4) // same
    assert [each.total for each in best] == sorted(each.total for each in best)


def test_unequal_levels_are_not_permuted() -> None:
    plan = ho.solve("lenet-c", levels=2, level_weights=(3, 1))
    assert [each.count for each in ho.best_plans(plan, 5)] == [1] * 5


def test_the_best_plans_keep_to_constraints_and_refuse_memory_by_name() -> None:
    pinned = ho.solve("lenet-c", levels=2, constraints={"fix": ("fc1@H1=data",)})
    for each in ho.best_plans(pinned, 6):
        assert each.parallelism[0][2] is ho.Parallelism.DATA
    with pytest.raises(ho.HyparError, match="the best plans take no --memory"):
        ho.best_plans(ho.solve("lenet-c", constraints={"memory": "1GB"}), 2)
    with pytest.raises(ho.HyparError, match="the 3 best plans over 12 levels take too many steps"):
        ho.best_plans(ho.solve("lenet-c", levels=12), 3)
