"""Plans in pipeline stages: their stages' problems, what they are charged, and their files."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations, pairwise
from math import floor, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.stage_messages import seconds_of_sum
from hypar_opt.errors import InputError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.stage import stage_instance
from hypar_opt.instance.staged import StagedPlan, StagePlan, charge_of
from hypar_opt.models import find_network
from hypar_opt.models.gpt import gpt
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stages import Stages
from hypar_opt.plan.stored_layouts import plan_tensors
from hypar_opt.planning.priced import plan_of_stages, plans_of_stages
from hypar_opt.planning.search import solve_jointly
from hypar_opt.simulator.pipeline_order import in_flight, orders
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import part_word
from hypar_opt.workload.stages import Message, cuts, cuts_between_blocks, stage_of
from hypar_opt.workload.tensors import workload_of
from tests.slow import slow_after, slow_off_diagonal

SMALL, UNTIED = (
    gpt(layers=4, hidden=32, heads=4, tokens=8, vocabulary=64, tied=tied) for tied in (True, False)
)
GPT = gpt(layers=4, hidden=256, heads=4, tokens=64, vocabulary=512)


def nodes(count: int, per_node: int, **keys: Any) -> Array:
    described = arrays.load("a100-8").description()
    described["topology"] |= {"nodes": count, "per_node": per_node}
    return Array.model_validate(described | keys)


def problem(array: Array, parts: int, batch: int = 16, **fields: Any) -> Problem:
    merged = array.hierarchy().merged(parts)
    assert merged is not None
    training = {"micro_batches": fields.pop("micro_batches", 4)}
    choices = "data", "model", "output", *map(part_word, range(parts))
    given: dict[str, Any] = {"cost": "time", "training": training, "choices": choices, **fields}
    return problem_of(array=array, hierarchy=merged.sizes, batch=batch, **given)


def solved(network: Network, stated: Problem, stages: Stages) -> StagedPlan:
    """Return the plan whose stages are each the fastest by itself."""
    count = stated.training.micro_batches or 1
    plans = []
    for part, order in enumerate(orders("1f1b", stages.parts, count, stages.chunks)):
        chunks = stages.chunks_of(part)
        held = in_flight(order, [len(chunk) for chunk in chunks])
        own = stage_instance(network, stated, part, stages.parts, chunks, held)
        plan = solve_jointly(own, None)
        own = own.trained(plan.training)
        tensors = plan_tensors(plan, own.executed_workload)
        plans.append(StagePlan(own, plan.assignments(), tensors))
    return StagedPlan.of(network, stated, stages, plans)


@pytest.mark.parametrize("name", ["lenet-c", "vgg-a", "resnet-18", "gpt2", "mixtral-8x7b"])
def test_stages_have_together_what_a_network_has(name: str) -> None:
    network = find_network(name)
    places = cuts_between_blocks(network)
    ends = *places[:: max(1, len(places) // 3)], len(network.layers)
    stages = [stage_of(network, [range(a, b)]) for a, b in pairwise((0, *ends))]
    inside = [[own for own in stage.layers if not isinstance(own, Message)] for stage in stages]
    assert [own.name for stage in inside for own in stage] == [own.name for own in network.layers]
    macs = [workload_of(stage, 1).layers for stage in (network, *stages)]
    whole, *parts = (sum(own.macs for own in layers) for layers in macs)
    assert sum(parts) == whole
    for before, behind, end in zip(stages, stages[1:], ends, strict=False):
        (received,) = (own for own in behind.layers if own.name == "received")
        assert isinstance(received, Message)
        sizes = [
            dict(zip((own.name for own in n.layers), n.maps(), strict=True))
            for n in (before, behind)
        ]
        assert sizes[0]["sent"].pooled == sizes[1]["received"].pooled == network.map_of(end - 1)
    # What a block repeats is a block.
    assert sum(own.count for stage in stages for own in stage.repeats) == sum(
        own.count for own in network.repeats
    )


def test_chunks_of_one_device_are_one_network() -> None:
    names = [own.name for own in GPT.layers]
    ends = [*(names.index(f"decoder.{n}.norm1") for n in (1, 2, 3)), len(names)]
    first, second = (
        stage_of(GPT, [range(a, b) for a, b in [*pairwise((0, *ends))][part::2]])
        for part in range(2)
    )
    inside = [own.name for own in (*first.layers, *second.layers)]
    messages = [name for name in inside if name.startswith("received")]
    assert messages == ["received", "received", "received'"]
    assert {*names} <= {*inside}
    assert first.input_names == ("input", "tensor of decoder.1.add2")


@pytest.mark.parametrize("name", ["gpt", "vgg-a", "resnet-18"])
def test_stages_compute_what_the_network_computes(name: str) -> None:
    """The errors of what stages receive are among it: nothing is left out at a border."""
    network = GPT if name == "gpt" else find_network(name)
    places = cuts_between_blocks(network)
    stages = Stages(network, 3, (places[len(places) // 3], places[-2], len(network.layers)))
    stated = problem(nodes(3, 2), 3, micro_batches=2, batch=4)
    parts = [
        stage_instance(network, stated, part, 3, stages.chunks_of(part), [1]) for part in range(3)
    ]
    alone = problem_of(array=nodes(1, 2), cost="time", batch=4, training={"micro_batches": 2})
    whole, *inside = (computed(own) for own in (Instance(network, alone), *parts))
    # The weights that both ends share are updated in both.
    assert float(sum(inside)) == pytest.approx(float(whole), rel=0.02 if name == "gpt" else 1e-9)


def computed(own: Instance) -> Fraction:
    """Return the seconds of computing in data parallelism."""
    nodes = np.arange(len(own.workload.nodes))
    time = own.cost.time
    charges = time.compute(own.workload, nodes, [np.zeros((1, len(nodes)), np.intp)])
    return Fraction(int(charges.sum()), time.per_unit)


@pytest.mark.parametrize(("parts", "micro_batches"), slow_off_diagonal([2, 4], [1, 2, 8]))
def test_a_plan_in_stages_is_charged_what_they_say(parts: int, micro_batches: int) -> None:
    array = nodes(2, 4)
    places = [end for end in cuts_between_blocks(GPT) if "decoder" in GPT.layers[end].name][1:]
    stated = problem(array, parts, micro_batches=micro_batches)
    # Gradients of the embedding, in both directions between the first stage and the last.
    there, back = array.stage_link(parts - 1, parts), array.stage_link(0, parts, parts - 1)
    size = 512 * 256 * stated.element_bytes
    tied = max(size * link.seconds_per_byte + 2 * link.latency for link in (there, back))
    for some in [*combinations(places, parts - 1)][:3]:
        plan = solved(GPT, stated, Stages(GPT, parts, (*some, len(GPT.layers))))
        seconds = [own.seconds for own in plan.plans]
        assert plan.seconds == charge_of(seconds, micro_batches) + tied
        assert max(seconds) <= plan.seconds - tied <= sum(seconds)
        cost = plan.cost
        assert sum(cost.per_level) == cost.total
        assert len(cost.per_level) == stated.levels
        per_second = min(own.instance.per_second for own in plan.plans)
        assert cost.total == floor(plan.seconds * per_second + Fraction(1, 2))
        assert cost.stages is not None
        assert [own.seconds for own in cost.stages] == [float(own) for own in seconds]


@pytest.mark.parametrize(("parts", "chunks"), slow_after(2, [(4, 1), (2, 2), (2, 1)]))
def test_a_plan_in_stages_is_read_as_it_was_written(
    parts: int, chunks: int, tmp_path: Path
) -> None:
    """Also one some of whose stages compute again, within their memory, what they save."""
    places = [end for end in cuts_between_blocks(GPT) if "decoder" in GPT.layers[end].name][1:]
    ends = *places[: parts * chunks - 1], len(GPT.layers)
    limits = {"optimizer": "adam", **({"memory": "10.5MB"} if parts == 4 else {})}
    stated = problem(nodes(2, 4), parts, micro_batches=8, constraints=limits)
    staged = solved(GPT, stated, Stages(GPT, parts, ends))
    plan, file = plan_of_stages(staged), tmp_path / "plan.json"
    assert (parts == 4) == (plan.training.recompute not in (None, "none"))
    plan.save(file)
    again = ho.read_plan(file)
    assert again == plan
    assert again.document()["schema"] == "hypar-opt/plan/15"
    inside = plans_of_stages(again)
    assert [own.cost.total for own in inside] == [own.cost.total for own in staged.plans]
    held = ho.memory(again)
    assert [own.total for own in held.stages] == [ho.memory(own).total for own in inside]
    assert held.total == max(own.total for own in held.stages)
    step = ho.simulate(again)
    assert step.seconds > 0
    edited = json.loads(file.read_text())
    edited["cost"]["total"] += 1
    file.write_text(json.dumps(edited))
    with pytest.raises(InputError, match=f"cost, total: should be {plan.cost.total}"):
        ho.read_plan(file)


def test_more_micro_batches_in_flight_are_held_longer() -> None:
    array, end = nodes(2, 2), cuts(GPT)[-3]
    stated = problem(array, 2)
    held = []
    for count in (1, 2, 4):
        own = stage_instance(GPT, stated, 0, 2, [range(end)], [count])
        held.append(ho.memory(solve_jointly(own, "data")))
    saved = [own.categories["saved"] for own in held]
    assert saved == [saved[0], 2 * saved[0], 4 * saved[0]]
    rest = [own.total - own.categories["saved"] for own in held]
    assert rest == [rest[0]] * 3


def test_a_message_takes_as_long_as_its_layout_says() -> None:
    """Whole on four accelerators it is sent by each, or a quarter by each and gathered."""
    array = nodes(2, 4)
    stated = problem(array, 2, micro_batches=2)
    own = stage_instance(GPT, stated, 1, 2, [range(cuts(GPT)[-3], len(GPT.layers))], [1])
    plan = solve_jointly(own, None)
    workload = own.executed_workload
    (node,) = (n for n, layer in enumerate(workload.nodes) if layer.name == "received")
    messages = own.cost.time.stage_messages
    size = 8 * 64 * 256 * stated.element_bytes
    link = array.stage_link(0, 2)
    split = array.part(2).interconnect.bisection(0)
    for word, whole in (("data", 0), ("whole", 1), ("whole", 2)):
        rows = [[0] * len(workload.nodes) for _ in range(2)]
        for row in rows[:whole]:
            row[node] = 2 if word == "whole" else 0
        seconds = messages.seconds(rows)["received"]
        direct = 2**whole * size * link.seconds_per_byte
        gathered = size * link.seconds_per_byte + sum(
            2**n * size * split.seconds_per_byte + split.latency for n in range(whole)
        )
        assert seconds == pytest.approx(float(min(direct, gathered) + link.latency))
    assert plan.cost.total


def test_gradients_are_summed_around_a_ring_of_the_stages_that_hold_them() -> None:
    array, size = nodes(2, 4), 10**6
    within, between = array.stage_link(0, 4), array.stage_link(1, 4)
    assert array.stage_link(0, 4, 2) == array.stage_link(2, 4, 2) == between
    for parts, link in (
        ((0, 1), within),
        ((0, 2), between),
        ((0, 1, 3), between),
        ((0, 1, 2, 3), between),
    ):
        count = len(parts)
        # So many elements of each stage are sent, in turns, of which each is one piece.
        turn = Fraction(size, count) * link.seconds_per_byte + link.latency
        assert seconds_of_sum(array, 4, parts, size) == 2 * (count - 1) * turn
    assert seconds_of_sum(array, 4, (2,), size) == 0


def test_parts_of_an_array() -> None:
    array = nodes(3, 4)
    assert [array.part(parts).hierarchy().sizes for parts in (3, 6)] == [(2, 2), (2,)]
    for parts in (2, 5, 8, 12):
        with pytest.raises(ho.HyparError, match="stages should be 1, 3 or 6 on the array"):
            array.part(parts)
    # From one node to the next, and inside a node.
    between, inside = array.stage_link(1, 6), array.stage_link(0, 6)
    assert between.seconds_per_byte > inside.seconds_per_byte
    assert between.latency > inside.latency
    with pytest.raises(ho.HyparError, match=r"stages should be 1 on .*, of kind mesh,"):
        arrays.load("tpu-v4-8").part(2)
    tree = arrays.load("hmc-htree-16").topology.part(4)
    assert tree is not None
    assert tree.model_dump()["accelerators"] == 4


@pytest.mark.parametrize(
    ("kind", "divided"),
    slow_off_diagonal(["tied", "untied", "vgg-a"], [(2, 1), (4, 1), (2, 2)]),
)
def test_a_run_of_stages_moves_what_the_plan_says(kind: str, divided: tuple[int, int]) -> None:
    """Its gradients are one device's; and messages are what crosses H1, there and back."""
    parts, chunks = divided
    network = SMALL if kind == "tied" else UNTIED if kind == "untied" else find_network(kind)
    places = cuts_between_blocks(network)[2:]
    stages = Stages(network, parts, (*places[: parts * chunks - 1], len(network.layers)))
    plan = plan_of_stages(solved(network, problem(nodes(2, 4), parts), stages))
    scaled = kind == "vgg-a"
    result = ho.run(plan, scale_down=scaled)
    assert result.agrees
    assert result.counted == result.modelled == result.priced
    if not scaled:
        assert sum(result.counted) == plan.cost.executed_bytes
        sent = 2 * 16 * 8 * 32 * plan.element_bytes
        copies = [
            prod(
                [
                    2
                    for word in (plan.layouts or {})[network.layers[end - 1].name][1:]
                    if word == "whole"
                ]
            )
            for end in stages.ends[:-1]
        ]
        tied = 2 * 64 * 32 * plan.element_bytes * (kind == "tied")
        assert result.counted[0] == sent * sum(copies) + tied
    with pytest.raises(ho.HyparError, match="runs on virtual devices alone"):
        ho.run(plan, backend="jax")
