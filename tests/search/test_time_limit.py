"""A time limit counts from the call, and what is known when it comes is the answer."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.deadline import Deadline
from hypar_opt.errors import InfeasibleError, NoAnswerError, WrongClaimError
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.instance import instance
from hypar_opt.plan.plan import parse_plan
from hypar_opt.search.memory.micro_batches import ModesByMicroBatches
from hypar_opt.solvers import SOLVERS, within_load
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status, columns
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.ilp.solver import IntegerProgram
from tests import slow
from tests.clocks import tick_when_read
from tests.slow import examples
from tests.strategies.networks import networks

BASELINES = ("data", "model", "trick")
LIMITED = [name for name in SOLVERS if "time_limit" in SOLVERS[name].supported_options]


def fully_connected(layers: int) -> ho.Network:
    each = [{"name": f"l{n + 1}", "kind": "fc", "units": 100} for n in range(layers)]
    return ho.Network.model_validate({"name": "fc", "input": {"features": 100}, "layer": each})


def test_a_deadline_counts_down_to_nothing() -> None:
    assert Deadline().left() is None
    assert not Deadline().passed()
    ahead, behind = Deadline.after(1000.0), Deadline.after(-1.0)
    assert 0 < (ahead.left() or 0) <= 1000
    assert not ahead.passed()
    assert ahead.passed(needed=2000)
    assert behind.left() == 0
    with pytest.raises(NoAnswerError, match="no answer within the time limit"):
        behind.check()


@pytest.mark.parametrize("seconds", [1e10, 1e18, 1e308, 10**300])
def test_a_limit_beyond_any_clocks_is_none(seconds: float) -> None:
    for solver in LIMITED:
        plan = ho.solve("lenet-c", levels=1, solver=solver, time_limit=seconds)
        assert (plan.solver.status, plan.solver.stopped_by) == ("optimal", None)


@st.composite
def problems(draw: st.DrawFn, levels: int) -> dict[str, Any]:
    weighted = draw(st.booleans())
    return {
        "batch": draw(st.integers(1, 9)),
        "levels": levels,
        "reading": draw(st.sampled_from(["text", "executed"])),
        "level_weights": tuple(range(levels, 0, -1)) if weighted else (),
        "constraints": ho.Constraints(
            fix=tuple(draw(st.sampled_from([[], [], ["*@H1=data"]]))),
            memory=draw(st.sampled_from([None, None, 1_000, 10_000])),
        ),
    }


@examples(150)
@given(
    networks(longest=4),
    st.integers(1, 3).flatmap(problems),
    st.sampled_from(["levelwise", "joint"]),
    st.sampled_from(["dp", "brute"]),
    st.integers(1, 60),
)
def test_whenever_a_limit_comes_the_best_plan_known_is_the_answer_and_its_bound_holds(
    network: ho.Network, asked: dict[str, Any], search: str, solver: str, ticks: int
) -> None:
    """The clock goes on with each look at it, so that a search ends at every place it can."""
    try:
        least = ho.solve(network, search=search, **asked)
    except InfeasibleError:
        return
    known = []
    for baseline in BASELINES:
        try:
            known.append(ho.solve(network, solver=baseline, search=search, **asked).cost.total)
        except InfeasibleError:
            continue
    options = SolverOptions(time_limit=float(ticks))
    with pytest.MonkeyPatch.context() as patch:
        tick_when_read(patch)
        try:
            plan = ho.solve(network, solver=solver, search=search, options=options, **asked)
        except NoAnswerError:
            assert not known
            return
    record = plan.solver
    if record.stopped_by is None:
        assert (plan.cost.total, record.status) == (least.cost.total, "optimal")
        return
    assert record.stopped_by == "time limit"
    assert plan.cost.total <= min(known, default=plan.cost.total)
    if search == "joint":
        assert plan.cost.total >= least.cost.total
        assert record.bound is None or record.bound <= least.cost.total
    if record.found_by is not None:
        assert record.status == "feasible"
    if record.bound is not None:
        assert record.bound <= plan.cost.total
        gap = Fraction(plan.cost.total - record.bound) / Fraction(plan.cost.total or 1)
        assert record.gap == pytest.approx(float(gap))


@pytest.mark.parametrize("search", ["levelwise", "joint"])
@pytest.mark.parametrize("solver", LIMITED)
def test_a_limit_that_comes_at_once_leaves_the_best_baseline(solver: str, search: str) -> None:
    options = SolverOptions(time_limit=1e-9)
    plan = ho.solve("alexnet", solver=solver, search=search, options=options)
    known = {name: ho.solve("alexnet", solver=name, search=search) for name in BASELINES}
    best = min(known.values(), key=lambda each: each.cost.total)
    assert (plan.parallelism, plan.cost) == (best.parallelism, best.cost)
    assert (plan.solver.name, plan.solver.found_by) == (solver, "the Trick")
    assert (plan.solver.status, plan.solver.stopped_by) == ("feasible", "time limit")


def test_level_by_level_the_levels_that_were_solved_stay_and_a_baseline_is_below() -> None:
    whole = ho.solve("alexnet", levels=6)
    stopped = []
    for ticks in range(1, 40):
        with pytest.MonkeyPatch.context() as patch:
            tick_when_read(patch)
            options = SolverOptions(time_limit=float(ticks))
            stopped.append(ho.solve("alexnet", levels=6, options=options))
    below = [plan for plan in stopped if " from H" in (plan.solver.found_by or "")]
    assert below
    for plan in below:
        name, _, level = (plan.solver.found_by or "").partition(" from H")
        assert name in {"Data Parallelism", "Model Parallelism", "the Trick"}
        solved = int(level) - 1
        assert plan.parallelism[:solved] == whole.parallelism[:solved]
        bound = sum(whole.cost.per_level[:solved])
        assert bound <= (plan.solver.bound or 0) <= plan.cost.total
    assert stopped[-1].solver.status == "optimal"


def test_under_any_limit_a_plan_fits_a_devices_memory_where_data_parallelism_does() -> None:
    """It is known before the search, with its weights sharded or its blocks run again."""
    network = ho.gpt(layers=2, hidden=256, heads=4, tokens=128, vocabulary=512)
    small = {"dram_capacity": "30 MB", "reserve": "1 B", "reserve_groups": "1 B"}
    small |= {"reserve_experts": "1 B", "accelerator.loss": "eager"}
    asked: dict[str, Any] = {"array": "h100-8", "batch": 64, "settings": small, "overlap": "none"}

    def solved(ticks: int, **more: Any) -> ho.Plan:
        with pytest.MonkeyPatch.context() as patch:
            tick_when_read(patch)
            options = SolverOptions(time_limit=float(ticks))
            return ho.solve(network, options=options, **asked, **more)

    whole = solved(6000)
    assert (whole.solver.status, whole.solver.stopped_by) == ("optimal", None)
    assert ho.memory(whole).fits
    for ticks in (1, 160, 400):
        plan = solved(ticks)
        record = plan.solver
        assert ho.memory(plan).fits
        assert (record.status, record.stopped_by) == ("feasible", "time limit")
        assert plan.cost.total >= whole.cost.total
        assert record.bound is None or whole.cost.total >= record.bound > 0
    stated = solved(1, memory="30 MB")
    assert ho.memory(stated).fits
    assert stated.solver.found_by == "Data Parallelism"
    # That none fits is known of what all plans hold, before any search.
    with pytest.raises(InfeasibleError, match="nothing fits; the least that was found is"):
        solved(1, memory="1 MB")


def test_no_more_bounds_are_sought_once_a_limit_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """On six accelerators most micro-batches have parts that differ, and bounds of their own."""
    network = ho.gpt(layers=2, hidden=384, heads=6, tokens=96, vocabulary=768)
    small = {"dram_capacity": "60 MB", "reserve": "1 B", "topology.per_node": 6}
    asked: dict[str, Any] = {"array": "h100-8", "batch": 144, "settings": small, "overlap": "none"}
    late: list[bool] = []
    compute = ModesByMicroBatches.compute

    def counted(ways: ModesByMicroBatches, count: int) -> Fraction:
        late.append(ways.search.deadline.passed())
        return compute(ways, count)

    monkeypatch.setattr(ModesByMicroBatches, "compute", counted)
    bounds = set()
    for ticks in (1, 400):
        late.clear()
        with pytest.MonkeyPatch.context() as patch:
            tick_when_read(patch)
            plan = ho.solve(network, options=SolverOptions(time_limit=float(ticks)), **asked)
        assert sum(late) <= 1
        assert ho.memory(plan).fits
        bounds.add(plan.solver.bound)
    assert bounds > {None}
    assert max(filter(None, bounds)) <= plan.cost.total


def test_a_plan_file_says_whose_plan_it_is_and_an_older_one_need_not() -> None:
    plan = ho.solve("sfc", options=SolverOptions(time_limit=1e-9))
    read = parse_plan(plan.to_json(), file="plan.json")
    assert read.solver.found_by == plan.solver.found_by is not None
    older = plan.document()
    del older["solver"]["found_by"]
    assert ho.Plan.model_validate(older).solver.found_by is None


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused_before_the_work(limit: float) -> None:
    with pytest.raises(ho.HyparError, match="time_limit: should be"):
        ho.solve("sfc", options=SolverOptions(time_limit=limit))


@pytest.mark.parametrize("solver", ["ilp", "cpsat"])
def test_a_program_that_is_too_large_is_refused_before_its_table_is_made(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """512 states per layer and 60 layers are 15 million columns, and took 100 s and 3 GB."""

    def made(*_: object) -> None:
        raise AssertionError("the table was made")

    monkeypatch.setattr(StateTable, "dense", made)
    monkeypatch.setattr(instance, "states_of", made)
    constraints = ho.Constraints(fix=("l1@H2=data",))
    with pytest.raises(ho.HyparError, match="columns, this may need 15,497,216; try dp"):
        ho.solve(
            fully_connected(60), solver=solver, search="joint", levels=9, constraints=constraints
        )


def test_columns_are_those_of_the_program_that_is_made() -> None:
    rng = np.random.default_rng(3)
    table = CostTable(rng.integers(0, 9, (4, 3)), rng.integers(0, 9, (3, 3, 3)), chain_ends(4))
    result = IntegerProgram().solve(table, SolverOptions())
    assert result.statistics["columns"] == columns(4, 3, 3)


@pytest.mark.parametrize("solver", ["dp", "ilp", "cpsat"])
def test_a_search_that_takes_longer_ends_in_time_whatever_it_is_doing(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building alone takes ilp and cpsat seconds here, and a memory limit takes dp minutes."""
    levels = {"dp": 9, "ilp": 6, "cpsat": 5}[solver]
    constraints = ho.Constraints(memory=10**7)
    options = SolverOptions(time_limit=40.0)
    tick_when_read(monkeypatch)
    plan = ho.solve(
        fully_connected(60),
        solver=solver,
        search="joint",
        levels=levels,
        options=options,
        constraints=constraints,
    )
    assert (plan.solver.status, plan.solver.stopped_by) == ("feasible", "time limit")


