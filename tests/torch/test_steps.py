"""An exported plan computes the model's own step in PyTorch, and moves what the plan counts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="make torch runs these with PyTorch")

import torch

import hypar_opt as ho
from hypar_opt.execution.export import _program, torch_file
from hypar_opt.plan.plan import Plan
from hypar_opt.step.order import PlanExchanges, exchanges_of_step
from hypar_opt.workload.network import Network
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import SINGLE_PASS
from tests.onnx.graph_writer import EXPORTED
from tests.torch import models
from tests.torch.processes import Case, Step, on_processes, steps

CHOICES = ("data", "model", "output")
SPLIT_OFTEN = ("data", "tokens")
BATCH = 8
GROUPS = 4


def solved(network: Network, levels: int, **problem: Any) -> Plan:
    of = {"batch": BATCH, "levels": levels, "choices": CHOICES, "reading": "executed"}
    return ho.solve(network, **{**of, **problem})


def of_degrees(network: Network, levels: int, tensor: int, **problem: Any) -> Plan:
    """Return Megatron-LM's plan: tensor parallelism at the deepest levels."""
    from hypar_opt.plan.strategies import strategy_pins

    pins = strategy_pins(network, (2,) * levels, "megatron", tensor)
    return solved(network, levels, constraints={"fix": pins}, **problem)


def by_token(network: Network, levels: int) -> Plan:
    """Return the plan that splits sequences alone, as context parallelism does."""
    pins = {"fix": ["*=tokens"]}
    return solved(network, levels, choices=(*CHOICES, "tokens"), constraints=pins)


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


def drawn_by_token(levels: int, seed: int) -> Plan:
    """Return a random plan of LLaMA in which sequences may be split, too."""
    chance, network, choices = random.Random(seed), models.llama(), (*CHOICES, "tokens")
    pins = []
    for level in range(1, levels + 1):
        for layer, words in zip(network.layers, network.words(choices), strict=True):
            # Two heads of keys and values are split once.
            known = words if level == 1 else [word for word in words if word in SPLIT_OFTEN]
            if not layer.ends:
                pins.append(f"{layer.name}@H{level}={chance.choice(known)}")
    return solved(network, levels, choices=choices, constraints={"fix": pins})


def ids() -> Any:
    return torch.randint(models.WORDS, (BATCH, models.TOKENS))


def of_mlp(plan: Plan) -> Case:
    return Case(torch_file(plan), models.Mlp, lambda: torch.randn(BATCH, 16), 8)


def of_llama(plan: Plan) -> Case:
    micro = plan.training.micro_batches or 1
    return Case(torch_file(plan), models.Llama, ids, models.WORDS, micro_batches=micro)


def of_normed(plan: Plan) -> Case:
    sizes = models.Sizes(normed=True)
    return replace(of_llama(plan), model=lambda: models.Llama(sizes))


def of_gpt(plan: Plan) -> Case:
    return Case(torch_file(plan), models.Gpt, ids, models.WORDS, models.name_in_gpt)


def of_conv1d(plan: Plan) -> Case:
    return replace(of_gpt(plan), model=lambda: models.Gpt(product=models.Conv1D))


def of_cnn(plan: Plan) -> Case:
    return Case(torch_file(plan), models.Cnn, lambda: torch.randn(BATCH, 4, 8, 8), 16)


def of_biased(plan: Plan) -> Case:
    own = of_cnn(plan)
    return replace(own, model=lambda: models.Cnn(bias=True))


def of_grouped(plan: Plan) -> Case:
    return replace(of_cnn(plan), model=lambda: models.Cnn(groups=GROUPS))


BY_LAYER = {"first": "gradients", "second": "weights", "third": "none"}


def gpt() -> Network:
    return ho.gpt(
        layers=2,
        hidden=models.WIDTH,
        heads=models.HEADS,
        tokens=models.TOKENS,
        vocabulary=models.WORDS,
    )


