"""A simulated step: what it moves is what the cost charges, as long as the closed form says."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.readings import READINGS
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import HyparError
from hypar_opt.hardware.arrays import load
from hypar_opt.hardware.profile import Profile
from hypar_opt.instance.pricing import price_levels
from hypar_opt.plan.arguments import problem_of
from hypar_opt.simulator.closed_form import ClosedForm
from hypar_opt.studies.simulation import contenders, fastest
from hypar_opt.workload.tensors import workload_of
from tests.simulator.plans import IN_LOCKSTEP, LINK, UNEVEN, array, plan_on, run
from tests.slow import slow_after
from tests.strategies.networks import networks


def one_layer(features: int, units: int) -> ho.Network:
    layer = {"name": "fc", "kind": "fc", "units": units}
    return ho.Network.model_validate(
        {"name": "one", "input": {"features": features}, "layer": [layer]}
    )


@st.composite
def plans(draw: st.DrawFn, topologies: Sequence[dict[str, Any]]) -> ho.Plan:
    """A random plan of a random network on one of some topologies, in any reading."""
    network = draw(networks(longest=4))
    reading = draw(st.sampled_from(list(READINGS)))
    choices = ["data", "model"]
    if reading != "figures" and draw(st.booleans()):
        choices.append("output")
    row = st.lists(
        st.sampled_from(choices), min_size=len(network.layers), max_size=len(network.layers)
    )
    return plan_on(
        network,
        array(draw(st.sampled_from(topologies))),
        [draw(row) for _ in range(3)],
        batch=draw(st.integers(1, 9)),
        reading=reading,
        choices=tuple(choices),
        inference=draw(st.booleans()),
    )


@given(plan=plans(IN_LOCKSTEP + UNEVEN))
def test_what_moves_is_what_the_cost_charges_level_by_level(plan: ho.Plan) -> None:
    step = run(plan)
    assert [level.bytes for level in step.levels] == pytest.approx(list(plan.cost.per_level))


@given(plan=plans(IN_LOCKSTEP + UNEVEN))
def test_a_links_bytes_are_bytes_times_hops(plan: ho.Plan) -> None:
    assert plan.array is not None
    assert plan.placement is not None
    step, interconnect = run(plan), plan.array.description.interconnect
    hops = [interconnect.bisection(bit).hops for bit in plan.placement]
    expected = sum(moved * hop for moved, hop in zip(plan.cost.per_level, hops, strict=True))
    assert sum(link.bytes for link in step.links) == pytest.approx(float(expected))
    assert step.energy.hops == pytest.approx(5 * float(expected) / 4)


@given(plan=plans(IN_LOCKSTEP))
def test_where_accelerators_run_in_lockstep_the_closed_form_is_the_events_to_1e_9(
    plan: ho.Plan,
) -> None:
    step = run(plan)
    assert step.seconds == pytest.approx(step.closed_form, rel=1e-9)
    assert sum(layer.compute + layer.communication for layer in step.layers) == pytest.approx(
        step.seconds, rel=1e-9
    )


def test_where_accelerators_fall_out_of_lockstep_both_times_are_told() -> None:
    """Those that are early meet the stragglers of another level on the links."""
    plan = plan_on(one_layer(1, 1), array(UNEVEN[0]), [["data"]] * 3, batch=1)
    step = run(plan)
    assert step.seconds > 1.1 * step.closed_form
    assert step.document()["closed_form_seconds"] == step.closed_form


@given(plan=plans(IN_LOCKSTEP), collective=st.sampled_from(["pairwise", "ring"]))
def test_overlap_is_never_slower_and_never_beats_the_critical_path(
    plan: ho.Plan, collective: str
) -> None:
    """A gradient's all-reduce waits for its compute, and for those handed over before it."""
    none = run(plan, collective=collective)
    overlapped = run(plan, collective=collective, overlap="gradient")
    assert overlapped.seconds <= none.seconds * (1 + 1e-9)
    assert overlapped.closed_form == none.closed_form
    assert none.lower_bound == none.closed_form or not none.in_lockstep
    assert overlapped.seconds >= overlapped.lower_bound * (1 - 1e-9)
    in_front = sum(
        layer.compute + (layer.phase != "gradient") * layer.communication for layer in none.layers
    )
    gradients = sum(layer.communication for layer in none.layers if layer.phase == "gradient")
    if overlapped.in_lockstep:  # so that tasks take as long as in closed form
        assert overlapped.lower_bound >= max(in_front, gradients) * (1 - 1e-9)
        assert overlapped.lower_bound <= (in_front + gradients) * (1 + 1e-9)
    assert [level.bytes for level in overlapped.levels] == pytest.approx(
        [level.bytes for level in none.levels]
    )


