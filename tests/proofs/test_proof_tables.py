"""The tables that proofs rest on: entry by entry those that the search solves, derived twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.shared_nodes import rows_with_shared
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.table import CostTable, side_by_side
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.hardware import arrays as presets
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_table, total_cost
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.proofs.check.tables import tables_of as reference_tables
from hypar_opt.sharding.passes import INFERENCE, TRAINING
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after
from tests.strategies.graph_problems import has_charges, random_graph_problem
from tests.strategies.plans import READINGS, Asked
from tests.strategies.problems import random_problem
from tests.strategies.written_plans import (
    fully_connected,
    in_parts,
    random_rows,
    random_token_problem,
    random_written_problem,
    storing,
    with_collective,
    written,
)


def tables_of(plan: ho.Plan) -> list[CostTable]:
    """Return a plan's tables, as the search has them."""
    return [table.by_edge for table in reference_tables(plan)]


COST_KINDS = ["bytes", "time", "energy"]


def every_cost(*readings: str, quick: int = 3) -> pytest.MarkDecorator:
    """Parametrise a test by all costs in some readings, and by seeds: so many in ``make test``."""
    return pytest.mark.parametrize(
        ("cost", "reading", "seeds"),
        slow_after(
            len(COST_KINDS) * len(readings),
            [
                (cost, reading, seeds)
                for seeds in (range(quick), range(quick, 24))
                for cost, reading in product(COST_KINDS, readings)
            ],
        ),
    )


def problems(
    cost: str, reading: str, seeds: range
) -> Iterator[tuple[Random, ho.Network, dict[str, Any]]]:
    """Yield random problems, each with the generator that plans of it are drawn from.

    Levels are of two parts, and of other sizes too where no array and no reading of the paper says
    otherwise. What runs may be split by token.
    """
    for seed in seeds:
        rng = Random(seed)
        network, asked = random_written_problem(rng, cost, reading)
        if not has_charges(network, reading):
            continue
        yield rng, network, asked
        if cost == "bytes" and reading in RUN_READINGS:
            yield rng, network, in_parts(rng, asked)
        if reading in RUN_READINGS:
            yield rng, *random_token_problem(rng, cost, reading)


@every_cost(*READINGS, "joined", quick=4)
def test_a_plan_costs_what_the_search_and_its_program_say(
    cost: str, reading: str, seeds: range
) -> None:
    """Three derivations of one number; the program counts the bytes of a run alone."""
    for rng, network, asked in problems(cost, reading, seeds):
        write = written(network, "joint", **asked)
        for _ in range(4):
            plan = write(random_rows(rng, network, asked))
            assert price_of(plan) == Fraction(plan.cost.total), (network, plan.parallelism)
            if reading in RUN_READINGS and plan.cost.unit == "bytes":
                assert price_of(plan) == program_bytes(plan), (network, plan.parallelism)


def program_bytes(plan: ho.Plan) -> int:
    instance = Instance.of_plan(plan)
    rows = rows_with_shared(instance.workload, instance.cost, plan.assignments())
    phases = INFERENCE if plan.inference else TRAINING
    joined = plan.joins_levels
    program = Program(instance.executed_workload, rows, plan.hierarchy, joined=joined)
    elements: int = sum(op.elements for op in exchanges_of_step(program, phases))
    return elements * plan.element_bytes


@every_cost(*READINGS, "joined")
def test_the_table_of_all_levels_is_the_one_that_the_search_solves(
    cost: str, reading: str, seeds: range
) -> None:
    """By states; or by thresholds, where bytes cost the same at every level."""
    for rng, network, asked in problems(cost, reading, seeds):
        plan = written(network, "joint", **asked)(random_rows(rng, network, asked))
        instance = Instance.of_plan(plan)
        workload = instance.workload
        (ours,) = tables_of(plan)
        thresholds = instance.cost.thresholds(workload, plan.levels)
        if thresholds is not None and ours.layers == plan.levels * len(workload.nodes):
            weights = np.tile(workload.is_weight_boundary, plan.levels)  # penalties differ
            assert_same_charges(ours, side_by_side(thresholds.tables()), weights)
        else:
            assert_same_charges(ours, StateTable.of(instance.cost, workload, plan.levels).dense())


@every_cost(*READINGS)
def test_the_table_of_a_level_is_the_one_that_the_search_solves(
    cost: str, reading: str, seeds: range
) -> None:
    """Those of a plan's levels add up to it: each charges what it makes those above repeat, too."""
    for rng, network, asked in problems(cost, reading, seeds):
        if "array" in asked:
            asked["array"] = with_collective(asked["array"], "pairwise")
        plan = written(network, "level", **asked)(random_rows(rng, network, asked))
        instance = Instance.of_plan(plan)
        nodes = rows_with_shared(instance.workload, instance.cost, plan.assignments())
        added = Fraction()
        for level, ours in enumerate(tables_of(plan)):
            theirs = level_table(instance.cost, instance.workload, nodes[:level])
            assert_same_charges(ours, theirs)
            added += ours.in_units(price_table(ours, nodes[level]))
        assert added == total_cost(instance, plan.assignments(), charged=True)


