"""The joint optimum: over all levels together, against every plan there is."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs import state_charges
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import joins_levels, level_table
from hypar_opt.costs.shared_nodes import level_tables
from hypar_opt.costs.state_charges import canonical_states, state_indices
from hypar_opt.costs.state_table import StateTable
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.documents.document import preset_text
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_levels, price_table
from hypar_opt.integers import Integers
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.cost_to_go import chain_table
from hypar_opt.search.two_level_neighbourhood import improved_rows
from hypar_opt.solvers.product_states import cheapest_states
from hypar_opt.step.states import Indices, States
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.slow import examples, slow_after
from tests.strategies.networks import networks
from tests.strategies.plans import READINGS, Rows, totals_of
from tests.strategies.problems import keeps, priced_plans, random_problem
from tests.strategies.written_plans import fully_connected

readings = st.sampled_from(list(READINGS))


@pytest.mark.parametrize("seed", slow_after(20, range(150)))
def test_joint_is_brute_force_over_every_plan_and_level_by_level_never_beats_it(seed: int) -> None:
    network, asked = random_problem(Random(seed), longest=3, most_plans=2**9)
    total, rows = priced_plans(network, asked)[0]
    joint = ho.solve(network, search="joint", **asked)
    assert joint.cost.total == joint.solver.bound == total
    assert joint.assignments() == rows
    assert (joint.solver.status, joint.solver.scope) == ("optimal", "joint")
    level = ho.solve(network, **asked)
    assert keeps(workload_of(network, level.batch), level.problem, level.assignments())
    assert level.cost.total >= total


@examples(40)
@given(networks(longest=4), st.integers(1, 9), st.integers(1, 4), readings, st.data())
def test_pins_for_all_levels_and_even_splits_are_answers_to_the_thresholds(
    network: ho.Network, batch: int, levels: int, reading: str, data: st.DataObject
) -> None:
    """Against Viterbi over states, some of which are forbidden."""
    words = st.sampled_from(["", "data", "model"])
    pins = [f"{layer.name}={data.draw(words)}" for layer in network.layers]
    constraints = {
        "fix": tuple(pin for pin in pins if not pin.endswith("=")),
        "even": data.draw(st.booleans()),
    }
    asked: Any = {"batch": batch, "levels": levels, "reading": reading}
    try:
        plan = ho.solve(network, search="joint", constraints=constraints, **asked)
    except ho.HyparError:  # nothing keeps to them
        return
    instance = Instance.of_plan(plan)
    if "whole" in plan.choices:
        return  # a third choice has none
    assert instance.thresholds is not None
    table = chain_table(instance)
    assert table is not None
    least, found = cheapest_states(table, np.argsort(table.columns))
    assert least == plan.cost.total
    digits = [found_state // 2 ** np.arange(levels)[::-1] % 2 for found_state in found]
    assert np.array_equal(np.transpose(digits), plan.assignments())


@given(networks(longest=4), st.integers(1, 9), st.integers(1, 3), st.integers(2, 3), st.data())
def test_factored_and_expanded_tables_price_every_plan_as_its_levels_do(
    network: ho.Network, batch: int, levels: int, choices: int, data: st.DataObject
) -> None:
    reading = data.draw(st.sampled_from(["text", "tables"]) if choices == 3 else readings)
    weights = data.draw(st.lists(st.integers(1, 9), min_size=levels, max_size=levels))
    cost = CommunicationCost(reading, level_weights=tuple(weights))
    workload = workload_of(network, batch, CHOICES[:choices])
    states = canonical_states(levels, choices)
    columns = state_indices(states, [choices] * levels)
    table = StateTable.of(cost, workload, levels)
    plain, split = table.dense(), table.by_level()
    assert split is not None
    picked = data.draw(
        st.lists(
            st.integers(0, len(states) - 1),
            min_size=len(workload.layers),
            max_size=len(workload.layers),
        )
    )
    rows = tuple(zip(*(states[p] for p in picked), strict=True))
    total = sum(price_table(table, row) for table, row in level_tables(workload, cost, rows))
    assert price_table(plain, picked) == total
    by_parts = sum(int(split.node[layer, columns[p]]) for layer, p in enumerate(picked))
    for edge, (source, target) in enumerate(workload.ends.tolist()):
        for level, pairs in enumerate(split.pairs):
            above = states[picked[target]][:level]
            prefix = int(state_indices([above], [choices] * level)[0]) if pairs.shape[1] > 1 else 0
            pair = states[picked[source]][level], states[picked[target]][level]
            by_parts += int(pairs[edge, prefix, pair[0], pair[1]])
    assert by_parts == total


@given(networks(longest=4), st.integers(1, 9), st.integers(1, 4), readings)
def test_a_threshold_is_a_level_of_uniform_splits(
    network: ho.Network, batch: int, levels: int, reading: str
) -> None:
    """Question t charges what a level does below t - 1 model and H - t data choices."""
    workload, cost = workload_of(network, batch), CommunicationCost(reading)
    layers = len(workload.layers)
    thresholds = cost.thresholds(workload, levels)
    assert thresholds is not None
    for t, table in enumerate(thresholds.tables(), 1):
        level = level_table(
            cost, workload, [[0] * layers] * (levels - t) + [[1] * layers] * (t - 1)
        )
        for answers in itertools.product(range(2), repeat=layers):
            assert price_table(table, answers) == price_table(level, answers)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", ho.models.PAPER_NETWORKS)
def test_the_ten_networks_lose_nothing_level_by_level_but_cifar_c_under_text(
    name: str, reading: str
) -> None:
    level, joint = (
        ho.solve(name, search=search, reading=reading).cost.total
        for search in ("levelwise", "joint")
    )
    if (name, reading) == ("cifar-c", "text"):
        assert level / joint == pytest.approx(1.0026, abs=5e-5)
    elif reading in {"text", "figures"}:
        assert level == joint
    assert joint <= level


def test_alexnet_at_batch_8_on_four_accelerators_loses_3_2_percent() -> None:
    level, joint = (
        ho.solve("alexnet", batch=8, levels=2, search=search).cost.total
        for search in ("levelwise", "joint")
    )
    assert level / joint == pytest.approx(1.032, abs=5e-4)


def test_the_joint_optimum_of_64_levels_is_found() -> None:
    plan = ho.solve("vgg-e", levels=64, search="joint")
    assert plan.solver.bound == plan.cost.total
    rows = np.array(plan.assignments())
    assert (rows[:-1] >= rows[1:]).all()  # model parallelism at the topmost levels


@pytest.mark.parametrize("network", ["lenet-c", "resnet-18"])
@pytest.mark.parametrize("sizes", [(3, 3), (6, 6, 6)])
def test_thresholds_of_levels_of_n_parts_are_solved_alike(
    network: str, sizes: tuple[int, ...]
) -> None:
    asked: Any = {"hierarchy": sizes, "whole_levels": True, "batch": 216, "reading": "executed"}
    plans = [
        ho.solve(network, solver=solver, search="joint", **asked) for solver in ("dp", "cut", "ilp")
    ]
    assert {plan.solver.status for plan in plans} == {"optimal"}
    assert len({plan.parallelism for plan in plans}) == 1


def test_more_states_than_memory_holds_end_in_a_better_plan_than_the_levelwise_one() -> None:
    asked: Any = {"levels": 22, "level_weights": tuple(range(1, 23))}
    plan = ho.solve("lenet-c", search="joint", **asked)
    assert (plan.solver.status, plan.solver.stopped_by) == ("feasible", "memory")
    assert plan.cost.total < ho.solve("lenet-c", **asked).cost.total


@pytest.mark.parametrize("levels", [5, 33])
def test_no_change_at_two_levels_improves_what_the_descent_ends_with(levels: int) -> None:
    network, rng = fully_connected(64, 48, 32), Random(levels)
    weights = tuple(rng.randint(1, 9) for _ in range(levels))
    problem = problem_of(network, levels=levels, level_weights=weights)
    instance = Instance.to_search(network, problem)
    first: list[tuple[int, ...]] = [(rng.randrange(2), rng.randrange(2)) for _ in range(levels)]
    best = improved_rows(instance, first, NEVER)

    def totals(plans: list[Rows]) -> list[Fraction]:
        return totals_of(instance.workload, instance.cost, plans, instance.rule)

    # Of more than 32 levels, neighbours alone are changed together.
    together = itertools.combinations(range(levels), 2)
    pairs = together if levels <= 32 else itertools.pairwise(range(levels))
    changed = []
    for pair in pairs:
        for some in itertools.product(itertools.product(range(2), repeat=2), repeat=2):
            made = dict(zip(pair, some, strict=True))
            changed.append(tuple(made.get(level, row) for level, row in enumerate(best)))
    (least,) = totals([tuple(best)])
    assert least < totals([tuple(first)])[0]
    assert min(totals(changed)) == least


@pytest.mark.parametrize("solver", ["dp", "brute"])
@pytest.mark.parametrize("reading", list(READINGS))
def test_sums_beyond_int64_are_exact_where_boundaries_weigh_more_than_layers(
    solver: str, reading: str
) -> None:
    """A pool that grows a map to 13,371 x 13,371, read by a convolution that skips all of it."""
    pool = {"kind": "max", "size": 13370, "padding": 13369, "stride": 1}
    layers = [
        {"name": "conv1", "kind": "conv", "filters": 1, "kernel": 1, "pool": pool},
        {"name": "conv2", "kind": "conv", "filters": 1, "kernel": 1, "stride": 2_000_000_000},
    ]
    read = {"channels": 1, "height": 1, "width": 1}
    network = ho.Network.model_validate({"name": "wide", "input": read, "layer": layers})
    weights = (9, 8, 7, 6, 5, 4)
    asked: Any = {"batch": 2**24, "levels": 6, "level_weights": weights, "reading": reading}
    plan = ho.solve(network, solver=solver, search="joint", **asked)
    workload, problem = workload_of(network, 2**24), plan.problem
    cost = CommunicationCost.from_problem(problem, workload)
    table = StateTable.of(cost, workload, 6).dense()
    every = table.node[0][:, None] + table.edge[0] + table.node[1][None, :]
    assert plan.cost.total == Fraction(int(every.min()), cost.resolution)
    assert plan.solver.status == "optimal"
    assert max(workload.boundary_sizes) > sum(workload.outputs) + sum(workload.weights)


def test_forbidden_states_take_no_wider_integers_however_many_layers() -> None:
    """Where the penalties of all layers add up to more than int64 holds, one still fits."""
    layers = [{"name": f"fc{n}", "kind": "fc", "units": 2**27} for n in range(9)]
    network = ho.Network.model_validate({"name": "wide", "input": {"features": 8}, "layer": layers})
    pins = {"fix": tuple(f"fc{n}=data" for n in range(0, 9, 2))}
    asked: Any = {"batch": 2**24, "levels": 1, "search": "joint", "constraints": pins}
    plan = ho.solve(network, solver="brute", **asked)
    table = chain_table(Instance.of_plan(plan))
    assert table is not None
    assert table.penalty is not None
    assert table.node.dtype == np.int64
    assert table.penalty * len(table.node) > 2**63
    rank = np.argsort(table.columns)
    least, states = cheapest_states(table, rank)
    assert Fraction(least, table.resolution) == plan.cost.total
    assert tuple(int(rank[state]) for state in states) == tuple(plan.assignments()[0])
    none = replace(table, node=table.node + table.penalty)
    assert cheapest_states(none, rank) == (table.penalty, [])


class Pairs(CommunicationCost):
    """Bytes, and more for a layer in model parallelism at both of two levels."""

    def node(self, workload: ho.Workload, nodes: Indices, states: States) -> list[Integers]:
        rows = list(super().node(workload, nodes, states))
        levels = [level for block in states for level in block]
        if len(levels) == 2:
            both = (levels[0] == 1) & (levels[1] == 1)
            rows[0] = rows[0] + np.array(workload.weights)[nodes] * 1000 * both
        return rows


def test_charges_of_some_states_alone_are_those_of_every_table_and_price() -> None:
    """Data Parallelism's state, the first of all, may well have none."""
    workload, cost = workload_of(ho.load("lenet-c"), 8), Pairs("figures")
    assert joins_levels(cost, workload, 2)
    assert not joins_levels(cost, workload, 1)
    plain, states = StateTable.of(cost, workload, 2).dense(), canonical_states(2, 2)
    table = StateTable.of(cost, workload, 2).by_level()
    assert table is not None
    columns = state_indices(states, [2, 2])
    assert (plain.node == table.node[:, columns]).all()
    both = states.index((1, 1))
    bare = StateTable.of(CommunicationCost("figures"), workload, 2).dense().node
    assert (plain.node[:, both] - bare[:, both]).tolist() == [1000 * w for w in workload.weights]
    assert (np.delete(plain.node, both, 1) == np.delete(bare, both, 1)).all()
    rng = np.random.default_rng(0)
    for _ in range(20):
        picked = rng.integers(0, 4, len(workload.layers)).tolist()
        rows = list(zip(*(states[column] for column in picked), strict=True))
        assert price_table(plain, picked) == sum(price_levels(workload, cost, rows))


def test_the_states_are_sorted_once_for_all_placements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = preset_text("hypar_opt.hardware.arrays", "hmc-torus-16")
    file = tmp_path / "array.toml"
    file.write_text(re.sub(r"shape = .*", "shape = [8, 4]", text))
    sorted_states, calls = state_charges._sorted_states, []

    def spy(levels: int, choices: int, deadline: Deadline) -> list[state_charges.State]:
        calls.append((levels, choices))
        return sorted_states(levels, choices, deadline)

    monkeypatch.setattr(state_charges, "_sorted_states", spy)
    state_charges._canonical_states.cache_clear()
    placed: list[int] = []
    ho.solve(
        "lenet-c",
        array=file,
        cost="time",
        place=True,
        progress=lambda done, count: placed.append(count),
    )
    assert placed[-1] > 1
    assert len(calls) == len(set(calls)) >= 1
