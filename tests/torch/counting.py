"""The elements that move, of one process: what all others send to it, or it to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
import torch.distributed.tensor.placement_types as placements
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode


class Moved(TorchDispatchMode):
    """Counts elements, of messages, and of all collectives but those of scalars."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        library, name, *_ = str(func).split(".")
        if library in ("_c10d_functional", "c10d") and name in _OF_PEERS:
            tensor, peers = _OF_PEERS[name](args)
            self.elements += _TIMES[name](peers) * tensor.numel() * (tensor.numel() > 1)
        elif library == "c10d" and name == "send":
            self.elements += sum(own.numel() for own in args[0])
        return result


# A gather's tensor is a part, a scattered and a reduced one is whole.
_OF_PEERS = {
    "all_gather_into_tensor": lambda args: (args[0], args[1]),
    "reduce_scatter_tensor": lambda args: (args[0], args[2]),
    "all_reduce": lambda args: (args[0], _size(args[2])),
    "allreduce_": lambda args: (args[0][0], _size(args[1])),
    "_allgather_base_": lambda args: (args[1], args[0].numel() // args[1].numel()),
    "_reduce_scatter_base_": lambda args: (args[1], args[1].numel() // args[0].numel()),
}
_TIMES = {
    "all_gather_into_tensor": lambda peers: peers - 1,
    "_allgather_base_": lambda peers: peers - 1,
    "reduce_scatter_tensor": lambda peers: (peers - 1) / peers,
    "_reduce_scatter_base_": lambda peers: (peers - 1) / peers,
    "all_reduce": lambda peers: 2 * (peers - 1) / peers,
    "allreduce_": lambda peers: 2 * (peers - 1) / peers,
}


def _size(group: Any) -> int:
    if isinstance(group, str):
        group = dist.distributed_c10d._resolve_process_group(group)
    elif not isinstance(group, dist.ProcessGroup):
        group = dist.ProcessGroup.unbox(group)
    size: int = group.size()
    return size


@contextmanager
def counted() -> Iterator[Moved]:
    """Count what moves; gloo has no all-to-all, for which DTensor gathers on processors."""
    moved, gathered = Moved(), placements.shard_dim_alltoall

    def all_to_all(tensor: Any, gather: int, shard: int, mesh: Any, dimension: int) -> Any:
        before = moved.elements
        result = gathered(tensor, gather, shard, mesh, dimension)
        peers = mesh.size(dimension)
        moved.elements = before + tensor.numel() * (peers - 1) / peers
        return result

    placements.shard_dim_alltoall = all_to_all
    try:
        with moved:
            yield moved
    finally:
        placements.shard_dim_alltoall = gathered