def plans(levels: int) -> dict[str, Plan]:
    """Return plans of all models on processes of some levels; the first word is the model."""
    mlp, llama, cnn = models.mlp(), models.llama(), models.cnn()
    normed = models.llama(normed=True)
    even: dict[str, Any] = {"search": "joint", "constraints": {"even": True}}
    by_batch: dict[str, Any] = {"constraints": {"fix": ["*=data"]}}
    own = {
        "mlp joint": solved(mlp, levels, search="joint"),
        "mlp two choices": solved(mlp, levels, choices=("data", "model")),
        "mlp data": solved(mlp, levels, **by_batch),
        "mlp sharded": solved(mlp, levels, **by_batch, training={"shard": "weights"}),
        "mlp by layer": solved(mlp, levels, **by_batch, training={"shard": BY_LAYER}),
        **{f"mlp {seed}": drawn(mlp, levels, seed) for seed in range(8)},
        "llama joint": solved(llama, levels, **even),
        "llama tensor": of_degrees(llama, levels, 2),
        "normed joint": solved(normed, levels, **even),
        "normed tensor": of_degrees(normed, levels, 2),
        # Two heads of keys are split once.
        **{f"normed {seed}": drawn(normed, 1, seed) for seed in range(4) if levels == 1},
        "gpt tensor": of_degrees(gpt(), levels, 2),
        "gpt joint": solved(gpt(), levels, **even),
        "conv1d tensor": of_degrees(gpt(), levels, 2),
        "conv1d joint": solved(gpt(), levels, **even),
        **{f"conv1d {seed}": drawn(gpt(), levels, seed) for seed in range(2)},
        "cnn joint": solved(cnn, levels, **even),
        "cnn two choices": solved(cnn, levels, choices=("data", "model")),
        **{f"cnn {seed}": drawn(cnn, levels, seed) for seed in range(4)},
        **{f"grouped {n}": drawn(models.cnn(groups=GROUPS), levels, n) for n in range(4)},
        **{f"biased {n}": drawn(models.cnn(bias=True), levels, n) for n in range(4)},
        **{f"llama by token {seed}": drawn_by_token(levels, seed) for seed in range(6)},
        "llama all by token": by_token(models.llama(), levels),
        "gpt all by token": by_token(gpt(), levels),
    }
    if levels > 1:
        for shard in ("gradients", "weights"):
            of = {"shard": shard, "micro_batches": 2}
            own[f"llama {shard}"] = of_degrees(llama, levels, 2, training={"shard": shard})
            own[f"llama {shard} micro"] = of_degrees(llama, levels, 2, training=of)
        some = {"*": "weights", "model.layers.0": "gradients", "lm_head": "state"}
        some |= {"model.layers.1.mlp.up_proj": "none", "model.norm": "none"}
        layers: dict[str, Any] = {"shard": some, "micro_batches": 2}
        own["llama by layer"] = of_degrees(llama, levels, 2, training=layers)
        own["llama micro"] = of_degrees(llama, levels, 2, training={"micro_batches": 2})
    return own


CASES = {
    "mlp": of_mlp,
    "llama": of_llama,
    "normed": of_normed,
    "gpt": of_gpt,
    "conv1d": of_conv1d,
    "cnn": of_cnn,
    "biased": of_biased,
    "grouped": of_grouped,
}


@cache
def results(levels: int) -> tuple[Mapping[str, Plan], Mapping[str, Step]]:
    own = plans(levels)
    cases = {name: CASES[name.split()[0]](plan) for name, plan in own.items()}
    return own, steps(2**levels, cases)


def counted(plan: Plan) -> int:
    """Return the elements that a plan moves."""
    return sum(step.elements for step in exchanges_of_step(_program(plan)))


def replicated(plan: Plan) -> PlanExchanges:
    """Return what a plan exchanges if nothing is sharded."""
    program = _program(plan)
    return exchanges_of_step(replace(program, workload=with_repeats(program.workload, SINGLE_PASS)))


def says_all(plan: Plan) -> bool:
    return "What is not as in the plan" not in torch_file(plan, approximate=True)


@pytest.mark.parametrize("levels", [1, 2])
def test_loss_and_gradients_are_those_of_one_process(levels: int) -> None:
    for name, step in results(levels)[1].items():
        assert not step.failure, (name, step.failure)
        assert step.loss == pytest.approx(step.expected, rel=1e-12), name
        assert step.error < 1e-12, name


@pytest.mark.parametrize("levels", [1, 2])
def test_parameters_are_placed_as_the_file_says(levels: int) -> None:
    for name, step in results(levels)[1].items():
        assert all(step.placements.values()), (name, step.placements)


