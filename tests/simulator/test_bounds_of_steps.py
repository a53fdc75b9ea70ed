"""A step's lower bound, on arrays of all topologies, around rings and with all overlaps."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

import hypar_opt as ho
from hypar_opt.hardware.arrays import load
from hypar_opt.simulator import bounds
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies.random_networks import random_chain, random_graph
from tests.simulator.plans import run
from tests.slow import slow_after
from tests.strategies.arrays import random_array

TOLERANCE = 1e-9
"""Relative. The simulator ends a flow up to 1e-12 of the clock early (`RELATIVE_TOLERANCE`), and
both round sums: in steps of at most some hundred messages one after the other, 1e-9 in all."""

BLOCKS = 20
"""Of the random arrays, each a test, so that they run in parallel."""


@cache
def random_step(seed: int) -> StepResult:
    """Any plan of a small network on an array of 2 to 16 accelerators."""
    rng = Random(seed)
    array = random_array(rng, rng.choice([1, 2, 2, 2, 3, 3, 3, 4]))
    network = random_graph(rng, most=3) if rng.random() < 0.5 else random_chain(rng, "chain")
    fix = tuple(
        f"{layer.name}@H{level}={rng.choice(['data', 'model'])}"
        for layer in network.layers
        for level in range(1, array.levels + 1)
    )
    plan = ho.solve(
        network,
        array=array,
        reading=rng.choice(["executed", "text"]),
        batch=rng.choice([1, 4, 16]),
        inference=rng.random() < 0.1,
        solver="dp",
        search="levelwise",
        cost="bytes",
        constraints={"fix": fix, "runnable": False},
    )
    return run(plan, overlap=rng.choice(["none", "gradient", "branches"]))


@pytest.mark.parametrize("block", slow_after(1, range(BLOCKS)))
def test_no_step_is_faster_than_its_lower_bound(block: int) -> None:
    for seed in range(block, 500, BLOCKS):
        step = random_step(seed)
        assert step.seconds >= step.lower_bound * (1 - TOLERANCE), seed
        if step.in_lockstep:
            assert step.seconds <= step.closed_form * (1 + TOLERANCE), seed
            if step.overlap == "none":
                assert step.lower_bound == pytest.approx(step.seconds, rel=TOLERANCE), seed


def test_the_bound_is_worth_having() -> None:
    """Half of all steps take what it says, to 1 %; the sum of all is within a tenth of theirs."""
    steps = [random_step(seed) for seed in range(0, 500, BLOCKS)]
    shares = sorted(step.lower_bound / step.seconds for step in steps)
    assert shares[len(steps) // 2] > 0.99
    assert sum(shares) > 0.9 * len(steps)


def test_around_unequal_hops_the_sum_in_lockstep_is_no_bound_and_says_so() -> None:
    """A torus of 4 x 4 x 4, Lenet-c in data parallelism: accelerators with short hops run ahead."""
    plan = ho.solve("lenet-c", array="tpu-v4-4x4x4", solver="data")
    step = run(plan, collective="one-ring")
    assert not step.in_lockstep
    assert 0.9 * step.seconds < step.lower_bound < step.seconds < step.closed_form
    assert step.document()["in_lockstep"] is False


def test_rounds_that_all_take_as_long_are_not_added_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for topology in ({"nodes": 32}, {"nodes": 12, "per_node": 6}):
        table = load("h100-8x8").description()
        table["topology"] |= topology
        array = ho.Array.model_validate(table)
        plan = ho.solve("sconv", array=array, solver="data", batch=array.interconnect.accelerators)
        step = run(plan, collective="one-ring")
        assert not step.in_lockstep
        with monkeypatch.context() as patched:
            patched.setattr(bounds, "_ROUNDS", 10**6)
            one_by_one = run(plan, collective="one-ring").lower_bound
        assert step.lower_bound == pytest.approx(one_by_one, rel=1e-11)
        assert step.seconds >= step.lower_bound * (1 - TOLERANCE)
