"""A plan in stages, split by PyTorch's pipelining as its file says, computes the model's step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="make torch runs these with PyTorch")

import torch
import torch.distributed as dist
import torch.nn.functional as f
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules
from torch.distributed.tensor import DTensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import hypar_opt as ho
from hypar_opt.execution.export import torch_file
from hypar_opt.models.gpt import gpt
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stages import even_stages
from hypar_opt.plan.strategies import strategy_pins
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.pipeline_order import orders
from hypar_opt.workload.network import Network
from tests.instance.test_staged import nodes, plan_of_stages, problem, solved
from tests.torch import models
from tests.torch.counting import counted
from tests.torch.processes import on_processes

BATCH, BLOCKS = 16, 4


def network(*, tied: bool = True) -> Network:
    sizes: dict[str, int] = {"hidden": models.WIDTH, "heads": models.HEADS}
    sizes |= {"tokens": models.TOKENS, "vocabulary": models.WORDS, "layers": BLOCKS}
    return gpt(**sizes, tied=tied)


class Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(models.WORDS, models.WIDTH)
        self.wpe = nn.Embedding(models.TOKENS, models.WIDTH)

    def forward(self, ids: Any) -> Any:
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))


class Gpt(nn.Module):
    """A chain of modules, as PyTorch's stages have parts of it."""

    def __init__(self, *, tied: bool = True, bias: bool = True) -> None:
        super().__init__()
        sizes = models.Sizes()
        self.embed = Embeddings()
        blocks = (models.GptBlock(sizes, nn.Linear, bias=bias) for _ in range(BLOCKS))
        self.h = nn.ModuleList(blocks)
        self.ln_f = nn.LayerNorm(models.WIDTH)
        self.lm_head = nn.Linear(models.WIDTH, models.WORDS, bias=False)
        if tied:
            self.lm_head.weight = self.embed.wte.weight

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def name_in_gpt(layer: str) -> str:
    own = models.name_in_gpt(layer)
    return f"embed.{own}" if own in ("wte", "wpe") else own


def planned(
    parts: int,
    inside: int,
    *,
    chunks: int = 1,
    tensor: int = 1,
    tied: bool = True,
    schedule: str = "1f1b",
    micro_batches: int = 4,
) -> Plan:
    """Return a plan of equal stages, with tensor parallelism at the deepest levels of each."""
    own, array = network(tied=tied), nodes(parts, inside)
    levels = array.hierarchy().merged(parts)
    assert levels is not None
    pins = strategy_pins(own, levels.sizes[1:], "megatron", tensor) if tensor > 1 else ["*=data"]
    if tensor > 1:
        # Levels below H1.
        pins = [
            pin.replace(f"@H{n}", f"@H{n + 1}")
            for pin in pins
            for n in [int(pin.partition("@H")[2].partition("=")[0])]
        ]
    stated = problem(array, parts, BATCH, micro_batches=micro_batches, constraints={"fix": pins})
    staged = solved(own, stated, even_stages(own, parts, chunks))
    training = staged.problem.training.model_copy(update={"schedule": schedule})
    ordered = staged.problem.model_copy(update={"training": training})
    return plan_of_stages(replace(staged, problem=ordered))


class Step(NamedTuple):
    loss: float
    expected: float
    errors: dict[str, float]
    elements: int
    """What the second step moves; the first one exchanges sizes."""


def loss_of(logits: Any, targets: Any) -> Any:
    return f.cross_entropy(logits.flatten(0, -2), targets.flatten())


@sdpa_kernel(SDPBackend.MATH)
def step(text: str, make: Callable[[], Any]) -> Step:
    torch.manual_seed(0)
    model = make()
    ids = torch.randint(models.WORDS, (BATCH, models.TOKENS))
    targets = torch.randint(models.WORDS, ids.shape)
    exported: dict[str, Any] = {}
    exec(compile(text, "exported.py", "exec"), exported)
    mesh = exported["device_mesh"]("cpu")
    own = exported["chunks"](model, mesh, name_in_gpt)
    passes = exported["schedule"](own, mesh, loss_of)
    whole = loss_of(model(ids), targets)
    whole.backward()
    expected = {n: p.grad for n, p in model.named_parameters(remove_duplicate=False)}
    stage, last = mesh.get_local_rank("pp"), exported["MESH"]["pp"] - 1
    if "dp" in exported["MESH"]:
        part, parts = mesh.get_local_rank("dp"), exported["MESH"]["dp"]
        ids, targets = ids.chunk(parts)[part], targets.chunk(parts)[part]
    inputs = (ids,) if stage == 0 else ()
    losses: list[Any] = []
    for _ in range(2):
        own.zero_grad()
        with counted() as moved:
            with exported.get("sharded", torch.enable_grad)():
                passes.step(*inputs, target=targets if stage == last else None, losses=losses)
            if "reduce_gradients" in exported:
                exported["reduce_gradients"](own, mesh)
    mean = sum((one.full_tensor() if isinstance(one, DTensor) else one).detach() for one in losses)
    total, elements = torch.zeros(()) + mean / max(1, len(losses)), torch.tensor(moved.elements)
    for amount in (total, elements):
        dist.all_reduce(amount)
    errors = {}
    for chunk in own:
        for name, parameter in chunk.named_parameters(remove_duplicate=False):
            gradient = parameter.grad
            if isinstance(gradient, DTensor):
                gradient = gradient.full_tensor()
            errors[name] = (gradient - expected[name]).abs().max().item()
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, errors)
    found = {name: error for one in every for name, error in one.items()}
    assert found.keys() == expected.keys()
    of_last = dist.get_world_size() // exported["MESH"]["pp"]
    return Step(total.item() / of_last, whole.item(), found, round(elements.item()))


PLANS: dict[int, dict[str, Callable[[], Plan]]] = {
    4: {
        "1f1b": partial(planned, 2, 2),
        "gpipe": partial(planned, 2, 2, schedule="gpipe", micro_batches=1),
        "zb-h1": partial(planned, 2, 2, schedule="zb-h1"),
        "interleaved": partial(planned, 2, 2, chunks=2),
        "untied": partial(planned, 2, 2, tied=False, micro_batches=8),
        "tensor": partial(planned, 2, 2, tensor=2),
    },
    8: {
        "1f1b": partial(planned, 4, 2),
        "tensor": partial(planned, 2, 4, tensor=2, chunks=2),
    },
}


@cache
def results(count: int) -> tuple[dict[str, Plan], dict[str, Step]]:
    plans = {name: make() for name, make in PLANS[count].items()}
    texts = {name: torch_file(plan) for name, plan in plans.items()}

    def steps() -> dict[str, Step]:
        return {
            name: step(text, partial(Gpt, tied=name != "untied")) for name, text in texts.items()
        }

    return plans, on_processes(count, steps)


@pytest.mark.parametrize("count", PLANS)
def test_loss_and_gradients_are_those_of_one_process(count: int) -> None:
    for name, own in results(count)[1].items():
        assert own.loss == pytest.approx(own.expected, rel=1e-12), name
        assert max(own.errors.values()) < 1e-12, (name, own.errors)
