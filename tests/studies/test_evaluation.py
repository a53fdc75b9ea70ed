"""Plans simulated on arrays, refused on others; the fastest of the best; memory."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.documents.document import validate
from hypar_opt.errors import RefusedError
from hypar_opt.hardware import arrays as presets
from hypar_opt.hardware.array import Array
from hypar_opt.plan.arguments import problem_of
from hypar_opt.studies.advice import difference
from hypar_opt.studies.simulation import contenders, fastest, per_second, solve_again
from tests.hardware.cubes import CUBES, cubes
from tests.slow import examples, slow_after
from tests.strategies.networks import networks
from tests.strategies.plans import Asked, asked_of_arrays, plans, workload
from tests.strategies.problems import memory

MESH = cubes(kind="mesh", shape=[2, 4], link={"bandwidth": "1 GB/s", "latency": "3 us"})


def test_a_plan_without_an_array_names_one_to_be_simulated() -> None:
    plan = ho.solve("lenet-c", levels=3)
    with pytest.raises(ho.HyparError, match="was solved without an array; name one: array=NAME"):
        ho.simulate(plan)
    named, read = ho.simulate(plan, "hmc-htree-8"), ho.simulate(plan, presets.load("hmc-htree-8"))
    assert named == read == ho.simulate(ho.solve("lenet-c", array="hmc-htree-8"))


def test_a_plan_of_another_array_is_refused_unless_asked_for() -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-16")
    with pytest.raises(RefusedError) as raised:
        ho.simulate(plan, "hmc-torus-16")
    assert str(raised.value) == (
        "the plan was solved for the array hmc-htree-16, and hmc-torus-16 is another;"
        " other_array=True simulates it anyway"
    )
    own, other = ho.simulate(plan), ho.simulate(plan, "hmc-torus-16", other_array=True)
    assert other.communication == pytest.approx(2 * own.communication)
    assert other.compute == pytest.approx(own.compute)
    assert ho.simulate(plan, "HMC-HTREE-16") == own


def test_the_same_name_does_not_make_it_the_same_array() -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-16")
    described = presets.load("hmc-htree-16").description()
    described["accelerator"]["utilisation"] = 0.5
    with pytest.raises(RefusedError, match="is another"):
        ho.simulate(plan, validate(Array, described))


@pytest.mark.parametrize("size", [8, 32])
def test_an_array_of_another_size_is_refused_whatever_is_asked_for(size: int) -> None:
    for plan in (ho.solve("lenet-c"), ho.solve("lenet-c", array="hmc-htree-16")):
        with pytest.raises(RefusedError) as raised:
            ho.simulate(plan, f"hmc-htree-{size}", other_array=True)
        assert str(raised.value) == (
            f"the plan is for 16 accelerators, and the array hmc-htree-{size} has {size}"
        )


def test_unknown_ways_to_run_are_refused_by_name() -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-4")
    with pytest.raises(ho.HyparError, match="unknown collective 'rings': did you mean ring"):
        ho.simulate(plan, collective="rings")
    with pytest.raises(ho.HyparError, match="unknown overlap 'all': known: none, gradient"):
        ho.simulate(plan, overlap="all")


@examples(60)
@given(plans("time"))
def test_the_closed_form_is_what_the_cost_charges(plan: ho.Plan) -> None:
    step = ho.simulate(plan)
    charged = plan.cost.total / per_second(plan)
    assert step.closed_form == pytest.approx(charged, rel=1e-9)
    assert step.compute + step.communication == pytest.approx(step.seconds)


# The best, and the fastest of them.


@examples(20)
@given(
    networks(longest=3),
    asked_of_arrays(2),
    st.sampled_from(["bytes", "time", "energy"]),
    st.integers(1, 5),
)
def test_contenders_are_the_best_plans_simulated(
    network: ho.Network, asked: Asked, cost: str, number: int
) -> None:
    plan = ho.solve(network, cost=cost, **asked)
    best, found = ho.best_plans(plan, number), contenders(plan, number)
    ranked = [each.parallelism for each in best]
    own = [] if plan.parallelism in ranked else [plan.parallelism]  # it is simulated as well
    assert [each.plan.parallelism for each in found] == ranked + own
    assert [each.plan.cost.total for each in found[: len(best)]] == [each.total for each in best]
    assert [each.seconds for each in found] == [ho.simulate(each.plan).seconds for each in found]
    assert all(each.plan.problem == plan.problem for each in found)
    assert fastest(found).seconds == min(each.seconds for each in found)
    assert fastest(found[:1]) is found[0]
    least = found[0].plan.cost.total
    for each in found:
        record = each.plan.solver
        assert record.bound == least
        assert (record.status == "optimal") == (each.plan.cost.total == least)


def test_of_equally_fast_plans_the_cheapest_is_taken() -> None:
    """Levels of an H tree are alike, so swapping two costs as much and takes as long."""
    found = contenders(ho.solve("cifar-c", cost="time", array="hmc-htree-4"), 9)
    equal = [
        (one, two)
        for one, two in itertools.pairwise(found)
        if one.plan.cost.total == two.plan.cost.total
    ]
    assert equal
    for pair in equal:
        assert fastest([*pair]) is pair[0]


def test_the_fewest_bytes_are_not_the_shortest_step_on_unequal_links() -> None:
    asked: Any = {"array": "a100-4x8", "batch": 64, "reading": "text"}
    plan = ho.solve("vgg-a", **asked)
    found = contenders(plan, 6)
    assert fastest(found).seconds < found[0].seconds
    assert fastest(found).plan.cost.total > found[0].plan.cost.total
    timed = ho.solve("vgg-a", cost="time", overlap="none", **asked)
    assert ho.simulate(timed).seconds < fastest(found).seconds


@pytest.mark.parametrize("number", [0, -3])
def test_fewer_than_one_contender_is_refused(number: int) -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-4")
    with pytest.raises(ho.HyparError, match=f"number should be 1 or more, got {number}"):
        contenders(plan, number)


def test_contenders_need_an_array_and_no_memory_limit() -> None:
    with pytest.raises(ho.HyparError, match="number needs an array: array="):
        contenders(ho.solve("lenet-c"), 2)
    limited = ho.solve("lenet-c", array="hmc-htree-4", constraints={"memory": "1GB"})
    with pytest.raises(RefusedError, match=r"support constraints\.memory"):
        contenders(limited, 2)


@pytest.mark.parametrize("cost", slow_after(1, ["time", "bytes"]))
def test_a_simulated_plan_solved_again_is_itself(
    cost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    args = ["solve", "alexnet", "--array", "a100-4x8", "--batch", "32", "--cost", cost]
    args += ["--bucket", "0"]
    assert run([*args, "--simulate", "6", "--output", str(file), "--json"]) == 0
    plan = ho.read_plan(file)
    assert plan.solver.options.simulate == 6
    assert plan == fastest(contenders(plan, 6)).plan
    assert difference(plan, solve_again(plan)) is None
    capsys.readouterr()
    assert run(["show", str(file), "--rerun", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parallelism"] == plan.document()["parallelism"]


def test_a_placed_plan_solved_again_is_itself(tmp_path: Path) -> None:
    array = validate(Array, MESH)
    plan = ho.solve("alexnet", cost="time", array=array, place=True)
    assert plan.placement != array.placement
    assert difference(plan, solve_again(plan)) is None
    file = tmp_path / "plan.json"
    ho.write_plan(plan, file)
    assert ho.simulate(ho.read_plan(file)) == ho.simulate(plan)


def test_a_plan_is_simulated_where_it_was_placed() -> None:
    array, seconds = validate(Array, MESH), set()
    for order in array.orders():
        plan = ho.solve("alexnet", solver="data", cost="time", array=array, placement=order)
        step = ho.simulate(plan)
        assert step.closed_form == pytest.approx(plan.cost.total / 1e15)
        seconds.add(round(step.seconds, 9))
    assert len(seconds) == 2


# Memory.


@examples(60)
@given(plans("time"))
def test_memory_is_that_of_the_constraint(plan: ho.Plan) -> None:
    """Weights and gradients, and maps and errors before pooling: as `--memory` counts them.

    A machine of kernels holds each tensor once.
    """
    step = ho.simulate(plan)
    if step.device_memory is None:
        assert step.memory == math.ceil(memory(workload(plan), plan.problem, plan.assignments()))
    else:
        assert step.memory == ho.memory(plan).total
    assert step.capacity == 10**9


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_an_optimizer_takes_its_memory(optimizer: str, states: int) -> None:
    plain, kept = (
        ho.simulate(ho.solve("sfc", solver="data", array="hmc-htree-4", constraints=asked)).memory
        for asked in ({}, {"optimizer": optimizer})
    )
    weights = 784 * 8192 + 2 * 8192**2 + 8192 * 10
    assert kept - plain == 4 * states * weights


def test_memory_of_the_array_is_a_constraint() -> None:
    data = cubes()
    data["accelerator"]["dram_capacity"] = "300 MB"
    array = validate(Array, data)
    free = ho.solve("sfc", solver="data", array=validate(Array, cubes()))
    assert ho.simulate(free).memory > 300_000_000
    kept = ho.solve("sfc", search="joint", array=array, constraints={"memory": "array"})
    assert kept.constraints.memory == 300_000_000
    assert ho.simulate(kept).memory <= 300_000_000
    assert problem_of(array="hmc-htree-4", constraints={"memory": "array"}).constraints.memory == (
        8 * 10**9
    )
    with pytest.raises(ho.HyparError, match=r"constraints\.memory='array' needs an array: array="):
        ho.solve("sfc", constraints={"memory": "array"})


def test_too_little_memory_is_said_beside_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(CUBES.replace('"8 GB"', '"300 MB"'))
    plan = ho.solve("sfc", solver="data", array=validate(Array, cubes()))
    plan.save(tmp_path / "plan.json")
    args: list[Any] = ["simulate", str(tmp_path / "plan.json"), "--array", str(file)]
    args += ["--other-array", "--json"]
    assert run(args) == 0
    out, err = capsys.readouterr()
    memory = json.loads(out)["memory"]
    assert memory["capacity"] == 300_000_000 < memory["bytes"]
    assert err == (
        f"hypar-opt: warning: the plan takes {memory['bytes']:,} bytes of memory per accelerator,"
        " which has 300,000,000; --memory array makes that a constraint\n"
    )
    file.write_text(CUBES)
    assert run(args) == 0
    assert capsys.readouterr().err == ""


def test_the_bottleneck_is_the_link_that_is_full_for_longest_not_the_one_that_waits() -> None:
    """Messages to other nodes hold a fast link too, at the pace of the slow one behind it."""
    step = ho.simulate(ho.solve("vgg-a", array="h100-8x8", solver="trick"))
    assert step.bottleneck is not None
    name, alike = step.bottleneck
    assert "fabric" in name
    assert alike == 7
