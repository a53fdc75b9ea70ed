"""A plan in stages, split by PyTorch's pipelining as its file says, computes the model's step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest

pytest.importorskip("torch", reason="make torch runs these with PyTorch")

import torch
import torch.distributed as dist
import torch.nn.functional as f
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import SplitPoint
from torch.distributed.tensor import DTensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hypar_opt.execution.export import torch_file
from hypar_opt.models.gpt import gpt
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stages import Stages, even_stages
from hypar_opt.plan.strategies import strategy_pins
from hypar_opt.planning.priced import plan_of_stages
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.pipeline_order import orders
from hypar_opt.workload.network import Network
from hypar_opt.workload.stages import cuts
from tests.instance.test_staged import nodes, problem, solved
from tests.torch import models
from tests.torch.counting import counted
from tests.torch.processes import on_processes

BATCH, BLOCKS = 16, 4


class Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(models.WORDS, models.WIDTH)
        self.wpe = nn.Embedding(models.TOKENS, models.WIDTH)

    def forward(self, ids: Any) -> Any:
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))


class Gpt(nn.Module):
    """A chain of modules, as PyTorch's stages have parts of it."""

    def __init__(self, *, tied: bool = True, bias: bool = False) -> None:
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


def network(*, tied: bool = True) -> Network:
    sizes: dict[str, Any] = {"hidden": models.WIDTH, "heads": models.HEADS}
    sizes |= {"tokens": models.TOKENS, "vocabulary": models.WORDS, "layers": BLOCKS}
    return gpt(**sizes, tied=tied)


@dataclass(frozen=True)
class Case:
    """A plan of equal stages, and the model that its file splits.

    Parameters
    ----------
    inside
        The accelerators of a stage.
    tensor
        The degree of tensor parallelism, at the deepest levels.
    """

    parts: int
    inside: int
    chunks: int = 1
    tensor: int = 1
    schedule: str = "1f1b"
    micro_batches: int = 4
    shard: str | None = None
    network: Callable[[], Network] = network
    model: Callable[[], Any] = Gpt
    names: Callable[[str], str] = name_in_gpt

    @property
    def plan(self) -> Plan:
        own, array = self.network(), nodes(self.parts, self.inside)
        merged = array.hierarchy().merged(self.parts)
        assert merged is not None
        fixed = strategy_pins(own, merged.sizes[1:], "megatron", self.tensor)
        pins = [f"{pin[0]}@H{int(pin[1]) + 1}={pin[2]}" for pin in map(_parsed, fixed)]
        constraints = {"fix": pins}
        micro = self.micro_batches
        stated = problem(array, self.parts, BATCH, micro_batches=micro, constraints=constraints)
        sharded = stated.training.model_copy(update={"shard": self.shard})
        stated = stated.model_copy(update={"training": sharded})
        staged = solved(own, stated, even_stages(own, self.parts, self.chunks))
        ordered = staged.problem.training.model_copy(update={"schedule": self.schedule})
        stated = staged.problem.model_copy(update={"training": ordered})
        return plan_of_stages(replace(staged, problem=stated))


def _parsed(pin: str) -> list[str]:
    """Return the layers, the level's number and the choice of a pin."""
    layers, _, rest = pin.partition("@H")
    return [layers, *rest.split("=")]


class Step(NamedTuple):
    loss: float
    expected: float
    errors: dict[str, float]
    elements: int
    """What the second step moves; the first one exchanges sizes."""


def loss_of(logits: Any, targets: Any) -> Any:
    return f.cross_entropy(logits.flatten(0, -2), targets.flatten())


@sdpa_kernel(SDPBackend.MATH)
def step(text: str, make: Callable[[], Any], names: Callable[[str], str]) -> Step:
    torch.manual_seed(0)
    model = make()
    ids = torch.randint(models.WORDS, (BATCH, models.TOKENS))
    targets = torch.randint(models.WORDS, ids.shape)
    exported: dict[str, Any] = {}
    exec(compile(text, "exported.py", "exec"), exported)
    mesh = exported["device_mesh"]("cpu")
    own = exported["chunks"](model, mesh, names)
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
    total, elements = torch.zeros(()), torch.tensor(moved.elements)
    for loss in losses:
        total += (loss.full_tensor() if isinstance(loss, DTensor) else loss).detach() / len(losses)
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
    found: dict[str, float] = {}
    for one in every:
        found |= {name: max(error, found.get(name, 0)) for name, error in one.items()}
    assert found.keys() == expected.keys()
    of_last = dist.get_world_size() // exported["MESH"]["pp"]
    return Step(total.item() / of_last, whole.item(), found, round(elements.item()))


