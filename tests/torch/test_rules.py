"""What `hypar_opt.execution.torch.rules` says of DTensor is so: a newer torch may know better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="make torch runs these with PyTorch")

import torch
import torch.nn.functional as f
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication

from tests.torch.counting import counted
from tests.torch.processes import on_processes

TOKENS, IMAGES = (4, 6, 8), (4, 8, 6, 6)

Operation = Callable[[Any], Any]


def moved(shape: tuple[int, ...], dim: int, operation: Operation) -> float | str:
    """Return what a forward and a backward pass move if an axis is split, or the error's type."""

    def step() -> float | str:
        mesh = init_device_mesh("cpu", (2,))
        tensor = distribute_tensor(torch.randn(shape), mesh, [Shard(dim)]).requires_grad_()
        try:
            with implicit_replication(), counted() as moved:
                operation(tensor).sum().backward()
        except (NotImplementedError, RuntimeError) as error:
            return type(error).__name__
        return moved.elements

    return on_processes(2, step)


def split(weight: Any, mesh: Any, dim: int) -> Any:
    return distribute_tensor(weight, mesh, [Shard(dim)])


@pytest.mark.parametrize(
    ("shape", "dim", "operation"),
    [
        (TOKENS, 2, lambda x: f.layer_norm(x, (8,))),
        (TOKENS, 2, lambda x: torch.cat(x.split(4, -1)[::-1], -1).relu()),
        (TOKENS, 2, lambda x: x.split(4, -1)[0].relu()),
        (IMAGES, 0, lambda x: f.batch_norm(x, None, None, training=True)),
    ],
    ids=["norm", "concat", "fused query, key and value", "batch norm"],
)
def test_dtensor_gathers(shape: tuple[int, ...], dim: int, operation: Operation) -> None:
    assert isinstance(moved(shape, dim, operation), float)
    assert moved(shape, dim, operation)


@pytest.mark.parametrize(
    ("shape", "dim", "operation"),
    [
        (IMAGES, 1, lambda x: f.conv2d(x, split(torch.randn(8, 8, 3, 3), x.device_mesh, 1))),
        (IMAGES, 0, lambda x: f.avg_pool2d(x, 2)),
        (IMAGES, 0, lambda x: f.group_norm(x, 2)),
        (IMAGES, 1, lambda x: f.group_norm(x, 2)),
    ],
    ids=["convolution", "average pool", "norm of groups by batch", "norm of groups by group"],
)
def test_dtensor_refuses(shape: tuple[int, ...], dim: int, operation: Operation) -> None:
    assert moved(shape, dim, operation) in ("NotImplementedError", "RuntimeError")


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(
    "operation",
    [
        f.relu,
        lambda x: f.max_pool2d(x, 2),
        lambda x: x.flatten(1),
        lambda x: f.adaptive_avg_pool2d(x, 1),
        lambda x: x + x,
    ],
    ids=["activation", "pool", "flatten", "global pool", "add"],
)
def test_dtensor_computes_on_shards(dim: int, operation: Operation) -> None:
    assert moved(IMAGES, dim, operation) == 0


def test_replicas_are_sliced_and_their_errors_gathered() -> None:
    def step() -> float:
        mesh = init_device_mesh("cpu", (2,))
        tensor = distribute_tensor(torch.randn(8, 8), mesh, [Replicate()]).requires_grad_()
        with counted() as moved:
            tensor.redistribute(placements=[Shard(0)]).pow(2).sum().backward()
        return moved.elements

    assert on_processes(2, step) == 32
