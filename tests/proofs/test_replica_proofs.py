"""Proofs of three choices as run: a second derivation of what replicas repeat at other levels."""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.shared_nodes import rows_with_shared
from hypar_opt.costs.state_tables import expanded
from hypar_opt.costs.table import CostTable
from hypar_opt.documents.document import validate
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.hardware import arrays as presets
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import layouts_of, price, price_table
from hypar_opt.models import PAPER_NETWORKS
from hypar_opt.proofs.certificate import Certificate
from hypar_opt.proofs.reference.exchanges import READINGS, Pass, conversion_of
from hypar_opt.proofs.reference.rows import price_of
from hypar_opt.proofs.reference.tables import tables_of
from hypar_opt.sharding.conversions import conversion
from hypar_opt.sharding.passes import INFERENCE, TRAINING
from hypar_opt.sharding.program import Program
from hypar_opt.studies.random_networks import random_chain, random_graph
from hypar_opt.workload.parallelism import CHOICES
from tests.strategies.graph_problems import every_plan_of, plans_of
from tests.strategies.written_plans import choosing, with_collective, written

THREE = CHOICES
STORED, READ = ("batch", "channel", "whole"), ("batch", "channel", "shuffled", "whole")
SEEDS = range(24)


def some_problem(
    rng: Random, *, most: int = 6, ring: bool = False
) -> tuple[ho.Network, dict[str, Any], int]:
    """A graph, or a chain, and three choices at one to three levels, as run."""
    network = random_graph(rng, most=rng.randint(1, most))
    if rng.random() < 0.2:
        network = random_chain(rng, "chain")
    levels = rng.randint(1, 3)
    asked: dict[str, Any] = {
        "batch": rng.choice([1, 2, 3, 8, 64]),
        "levels": levels,
        "choices": THREE,
        "reading": "executed",
        "element_bytes": rng.choice([1, 2, 4, 8]),
        "inference": rng.random() < 0.2,
    }
    cost = rng.choice(["bytes", "bytes", "time", "energy"])
    if cost != "bytes":
        name = rng.choice([f"hmc-htree-{2**levels}", f"hmc-torus-{2**levels}"])
        array = presets.load(name)
        if ring and rng.random() < 0.5:
            array = with_collective(array, "ring")
        asked |= {"cost": cost, "array": array}
        del asked["levels"]
    elif rng.random() < 0.3:
        asked["level_weights"] = tuple(rng.randint(1, 4) for _ in range(levels))
    return network, asked, levels


def some_rows(rng: Random, network: ho.Network, levels: int) -> tuple[tuple[int, ...], ...]:
    counts = [min(3, len(layer.splits)) for layer in network.layers]
    return tuple(tuple(map(rng.randrange, counts)) for _ in range(levels))


def quarters_in_proofs(pairs: list[tuple[str, str]]) -> list[int]:
    """Quarters of an element that a proof charges at each level, H1 first, in one pass."""
    found = conversion_of(READINGS["executed"], 1, STORED, READ, [Pass.FORWARD])
    written = [STORED.index(layout) for layout, _ in pairs]
    read = [READ.index(layout) for _, layout in pairs]
    copies = found.copies(np.array(written, np.intp), np.array(read, np.intp)).tolist()
    ends = zip(written, read, copies, strict=True)
    return [found.quarters[source][target][0] << times for source, target, times in ends]


@given(
    st.lists(st.tuples(st.sampled_from(STORED), st.sampled_from(READ)), max_size=5),
    st.integers(1, 99),
)
def test_a_conversion_moves_what_its_steps_move(pairs: list[tuple[str, str]], size: int) -> None:
    source, target = [written for written, _ in pairs], [read for _, read in pairs]
    read = ("shuffled channel" if word == "shuffled" else word for word in target)
    steps = conversion(tuple(source), tuple(read), (2,) * len(pairs))
    moved = [Fraction()] * len(pairs)
    for step in steps:
        moved[step.level] += step.moved(size)
    assert [Fraction(quarters * size, 4) for quarters in quarters_in_proofs(pairs)] == moved