def test_of_the_orders_of_splits_the_best_that_was_solved_is_the_answer() -> None:
    asked: dict[str, Any] = {"array": "a100-4x8", "cost": "time", "place": True}
    asked["overlap"] = "none"
    whole = ho.solve("sfc", **asked)
    with pytest.MonkeyPatch.context() as patch:
        tick_when_read(patch)
        plan = ho.solve("sfc", options=SolverOptions(time_limit=40.0), **asked)
    assert (plan.solver.status, plan.solver.stopped_by) == ("feasible", "time limit")
    assert plan.solver.bound is None
    assert plan.cost.total > whole.cost.total


def test_a_route_is_looked_for_no_farther_than_its_end() -> None:
    import networkx as nx

    ring: nx.Graph[int] = nx.Graph()
    link = {"bytes_per_second": Fraction(1), "latency": Fraction(1), "full_duplex": True}
    for n in range(4096):
        ring.add_edge(n, (n + 1) % 4096, **link)
    interconnect = Interconnect(ring)
    left: list[int] = []
    neighbours = {n: [(n - 1) % 4096, (n + 1) % 4096] for n in range(4096)}

    class CountedPlan(dict[int, list[int]]):
        def __getitem__(self, node: int) -> list[int]:
            left.append(node)
            return super().__getitem__(node)

    interconnect.paths.__dict__["neighbours"] = CountedPlan(neighbours)
    hops = [interconnect.route(7, 7 + far).hops for far in (4, 1, 2, 8)]
    assert hops == [4, 1, 2, 8]
    assert len(left) <= 2 * 8