def assert_same_charges(
    ours: CostTable, theirs: CostTable, left_out: NDArray[np.bool_] | None = None
) -> None:
    """Assert that two tables charge the same, choices that a kind does not have aside."""
    assert ours.resolution == theirs.resolution
    assert (ours.ends == theirs.ends).all()
    kept = np.ones(ours.node.shape, bool) if ours.allowed is None else ours.allowed
    assert (np.where(kept, ours.node - theirs.node, 0) == 0).all()
    pairs = kept[ours.ends[:, 0], :, None] & kept[ours.ends[:, 1], None, :]
    if left_out is not None:
        pairs &= ~left_out[:, None, None]
    assert (np.where(pairs, ours.edge - theirs.edge, 0) == 0).all()


@pytest.mark.parametrize("seed", slow_after(17, [18, *range(18), *range(19, 60)]))
def test_constraints_allow_and_load_what_they_do_in_the_search(seed: int) -> None:
    rng = Random(seed)
    draw = random_graph_problem if seed % 2 else random_problem
    network, asked = draw(rng)
    if seed % 4 == 3:
        network, asked = random_token_problem(rng, "bytes")
        asked["constraints"] = {rng.choice(["even", "runnable"]): rng.random() < 0.5}
    if asked["reading"] == "executed" and rng.random() < 0.5:
        asked = in_parts(rng, asked)
    if seed % 3 == 0:
        asked["constraints"] |= {"memory": 10 ** rng.randint(2, 5), "optimizer": "adam"}
    joint, level = (written(network, scope, **asked) for scope in ("joint", "level"))
    rows = random_rows(rng, network, asked)
    instance = Instance.of_plan(joint(rows))
    try:
        limits = instance.constraints
    except ho.HyparError:
        return  # no plan keeps to them
    for _ in range(8):
        rows = random_rows(rng, network, asked)
        refusal = pytest.raises(CheckFailedError, match="constraints: ")
        with nullcontext() if limits.allow(rows) else refusal:
            price_of(joint(rows))
    (ours,) = tables_of(joint(rows))
    if not limits.any:
        assert ours.allowed is None
        return
    assert_same_limits(ours, instance.states().dense())
    if limits.allow(rows):
        nodes = rows_with_shared(instance.workload, instance.cost, rows)
        for above, ours in enumerate(tables_of(level(rows))):
            theirs = level_table(instance.cost, instance.workload, nodes[:above])
            assert_same_limits(ours, limits.level(theirs, nodes[:above]))


def test_what_joins_sequences_does_not_split_them() -> None:
    """A vision transformer's class token and patches: each may be split, both together not."""
    table = ho.load("vit-b16").description()
    table["block"][0]["repeat"] = 1
    network = ho.Network.model_validate(table)
    choices = ("data", "model", "output", "tokens")
    plan = ho.solve(network, batch=4, levels=1, search="joint", choices=choices, reading="joined")
    instance = Instance.of_plan(plan)
    (ours,) = tables_of(plan)
    assert_same_limits(ours, instance.states().dense())


@pytest.mark.parametrize("sizes", [(2, 4, 4), (3, 6, 3), (5, 3, 2)])
def test_the_least_memory_below_a_level_is_that_of_levels_of_their_parts(
    sizes: tuple[int, ...],
) -> None:
    """Which of unlike levels makes a choice counts: what it leaves in memory are its parts."""
    asked: Asked = {"hierarchy": sizes, "whole_levels": True, "batch": 180, "reading": "executed"}
    network = fully_connected(36, 90, 40)
    plan = written(network, "level", **asked, constraints={"memory": 10**6})(((0, 1),) * 3)
    instance = Instance.of_plan(plan)
    nodes = rows_with_shared(instance.workload, instance.cost, plan.assignments())
    for above, ours in enumerate(tables_of(plan)):
        theirs = level_table(instance.cost, instance.workload, nodes[:above])
        assert_same_limits(ours, instance.constraints.level(theirs, nodes[:above]))


def assert_same_limits(ours: CostTable, theirs: CostTable) -> None:
    assert ours.allowed is not None
    assert theirs.allowed is not None
    assert (ours.allowed == theirs.allowed).all()
    for (load, capacity), (their_load, their_capacity) in zip(
        ours.limits, theirs.limits, strict=True
    ):
        assert capacity == their_capacity
        assert (load[ours.allowed] == their_load[ours.allowed]).all()


