"""All levels by classes of states: against elimination of all states, and what permutes levels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs import alignments
from hypar_opt.costs.kinds import index_by_key, kinds_of_boundaries, kinds_of_nodes
from hypar_opt.costs.state_charges import canonical_states
from hypar_opt.costs.state_classes import ClassTable
from hypar_opt.costs.state_table import StateTable
from hypar_opt.deadline import NEVER, TIME_LIMIT
from hypar_opt.errors import HyparError, NoAnswerError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import charges_by_level
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.joint import joint
from hypar_opt.search.local_search import improved
from hypar_opt.search.reductions import ByStates
from hypar_opt.search.result import SearchRequest
from hypar_opt.solvers.base import SolverOptions, Status
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.elimination import classes, order
from hypar_opt.solvers.elimination.order import elimination_order
from hypar_opt.step.states import exact_sum
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after
from tests.strategies.arrays import random_array
from tests.strategies.problems import random_network

DP, OPTIONS = DynamicProgramming(), SolverOptions()


def drawn(seed: int) -> Instance:
    """A random graph or chain: in bytes at levels of two to six parts, or on a random array."""
    rng = Random(seed)
    while True:
        network = random_network(rng, 4) if rng.random() < 0.2 else random_graph(rng, most=5)
        choices = CHOICES[: rng.choice([2, 3, 3])]
        reading = rng.choice(["executed", "executed", "executed", "text"])
        asked: dict[str, Any] = {"choices": choices, "reading": reading}
        levels = rng.randint(2, 4 if len(choices) == 2 else 3)
        if rng.random() < 0.5:
            bucket = rng.choice([None, None, Fraction(rng.randint(1, 2000))])
            array = random_array(rng, levels, of_parts=rng.random() < 0.2)
            asked["array"] = array.model_copy(update={"bucket": bucket})
            levels = array.levels
            asked["cost"] = rng.choice(["time", "time", "energy"])
        elif reading == "text":
            asked["levels"] = levels
        else:
            sizes = [rng.choice([2, 2, 3, 6]) for _ in range(levels)]
            asked |= {"hierarchy": sizes, "whole_levels": True}
        if "array" not in asked and rng.random() < 0.3:
            asked["level_weights"] = tuple(rng.randint(1, 2) for _ in range(levels))
        constraints: dict[str, Any] = {"even": rng.random() < 0.2}
        if rng.random() < 0.3:
            constraints["fix"] = (f"*@H{rng.randint(1, levels)}=data",)
        batch = rng.choice([12, 36, 216])
        try:
            problem = problem_of(network, batch=batch, constraints=constraints, **asked)
            instance = Instance(network, problem)
            _ = instance.cost, instance.constraints
        except HyparError:  # an odd size between three, or no plan
            continue
        return instance


def table_of(instance: Instance) -> ClassTable:
    states = canonical_states(instance.problem.levels, len(instance.workload.choices))
    allowed = instance.constraints.allowed(states)
    return StateTable(instance.cost, instance.workload, states, allowed).by_classes()


def test_a_table_of_a_few_states_charges_no_others() -> None:
    """Of 20 levels there are 3^20 states, and pins may leave two."""
    problem = problem_of(levels=20, choices=CHOICES[:3], reading="executed", batch=2**20)
    instance = Instance(ho.load("lenet-c"), problem)
    nodes = len(instance.workload.nodes)
    states = [(0,) * 20, (0,) * 15 + (1,) * 5]
    table = StateTable(instance.cost, instance.workload, states).by_classes()
    for column, state in enumerate(states):
        rows = [[own] * nodes for own in state]
        (charges,) = charges_by_level(instance.workload, instance.cost, [rows])
        assert table.price([column] * nodes) == sum(charges)


@pytest.mark.parametrize("seed", slow_after(12, range(1000)))
def test_classes_find_what_the_elimination_of_all_states_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same assignment, of equals the canonical one; with finer classes wherever there are."""
    instance = drawn(seed)
    plain, _ = ByStates(instance).apply()
    if DP.accepts(plain):
        pytest.skip("its states are too many to be eliminated")
    monkeypatch.setattr(classes, "_EASY", classes._EASY * (seed % 2))
    one, other = DP.solve(plain, OPTIONS), DP.solve(table_of(instance), OPTIONS)
    assert (other.status, other.bound) == (one.status, one.bound)
    assert (other.objective, other.assignment) == (one.objective, one.assignment)