@pytest.mark.parametrize("largest", slow.slow_after(2, [1, 1000, 3]))
def test_capacities_are_solved_the_same_however_much_is_joined_at_once(largest: int) -> None:
    rng = np.random.default_rng(11)
    for number in range(20):
        node, edge = rng.integers(0, 50, (6, 3)), rng.integers(0, 50, (5, 3, 3))
        limits = [(rng.integers(0, 9, (6, 3)), capacity) for capacity in (20, 25)]
        table = CostTable(node, edge, chain_ends(6), limits=tuple(limits[: 1 + number % 2]))
        whole = DynamicProgramming().solve(table, SolverOptions())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(within_load, "_AT_ONCE", largest)
            patch.setattr(within_load, "_AT_ONCE_OF_SEVERAL", largest)
            assert DynamicProgramming().solve(table, SolverOptions()) == whole


def test_a_solver_that_calls_a_problem_infeasible_is_held_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = SolveResult(None, None, Status.INFEASIBLE)
    monkeypatch.setattr(DynamicProgramming, "solve", lambda self, table, options: said)
    with pytest.raises(WrongClaimError, match="claims that there is no assignment"):
        ho.solve("sfc")


def test_the_command_ends_with_0_and_says_whose_plan_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["solve", "vgg-e", "--time-limit", "1e-9", "--json"]) == 0
    out, err = capsys.readouterr()
    solver = json.loads(out)["solver"]
    assert (solver["status"], solver["stopped_by"]) == ("feasible", "time limit")
    assert f"stopped by its time limit; the plan is {solver['found_by']}" in err


