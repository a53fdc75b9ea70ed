"""Mixtures of experts on virtual devices: each token's experts, slots, and what moves."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.execution.shardings import shardings
from hypar_opt.execution.virtual.data import StepData
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.proofs.certificate import check_price
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.activations import ACTIVATIONS
from hypar_opt.workload.operators.experts import Router
from hypar_opt.workload.operators.maps import LogitMap
from tests.choices import WITH_EXPERTS
from tests.execution.drawn import drawn_programs, run_as_one_device
from tests.execution.virtual.test_arithmetic import (
    BATCH,
    assert_gradients_are_slopes,
    one_device,
    stated,
)
from tests.slow import slow_after
from tests.strategies.groups import of_counts
from tests.strategies.mixtures import eight_groups, mixture


def of_tokens(network: ho.Network, data: StepData, logits: Any, read: Any) -> Any:
    """Return a mixture's output for one sequence, token by token."""
    position = {layer.name: n for n, layer in enumerate(network.layers)}
    router = network.layers[position["router"]]
    assert isinstance(router, Router)
    tokens, experts = logits.shape
    _, groups, slots = LogitMap(tokens, experts, router.routing).slots
    silu = ACTIVATIONS["silu"][0]
    weights = {name: data.weights[n] for name, n in position.items() if n in data.weights}
    biases = {name: data.biases[n] for name, n in position.items() if n in data.biases}

    def product(name: str, number: int, token: Any) -> Any:
        return token @ weights[name][number] + (biases[name][number] if name in biases else 0)

    def expert(number: int, token: Any) -> Any:
        hidden = silu(product("up", number, token))
        if "by" in weights:
            hidden = hidden * product("by", number, token)
        return product("down", number, hidden)

    def choices(token: int) -> list[int]:
        among = [*range(experts)]
        if router.expert_groups:
            each = experts // router.expert_groups
            parts = [range(n, n + each) for n in range(0, experts, each)]
            best = {
                part: sum(sorted(1 / (1 + np.exp(-logits[token, x])) for x in part)[-2:])
                if router.sigmoid
                else max(logits[token, x] for x in part)
                for part in parts
            }
            top = sorted(parts, key=lambda part: (-best[part], part[0]))[: router.top_groups]
            among = [x for part in top for x in part]
        return sorted(among, key=lambda x: (-logits[token, x], x))[: router.top_k]

    def score(token: int, number: int) -> Any:
        exponential = np.exp(logits[token, number])
        return exponential / (1 + exponential) if router.sigmoid else exponential

    mixed = np.zeros((tokens, read.shape[1]))
    for group in np.split(np.arange(tokens), groups):
        taken = [0] * experts
        for token in group:
            chosen = choices(token)
            over = range(experts) if router.softmax == "all" else chosen
            total = 1 if router.sigmoid == "plain" else sum(score(token, x) for x in over)
            for number in sorted(chosen):
                if taken[number] < slots:
                    share = (router.factor or 1) * score(token, number) / total
                    mixed[token] += share * expert(number, read[token])
                taken[number] += 1
    return mixed