@given(st.lists(st.tuples(st.sampled_from(STORED), st.sampled_from(READ)), max_size=5))
def test_in_all_levels_a_conversion_moves_a_power_of_two_and_its_all_to_alls(
    pairs: list[tuple[str, str]],
) -> None:
    """2^kept (2^gathered - 1 + exchanged / 2) times the tensor."""
    kept = pairs.count(("whole", "whole"))
    gathered = sum(read == "whole" for _, read in pairs) - kept
    exchanged = sum("whole" not in (written, read) and written != read for written, read in pairs)
    assert sum(quarters_in_proofs(pairs)) == 2**kept * (4 * (2**gathered - 1) + 2 * exchanged)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_costs_what_the_search_and_its_program_say(seed: int) -> None:
    """Three derivations of one number; the program counts the bytes of a run alone."""
    rng = Random(seed)
    network, asked, levels = some_problem(rng, ring=True)
    write = written(network, "joint", **asked)
    for _ in range(4):
        plan = write(some_rows(rng, network, levels))
        assert price_of(plan) == Fraction(plan.cost.total)
        instance = Instance.of_plan(plan)
        if plan.cost.unit == "bytes":
            full = rows_with_shared(instance.workload, instance.cost, plan.assignments())
            exchanges = Program(instance.executed_workload, full).exchanges(
                INFERENCE if plan.inference else TRAINING
            )
            elements = sum((exchange.elements for exchange in exchanges), Fraction())
            assert price_of(plan) == elements * plan.element_bytes


@pytest.mark.parametrize("seed", SEEDS)
def test_shared_tensors_are_in_the_layouts_that_a_plan_states(seed: int) -> None:
    """Whether they cost least or not: a proof prices the plan's own."""
    rng = Random(seed)
    network, asked, levels = some_problem(rng)
    plan = written(network, "level", **asked)(some_rows(rng, network, levels))
    instance, rows = Instance.of_plan(plan), plan.assignments()
    shared = instance.workload.tensor_writers
    tensors = tuple({node: rng.randrange(3) for node in shared} for _ in rows)
    cost, layouts = price(instance, rows, tensors), layouts_of(instance, rows, tensors)
    stating = plan.model_copy(update={"cost": cost, "layouts": layouts})
    assert price_of(stating) == Fraction(cost.total)
    nodes = rows_with_shared(instance.workload, instance.cost, rows, tensors)
    added = [
        table.in_units(price_table(table, row))
        for table, row in zip(tables_of(stating), nodes, strict=True)
    ]
    assert sum(added) == Fraction(cost.total)


def skip(features: int) -> ho.Network:
    """Two fully-connected layers, of which an addition skips the second."""
    layers = [
        {"name": "fc", "kind": "fc", "units": features},
        {"name": "other", "kind": "fc", "units": features},
        {"name": "sum", "kind": "add", "inputs": ["fc", "other"]},
    ]
    described = {"schema": "hypar-opt/network/2", "name": "skip", "input": {"features": 4}}
    return ho.Network.model_validate(described | {"layer": layers})


def test_a_tensor_in_no_layout_or_in_unequal_parts_is_refused() -> None:
    network = skip(features=3)
    asked: dict[str, Any] = {"reading": "executed", "levels": 1, "constraints": {"even": True}}
    plan = ho.solve(network, batch=4, choices=THREE, **asked)
    assert plan.layouts is not None
    for stored, complaint in [
        (("channel",), "constraints: output of fc is split into unequal parts"),
        (("partial",), "layouts, fc: should have one of batch, channel, whole for each of 1"),
        ((), "layouts, fc: should have one of batch, channel, whole for each of 1 levels"),
    ]:
        wrong = plan.model_copy(update={"layouts": {**plan.layouts, "fc": stored}})
        with pytest.raises(CheckFailedError, match=complaint):
            price_of(wrong)
    two = ho.solve(network, batch=4, **asked)
    wrong = two.model_copy(update={"layouts": {**plan.layouts, "fc": ("whole",)}})
    with pytest.raises(
        CheckFailedError, match="layouts, fc: should have one of batch, channel for"
    ):
        price_of(wrong)


def forbidden(table: CostTable) -> NDArray[np.bool_]:
    return np.zeros(table.node.shape, bool) if table.allowed is None else ~table.allowed


