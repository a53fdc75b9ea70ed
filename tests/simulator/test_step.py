"""A simulated step: what it moves is what the cost charges, as long as the closed form says."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import HyparError
from hypar_opt.instance.pricing import price_levels
from hypar_opt.plan.arguments import problem_of
from hypar_opt.simulator.closed_form import ClosedForm
from hypar_opt.studies.simulation import contenders, fastest, per_second
from hypar_opt.workload.tensors import workload_of
from tests.simulator.plans import IN_LOCKSTEP, UNEVEN, array, plan_on, plans, run
from tests.slow import examples, slow_after


def one_layer(features: int, units: int) -> ho.Network:
    layer = {"name": "fc", "kind": "fc", "units": units}
    return ho.Network.model_validate(
        {"name": "one", "input": {"features": features}, "layer": [layer]}
    )


@given(plan=plans(IN_LOCKSTEP + UNEVEN))
def test_a_links_bytes_are_bytes_times_hops(plan: ho.Plan) -> None:
    assert plan.array is not None
    assert plan.placement is not None
    step, interconnect = run(plan), plan.array.description.interconnect
    hops = [interconnect.bisection(bit).hops for bit in plan.placement]
    expected = sum(moved * hop for moved, hop in zip(plan.cost.per_level, hops, strict=True))
    assert sum(link.bytes for link in step.links) == pytest.approx(float(expected))
    assert step.energy.hops == pytest.approx(5 * float(expected) / 4)


@examples(30)
@given(plans(IN_LOCKSTEP, cost="time"))
def test_without_overlap_a_step_takes_what_time_is_charged(plan: ho.Plan) -> None:
    step = run(plan)
    assert step.closed_form == pytest.approx(float(plan.cost.total) / per_second(plan), rel=1e-9)
    assert plan.array is not None
    if plan.array.description.collective == "pairwise":  # around rings some hops are longer
        assert step.seconds == pytest.approx(step.closed_form, rel=1e-9)


def test_where_accelerators_fall_out_of_lockstep_both_times_are_told() -> None:
    """Those that are early meet the stragglers of another level on the links."""
    plan = plan_on(one_layer(1, 1), array(UNEVEN[0]), [["data"]] * 3, batch=1)
    step = run(plan)
    assert step.seconds > 1.1 * step.closed_form
    assert step.document()["closed_form_seconds"] == step.closed_form


@given(plan=plans(IN_LOCKSTEP + UNEVEN))
def test_a_ring_moves_as_many_bytes_as_pairs_do(plan: ho.Plan) -> None:
    """Both add up n shards with 2 (n - 1) shards' bytes; only where they pass differs."""
    pairs, ring = run(plan, collective="pairwise"), run(plan, collective="ring")
    assert sum(level.bytes for level in ring.levels) == pytest.approx(
        sum(level.bytes for level in pairs.levels)
    )


@given(plan=plans(IN_LOCKSTEP, chain=True), data=st.data())
def test_the_closed_form_scores_every_plan_as_the_events_do(
    plan: ho.Plan, data: st.DataObject
) -> None:
    workload = workload_of(plan.network.description, plan.batch, plan.choices)
    closed = closed_form(plan, workload)
    columns = list(zip(*plan.assignments(), strict=True))
    base = len(plan.choices)
    codes = [
        sum(c * base ** (plan.levels - 1 - at) for at, c in enumerate(column)) for column in columns
    ]
    states = np.array(codes, np.uint8)[:, None]
    assert closed.of_plans(states)[0] == pytest.approx(run(plan).seconds, rel=1e-9)
    drawn_states = [
        data.draw(
            st.lists(st.integers(0, base**plan.levels - 1), min_size=1, max_size=4, unique=True)
        )
        for _ in codes
    ]
    grid = closed.of_all(drawn_states)
    listed = np.stack(np.meshgrid(*drawn_states, indexing="ij")).reshape(len(codes), -1)
    assert grid.reshape(-1) == pytest.approx(closed.of_plans(listed.astype(np.uint8)), rel=1e-12)


def closed_form(plan: ho.Plan, workload: ho.Workload) -> ClosedForm:
    return ClosedForm.of(TimeCost.from_problem(plan.problem, workload), workload, plan.levels)


def test_a_million_plans_of_vgg_e_are_scored_as_one_by_one() -> None:
    problem = problem_of(array="hmc-torus-16", cost="time", reading="executed")
    workload = workload_of(ho.load("vgg-e"), 256)
    cost = TimeCost.from_problem(problem, workload)
    closed = ClosedForm.of(cost, workload, 4)
    states = np.random.default_rng(0).integers(0, 16, (19, 50_000)).astype(np.uint8)
    seconds = closed.of_plans(states)
    for index in (0, 17, 49_999):
        rows = [[int(code) >> (3 - level) & 1 for code in states[:, index]] for level in range(4)]
        exact = sum(price_levels(workload, cost, rows), Fraction()) / cost.per_unit
        assert seconds[index] == pytest.approx(float(exact), rel=1e-12)
    with pytest.raises(ValueError, match="below 16"):
        closed.of_plans(states + np.uint8(8))
    with pytest.raises(ValueError, match="19 layers"):
        closed.of_plans(states[:4])
    with pytest.raises(HyparError, match="plans at once"):
        closed.of_all()