@pytest.mark.parametrize("cost", COST_KINDS)
def test_a_cost_by_entry_point_defines_its_tables_itself(
    cost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of ours under another name is asked for its charges: the tables are the same."""
    monkeypatch.setitem(COSTS._built_in, "theirs", COSTS._built_in[cost])
    for seed in range(8):
        rng = Random(seed)
        network, asked = random_written_problem(rng, cost, READINGS[seed % 4])
        if cost == "bytes" and asked["reading"] == "executed" and seed % 8 == 3:
            asked = in_parts(rng, asked)
        if cost == "time":  # by that name alone the search chooses how layers train
            asked["training"] = {"shard": "none"}
        rows, scope = random_rows(rng, network, asked), "joint" if seed % 3 else "level"
        ours, own = (
            written(network, scope, **{**asked, "cost": kind})(rows) for kind in (cost, "theirs")
        )
        assert price_of(ours) == price_of(own)
        try:
            tables = tables_of(ours)
        except RefusedError as error:
            with pytest.raises(RefusedError, match=str(error)):
                tables_of(own)
            continue
        for mine, table in zip(tables, tables_of(own), strict=True):
            if mine.node.shape == table.node.shape:  # not by thresholds
                assert_same_charges(mine, table)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("cost", ["time", "energy"])
def test_a_level_has_no_proof_where_a_ring_joins_it_with_others(
    cost: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COSTS._built_in, "theirs", COSTS._built_in[cost])
    array = with_collective(presets.load("hmc-htree-4"), "ring")
    energy = array.energies.model_copy(update={"hop": Fraction(1, 10**12)})
    array = array.model_copy(update={"energy": energy})
    asked: Asked = {"cost": "theirs" if own else cost, "array": array}
    write = written(fully_connected(4, 4, 4), "level", **asked)
    refusal = "a reduction joins several levels, as around a ring: a proof needs search='joint'"
    with pytest.raises(RefusedError, match=refusal):
        tables_of(write(((0, 1), (1, 1))))
    rows = ((0, 1), (1, 0))  # gradients are reduced at one level, sums of the output at the other
    plan = write(rows)
    tables = zip(tables_of(plan), rows, strict=True)
    assert sum(table.in_units(price_table(table, row)) for table, row in tables) == plan.cost.total


@pytest.mark.parametrize("seed", slow_after(12, range(24)))
def test_shared_tensors_are_in_the_layouts_that_a_plan_states(seed: int) -> None:
    """Whether they cost least or not: a proof prices the plan's own."""
    rng = Random(seed)
    network, asked = random_written_problem(rng, COST_KINDS[seed % 3], "executed")
    if "array" in asked:
        asked["array"] = with_collective(asked["array"], "pairwise")
    elif seed % 2:
        asked = in_parts(rng, asked)
    plan = written(network, "level", **asked)(random_rows(rng, network, asked))
    instance, rows = Instance.of_plan(plan), plan.assignments()
    shared = instance.workload.tensor_writers
    tensors = tuple({node: rng.randrange(len(plan.choices)) for node in shared} for _ in rows)
    stating = storing(plan, tensors)
    assert price_of(stating) == Fraction(stating.cost.total)
    nodes = rows_with_shared(instance.workload, instance.cost, rows, tensors)
    tables = zip(tables_of(stating), nodes, strict=True)
    added = (table.in_units(price_table(table, row)) for table, row in tables)
    assert sum(added) == total_cost(instance, rows, tensors, charged=True)


SKIP = ho.Network.model_validate(
    {
        "schema": "hypar-opt/network/2",
        "name": "skip",
        "input": {"features": 4},
        "layer": [
            {"name": "fc", "kind": "fc", "units": 3},
            {"name": "other", "kind": "fc", "units": 3},
            {"name": "sum", "kind": "add", "inputs": ["fc", "other"]},
        ],
    }
)
"""Two fully-connected layers, of which an addition skips the second."""


def test_a_tensor_in_no_layout_or_in_unequal_parts_is_refused() -> None:
    asked: dict[str, Any] = {"reading": "executed", "levels": 1, "constraints": {"even": True}}
    two, three = (ho.solve(SKIP, batch=4, choices=CHOICES[:n], **asked) for n in (2, 3))
    for plan, stored, complaint in [
        (three, ("channel",), "constraints: output of fc is split into unequal parts"),
        (three, ("partial",), "layouts, fc: should have one of batch, channel, whole for each of"),
        (three, (), "layouts, fc: should have one of batch, channel, whole for each of 1 levels"),
        (two, ("whole",), "layouts, fc: should have one of batch, channel for"),
    ]:
        wrong = plan.model_copy(update={"layouts": {**(plan.layouts or {}), "fc": stored}})
        with pytest.raises(CheckFailedError, match=complaint):
            price_of(wrong)


def test_what_is_too_large_for_a_proof_is_refused_with_the_bound_that_is_claimed() -> None:
    """729 states of each layer, no two levels alike, and two paths that meet: three layers."""
    options: dict[str, Any] = {"levels": 6, "level_weights": (1, 2, 3, 4, 5, 6)}
    plan = ho.solve(SKIP, batch=4, choices=CHOICES, reading="executed", solver="data", **options)
    claim = {"scope": "joint", "bound": plan.cost.total // 2}
    plan = plan.model_copy(update={"solver": plan.solver.model_copy(update=claim)})
    with pytest.raises(
        RefusedError,
        match=r"^no certificate: a proof over all levels needs a table of 729\^3 entries; at most"
        r" 134,217,728 are kept in memory; without a proof the solver's bound is \d+ weighted"
        r" bytes, a gap of 0\.5",
    ):
        ho.certify(plan)


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