def same_charges(ours: CostTable, theirs: CostTable, without: NDArray[np.bool_]) -> None:
    """Assert that two tables charge the same, choices that a kind does not have aside."""
    assert ours.resolution == theirs.resolution
    assert (ours.ends == theirs.ends).all()
    kept = ~without
    assert (np.where(kept, ours.node - theirs.node, 0) == 0).all()
    pairs = kept[ours.ends[:, 0], :, None] & kept[ours.ends[:, 1], None, :]
    assert (np.where(pairs, ours.edge - theirs.edge, 0) == 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_table_of_a_level_is_the_one_that_the_search_solves(seed: int) -> None:
    rng = Random(seed)
    network, asked, levels = some_problem(rng)
    plan = written(network, "level", **asked)(some_rows(rng, network, levels))
    instance = Instance.of_plan(plan)
    workload = instance.workload
    nodes = rows_with_shared(workload, instance.cost, plan.assignments())
    for level, ours in enumerate(tables_of(plan)):
        table = level_table(instance.cost, workload, nodes[:level])
        same_charges(ours, table, workload.forbidden)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_table_of_all_levels_is_the_one_that_the_search_solves(seed: int) -> None:
    rng = Random(seed)
    network, asked, levels = some_problem(rng, ring=True)
    plan = written(network, "joint", **asked)(some_rows(rng, network, levels))
    instance = Instance.of_plan(plan)
    (ours,) = tables_of(plan)
    theirs = expanded(instance.cost, instance.workload, levels)
    same_charges(ours, theirs, forbidden(ours))


def tiny_problem(rng: Random) -> tuple[ho.Network, dict[str, Any]]:
    """A graph with so few plans that all can be priced."""
    while True:
        network = random_graph(rng, most=rng.randint(2, 5))
        levels = rng.choice([1, 2, 2, 3])
        if plans_of(network, levels, 3) <= 3**5:
            return network, {
                "batch": rng.choice([1, 2, 4]),
                "levels": levels,
                "choices": THREE,
                "reading": "executed",
            }


@pytest.mark.parametrize("seed", range(16))
def test_of_all_plans_only_the_cheapest_is_proved(seed: int) -> None:
    """Over all levels; the others, with messages of their own, are refused with the same bound."""
    network, asked = tiny_problem(Random(seed))
    write = written(network, "joint", **asked)
    every = list(every_plan_of(network, asked["levels"], 3))
    chosen = Random(seed).sample(every, min(len(every), 4))
    plan = write(every[0])
    totals = {rows: price_of(choosing(plan, rows)) for rows in every}
    least = min(totals.values())
    best = min(every, key=totals.__getitem__)
    certificate = ho.certify(write(best))
    ho.check_certificate(write(best), certificate)
    for rows in chosen:
        plan = write(rows)
        assert plan.cost.total == totals[rows]
        if totals[rows] > least:
            with pytest.raises(ho.HyparError, match=f"prove {least} bytes, the plan costs"):
                ho.certify(plan)


@pytest.mark.parametrize("seed", range(8))
def test_the_tables_of_levels_add_up_to_the_plan(seed: int) -> None:
    """Each charges what its level adds, and so what it makes the levels above it repeat."""
    rng = Random(seed)
    network, asked = tiny_problem(rng)
    write = written(network, "level", **asked)
    for rows in [some_rows(rng, network, asked["levels"]) for _ in range(4)]:
        plan = write(rows)
        instance = Instance.of_plan(plan)
        nodes = rows_with_shared(instance.workload, instance.cost, rows)
        tables = tables_of(plan)
        added = [
            table.in_units(price_table(table, row))
            for table, row in zip(tables, nodes, strict=True)
        ]
        assert sum(added) == plan.cost.total


@pytest.mark.parametrize("seed", range(8))
def test_levels_of_graphs_are_proved(seed: int) -> None:
    rng = Random(seed)
    network, asked, _ = some_problem(rng)
    try:
        plan = ho.solve(network, search="levelwise", **asked)
    except RefusedError as error:
        refusal = str(error)
    else:
        refusal = ""
        ho.check_certificate(plan, ho.certify(plan))
    assert not refusal or "a reduction joins several levels" in refusal


@pytest.mark.parametrize("cost", ["bytes", "time", "energy"])
def test_a_cost_by_entry_point_is_asked_for_pairs_of_states(
    cost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COSTS._built_in, "theirs", COSTS._built_in[cost])
    rng = Random(cost)
    for scope in ("joint", "level"):
        network = random_graph(rng, most=5)
        asked: dict[str, Any] = {"choices": THREE, "reading": "executed", "batch": 4, "levels": 2}
        if cost != "bytes":
            del asked["levels"]
            asked["array"] = presets.load("hmc-htree-4")
        rows = some_rows(rng, network, 2)
        ours, own = (written(network, scope, **asked, cost=kind)(rows) for kind in (cost, "theirs"))
        assert price_of(ours) == price_of(own)
        for mine, table in zip(tables_of(ours), tables_of(own), strict=True):
            same_charges(mine, table, forbidden(mine))


def test_a_message_that_is_changed_is_refused() -> None:
    plan = ho.solve(
        "resnet-18", search="joint", levels=2, reading="executed", choices=THREE, batch=16
    )
    certificate = ho.certify(plan)
    for place in (0, 40, -1):
        forged = json.loads(certificate.to_json())
        forged["tables"][0]["messages"][place][0] += 1
        with pytest.raises(CheckFailedError, match=r"tables\[0\]"):
            ho.check_certificate(plan, validate(Certificate, forged))


def test_a_tensor_of_odd_sizes_is_stored_whole_where_splits_are_even() -> None:
    """Three features of one image; its writer and its readers split other axes."""
    layers = [
        {"name": "fc", "kind": "fc", "units": 3},
        {"name": "left", "kind": "fc", "units": 4},
        {"name": "right", "kind": "fc", "units": 4, "inputs": ["fc"]},
        {"name": "sum", "kind": "add", "inputs": ["left", "right"]},
    ]
    described = {"schema": "hypar-opt/network/2", "name": "odd", "input": {"features": 4}}
    network = ho.Network.model_validate(described | {"layer": layers})
    asked: dict[str, Any] = {"batch": 1, "levels": 1, "reading": "executed"}
    plan = ho.solve(network, choices=THREE, constraints={"even": True}, **asked)
    assert plan.layouts is not None
    assert plan.layouts["fc"] == ("whole",)
    ho.check_certificate(plan, ho.certify(plan))


def test_what_is_too_large_for_a_proof_is_refused_with_the_bound_that_is_claimed() -> None:
    """729 states of each layer, and two paths that meet: tables of three layers."""
    network = skip(features=4)
    plan = ho.solve(network, batch=4, levels=6, choices=THREE, reading="executed", solver="data")
    claim = {"scope": "joint", "bound": plan.cost.total // 2}
    plan = plan.model_copy(update={"solver": plan.solver.model_copy(update=claim)})
    with pytest.raises(
        RefusedError,
        match=r"^no certificate: a proof over all levels needs a table of 729\^3 entries; at most"
        r" 134,217,728 are kept in memory; without a proof the solver's bound is \d+ bytes, a gap"
        r" of 0\.5",
    ):
        ho.certify(plan)


@pytest.mark.parametrize("name", PAPER_NETWORKS)
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_optima_of_the_papers_networks_are_proved(name: str, search: str) -> None:
    for levels in (1, 2, 3):
        plan = ho.solve(name, search=search, levels=levels, reading="executed", choices=THREE)
        assert plan.solver.status == "optimal"
        ho.check_certificate(plan, ho.certify(plan))


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("sfc", 201_633_792),
        ("lenet-c", 12_790_240),
        ("alexnet", 207_447_936),
        ("vgg-a", 1_366_354_432),
        ("vgg-e", 2_662_492_672),
    ],
)
def test_no_plan_of_sixteen_accelerators_moves_less(name: str, total: int) -> None:
    plan = ho.solve(name, search="joint", levels=4, batch=256, reading="executed", choices=THREE)
    assert plan.cost.total == total
    ho.check_certificate(plan, ho.certify(plan))


@pytest.mark.parametrize("name", ["resnet-50", "gpt2"])
@pytest.mark.parametrize(("levels", "search"), [(1, "levelwise"), (2, "levelwise"), (3, "joint")])
def test_optima_of_graphs_are_proved(name: str, levels: int, search: str) -> None:
    plan = ho.solve(name, search=search, levels=levels, reading="executed", choices=THREE, batch=8)
    assert plan.solver.status == "optimal"
    ho.check_certificate(plan, ho.certify(plan))
