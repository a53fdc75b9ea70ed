"""Steps of exported plans on processes of one machine, beside the same step on one."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as f
from torch import multiprocessing
from torch.distributed.tensor import DTensor, Shard
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.torch.counting import counted

Result = TypeVar("Result")


@dataclass(frozen=True)
class Case:
    """An exported file, and the model that it splits."""

    text: str
    model: Callable[[], Any]
    data: Callable[[], Any]
    """Returns the whole batch's inputs."""
    classes: int
    names: Callable[[str], str] = str
    micro_batches: int = 1


@dataclass(frozen=True)
class Step:
    """What a step did: the losses, gradients' largest error, and the elements that moved."""

    loss: float
    expected: float
    error: float
    elements: int
    placements: dict[str, bool]
    """Whether each parameter is placed as the file's table says, by its name."""
    failure: str = ""


def steps(count: int, cases: Mapping[str, Case]) -> dict[str, Step]:
    """Return what each case did on some processes."""

    def tried(case: Case) -> Step:
        try:
            return _step(case)
        except Exception:
            return Step(0, 0, 0, 0, {}, traceback.format_exc())

    return on_processes(count, lambda: {name: tried(case) for name, case in cases.items()})


def on_processes(count: int, call: Callable[[], Result]) -> Result:
    """Return what the first of some processes returns, all of which make a call."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # Forked before torch has threads, so that torch is imported once.
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def process(rank: int) -> None:
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        store = dist.TCPStore("localhost", port, count, is_master=rank == 0)
        dist.init_process_group("gloo", rank=rank, world_size=count, store=store)
        done = call()
        dist.barrier()
        if rank == 0:
            results.put(done)
        dist.barrier()
        dist.destroy_process_group()

    group = [context.Process(target=process, args=(rank,)) for rank in range(count)]
    for one in group:
        one.start()
    if results._reader not in wait([results._reader, *(one.sentinel for one in group)]):
        for one in group:
            one.kill()
        raise RuntimeError("a process failed; its error is above")
    found: Result = results.get()
    for one in group:
        one.join()
    return found


def _loss(model: Any, data: Any, targets: Any) -> Any:
    logits = model(data)
    return f.cross_entropy(logits.flatten(0, -2), targets.flatten())


# The processor's own kernel of attention is none that DTensor knows.
@sdpa_kernel(SDPBackend.MATH)
def _step(case: Case) -> Step:
    torch.manual_seed(0)
    model, data = case.model(), case.data()
    of_tokens = data.shape if data.dtype == torch.int64 else data.shape[:1]
    targets = torch.randint(case.classes, of_tokens)
    whole = _loss(model, data, targets)
    whole.backward()
    expected = {name: own.grad.clone() for name, own in model.named_parameters()}
    model.zero_grad()
    exported: dict[str, Any] = {}
    exec(compile(case.text, "exported.py", "exec"), exported)
    mesh = exported["device_mesh"]("cpu")
    exported["parallelize"](model, mesh, case.names)
    if "dp" in exported["MESH"]:
        part, parts = mesh.get_local_rank("dp"), exported["MESH"]["dp"]
        data, targets = data.chunk(parts)[part], targets.chunk(parts)[part]
    total = torch.zeros(())
    with counted() as moved:
        for images, labels in zip(
            data.chunk(case.micro_batches), targets.chunk(case.micro_batches), strict=True
        ):
            with exported.get("sharded", nullcontext)():
                loss = _loss(model, images, labels) / case.micro_batches
                loss.backward()
            total += (loss.full_tensor() if isinstance(loss, DTensor) else loss).detach()
        if "reduce_gradients" in exported:
            exported["reduce_gradients"](model, mesh)
    for amount in (total, elements := torch.tensor(moved.elements)):
        dist.all_reduce(amount)
    error = 0.0
    for name, own in model.named_parameters():
        gradient = own.grad
        if isinstance(gradient, DTensor):
            assert gradient.placements == own.placements, name
            gradient = gradient.full_tensor()
        error = max(error, (gradient - expected[name]).abs().max().item())
    placed = {}
    for name, own in exported["PLACEMENTS"].items():
        layer, _, parameter = name.rpartition(".")
        module = case.names(layer)
        if type(model.get_submodule(module)).__name__ == "Conv1D" and parameter == "weight":
            own = tuple(Shard(1 - one.dim) if one.is_shard() else one for one in own)
        placed[f"{module}.{parameter}"] = own
    dimensions = len(exported.get("TENSOR", ()))
    return Step(
        total.item() / dist.get_world_size(),
        whole.item(),
        error,
        round(elements.item()),
        {
            # That of data parallelism is fully_shard's, or none.
            name: not dimensions or own.placements[-dimensions:] == placed[name][-dimensions:]
            for name, own in model.named_parameters()
        },
    )