LLAMA: dict[str, Any] = {"network": models.llama, "model": models.Llama, "names": str}
CASES: dict[int, dict[str, Case]] = {
    4: {
        "1f1b": Case(2, 2, model=partial(Gpt, bias=True)),
        "gpipe": Case(2, 2, schedule="gpipe", micro_batches=1),
        "zb-h1": Case(2, 2, schedule="zb-h1"),
        "interleaved": Case(2, 2, chunks=2),
        "untied": Case(
            2,
            2,
            micro_batches=8,
            network=partial(network, tied=False),
            model=partial(Gpt, tied=False),
        ),
        "sharded": Case(2, 2, shard="weights"),
        "tensor": Case(2, 2, tensor=2),
        "llama tensor": Case(2, 2, tensor=2, **LLAMA),
    },
    8: {
        "1f1b": Case(4, 2),
        "tensor": Case(2, 4, tensor=2, chunks=2),
        "llama sharded": Case(2, 4, tensor=2, shard="gradients", **LLAMA),
    },
}


@cache
def results(count: int) -> tuple[dict[str, Plan], dict[str, Step]]:
    """Return the plans of all cases, and a step of each on some processes."""
    plans = {name: case.plan for name, case in CASES[count].items()}
    texts = {name: torch_file(plan) for name, plan in plans.items()}

    def steps() -> dict[str, Step]:
        cases = CASES[count].items()
        return {name: step(texts[name], case.model, case.names) for name, case in cases}

    return plans, on_processes(count, steps)


@pytest.mark.parametrize("count", CASES)
def test_loss_and_gradients_are_those_of_one_process(count: int) -> None:
    for name, own in results(count)[1].items():
        assert own.loss == pytest.approx(own.expected, rel=1e-12), name
        assert max(own.errors.values()) < 1e-12, (name, own.errors)


def test_as_much_moves_as_planned_where_no_difference_is_named() -> None:
    """Of messages, too; a shared weight's gradient is exchanged by each replica."""
    plans, steps = results(4)
    says_all = ["untied", "llama tensor"]
    tied = ["gpipe", "zb-h1", "interleaved"]
    more = 2 * models.WORDS * models.WIDTH
    for name in (*says_all, *tied):
        assert ("exchanges the whole gradient" in torch_file(plans[name])) == (name in tied)
        planned = (plans[name].cost.executed_bytes or 0) / plans[name].element_bytes
        assert steps[name].elements == planned + more * (name in tied), name


def test_modules_that_a_plan_does_not_name_go_with_the_one_before_them() -> None:
    """At each cut of a chain, chunk after chunk computes the model; a pool is in one of them."""
    own = models.cnn()
    modules = {
        "conv1": nn.Conv2d(4, 8, 3, padding=1),
        "bn": nn.BatchNorm2d(8),
        "gelu": nn.GELU(),
        "pool": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(8, 16, 3, padding=1),
        "again": nn.GELU(),
        "flat": nn.Flatten(),
        "fc1": nn.Linear(256, 32),
        "last": nn.GELU(),
        "fc2": nn.Linear(32, 16),
    }
    model, images = nn.Sequential(OrderedDict(modules)).eval(), torch.randn(2, 4, 8, 8)
    stated = problem(nodes(2, 2), 2, BATCH)
    ends = cuts(own)[:-1]
    for end in ends:
        plan = plan_of_stages(solved(own, stated, Stages(own, 2, (end, len(own.layers)))))
        exported: dict[str, Any] = {}
        exec(torch_file(plan), exported)
        first, second = (exported["_chunk"](model, n, str) for n in range(2))
        assert torch.equal(second(first(images)), model(images))
        counts = [len([*chunk.parameters()]) for chunk in (first, second)]
        assert all(counts)
        assert sum(counts) == len([*model.parameters()])
    assert len(ends) > 3


