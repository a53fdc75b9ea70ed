"""The tables that proofs rest on, against the search's prices and against sums by hand."""

from __future__ import annotations

import itertools
import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs import COSTS as COST_MODELS
from hypar_opt.documents.document import validate
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.hardware import arrays as presets
from hypar_opt.hardware.array import Array
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.instance.pricing import price_table
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.reference.rows import price_of, states
from hypar_opt.proofs.reference.tables import tables_of
from hypar_opt.workload.tensors import workload_of
from tests.hardware.cubes import cubes
from tests.strategies.plans import READINGS, Asked, Rows
from tests.strategies.written_plans import (
    choosing,
    every_rows,
    fully_connected,
    restrictions,
    small_problems,
    with_collective,
    written,
)

COSTS = ["bytes", "time", "energy"]
MOST = 16


def some_rows(data: st.DataObject, network: ho.Network, asked: Asked) -> list[Rows]:
    found = list(every_rows(len(network.layers), asked["levels"], len(asked["choices"])))
    if len(found) > MOST:
        found = data.draw(st.lists(st.sampled_from(found), min_size=MOST, max_size=MOST))
    return found


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("cost", COSTS)
def test_the_search_charges_every_plan_the_same(cost: str, reading: str) -> None:
    """Two derivations of one model: from tensors and splits, and from a plan's own document."""

    @settings(max_examples=8)
    @given(small_problems(cost=cost, reading=reading), st.data())
    def check(problem: tuple[ho.Network, Asked], data: st.DataObject) -> None:
        network, asked = problem
        write = written(network, "joint", **asked)
        for rows in some_rows(data, network, asked):
            plan = write(rows)
            assert price_of(plan) == Fraction(plan.cost.total), rows

    check()


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("cost", ["time", "energy"])
def test_the_search_charges_rings_the_same(cost: str, reading: str) -> None:
    @settings(max_examples=8)
    @given(small_problems(cost=cost, reading=reading), st.data())
    def check(problem: tuple[ho.Network, Asked], data: st.DataObject) -> None:
        network, asked = problem
        asked = asked | {"array": with_collective(asked["array"], "ring")}
        write = written(network, "joint", **asked)
        for rows in some_rows(data, network, asked):
            plan = write(rows)
            assert price_of(plan) == Fraction(plan.cost.total), rows

    check()


