"""An exported plan computes the model's own step in PyTorch, and moves what the plan counts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="make torch runs these with PyTorch")

import torch

import hypar_opt as ho
from hypar_opt.execution.export import _program, torch_file
from hypar_opt.plan.plan import Plan
from hypar_opt.workload.network import Network
from tests.torch import models
from tests.torch.processes import Case, Step, steps

CHOICES = ("data", "model", "output")
BATCH = 8


def solved(network: Network, levels: int, **problem: Any) -> Plan:
    of = {"batch": BATCH, "levels": levels, "choices": CHOICES, "reading": "executed"}
    return ho.solve(network, **{**of, **problem})


def of_degrees(network: Network, levels: int, tensor: int, **problem: Any) -> Plan:
    """Return Megatron-LM's plan: tensor parallelism at the deepest levels."""
    from hypar_opt.studies.megatron import megatron_pins

    pins = megatron_pins(network, (2,) * levels, tensor)
    return solved(network, levels, constraints={"fix": pins}, **problem)


def drawn(network: Network, levels: int, seed: int) -> Plan:
    """Return a plan with random choices of all layers."""
    chance = random.Random(seed)
    words = network.words(CHOICES)
    pins = [
        f"{layer.name}@H{level}={chance.choice(known)}"
        for level in range(1, levels + 1)
        for layer, known in zip(network.layers, words, strict=True)
        if not layer.ends
    ]
    return solved(network, levels, constraints={"fix": pins})


def ids() -> Any:
    return torch.randint(models.WORDS, (BATCH, models.TOKENS))


def of_mlp(plan: Plan) -> Case:
    return Case(torch_file(plan), models.Mlp, lambda: torch.randn(BATCH, 16), 8)


def of_llama(plan: Plan) -> Case:
    micro = plan.training.micro_batches or 1
    return Case(torch_file(plan), models.Llama, ids, models.WORDS, micro_batches=micro)


def of_gpt(plan: Plan) -> Case:
    return Case(torch_file(plan), models.Gpt, ids, models.WORDS, models.name_in_gpt)


def of_cnn(plan: Plan) -> Case:
    return Case(torch_file(plan), models.Cnn, lambda: torch.randn(BATCH, 4, 8, 8), 16)


def gpt() -> Network:
    return ho.gpt(
        layers=2,
        hidden=models.WIDTH,
        heads=models.HEADS,
        tokens=models.TOKENS,
        vocabulary=models.WORDS,
    )


def plans(levels: int) -> dict[str, Plan]:
    """Return plans of all models on processes of some levels."""
    mlp, llama, cnn = models.mlp(), models.llama(), models.cnn()
    own = {
        "mlp joint": solved(mlp, levels, search="joint"),
        "mlp two choices": solved(mlp, levels, choices=("data", "model")),
        "mlp data": solved(mlp, levels, constraints={"fix": ["*=data"]}),
        **{f"mlp {seed}": drawn(mlp, levels, seed) for seed in range(8)},
        "llama joint": solved(llama, levels, search="joint", constraints={"even": True}),
        "llama tensor": of_degrees(llama, levels, 2),
        "gpt tensor": of_degrees(gpt(), levels, 2),
        "gpt joint": solved(gpt(), levels, search="joint", constraints={"even": True}),
        "cnn joint": solved(cnn, levels, search="joint", constraints={"even": True}),
        "cnn two choices": solved(cnn, levels, choices=("data", "model")),
    }
    if levels > 1:
        shared = {"micro_batches": 2, "shard": "weights"}
        own["llama sharded"] = of_degrees(llama, levels, 2, training={"shard": "weights"})
        own["llama gradients"] = of_degrees(llama, levels, 2, training={"shard": "gradients"})
        own["llama micro"] = of_degrees(llama, levels, 2, training={"micro_batches": 2})
        own["llama micro sharded"] = of_degrees(llama, levels, 2, training=shared)
    own["mlp sharded"] = solved(
        mlp, levels, constraints={"fix": ["*=data"]}, training={"shard": "weights"}
    )
    return own


CASES = {"mlp": of_mlp, "llama": of_llama, "gpt": of_gpt, "cnn": of_cnn}


@cache
def results(levels: int) -> tuple[Mapping[str, Plan], Mapping[str, Step]]:
    own = plans(levels)
    cases = {name: CASES[name.split()[0]](plan) for name, plan in own.items()}
    return own, steps(2**levels, cases)


def counted(plan: Plan) -> int:
    """Return the elements that a plan of one micro-batch moves, if nothing is sharded."""
    return sum(step.elements for step in _program(plan, plan.batch).exchanges())


NAMES = [(levels, name) for levels in (1, 2) for name in plans(levels)]


@pytest.mark.parametrize(("levels", "name"), NAMES)
def test_loss_and_gradients_are_those_of_one_process(levels: int, name: str) -> None:
    step = results(levels)[1][name]
    assert not step.failure, step.failure
    assert step.loss == pytest.approx(step.expected, rel=1e-12)
    assert step.error < 1e-12