def test_a_parameter_that_several_stages_would_have_is_refused_by_name() -> None:
    exported: dict[str, Any] = {}
    exec(torch_file(Case(2, 2).plan), exported)
    model = Gpt()
    model.positions = nn.Parameter(torch.zeros(models.TOKENS, models.WIDTH))
    names = {"position": "positions"}
    with pytest.raises(ValueError, match="'positions', a parameter outside of modules"):
        exported["_chunk"](model, 1, lambda name: names.get(name) or name_in_gpt(name))


LETTERS = {"F": Phase.FORWARD, "B": Phase.BACKWARD, "I": Phase.BACKWARD, "W": Phase.GRADIENT}
Pass = tuple[Phase, int, int]
"""A phase, the chunk's number in the model, and the micro-batch's."""


def passes_of_one_chunk(kind: Any, parts: int, count: int, rank: int) -> list[Pass]:
    """Return what a schedule asks of its stage, which does nothing else."""
    passes: list[Pass] = []
    own, stage = kind.__new__(kind), MagicMock(stage_index=rank, is_last=False)
    for name in ("fwd_recv", "fwd_send", "bwd_recv", "bwd_send"):
        getattr(stage, f"get_{name}_ops").return_value = []
    for phase, name in ((Phase.FORWARD, "forward"), (Phase.BACKWARD, "backward")):
        asked = getattr(stage, f"{name}_one_chunk")
        asked.side_effect = lambda n, *_, phase=phase, **__: passes.append((phase, rank, n))
    own._stage, own._num_stages, own._n_microbatches = stage, parts, count
    own._loss_fn, own._internal_losses, own.scale_grads = None, [], True
    own._initialize_stage = MagicMock()
    own._step_microbatches([()] * count, [{}] * count)
    return passes


def passes_of_chunks(kind: Any, parts: int, count: int, rank: int, chunks: int) -> list[Pass]:
    """Return what a schedule calculates for a device."""
    own = kind.__new__(kind)
    own.n_local_stages, own.pp_group_size, own._n_microbatches = chunks, parts, count
    own.number_of_rounds, own.microbatches_per_round = count // parts, parts
    own.pipeline_order = {}
    for n in range(rank + 1):  # each after those before it
        own.pipeline_order[n] = own._calculate_single_rank_operations(n)
    every = ((one.computation_type.value, one) for one in own.pipeline_order[rank] if one)
    return [
        (LETTERS[letter], one.stage_index, one.microbatch_index)
        for letter, one in every
        if letter in LETTERS
    ]


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize(
    ("word", "name", "chunks"),
    [
        ("1f1b", "Schedule1F1B", 1),
        ("gpipe", "ScheduleGPipe", 1),
        ("zb-h1", "ScheduleInterleavedZeroBubble", 1),
        ("1f1b", "ScheduleInterleaved1F1B", 2),
        ("1f1b", "ScheduleInterleaved1F1B", 3),
    ],
)
def test_schedules_of_pytorch_have_the_passes_of_plans(
    word: str, name: str, chunks: int, parts: int
) -> None:
    """Those that files name, in order, on each device."""
    kind = getattr(pipelining, name)
    for count in (parts, 2 * parts, 4 * parts):
        for rank, order in enumerate(orders(word, parts, count, chunks)):
            if name in ("Schedule1F1B", "ScheduleGPipe"):
                passes = passes_of_one_chunk(kind, parts, count, rank)
            else:
                passes = passes_of_chunks(kind, parts, count, rank, chunks)
            assert passes == [
                (one.phase, one.chunk * parts + rank, one.micro_batch) for one in order
            ]


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_what_is_traced_is_split_where_the_file_says() -> None:
    """By the table of a file whose layers are the modules; the pieces compute the model."""
    case = Case(2, 2, **LLAMA)
    exported: dict[str, Any] = {}
    exec(torch_file(case.plan), exported)
    spec = {n: SplitPoint[word] for n, word in exported["PIPELINE"]["split_spec"].items()}
    model, ids = models.Llama(), torch.randint(models.WORDS, (2, models.TOKENS))
    pipe = pipelining.pipeline(model, (ids,), split_spec=spec)
    pieces = [pipe.get_stage_module(n) for n in range(2)]
    assert torch.equal(pieces[1](pieces[0](ids)), model(ids))
    for piece, modules in zip(pieces, exported["PIPELINE"]["modules"], strict=True):
        listed = tuple(f"{module}." for module in modules)
        assert all(name.startswith(listed) for name, _ in piece.named_parameters())