@pytest.mark.parametrize("levels", [1, 2])
def test_as_much_moves_as_planned_where_no_difference_is_named(levels: int) -> None:
    own, found = results(levels)
    # A plan counts no biases; fully_shard gathers weights a second time.
    exact = [
        name
        for name, plan in own.items()
        if says_all(plan)
        and not name.startswith("biased")
        and name not in ("mlp sharded", "mlp by layer")
    ]
    assert {name: found[name].elements for name in exact} == {
        name: counted(own[name]) for name in exact
    }
    assert len(exact) > (12 if levels == 1 else 4)
    # A reduce-scatter and two all-gathers for a reduce-scatter and one.
    all_reduced = sum(step.elements for step in replicated(own["mlp sharded"]))
    assert 2 * found["mlp sharded"].elements == 3 * all_reduced
    # One of its layers.
    by_layer = replicated(own["mlp by layer"])
    halves = sum((2 + (step.node == 1)) * step.elements for step in by_layer)
    assert 2 * found["mlp by layer"].elements == halves


@pytest.mark.parametrize("levels", [1, 2])
def test_sequences_move_what_is_planned_and_what_is_named(levels: int) -> None:
    """An all-reduce in place of a reduce-scatter, of the error of each block's keys and values."""
    own, found = results(levels)
    name = "llama all by token"
    assert "the error of keys and values" in torch_file(own[name])
    tensor = BATCH * models.TOKENS * models.Sizes().kv_heads * models.WIDTH // models.HEADS
    more = 2 * 2 * (2**levels - 1) * tensor
    assert found[name].elements == counted(own[name]) + more


def test_a_model_of_other_names_or_shapes_is_refused_by_name() -> None:
    text = torch_file(solved(models.mlp(), 1, constraints={"fix": ["first=output"]}))

    def refusals() -> list[str]:
        exported: dict[str, Any] = {}
        exec(text, exported)
        mesh = exported["device_mesh"]("cpu")
        other = models.Mlp()
        other.third = torch.nn.Linear(32, 17)
        messages = []
        for model, names in ((other, str), (models.Mlp(), str.upper)):
            with pytest.raises(ValueError, match="should be a module") as refused:
                exported["parallelize"](model, mesh, names)
            messages.append(str(refused.value))
        return messages

    shape, name = on_processes(2, refusals)
    assert "'third' should be a module with a weight of (16, 32), and there is one of (17," in shape
    assert "'FIRST' should be a module with a weight of (32, 16), and there is no such" in name


def test_an_imported_llama_moves_what_its_plan_counts() -> None:
    from hypar_opt.models.imported import import_

    network = import_(EXPORTED / "llama-gqa.onnx")
    plan = of_degrees(network, 1, 2, batch=4)
    case = Case(
        torch_file(plan, approximate=True),
        lambda: models.Llama(models.IMPORTED_LLAMA),
        lambda: torch.randint(models.IMPORTED_LLAMA.words, (4, 64)),
        models.IMPORTED_LLAMA.words,
        models.name_in_llama,
    )
    assert says_all(plan)
    step = steps(2, {"llama": case})["llama"]
    assert not step.failure, step.failure
    assert step.loss == pytest.approx(step.expected, rel=1e-12)
    assert step.error < 1e-12
    assert step.elements == counted(plan)


def test_an_imported_gpt_computes_what_it_did() -> None:
    """Its words are odd in number, and it has one matrix for queries, keys and values."""
    from hypar_opt.models.imported import import_

    network = import_(EXPORTED / "gpt2.onnx")
    plan = solved(network, 1, search="joint", constraints={"even": True}, batch=2)
    case = Case(
        torch_file(plan, approximate=True),
        lambda: models.Gpt(models.IMPORTED_GPT, positions=1024, bias=False),
        lambda: torch.randint(models.IMPORTED_GPT.words, (2, 64)),
        models.IMPORTED_GPT.words,
        models.name_in_imported_gpt,
    )
    step = steps(2, {"gpt": case})["gpt"]
    assert not step.failure, step.failure
    assert all(step.placements.values()), step.placements
    assert step.loss == pytest.approx(step.expected, rel=1e-12)
    assert step.error < 1e-12