@pytest.mark.parametrize(
    ("cost", "name"),
    [
        (cost, name)
        for cost, name in itertools.product(["time", "energy"], presets.names())
        if cost == "time" or presets.load(name).energy is not None
    ],
)
def test_the_search_charges_plans_on_the_presets_the_same(cost: str, name: str) -> None:
    for choice in (0, 1):
        write = written(ho.load("lenet-c"), "joint", cost=cost, array=name)
        levels = presets.load(name).levels
        rows = tuple(tuple((choice + n + h) // 2 % 2 for n in range(4)) for h in range(levels))
        plan = write(rows)
        assert price_of(plan) == Fraction(plan.cost.total)


@pytest.mark.parametrize("collective", ["pairwise", "ring"])
@pytest.mark.parametrize("cost", COSTS)
def test_a_table_of_states_charges_each_plan_what_its_levels_add_up_to(
    cost: str, collective: str
) -> None:
    @settings(max_examples=8)
    @given(st.sampled_from(READINGS).flatmap(lambda r: small_problems(cost=cost, reading=r)))
    def check(problem: tuple[ho.Network, Asked]) -> None:
        network, asked = problem
        levels, choices = asked["levels"], len(asked["choices"])
        if cost == "bytes":
            asked["level_weights"] = (1, 3)[:levels]
        else:
            asked["array"] = with_collective(asked["array"], collective)
        columns, layers = states(levels, choices), len(network.layers)
        plan = written(network, "joint", **asked)(((0,) * layers,) * levels)
        (table,) = tables_of(plan)
        for rows in itertools.islice(every_rows(layers, levels, choices), 8 * MOST):
            chosen = [columns.index(state) for state in zip(*rows, strict=True)]
            assert table.in_units(price_table(table, chosen)) == price_of(choosing(plan, rows))

    check()


@pytest.mark.parametrize("cost", COSTS)
def test_a_table_of_a_level_charges_what_the_search_charges_there(cost: str) -> None:
    """Whatever the level's own choices, given those above it."""
    readings = st.sampled_from(READINGS)

    @settings(max_examples=8)
    @given(readings.flatmap(lambda r: small_problems(cost=cost, reading=r)), st.data())
    def check(problem: tuple[ho.Network, Asked], data: st.DataObject) -> None:
        network, asked = problem
        if cost != "bytes":
            asked["array"] = with_collective(asked["array"], "pairwise")
        write = written(network, "level", **asked)
        rows = data.draw(st.sampled_from(some_rows(data, network, asked)))
        for level, table in enumerate(tables_of(write(rows))):
            for row in itertools.product(range(table.choices), repeat=table.layers):
                other = write((*rows[:level], row, *rows[level + 1 :]))
                found = table.in_units(price_table(table, row))
                assert found == Fraction(other.cost.per_level[level])

    check()


@pytest.mark.parametrize("inference", [False, True])
def test_the_same_plans_are_allowed_as_in_the_search(inference: bool) -> None:
    problems = small_problems(cost="bytes", reading="text", restricted=True)

    @settings(max_examples=15)
    @given(problems)
    def check(problem: tuple[ho.Network, Asked]) -> None:
        network, asked = problem
        asked["inference"] = inference
        write = written(network, "joint", **asked)
        columns = states(asked["levels"], len(asked["choices"]))
        found = list(every_rows(len(network.layers), asked["levels"], len(asked["choices"])))
        try:
            workload = workload_of(network, asked["batch"], asked["choices"])
            limits = ConstraintSet(problem_of(**asked), workload)
        except ho.HyparError:
            limits = None
        plan = write(found[0])
        (table,) = tables_of(plan)
        for rows in found:
            keeps = limits is not None
            try:
                if limits is not None:
                    limits.check(rows)
            except ho.HyparError:
                keeps = False
            chosen = [columns.index(state) for state in zip(*rows, strict=True)]
            assert fits(table, chosen) == keeps or not plan.constraints.any
            try:
                price_of(choosing(plan, rows))
            except CheckFailedError:
                assert not keeps
            else:
                assert keeps

    check()


def fits(table: Any, chosen: list[int]) -> bool:
    if table.allowed is not None and not table.allowed[range(table.layers), chosen].all():
        return False
    return table.load is None or table.load[range(table.layers), chosen].sum() <= table.capacity


@settings(max_examples=15)
@given(small_problems(cost="bytes", reading="text"), st.data())
def test_a_level_allows_what_some_choices_below_complete(
    problem: tuple[ho.Network, Asked], data: st.DataObject
) -> None:
    """And what it loads is the least that these leave: by trying all of them."""
    network, asked = problem
    asked |= {"constraints": data.draw(restrictions(network, asked)), "inference": False}
    levels, layers, choices = asked["levels"], len(network.layers), len(asked["choices"])
    joint, level = (written(network, scope, **asked) for scope in ("joint", "level"))
    columns = states(levels, choices)
    (whole,) = tables_of(joint(((0,) * layers,) * levels))
    if whole.allowed is None or not whole.allowed.any(axis=1).all():
        return
    chosen = [data.draw(st.sampled_from([*np.flatnonzero(may)])) for may in whole.allowed]
    rows = tuple(zip(*(columns[column] for column in chosen), strict=True))
    tables = tables_of(level(rows))
    for h, table in enumerate(tables):
        for layer, choice in itertools.product(range(layers), range(choices)):
            above = tuple(row[layer] for row in rows[:h])
            completed = [
                column
                for column, state in enumerate(columns)
                if state[: h + 1] == (*above, choice) and whole.allowed[layer, column]
            ]
            assert table.allowed is not None
            assert table.allowed[layer, choice] == bool(completed)
            if completed and whole.load is not None:
                assert table.load is not None
                assert table.load[layer, choice] == min(whole.load[layer, completed])
                assert table.capacity == whole.capacity


@settings(max_examples=15)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.integers(1, 9),
    st.sampled_from(READINGS),
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
)
def test_the_chains_of_thresholds_have_the_least_total_of_all_plans(
    features: list[int], batch: int, reading: str, element_bytes: int, inference: bool
) -> None:
    network, levels = fully_connected(*features), 2
    asked = {"batch": batch, "reading": reading, "element_bytes": element_bytes}
    layers = len(network.layers)
    write = written(network, "joint", levels=levels, inference=inference, **asked)
    plan = write(((0,) * layers,) * levels)
    plans = [choosing(plan, rows) for rows in every_rows(layers, levels, 2)]
    (table,) = tables_of(plan)
    assert (table.layers, table.choices) == (levels * layers, 2)
    every = itertools.product(range(2), repeat=table.layers)
    least = min(price_table(table, answers) for answers in every)
    assert table.in_units(least) == min(map(price_of, plans))
    for rows in every_rows(layers, levels, 2):
        if all(top >= below for top, below in zip(*rows, strict=True)):  # nested, topmost first
            answers = [int(sum(c) >= t) for t in (1, 2) for c in zip(*rows, strict=True)]
            assert table.in_units(price_table(table, answers)) == price_of(choosing(plan, rows))


def ring_of_eight(collective: str, latency: str) -> Array:
    link = {"bandwidth": "1 kB/s", "latency": latency}
    described = cubes(kind="ring", accelerators=8, link=link) | {"collective": collective}
    return validate(Array, described)


@pytest.mark.parametrize("cost", COSTS)
def test_a_cost_by_entry_point_defines_its_tables_itself(
    cost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of ours under another name is asked for its charges: the tables are the same."""
    monkeypatch.setitem(COST_MODELS._built_in, "theirs", COST_MODELS._built_in[cost])

    @settings(max_examples=8)
    @given(st.sampled_from(READINGS).flatmap(lambda r: small_problems(cost=cost, reading=r)))
    def check(problem: tuple[ho.Network, Asked]) -> None:
        network, asked = problem
        if cost == "bytes":
            asked["level_weights"] = (1, 3)[: asked["levels"]]
        rows = ((1,) * len(network.layers),) * asked["levels"]
        plans = [
            written(network, "joint", **{**asked, "cost": kind})(rows) for kind in (cost, "theirs")
        ]
        (ours,), (own,) = map(tables_of, plans)
        assert ours.resolution == own.resolution
        assert (ours.node == own.node).all()
        assert (ours.edge == own.edge).all()
        assert price_of(plans[0]) == price_of(plans[1])

    check()


def times(array: Array, reading: str, choice: int) -> Fraction:
    """Seconds of one layer of 12 x 5 that takes one choice at all of three levels, batch 7."""
    network = fully_connected(12, 5)
    plan = written(network, "joint", batch=7, reading=reading, cost="time", array=array)
    priced = plan(((choice,),) * 3)
    parts = {"": 1, "milli": 10**3, "micro": 10**6, "nano": 10**9, "pico": 10**12, "femto": 10**15}
    return price_of(priced) / parts[priced.cost.unit.removesuffix("seconds")]


@pytest.mark.parametrize(
    ("collective", "reading", "choice", "messages"),
    [
        # An all-reduce by halving and doubling crosses each level twice, the topmost once.
        ("pairwise", "text", 0, [1, 2, 2]),
        ("pairwise", "text", 1, [1, 2, 2]),
        ("pairwise", "executed", 0, [1, 2, 2]),
        # A reduce-scatter forward, an all-gather backward.
        ("pairwise", "executed", 1, [2, 2, 2]),
        # Around a ring of eight, whose every message has one link to cross.
        ("ring", "text", 0, [14]),
        ("ring", "figures", 1, [14]),
        ("ring", "executed", 1, [7 + 7]),
    ],
)
def test_a_reduction_has_the_messages_of_its_collective(
    collective: str, reading: str, choice: int, messages: list[int]
) -> None:
    slow, fast = (ring_of_eight(collective, latency) for latency in ("1000 s", "0 s"))
    crossed = [1]  # links from one accelerator to its neighbour
    if collective == "pairwise":
        crossed = [int(slow.interconnect.bisection(bit).hops) for bit in slow.placement]
    expected = 1000 * sum(map(operator.mul, messages, crossed))
    found = times(slow, reading, choice) - times(fast, reading, choice)
    assert math.isclose(found, expected, rel_tol=1e-9)


def test_a_ring_of_n_moves_what_the_textbook_says() -> None:
    """2 (n - 1) / n times the tensor leaves each accelerator: 60 weights of four bytes, n = 8."""
    found = times(ring_of_eight("ring", "0 s"), "text", 0)
    one_link = Fraction(2 * 7, 8) * 60 * 4 / 1000
    assert math.isclose(found, one_link, rel_tol=1e-6)


def test_more_states_than_memory_holds_are_refused() -> None:
    weights = tuple(range(1, 12))
    write = written(fully_connected(2, 2), "joint", levels=11, level_weights=weights)
    with pytest.raises(RefusedError, match=r"2\^22 pairs of states a boundary"):
        tables_of(write(((0,),) * 11))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"unit": "seconds"}, "cost, unit: should be 'bytes', got 'seconds'"),
        ({"kind": "time"}, "cost, unit: should be one of seconds, got 'bytes'"),
        ({"kind": "time", "unit": "seconds"}, "goes with an array"),
        ({"reading": "made up"}, "'made up' charges nothing"),
    ],
)
def test_a_cost_that_is_none_of_the_plans_problem_is_refused(
    changes: dict[str, str], complaint: str
) -> None:
    plan = ho.solve("lenet-c")
    wrong = plan.model_copy(update={"cost": plan.cost.model_copy(update=changes)})
    with pytest.raises(CheckFailedError, match=complaint):
        price_of(wrong)


@pytest.mark.parametrize(
    ("constraints", "complaint"),
    [
        ({"fix": ("fc1=model",)}, "fc1 may not take data at H1"),
        ({"fix": ("fc?@H2=model",)}, "fc1 may not take data at H2"),
        ({"fix": ("FC1=data",)}, "'FC1=data' pins no layer"),
        ({"fix": ("fc1@H9=data",)}, "pins no layer"),
        ({"fix": ("fc1@two=data",)}, "pins no layer"),
        ({"fix": ("fc1=output",)}, "pins no layer"),
        ({"fix": ("fc1=data", "fc*=model")}, "'fc*=model' conflicts"),
        ({"even": True}, "fc1 may not take data at H1"),
        ({"memory": 10}, r"the plan takes \d+ bytes of 10"),
    ],
)
def test_a_plan_that_breaks_its_own_constraints_is_refused(
    constraints: dict[str, Any], complaint: str
) -> None:
    plan = ho.solve(fully_connected(8, 4), solver="data", levels=2, batch=3)
    wrong = plan.model_copy(update={"constraints": ho.Constraints(**constraints)})
    with pytest.raises(CheckFailedError, match=complaint.replace("*", r"\*")):
        price_of(wrong)


def test_memory_in_training_and_in_inference_by_hand() -> None:
    """8 x 4 weights split in two once, in four once; maps of 8 and 4 for a batch of 6."""
    for inference, smallest in (
        (False, 2 * 2 * 32 // 2 + 2 * 2 * 6 * (8 // 4 + 4 // 2)),
        (True, 2 * 32 // 2 + 2 * 6 * (8 // 4 + 4 // 2)),
    ):
        for memory, keeps in ((smallest, True), (smallest - 1, False)):
            asked = {"batch": 6, "levels": 2, "element_bytes": 2, "inference": inference}
            plan = written(fully_connected(8, 4), "joint", **asked)(((0,), (0,)))
            update = {
                "parallelism": (("data",), ("model",)),
                "constraints": ho.Constraints(memory=memory),
            }
            if keeps:
                price_of(plan.model_copy(update=update))
            else:
                with pytest.raises(CheckFailedError, match="constraints: the plan takes"):
                    price_of(plan.model_copy(update=update))