@pytest.mark.parametrize(
    ("preset", "name", "reading"),
    slow_after(
        3,
        [
            *itertools.product(["a100-8"], ["lenet-c"], ["text", "executed"]),
            *itertools.product(["tpu-v4-8", "tpu-v4-4x4x4"], ["lenet-c"], ["executed"]),
            *itertools.product(["h100-8x8"], ["cifar-c"], ["executed"]),
            *itertools.product(["tpu-v4-8", "tpu-v4-4x4x4"], ["alexnet"], ["executed"]),
            *itertools.product(
                ["a100-4x8", "h100-8x8"], ho.models.PAPER_NETWORKS, ["text", "executed"]
            ),
            *itertools.product(
                ["tpu-v4-4x4x4"], ["sfc", "sconv", "cifar-c", "vgg-a"], ["executed"]
            ),
        ],
    ),
)
def test_the_plan_for_time_is_never_slower_than_the_plans_for_energy_and_bytes(
    name: str, preset: str, reading: str
) -> None:
    """Between pairs closed form and events agree on all ten networks there, without overlap.

    In another reading than that of a run nothing overlaps in the time that is least.
    """
    overlap = None if reading == "executed" else "none"
    costs = ("time", "bytes", *["energy"] * (preset != "h100-8x8"))  # it has no energies
    time, *others = (
        ho.solve(name, array=preset, search="joint", cost=cost, reading=reading) for cost in costs
    )
    fast = ho.simulate(time, overlap=overlap)
    for plan in others:
        assert fast.seconds <= ho.simulate(plan, overlap=overlap).seconds * (1 + 1e-9)
        for own in (time, plan) if not preset.startswith("tpu") else ():
            step = ho.simulate(own, overlap="none")
            assert step.closed_form == pytest.approx(step.seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("preset", "cost", "name"),
    slow_after(
        2,
        [
            *itertools.product(["a100-4x8"], ["energy"], ["sconv"]),
            *itertools.product(["a100-4x8", "tpu-v4-8", "h100-8x8"], ["bytes"], ["lenet-c"]),
            *itertools.product(["a100-4x8"], ["energy"], ["sfc", "lenet-c", "cifar-c"]),
            *itertools.product(["a100-4x8", "h100-8x8"], ["bytes"], ["sfc", "sconv", "cifar-c"]),
            *itertools.product(["tpu-v4-4x4x4"], ["bytes", "energy"], ["sfc", "lenet-c"]),
        ],
    ),
)
def test_the_plan_for_time_is_never_slower_than_the_fastest_of_eight(
    preset: str, cost: str, name: str
) -> None:
    fast = ho.simulate(ho.solve(name, array=preset, cost="time", reading="executed"))
    proxy = ho.solve(name, array=preset, search="joint", cost=cost, reading="executed")
    assert fast.seconds <= fastest(contenders(proxy, 8)).seconds * (1 + 1e-9)


def test_a_plan_is_faster_where_it_knows_which_links_are_slow() -> None:
    asked: Any = {"search": "joint", "reading": "executed"}
    unaware = ho.simulate(ho.solve("lenet-c", levels=6, **asked), "h100-8x8").seconds
    for cost in ("time", "bytes"):  # of as many bytes, the order of levels is free
        plan = ho.solve("lenet-c", array="h100-8x8", cost=cost, **asked)
        assert ho.simulate(plan).seconds < 0.9 * unaware


def test_work_is_bound_by_compute_or_by_memory_whichever_is_slower() -> None:
    network = ho.load("lenet-c")
    slow, fast = (
        array(IN_LOCKSTEP[0], dram_bandwidth=bandwidth, operations="1 GOPS")
        for bandwidth in ("1 B/s", "1 PB/s")
    )
    bound, free = (
        run(plan_on(network, speed, [["data"] * 4] * 3, batch=8)) for speed in (slow, fast)
    )
    macs = sum(layer.macs for layer in workload_of(network, 8).layers)
    assert free.compute == pytest.approx(3 * macs / 8 / (1e9 / 2 * 0.5))
    workload = workload_of(network, 8)
    words = sum(
        weights + (reads + writes) / 8
        for weights, reads, writes in zip(
            workload.weights, workload.inputs, workload.pooled, strict=True
        )
    )
    assert bound.compute == pytest.approx(3 * 4 * words)


def test_work_spread_over_vaults_has_the_smallest_tensor_moved_between_them() -> None:
    network = ho.load("lenet-c")
    undivided, spread = (array(IN_LOCKSTEP[0], vaults=vaults) for vaults in (1, 16))
    plan = [["data"] * 4] * 3
    assert run(plan_on(network, undivided, plan, batch=8)).vault_words == 0
    workload = workload_of(network, 8)
    # In data parallelism on 8 accelerators: 8 copies of the weights, a part of the rest each.
    smallest = sum(
        min(8 * w, a, f)
        for w, a, f in zip(workload.weights, workload.inputs, workload.pooled, strict=True)
    )
    assert run(plan_on(network, spread, plan, batch=8)).vault_words == 3 * 15 * smallest


def test_inference_is_the_forward_pass_alone() -> None:
    plan = ho.solve("vgg-a", array="hmc-htree-16", inference=True, solver="model")
    training = ho.solve("vgg-a", array="hmc-htree-16", solver="model")
    step = ho.simulate(plan)
    assert {layer.phase for layer in step.layers} == {"forward"}
    assert step.phases["forward"] == pytest.approx(ho.simulate(training).phases["forward"])