@pytest.mark.parametrize("seed", range(12))
def test_a_token_has_the_weighted_sum_of_its_experts_that_have_a_slot_left(seed: int) -> None:
    network = mixture(seed)
    data, workload = stated(network)
    outputs = one_device(network, data, workload).outputs
    position = {layer.name: n for n, layer in enumerate(network.layers)}
    for image in range(BATCH):
        made = {name: outputs[n][1][0][image] for name, n in position.items()}
        expected = of_tokens(network, data, made["router"], made["norm"])
        assert np.allclose(made["combine"], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", slow_after(4, range(8)))
def test_gradients_of_routers_and_experts_are_the_slopes_of_the_loss(seed: int) -> None:
    assert_gradients_are_slopes(mixture(seed), seed)


@pytest.mark.parametrize("seed", slow_after(3, range(200)))
def test_bytes_and_numbers_are_those_modelled_and_of_one_device(seed: int) -> None:
    """Of any split: images, groups of tokens, experts, features; also where these are uneven."""
    network, sizes = mixture(seed), ((2,), (2, 2), (4,), (3,))
    for program in drawn_programs(network, seed, 4, sizes, choices=WITH_EXPERTS):
        joined = replace(program, joined=seed % 2 == 1)
        try:
            run_as_one_device(network, joined, seed)
        except RefusedError as error:
            if not REFUSED.search(str(error)):
                raise


REFUSED = re.compile("groups of tokens should be at least|divide one of its|its tokens should be")
"""A device without a group; a group in two parts."""


def test_most_plans_of_mixtures_can_be_run() -> None:
    """Few are refused above: of eight groups none."""
    drawn = ("dispatch", "experts", "combine")
    took = set()
    for seed in range(3):
        for program in drawn_programs(eight_groups(), seed, 8, ((2, 2),), choices=WITH_EXPERTS):
            run_as_one_device(eight_groups(), program, seed)
            nodes = [n for n, own in enumerate(program.workload.nodes) if own.kind in drawn]
            took |= {(program.workload.nodes[n].kind, w) for n in nodes for w in program.words(n)}
    assert took == {
        *((kind, word) for kind in drawn for word in ("data", "tokens", "experts")),
        *((kind, "channel") for kind in ("dispatch", "combine")),
        *(("experts", word) for word in ("model", "output")),
    }


def test_experts_that_few_choose_have_empty_slots_and_others_miss_tokens() -> None:
    """Bytes depend on the slots alone, whatever is routed."""
    (program,) = drawn_programs(mixture(0), 5, 1, ((2, 2),))
    moved = {str(run_as_one_device(mixture(0), program, seed).exchanges) for seed in range(3)}
    assert len(moved) == 1


@pytest.mark.parametrize(
    ("sizes", "reading", "total"),
    [
        ((2, 2, 2), "joined", 186_368),
        ((2, 2, 2), "executed", 268_288),
        ((8,), "joined", 186_368),
        ((2, 4), "executed", 235_520),
    ],
)
def test_data_and_expert_parallelism_move_what_a_prototype_in_xla_did(
    sizes: tuple[int, ...], reading: str, total: int
) -> None:
    """Its layer: eight experts of four slots an image, of all 8-byte elements on eight devices.

    Weights beside the experts are all-reduced, 14 x 640 elements; four all-to-alls of 4,096 move
    7/8 of these if they are joined, and level by level a half at each of two parts, 3/4 at one of
    four.
    """
    beside = ("token", "router", "dispatch", "combine", "sum", "head", "loss")
    layers = [
        {"name": "token", "kind": "embedding", "features": 16},
        {"name": "router", "kind": "router", "experts": 8, "top_k": 2, "capacity_factor": 2.0},
        {"name": "dispatch", "kind": "dispatch", "inputs": ["token", "router"]},
        {"name": "up", "kind": "experts", "units": 32, "activation": "tanh"},
        {"name": "down", "kind": "experts", "units": 16},
        {"name": "combine", "kind": "combine", "inputs": ["down", "router"]},
        {"name": "sum", "kind": "add", "inputs": ["token", "combine"]},
        {"name": "head", "kind": "fc", "units": 16},
        {"name": "loss", "kind": "output"},
    ]
    given = {"name": "experts", "input": {"tokens": 8, "vocabulary": 16}, "layer": layers}
    network = ho.Network.model_validate({"schema": "hypar-opt/network/2", **given})
    pins = ("up=experts", "down=experts", *(f"{name}=data" for name in beside))
    asked: Any = {"batch": 8, "hierarchy": sizes, "whole_levels": True, "element_bytes": 8}
    plan = ho.solve(
        network, search="joint", choices="all", reading=reading, constraints={"fix": pins}, **asked
    )
    run = ho.run(plan)
    assert plan.cost.total == sum(exchange.counted for exchange in run.exchanges) == total
    assert run.agrees


def test_devices_have_the_biases_of_their_experts() -> None:
    """Of groups of accelerators one has no part of them, and no logits to choose by."""
    network, choices = eight_groups(2), WITH_EXPERTS
    router = network.layers[1]
    assert isinstance(router, Router)
    assert router.expert_groups
    asked: dict[str, Any] = {"batch": 8, "choices": choices, "array": of_counts((2, 2))}
    plan = ho.solve(network, **asked, share=0.25, constraints={"fix": ["up@H2=experts"]})
    assert ho.run(plan).agrees
    shards = {what: shardings(plan)[what]["up"]["shards"] for what in ("weights", "biases")}
    held = zip(shards["weights"], shards["biases"], strict=True)
    experts = [(weights[0], biases[0]) for weights, biases in held if weights[0]]
    assert experts == [([[0, 4]], [[0, 4]]), ([[4, 8]], [[4, 8]])]


@pytest.mark.parametrize("reading", ["executed", "joined"])
@pytest.mark.parametrize("seed", slow_after(2, range(40)))
def test_a_choice_of_experts_sends_no_error_back(seed: int, reading: str) -> None:
    """Dispatch reads logits that are gathered, whose error combine alone sends."""
    choices = ("data", "model", "experts")
    asked: dict[str, Any] = {"levels": 2, "batch": 4, "choices": choices, "reading": reading}
    asked["constraints"] = {
        "runnable": False,
        "fix": ["router=data", f"dispatch={'experts' if seed % 2 else 'channel'}"],
    }
    plan = ho.solve(mixture(seed), search="joint", **asked)
    instance = Instance.of_plan(plan)
    program = Program(
        instance.workload,
        rows_of_plan(plan, instance.workload),
        plan.hierarchy,
        joined=plan.joins_levels,
    )
    names = [node.name for node in instance.workload.nodes]
    (logits,) = (
        number
        for number, edge in enumerate(instance.workload.boundaries)
        if names[edge.target] == "dispatch" and edge.input == 1
    )
    moved = [one.phase for one in exchanges_of_step(program) if one.boundary == logits]
    assert {*moved} == {"forward"}
    check_price(plan)
    result = ho.run(plan)
    assert result.agrees
    assert sum(result.counted) == plan.cost.executed_bytes
    array = of_counts((2, 2))
    of_groups: dict[str, Any] = {"array": array, "batch": 8, "share": 0.25, "choices": choices}
    timed = ho.solve(mixture(seed), **of_groups, constraints=asked["constraints"])
    check_price(timed)
    assert ho.simulate(timed).closed_form == pytest.approx(timed.cost.total / 1e15, rel=1e-6)
