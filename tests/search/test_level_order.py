"""Where bytes leave the order of levels free, the order that takes the least time is taken."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.state_table import StateTable
from hypar_opt.errors import HyparError
from hypar_opt.hardware.array import Array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search import level_order
from hypar_opt.search.level_order import fastest_order, levels_permute
from hypar_opt.search.plan_file import repriced
from tests.slow import examples
from tests.strategies.arrays import AS_THE_PAPER, arrays
from tests.strategies.networks import networks
from tests.strategies.plans import READINGS

Rows = tuple[tuple[int, ...], ...]

readings = st.sampled_from(sorted(READINGS))


def seconds(plan: ho.Plan, rows: Rows) -> int | float:
    """Price rows as time, in the unit of the cost."""
    problem = plan.problem.model_copy(update={"cost": "time"})
    return price(Instance(plan.network.description, problem), rows).total


def rounding(plan: ho.Plan) -> int:
    """Return how far orders of alike levels may differ: a unit for each exchange and pass."""
    return 3 * plan.levels * 2 * len(plan.layers)


@examples(40)
@given(networks(longest=4), arrays(3), readings, st.integers(1, 32), st.booleans())
def test_no_order_of_the_same_rows_takes_less(
    network: ho.Network, array: Array, reading: str, batch: int, even: bool
) -> None:
    asked: Any = {**AS_THE_PAPER, "batch": batch, "array": array, "reading": reading}
    asked["constraints"] = {"even": even, "runnable": False}
    try:
        plan = ho.solve(network, search="joint", **asked)
    except HyparError:  # nothing is even
        return
    without = asked | {"array": None, "levels": array.levels}
    free = ho.solve(network, search="joint", **without)
    rows = plan.assignments()
    own = seconds(plan, rows)
    assert all(own <= seconds(plan, each) + rounding(plan) for each in itertools.permutations(rows))
    assert plan.cost.total == plan.solver.bound
    assert (plan.cost.total, Counter(rows)) == (free.cost.total, Counter(free.assignments()))


@examples(40)
@given(networks(longest=4), readings, st.integers(1, 9), st.data())
def test_permuting_levels_changes_no_bytes_where_it_is_said_to_change_none(
    network: ho.Network, reading: str, batch: int, data: st.DataObject
) -> None:
    problem = problem_of(batch=batch, levels=3, reading=reading)
    assert levels_permute(problem)
    row = st.tuples(*[st.integers(0, 1)] * len(network.layers))
    rows = data.draw(st.tuples(row, row, row))
    instance = Instance(network, problem)
    totals = {price(instance, each).total for each in itertools.permutations(rows)}
    assert len(totals) == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"choices": ("data", "model", "output")},
        {"level_weights": (2, 1)},
        {"constraints": {"fix": ("fc1@H1=data",)}},
        {"cost": "time", "array": "hmc-htree-4"},
    ],
    ids=str,
)
def test_where_the_order_counts_it_is_not_free(asked: Any) -> None:
    assert not levels_permute(problem_of(levels=2, **asked))


def test_a_pin_at_all_levels_and_equal_weights_leave_the_order_free() -> None:
    assert levels_permute(problem_of(levels=2, level_weights=(3, 3)))
    assert levels_permute(problem_of(levels=2, constraints={"fix": ("fc1=data",), "even": True}))


@pytest.mark.parametrize("network", ["lenet-c", "vgg-a"])
def test_the_joint_optimum_is_not_slower_than_hypars_plan_of_as_many_bytes(network: str) -> None:
    """Of the same rows in another order: the nodes' links are a ninth as fast as those inside."""
    asked: Any = {"array": "h100-8x8", "reading": "text", "element_bytes": 4}
    hypar = ho.solve(network, **asked)
    canonical = ho.solve(network, search="joint", levels=6, reading="text")
    joint = ho.solve(network, search="joint", **asked)
    assert joint.cost.total == canonical.cost.total <= hypar.cost.total
    assert joint.parallelism != canonical.parallelism
    assert Counter(joint.parallelism) == Counter(canonical.parallelism)
    assert ho.simulate(joint).seconds <= ho.simulate(hypar).seconds
    assert ho.simulate(joint).seconds < ho.simulate(canonical, "h100-8x8").seconds
    assert joint.solver.status == "optimal"


def test_on_levels_that_are_alike_the_order_is_the_canonical_one() -> None:
    plain = ho.solve("vgg-a", search="joint")
    on_tree = ho.solve("vgg-a", search="joint", array="hmc-htree-16")
    assert plain.parallelism == on_tree.parallelism


def test_every_exact_solver_gives_the_same_order() -> None:
    asked: Any = {**AS_THE_PAPER, "array": "a100-4x8", "search": "joint"}
    ours, theirs = (ho.solve("lenet-c", solver=name, **asked) for name in ("dp", "cpsat"))
    assert ours.parallelism == theirs.parallelism


# What few orders leave to be seen.


ROWS: Rows = ((1, 1, 1, 1), (0, 1, 1, 1), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 0), (1, 0, 0, 1))


def instance() -> Instance:
    return Instance(ho.load("lenet-c"), problem_of(array="h100-8x8", batch=64, **AS_THE_PAPER))


def test_a_table_that_is_not_a_sum_of_pairs_gives_the_same_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_pairs = fastest_order(instance(), ROWS)
    monkeypatch.setattr(StateTable, "by_level", lambda *_: None)
    assert fastest_order(instance(), ROWS) == by_pairs != ROWS


def test_of_too_many_orders_no_swap_of_two_levels_takes_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = repriced(ho.solve("lenet-c", array="h100-8x8", batch=64, **AS_THE_PAPER), cost="time")
    best = seconds(plan, tuple(fastest_order(instance(), ROWS)))
    monkeypatch.setattr(level_order, "MAX_ORDERS", 10)
    rows = tuple(fastest_order(instance(), ROWS))
    assert Counter(rows) == Counter(ROWS)
    assert best <= seconds(plan, rows) < seconds(plan, ROWS)
    for one, other in itertools.combinations(range(6), 2):
        swapped = list(rows)
        swapped[one], swapped[other] = rows[other], rows[one]
        assert seconds(plan, rows) <= seconds(plan, tuple(swapped))
