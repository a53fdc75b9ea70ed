"""Every batch of a range has the plan that it has by itself."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.studies.batches import AllBatches, solve_all_batches
from hypar_opt.studies.random_networks import random_graph
from tests.slow import slow_after
from tests.strategies.problems import random_network

HIERARCHIES: list[tuple[int, ...]] = [(), (2, 2), (2, 2, 2), (3, 3), (2, 3), (4,)]


def assert_is_solved(every: AllBatches, batch: int) -> None:
    plan, piece = every.plan(batch), every.at(batch)
    assert piece.first <= batch <= piece.last
    assert piece.bytes_at(batch) == plan.cost.total
    assert piece.data_parallel_bytes_at(batch) == plan.cost.baselines.data
    assert piece.parallelism == plan.parallelism


@pytest.mark.parametrize("seed", slow_after(16, range(400)))
def test_every_batch_has_the_plan_that_it_has_by_itself(seed: int) -> None:
    """Chains and graphs, two choices and three, levels of any parts, ties included."""
    rng = Random(seed)
    network = random_network(rng, 4) if rng.random() < 0.5 else random_graph(rng, most=7)
    asked: dict[str, Any] = {"hierarchy": rng.choice(HIERARCHIES), "whole_levels": True}
    asked |= {"reading": "executed", "element_bytes": rng.choice([1, 4])}
    if rng.random() < 0.4:
        asked["choices"] = ("data", "model", "output")
    if rng.random() < 0.3:
        asked["constraints"] = {"fix": (f"{network.layers[0].name}=data",)}
    lo = rng.choice([1, rng.randint(1, 100)])
    every = solve_all_batches(network, lo=lo, hi=lo + rng.choice([0, 1, 39]), **asked)
    for batch in range(every.lo, every.hi + 1):
        assert_is_solved(every, batch)
    assert sorted(
        batch for piece in every for batch in range(piece.first, piece.last + 1, piece.every)
    ) == [*range(every.lo, every.hi + 1)]


@pytest.mark.parametrize("name", ["vgg-e", "gpt2"])
def test_breakpoints_are_those_of_single_solves(name: str) -> None:
    """On both sides of each, and at both ends of a thousand million batches."""
    every = ho.solve_all_batches(name, levels=4)
    assert (every.lo, every.hi) == (1, 10**9)
    for piece in every:
        assert_is_solved(every, piece.first)
        assert_is_solved(every, piece.last)


def test_plans_are_those_of_many() -> None:
    """All batches where plans of VGG-E change are solved at once, too."""
    every = ho.solve_all_batches("vgg-e", reading="executed", hi=60_000)
    many = ho.solve_many("vgg-e", batch=range(1, 60_001), reading="executed", search="joint")
    changes = (many.bits[1:, 0, 0, 0] != many.bits[:-1, 0, 0, 0]).any(axis=1)
    assert [piece.first for piece in every] == [1, *(changes.nonzero()[0] + 2).tolist()]
    for batch in (1, 777, 60_000):
        assert every.at(batch).bytes_at(batch) == many.totals[batch - 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"lo": 0}, "lo: a batch should be from 1 to 2,147,483,647, got 0"),
        ({"hi": 2**31}, "hi: a batch should be from 1 to"),
        ({"lo": 5, "hi": 4}, "from the smallest to the largest, got 5:4"),
        ({"batch": 64}, "batch: all batches are solved, from lo to hi"),
        ({"cost": "time"}, "cost='time' is not a line in the batch; only bytes are"),
        ({"array": "hmc-htree-16"}, "array: the time on an array decides the order of levels"),
        ({"constraints": {"even": True}}, "constraints.even allows other plans at other batches"),
        ({"constraints": {"memory": 10**9}}, "constraints.memory allows other plans"),
        ({"choices": ("data", "modle")}, "choices"),
    ],
)
def test_what_is_no_line_in_the_batch_is_named(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ho.HyparError, match=message) as raised:
        solve_all_batches("lenet-c", **asked)
    assert "\n" not in str(raised.value)


def test_a_batch_beyond_the_range_is_refused() -> None:
    every = solve_all_batches("sfc", lo=3, hi=9)
    with pytest.raises(ho.HyparError, match="batch should be from 3 to 9, got 2"):
        every.at(2)
    assert repr(every) == "<AllBatches: 1 plans of SFC, batches 3 to 9>"