@given(plan=plans(IN_LOCKSTEP + UNEVEN))
def test_a_ring_moves_as_many_bytes_as_pairs_do(plan: ho.Plan) -> None:
    """Both add up n shards with 2 (n - 1) shards' bytes; only where they pass differs."""
    pairs, ring = run(plan, collective="pairwise"), run(plan, collective="ring")
    assert sum(level.bytes for level in ring.levels) == pytest.approx(
        sum(level.bytes for level in pairs.levels)
    )


def test_a_ring_of_gradients_takes_what_the_textbook_says() -> None:
    """2 (N - 1) / N * W / bandwidth + 2 (N - 1) * latency."""
    ring = array({"kind": "ring", "accelerators": 8, "link": {**LINK, "latency": "1 ms"}})
    plan = plan_on(one_layer(6, 7), ring, [["data"]] * 3, batch=8)
    step = run(plan, collective="ring")
    weights = 6 * 7 * 4
    expected = 2 * 7 / 8 * weights / 8 + 2 * 7 * 1e-3
    assert step.communication == pytest.approx(expected, rel=1e-9)


@given(plan=plans(IN_LOCKSTEP), data=st.data())
def test_the_closed_form_scores_every_plan_as_the_events_do(
    plan: ho.Plan, data: st.DataObject
) -> None:
    workload = workload_of(plan.network.description, plan.batch, plan.choices)
    closed = closed_form(plan, workload)
    columns = list(zip(*plan.assignments(), strict=True))
    base = len(plan.choices)
    codes = [sum(c * base ** (2 - at) for at, c in enumerate(column)) for column in columns]
    states = np.array(codes, np.uint8)[:, None]
    assert closed.of_plans(states)[0] == pytest.approx(run(plan).seconds, rel=1e-9)
    drawn_states = [
        data.draw(st.lists(st.integers(0, base**3 - 1), min_size=1, max_size=4, unique=True))
        for _ in codes
    ]
    grid = closed.of_all(drawn_states)
    listed = np.stack(np.meshgrid(*drawn_states, indexing="ij")).reshape(len(codes), -1)
    assert grid.reshape(-1) == pytest.approx(closed.of_plans(listed.astype(np.uint8)), rel=1e-12)


def closed_form(plan: ho.Plan, workload: ho.Workload) -> ClosedForm:
    return ClosedForm.of(TimeCost.from_problem(plan.problem, workload), workload, plan.levels)


