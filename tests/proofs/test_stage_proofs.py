"""Plans in pipeline stages are priced, and their memory is counted, by a derivation of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import CheckFailedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.staged import StagedPlan
from hypar_opt.plan.stages import Stages
from hypar_opt.planning.priced import plan_of_stages, plans_of_stages
from hypar_opt.proofs.certificate import check_price
from hypar_opt.proofs.check import stages as derived
from hypar_opt.proofs.check.stages import in_flight, price_of_stages, stages_of_plan
from hypar_opt.simulator import pipeline_order
from hypar_opt.workload.parallelism import SCHEDULES
from hypar_opt.workload.stages import cuts, stage_of
from tests import slow
from tests.cli.shell import Shell
from tests.slow import slow_after, slow_off_diagonal
from tests.strategies.staged_plans import (
    Choose,
    drawn_staged_plan,
    nodes_of_a100s,
    offered,
    stage_instances,
    staged_plan,
    staged_problem,
)
from tests.strategies.written_plans import fully_connected

GPT = ho.gpt(layers=4, hidden=256, heads=4, tokens=64, vocabulary=512)


def agrees(plan: ho.Plan) -> None:
    check_price(plan)
    staged = StagedPlan.of_plan(plan)
    assert price_of_stages(plan) == staged.seconds
    # As for its price, of each stage: what it is, and for how many micro-batches it holds layers.
    for own, stage in zip(staged.plans, stages_of_plan(plan), strict=True):
        assert stage.plan.problem.in_flight == own.instance.problem.in_flight
        assert stage.plan.assignments() == own.rows
        assert stage.plan.network.description == own.instance.network


def in_turn(rows: Sequence[Sequence[int]]) -> Choose:
    """Return what gives each stage a row of choices, of its only level."""
    left = iter(rows)
    return lambda _: [next(left)]


@pytest.mark.parametrize(
    ("end", "layers", "micro_batches"), slow_after(1, [(1, 2, 2), (1, 3, 1), (2, 3, 2)])
)
def test_every_plan_of_a_small_problem_is_priced(end: int, layers: int, micro_batches: int) -> None:
    """All choices of all layers, and of what is sent and received, in two stages of two.

    ``make test`` has every fourth.
    """
    network = fully_connected(*(6, 4, 8, 5)[: layers + 1])
    stages = Stages(network, 2, (end, layers))
    constraints = {"runnable": False}
    stated = staged_problem(
        nodes_of_a100s(2, 2), stages, micro_batches, batch=4, constraints=constraints
    )
    every = [product(*offered(own)) for own in stage_instances(stages, stated)]
    prices = set()
    # A row of each stage, of one level.
    for chosen in islice(product(*every), 0, None, 1 if slow.ALL else 4):
        plan = plan_of_stages(staged_plan(stages, stated, in_turn(chosen)))
        agrees(plan)
        prices.add(plan.cost.total)
    assert len(prices) > 10


def test_what_accelerators_store_alike_is_sent_whole_or_gathered() -> None:
    """A large tensor over a slow link: a part each, of levels that have copies."""
    network = fully_connected(256, 256, 256)
    array, stages = nodes_of_a100s(2, 4), Stages(network, 2, (1, 2))
    seconds = {}
    for batch, copied in product((4, 65536), product((False, True), repeat=2)):
        stated = staged_problem(array, stages, 1, batch=batch, constraints={"runnable": False})

        def choose(instance: Instance, copied: Sequence[bool] = copied) -> list[list[int]]:
            messages = [node.kind == "message" for node in instance.executed_workload.nodes]
            return [[2 * (own and whole) for own in messages] for whole in copied]

        plan = staged_plan(stages, stated, choose)
        agrees(plan_of_stages(plan))
        seconds[batch, sum(copied)] = plan.plans[0].messages
        size, link = stated.element_bytes * 256 * batch, array.stage_link(0, 2)
        whole = 2 ** sum(copied) * size * link.seconds_per_byte + link.latency
        is_gathered = seconds[batch, sum(copied)] < Fraction(99, 100) * 2 * whole
        assert is_gathered == (batch == 65536 and any(copied))
    assert seconds[65536, 1] < seconds[65536, 2]


@pytest.mark.parametrize("seed", slow_after(8, range(600)))
def test_drawn_plans_are_priced(seed: int) -> None:
    """Of any networks, cuts, chunks, schedules and ways to train; stages are priced alone, too."""
    plan = plan_of_stages(drawn_staged_plan(Random(seed)))
    agrees(plan)
    for inside in plans_of_stages(plan):
        check_price(inside)


@pytest.mark.parametrize(
    ("parts", "schedule", "tied"),
    slow_off_diagonal([2, 4], ["1f1b", "gpipe", "zb-h1"], [True, False]),
)
def test_searched_plans_are_priced(parts: int, schedule: str, tied: bool) -> None:
    network = ho.gpt(layers=2, hidden=64, heads=4, tokens=32, vocabulary=512, tied=tied)
    stated: dict[str, Any] = {"array": "a100-8", "batch": 16, "optimizer": "adam"}
    plan = ho.solve(network, stages=parts, schedule=schedule, micro_batches=4, **stated)
    agrees(plan)


@pytest.mark.parametrize(
    "degrees", ["pp=2,tp=2,dp=2", "pp=2,v=2,tp=4", "pp=4,dp_shard=2", "pp=2,cp=2,tp=2"]
)
def test_plans_of_stated_degrees_are_priced(degrees: str) -> None:
    plan = ho.solve(
        GPT, array="a100-8", batch=16, degrees=degrees, micro_batches=4, optimizer="adam"
    )
    assert plan.constraints.fix
    agrees(plan)


def test_what_is_in_flight_is_that_of_the_order_of_passes() -> None:
    rng, compared = Random(0), 0
    for parts, count in product(range(2, 7), range(1, 14)):
        cases = [(schedule, 1) for schedule in SCHEDULES]
        cases += [("1f1b", chunks) for chunks in (2, 3) if count % parts == 0]
        for schedule, chunks in cases:
            orders = pipeline_order.orders(schedule, parts, count, chunks)
            for part, order in enumerate(orders):
                sizes = [rng.randint(1, 9) for _ in range(chunks)]
                held = in_flight(schedule, part, parts, count, sizes)
                assert tuple(held) == pipeline_order.in_flight(order, sizes)
                compared += 1
    assert compared > 800


# -- Plans that are not what they say ---------------------------------------------------------


def stages_in(plan: ho.Plan) -> Stages:
    assert plan.stages is not None
    return plan.stages


Edit = Callable[[ho.Plan], dict[str, Any]]


def with_cost(plan: ho.Plan, **update: Any) -> dict[str, Any]:
    return {"cost": plan.cost.model_copy(update=update)}


def with_stage(plan: ho.Plan, number: int, **update: Any) -> dict[str, Any]:
    stages = [*(plan.cost.stages or ())]
    stages[number] = stages[number].model_copy(update=update)
    return with_cost(plan, stages=tuple(stages))


def with_block_in(plan: ho.Plan, block: str, word: str) -> dict[str, Any]:
    top, *below = plan.parallelism
    moved = (name.startswith(block) for name in plan.layers)
    row = tuple(word if is_in else own for own, is_in in zip(top, moved, strict=True))
    return {"parallelism": (row, *below)}


def with_stored(plan: ho.Plan, layer: str, layout: str) -> dict[str, Any]:
    layouts = {**(plan.layouts or {})}
    layouts[layer] = (layouts[layer][0], *(layout for _ in layouts[layer][1:]))
    return {"layouts": FrozenDict(layouts)}


FORGERIES: dict[str, tuple[Edit, str]] = {
    "total": (lambda own: with_cost(own, total=own.cost.total - 1), "cost, total: "),
    "unit": (lambda own: with_cost(own, unit="nanoseconds"), "cost, unit: "),
    "seconds": (
        lambda own: with_stage(own, 1, seconds=(own.cost.stages or ())[1].seconds / 2),
        "cost, stages: stage 2 of 2 takes ",
    ),
    "bubble": (lambda own: with_stage(own, 0, bubble=0.0), r"cost, stages\[0\]: should be "),
    "part": (lambda own: with_stage(own, 0, part="second"), r"cost, stages\[0\]: should be "),
    "no stages": (lambda own: with_cost(own, stages=None), "cost, stages: should be 2, got 0"),
    "kind": (lambda own: with_cost(own, kind="bytes", unit="bytes"), "cost, kind: "),
    "a block is in another stage": (
        lambda own: (
            with_block_in(own, "decoder.2", "first")
            | {"constraints": own.constraints.model_copy(update={"memory": None})}
        ),
        "cost, stages: stage 1 of 2",
    ),
    "a border is stored whole": (
        lambda own: with_stored(own, own.layers[stages_in(own).ends[0] - 1], "whole"),
        "cost, stages: stage 1 of 2",
    ),
    "fewer micro-batches": (
        lambda own: (
            {"training": own.training.model_copy(update={"micro_batches": 2})}
            | {"constraints": own.constraints.model_copy(update={"memory": None})}
        ),
        "cost, stages: stage 1 of 2",
    ),
    "too little memory": (
        lambda own: {"constraints": own.constraints.model_copy(update={"memory": 10**6})},
        "constraints: stage 1 of 2 takes .* bytes of 1,000,000",
    ),
    "another schedule, within memory": (
        lambda own: {"training": own.training.model_copy(update={"schedule": "gpipe"})},
        "constraints: stage 1 of 2 takes",
    ),
    "a pin to another part": (
        lambda own: {
            "constraints": own.constraints.model_copy(
                update={"fix": (f"{own.layers[0]}@H1=second",)}
            )
        },
        "constraints, fix: 'token@H1=second', got stage 1 of 2",
    ),
    "a pin to another choice": (
        lambda own: {
            "constraints": own.constraints.model_copy(update={"fix": ("embedded@H2=whole",)})
        },
        "stage 1 of 2: constraints: embedded may not take",
    ),
}


@pytest.fixture(scope="module")
def searched() -> ho.Plan:
    """Two stages in eight micro-batches; the first has two of them in flight, and all it has."""
    network = ho.gpt(layers=4, hidden=64, heads=4, tokens=64, vocabulary=64)
    stated: dict[str, Any] = {"array": "rtx4090x4", "batch": 64, "optimizer": "adam"}
    stated |= {"stages": 2, "micro_batches": 8}
    held = max(own.tensors for own in ho.memory(ho.solve(network, **stated)).stages)
    plan = ho.solve(network, **stated, memory=held)
    check_price(plan)
    return plan


@pytest.mark.parametrize("name", FORGERIES)
def test_what_a_plan_does_not_have_is_found_out(name: str, searched: ho.Plan) -> None:
    edit, said = FORGERIES[name]
    with pytest.raises(CheckFailedError, match=said):
        check_price(searched.model_copy(update=edit(searched)))


def test_a_claim_of_a_search_is_of_plans_that_fit_the_array(searched: ho.Plan) -> None:
    """Where none is claimed, as of a named configuration, a plan need not fit."""
    array = searched.array
    assert array is not None
    described = array.description.description()
    described["accelerator"] |= {"dram_capacity": "2 MB", "reserve": "1 B"}
    small = type(array).of(ho.Array.model_validate(described))
    constraints = searched.constraints.model_copy(update={"memory": None})
    plan = searched.model_copy(update={"array": small, "constraints": constraints})
    with pytest.raises(CheckFailedError, match="constraints: stage 1 of 2 takes"):
        check_price(plan)
    solver = plan.solver.model_copy(update={"status": "feasible", "bound": None, "gap": None})
    check_price(plan.model_copy(update={"solver": solver}))


CHANGES = {
    "units": ('"units": 256', '"units": 128'),
    "reads": ('"inputs": ["add1", "down"]', '"inputs": ["down", "add1"]'),
}


@pytest.mark.parametrize("what", [*CHANGES, "lost"])
def test_a_stage_of_other_layers_than_the_plans_is_found_out(
    what: str, searched: ho.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search and the proofs share what cuts a network; what it cuts is compared."""

    last = cuts(searched.network.description)[-1]

    def mistaken(network: ho.Network, chunks: Sequence[range]) -> ho.Network:
        if what == "lost":
            return stage_of(network, [range(own.start, min(own.stop, last)) for own in chunks])
        text = json.dumps(network.model_dump(mode="json", by_alias=True, exclude_none=True))
        assert CHANGES[what][0] in text
        return stage_of(ho.Network.model_validate_json(text.replace(*CHANGES[what])), chunks)

    monkeypatch.setattr(derived, "stage_of", mistaken)
    with pytest.raises(CheckFailedError, match=r"stage [12] of 2"):
        check_price(searched)


def test_verify_reports_a_plan_in_stages(searched: ho.Plan, tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "plan.json"
    searched.save(file)
    (row,) = shell.document("verify", file)["rows"]
    assert row["priced"] == "agrees"
    assert row["total"] == searched.cost.total
    document = json.loads(file.read_text())
    document["cost"]["stages"][0]["seconds"] *= 2
    file.write_text(json.dumps(document))
    said = shell.refused("verify", file, status=1)
    assert said.startswith(f"{file}: cost, stages: should be ")