@pytest.mark.parametrize("seed", slow_after(5, range(200)))
def test_a_table_of_some_states_alone_has_the_best_plan_of_these(seed: int) -> None:
    """As that of all states does where others are forbidden."""
    instance, rng = drawn(seed), Random(seed)
    workload = instance.workload
    if workload.weight_users:
        pytest.skip("the penalty where shared weights differ depends on the states")
    states = canonical_states(instance.problem.levels, len(workload.choices))
    some = sorted(rng.sample(range(len(states)), min(len(states) - 1, 5)))
    every = np.ones((len(workload.nodes), len(states)), bool)
    allowed = every & np.isin(range(len(states)), some)
    whole = StateTable(instance.cost, workload, states, allowed).by_classes()
    few = StateTable(
        instance.cost, workload, [states[n] for n in some], every[:, some]
    ).by_classes()
    assert few.partitions[-1].exact
    best, own = DP.solve(whole, OPTIONS), DP.solve(few, OPTIONS)
    assert (own.status, own.objective) == (best.status, best.objective)
    assert own.assignment is not None
    assert best.assignment == tuple(some[column] for column in own.assignment)


@pytest.mark.parametrize("seed", slow_after(5, range(200)))
def test_without_memory_a_plan_is_improved_and_has_a_bound(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(drawn(seed))
    best = DP.solve(table, OPTIONS).bound
    assert best is not None
    local = table.price(improved(table, table.cheapest_states, NEVER))
    assert local == best if len(table.states) <= 2 else local >= best
    elimination_order.cache_clear()
    monkeypatch.setattr(order, "MAX_ENTRIES", 1 + 20 * (seed % 3))
    result = DP.solve(table, OPTIONS)
    elimination_order.cache_clear()
    assert (result.bound or 0) <= best
    start = result.assignment or table.cheapest_states
    plan = improved(table, start, NEVER)
    assert best <= table.price(plan) <= table.price(start)
    assert table.allowed[table.node_kinds, plan].all()
    if result.status is Status.OPTIMAL:
        assert table.price(plan) == best


@pytest.mark.parametrize("seed", slow_after(5, range(200)))
def test_where_all_states_are_too_many_two_levels_at_once_improve_a_plan(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two levels the plan is the optimum; a bound by compute is one on all plans."""
    request = SearchRequest(drawn(seed), DP)
    best = joint(request)
    assert best.status is Status.OPTIMAL
    monkeypatch.setattr(alignments, "MAX_ENTRIES", 0)
    found = joint(replace(request, instance=drawn(seed)))
    total, least = (request.total(own.assignments, own.priced) for own in (found, best))
    assert found.bound is not None
    assert found.bound <= least <= total
    if request.levels == 2:
        assert total == least


def test_a_search_that_memory_or_time_ends_has_the_plan_found_level_by_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And says so; where states are priced in time, two levels at once improve it."""
    asked: dict[str, Any] = {"levels": 3, "choices": CHOICES, "reading": "executed", "batch": 1}
    levelwise = ho.solve("gpt2", **asked)

    def stopped(*_: object) -> None:
        raise NoAnswerError("", TIME_LIMIT)

    for ended, of, by, limit in (
        ("MAX_ENTRIES", order, "memory", None),
        ("_search", classes, TIME_LIMIT, 60),
        ("compact", ByStates, TIME_LIMIT, 60),
    ):
        elimination_order.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(of, ended, 3_000 if ended == "MAX_ENTRIES" else stopped)
            plan = ho.solve("gpt2", search="joint", options={"time_limit": limit}, **asked)
        assert (plan.solver.status, plan.solver.stopped_by) == ("feasible", by)
        if ended == "compact":
            assert plan.solver.found_by == "the levelwise plan"
            assert plan.parallelism == levelwise.parallelism
        else:
            assert plan.solver.found_by is None
            assert plan.cost.total < levelwise.cost.total
    elimination_order.cache_clear()


@pytest.mark.parametrize("seed", slow_after(15, range(60)))
def test_what_is_of_one_kind_is_charged_alike(seed: int) -> None:
    instance = drawn(seed)
    cost, workload = instance.cost, instance.workload
    rng = np.random.default_rng(seed)
    shape = instance.problem.levels, 1, 40
    states = rng.integers(0, len(workload.choices), (2, *shape))
    every = np.arange(len(workload.nodes))[:, None], np.arange(len(workload.ends))[:, None]
    node = exact_sum(cost.node(workload, every[0], [states[0]]))
    edge = exact_sum(cost.edge(workload, every[1], [states[0]], [states[1]]))
    of_nodes = kinds_of_nodes(workload).numbers.tolist()
    keys = cost.symmetries(workload, instance.problem.levels).node_keys
    for charges, of_kinds, count in (
        (node, index_by_key(zip(of_nodes, keys, strict=True)), len(of_nodes)),
        (edge, kinds_of_boundaries(workload), len(workload.ends)),
    ):
        full = np.broadcast_to(charges, (count, 40))
        assert (full == full[of_kinds.first][of_kinds.numbers]).all()


@pytest.mark.parametrize("seed", slow_after(15, range(300)))
def test_permuting_levels_of_a_group_changes_no_charge_of_a_boundary(seed: int) -> None:
    instance = drawn(seed)
    workload, levels = instance.workload, instance.problem.levels
    groups = np.array(instance.cost.symmetries(workload, levels).level_groups)
    rng = np.random.default_rng(seed)
    shape = levels, len(workload.ends), 50
    source, target = rng.integers(0, len(workload.choices), (2, *shape))
    order = np.arange(levels)
    for group in set(groups.tolist()):
        order[groups == group] = rng.permutation(order[groups == group])
    boundaries = np.arange(len(workload.ends))[:, None]
    one, other = (
        exact_sum(instance.cost.edge(workload, boundaries, [s], [t]))
        for s, t in ((source, target), (source[order], target[order]))
    )
    assert (np.broadcast_to(one, shape[1:]) == other).all()


@pytest.mark.parametrize("seed", slow_after(10, range(100)))
def test_classes_are_charged_the_least_of_their_pairs_of_states(seed: int) -> None:
    """Whatever choices a boundary charges alike, whose pairs of states are charged once.

    Of classes that its ends may have; those of other choices say the highest of these.
    """
    table = table_of(drawn(seed))
    every = np.arange(table.states.shape[1])
    (*_, partition), count = table.partitions, table.partitions[-1].lower_bounds.shape[-1]
    for kind, least in enumerate(partition.lower_bounds):
        charges = table.pairs(kind, every, every)
        expected = np.full((count, count), charges.max())
        np.minimum.at(expected, (partition.classes[:, None], partition.classes), charges)
        assert least.max() <= table.highest[kind] <= charges.max()
        for ends in table.node_kinds[table.ends[table.boundary_kinds == kind]]:
            may = [np.flatnonzero(table.allowed[end]) for end in ends]
            of_classes = np.ix_(*(partition.classes[own] for own in may))
            assert (expected[of_classes] == least[of_classes]).all()
            assert charges[np.ix_(*may)].max() <= table.highest[kind]


def test_groups_of_a_machine_of_nodes_and_of_prime_factors() -> None:
    """Links are equal inside a node and between nodes; levels of six nodes of eight by parts."""
    asked: dict[str, Any] = {"choices": CHOICES, "reading": "executed"}

    def groups(**stated: Any) -> list[int]:
        network = find_network("resnet-18")
        instance = Instance(network, problem_of(network, **stated, **asked))
        return list(
            instance.cost.symmetries(instance.workload, instance.problem.levels).level_groups
        )

    assert groups(array="h100-8x8", cost="time") == [0, 0, 0, 1, 1, 1]
    assert groups(hierarchy=(6, 8), batch=48) == [0, 1, 0, 0, 0]
    assert groups(levels=4) == [0, 0, 0, 0]
    assert groups(levels=4, level_weights=(1, 1, 2, 1)) == [0, 0, 1, 2]


README: dict[str, Any] = {
    "array": "h100-8x8",
    "cost": "time",
    "element_bytes": 2,
    "choices": CHOICES,
    "reading": "executed",
}


WITHIN_MEMORY = [("llama-70b", "h100-8x8"), ("llama-7b", "tpu-v4-4x4x4")]


@pytest.mark.parametrize(
    ("network", "array"),
    slow_after(
        2,
        [
            ("gpt2", "h100-8x8"),
            ("vit-b16", "h100-8x8"),
            ("resnet-50", "h100-8x8"),
            ("llama-7b", "h100-8x8"),
            ("llama-70b", "h100-8x8"),
            ("gpt2", "tpu-v4-4x4x4"),
            ("resnet-50", "tpu-v4-4x4x4"),
            ("llama-7b", "tpu-v4-4x4x4"),
        ],
    ),
)
def test_three_choices_in_time_on_64_accelerators_are_proved(network: str, array: str) -> None:
    # What its memory does not hold at once is searched with how each layer trains, to a gap.
    holds = (network, array) not in WITHIN_MEMORY
    room = {} if holds else {"dram_capacity": "10 TB"}
    asked = {**README, "array": array, "bucket": 0, "settings": room, "overlap": "none"}
    plan = ho.solve(network, batch=64, **asked)
    assert plan.solver.status == "optimal"
    assert plan.solver.bound == plan.cost.total


@pytest.mark.slow
@pytest.mark.parametrize(("network", "array"), WITHIN_MEMORY)
@pytest.mark.parametrize("shares_buffers", [False, True])
def test_llama_within_a_memory_has_a_bound(
    network: str, array: str, *, shares_buffers: bool
) -> None:
    """Nearer where communicators have no buffers: a bound counts those of one layer alone."""
    described = find_array(array).description()
    if shares_buffers:
        described["accelerator"].pop("reserve_groups", None)
    asked = {**README, "array": ho.Array.model_validate(described), "overlap": "none"}
    plan = ho.solve(network, batch=64, **asked, bucket=0)
    assert plan.solver.gap is not None
    assert plan.solver.gap < (0.006 if shares_buffers else 0.02)


@pytest.mark.parametrize(
    ("network", "stated"),
    slow_after(
        2,
        [
            ("resnet-18", {"levels": 4}),
            ("gpt2", {"levels": 3}),
            ("resnet-50", {"levels": 4}),
            ("gpt2", {"levels": 4}),
            ("resnet-50", {"array": "hmc-htree-16", "cost": "time"}),
            ("gpt2", {"array": "hmc-htree-16", "cost": "time"}),
            ("vit-b16", {"array": "hmc-torus-16", "cost": "energy"}),
        ],
    ),
)
def test_networks_of_the_zoo_have_the_optima_of_all_states(
    network: str, stated: dict[str, Any]
) -> None:
    described = find_network(network)
    asked: dict[str, Any] = {"choices": CHOICES, "reading": "executed", "batch": 64, **stated}
    instance = Instance(described, problem_of(described, **asked))
    plain, _ = ByStates(instance).apply()
    one, other = DP.solve(plain, OPTIONS), DP.solve(table_of(instance), OPTIONS)
    assert (other.objective, other.assignment) == (one.objective, one.assignment)


def test_bytes_on_64_and_128_accelerators_are_proved() -> None:
    asked: dict[str, Any] = {"search": "joint", "choices": CHOICES, "reading": "executed"}
    plan = ho.solve("resnet-50", levels=6, **asked)
    assert (plan.solver.status, plan.cost.total) == ("optimal", 8_184_260_096)
    plan = ho.solve("inception-v3", levels=7, **asked)
    assert plan.solver.status == "optimal"


@pytest.mark.slow
def test_what_memory_does_not_let_be_proved_has_a_bound() -> None:
    asked: dict[str, Any] = {"search": "joint", "choices": CHOICES, "reading": "executed"}
    plan = ho.solve("resnet-50", levels=7, **asked)
    assert (plan.solver.status, plan.solver.stopped_by) == ("feasible", "memory")
    assert plan.solver.gap is not None
    assert 0 < plan.solver.gap < 0.03