def test_all_65536_plans_of_lenet_c_are_scored_at_once_and_hypars_is_among_the_best() -> None:
    """12 plans tie, HyPar's among them."""
    problem = problem_of(array="hmc-htree-16", cost="time", reading="figures")
    workload = workload_of(ho.load("lenet-c"), 256)
    seconds = ClosedForm.of(TimeCost.from_problem(problem, workload), workload, 4).of_all()
    assert seconds.shape == (16, 16, 16, 16)
    plan = ho.solve("lenet-c", reading="figures", array="hmc-htree-16")
    states = tuple(
        int("".join(map(str, column)), 2) for column in zip(*plan.assignments(), strict=True)
    )
    assert seconds[states] == pytest.approx(seconds.min(), rel=1e-12)
    assert (seconds < seconds.min() * (1 + 1e-9)).sum() == 12
    assert seconds[0, 0, 0, 0] / seconds[states] == pytest.approx(3.055, abs=5e-4)
    assert ho.simulate(plan).seconds == pytest.approx(seconds[states], rel=1e-9)


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
    [
        *itertools.product(
            ["a100-4x8", "h100-8x8"], ho.models.PAPER_NETWORKS, ["text", "executed"]
        ),
        *itertools.product(
            ["tpu-v4-4x4x4"],
            ["sfc", "sconv", "lenet-c", "cifar-c", "alexnet", "vgg-a"],
            ["executed"],
        ),
    ],
)
def test_the_plan_for_time_is_never_slower_than_the_plans_for_energy_and_bytes(
    name: str, preset: str, reading: str
) -> None:
    """Between pairs closed form and events agree on all ten networks there."""
    costs = ("time", "bytes", *["energy"] * (preset != "h100-8x8"))  # it has no energies
    time, *others = (
        ho.solve(name, array=preset, search="joint", cost=cost, reading=reading) for cost in costs
    )
    fast = ho.simulate(time)
    for plan in others:
        other = ho.simulate(plan)
        assert fast.seconds <= other.seconds * (1 + 1e-9)
        for step in (fast, other) if preset != "tpu-v4-4x4x4" else ():
            assert step.closed_form == pytest.approx(step.seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("preset", "cost", "name"),
    slow_after(
        4,
        [
            *itertools.product(["a100-4x8"], ["energy"], ["sconv"]),
            *itertools.product(["a100-4x8", "h100-8x8", "tpu-v4-4x4x4"], ["bytes"], ["lenet-c"]),
            *itertools.product(["a100-4x8"], ["energy"], ["sfc", "lenet-c", "cifar-c"]),
            *itertools.product(["a100-4x8", "h100-8x8"], ["bytes"], ["sfc", "sconv", "cifar-c"]),
            *itertools.product(["tpu-v4-4x4x4"], ["bytes", "energy"], ["sfc"]),
            ("tpu-v4-4x4x4", "energy", "lenet-c"),
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


def profile(network: ho.Network, **changes: Any) -> Profile:
    layers = [
        {"name": layer.name, "forward": "8 ms", "backward": "16 ms", "gradient": "24 ms"}
        for layer in network.layers
    ]
    return Profile.model_validate({"batch": 256, "layer": layers} | changes)


def test_measured_seconds_take_the_place_of_computed_ones() -> None:
    network = ho.load("lenet-c")
    plan = ho.solve(network, array="hmc-htree-16")
    step = ho.simulate(plan, profile=profile(network))
    assert step.compute == pytest.approx(4 * 48e-3 / 16)
    assert step.communication == pytest.approx(ho.simulate(plan).communication)
    with pytest.raises(ho.HyparError, match="measured with batch 128, the plan's is 256"):
        ho.simulate(plan, profile=profile(network, batch=128))
    with pytest.raises(ho.HyparError, match="has no layer 'conv1'"):
        ho.simulate(plan, profile=profile(ho.load("sfc")))


def test_inference_is_the_forward_pass_alone() -> None:
    plan = ho.solve("vgg-a", array="hmc-htree-16", inference=True, solver="model")
    training = ho.solve("vgg-a", array="hmc-htree-16", solver="model")
    step = ho.simulate(plan)
    assert {layer.phase for layer in step.layers} == {"forward"}
    assert step.phases["forward"] == pytest.approx(ho.simulate(training).phases["forward"])


def test_two_runs_give_the_same_trace() -> None:
    plan = ho.solve("alexnet", array="hmc-torus-16")
    one, other = (ho.simulate(plan, overlap="gradient", trace=True) for _ in range(2))
    assert one.trace == other.trace
    assert one.trace


def test_communication_costs_of_passes_add_up_to_the_total() -> None:
    cost = CommunicationCost("executed")
    workload = workload_of(ho.load("alexnet"), 256)
    rows = [[0, 1, 0, 1, 1, 0, 1, 1]] * 2
    total = price_levels(workload, cost, rows)
    parts = [price_levels(workload, cost.of(phase), rows) for phase in cost.phases]
    assert total == tuple(map(sum, zip(*parts, strict=True)))


def test_the_presets_levels_hold_for_a_plan_found_without_an_array() -> None:
    plan = ho.solve("lenet-c")
    with pytest.raises(ho.HyparError, match="array=NAME"):
        ho.simulate(plan)
    assert ho.simulate(plan, "hmc-htree-16").seconds == pytest.approx(
        ho.simulate(ho.solve("lenet-c", array=load("hmc-htree-16"))).seconds
    )