def test_all_other_choices_together_keep_to_one_limit() -> None:
    plan = ho.solve("lenet-c", options={"time_limit": 60.0})
    assert plan.solver.scope == "level"  # so that each other choice takes a search of its own
    with pytest.MonkeyPatch.context() as patch:
        tick_when_read(patch)
        ho.solve("lenet-c", options={"time_limit": 60.0})  # one search takes less
        with pytest.raises(NoAnswerError, match=r"the time limit came before what .* costs"):
            ho.regrets(plan)


@pytest.mark.parametrize("network", ["lenet-c", "resnet-18"])
def test_the_best_plans_keep_to_the_limit(network: str) -> None:
    plan = ho.solve(network, levels=2, search="joint", options={"time_limit": 20.0})
    with pytest.MonkeyPatch.context() as patch:
        tick_when_read(patch)
        with pytest.raises(NoAnswerError, match="time limit"):
            ho.best_plans(plan, 50)


@pytest.mark.parametrize("question", ["--regret", "--best=50"])
def test_a_plan_is_printed_though_no_time_is_left_for_the_question_about_it(
    question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tick_when_read(patch)
        assert run(["solve", "lenet-c", "--time-limit", "60", question]) == 3
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("Executed: ")
    assert "time limit" in err.splitlines()[-1]


def test_a_limit_leaves_the_plans_simulated_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    question = ["solve", "lenet-c", "--array", "hmc-htree-16", "--simulate", "20"]
    said = []
    for limit in range(20, 400, 10 if slow.ALL else 40):
        with pytest.MonkeyPatch.context() as patch:
            tick_when_read(patch)
            assert run([*question, "--time-limit", str(limit)]) == 0
        said.append(capsys.readouterr().err)
        if "of 20 plans simulated" in said[-1]:
            break
    assert "--simulate: no answer within the time limit; the plan is the search's own" in said[0]
    simulated = re.findall(r"of (\d+) plans", "".join(said))
    assert 1 < int(simulated[0]) < int(simulated[-1]) == 20


def test_charging_what_layers_share_takes_as_many_steps_in_a_dense_graph() -> None:
    """Not a step a boundary, of which there are as many as pairs of layers."""

    def steps(layers: int) -> int:
        rows: list[dict[str, Any]] = []
        for n in range(layers):
            before = [f"f{m}" for m in range(n)]
            rows.append({"name": f"a{n}", "kind": "add", "inputs": ["input", *before]})
            rows.append({"name": f"f{n}", "kind": "fc", "units": 8})
        described = {"schema": "hypar-opt/network/2", "name": "dense", "input": {"features": 8}}
        network = ho.Network.model_validate(described | {"layer": rows[1:]})
        with pytest.MonkeyPatch.context() as patch:
            counted, charge = [0], CommunicationCost.edge

            def edge(*args: Any) -> Any:
                counted[0] += 1
                return charge(*args)

            patch.setattr(CommunicationCost, "edge", edge)
            ho.solve(network, levels=1, choices=("data", "model", "output"), solver="data")
        return counted[0]

    assert steps(24) == steps(6) > 0


def test_what_another_choice_costs_is_not_told_from_a_search_that_was_stopped() -> None:
    plan = ho.solve("sfc", levels=1)
    limited = plan.solver.options.model_copy(update={"time_limit": 1e-9})
    solver = plan.solver.model_copy(update={"options": limited})
    with pytest.raises(NoAnswerError, match="time limit"):
        ho.regrets(plan.model_copy(update={"solver": solver}))
