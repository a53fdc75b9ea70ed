"""Hold PyTorch's DTensor to a document of shardings: run with its path, in four processes.

A program of its own, for a Python that has torch; nothing of hypar-opt is imported.
"""

from __future__ import annotations

import json
import sys
from math import prod
from pathlib import Path
from typing import Any


def check(rank: int, path: str, devices: int) -> None:
    """Distribute every array as the document says; each process checks its own shards."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    store = dist.TCPStore("localhost", int(sys.argv[2]), devices, is_master=rank == 0)
    dist.init_process_group("gloo", rank=rank, world_size=devices, store=store)
    document = json.loads(Path(path).read_text())
    axes = tuple(document["mesh"])
    mesh = init_device_mesh("cpu", tuple(document["mesh"].values()), mesh_dim_names=axes)
    checked = 0
    for part in ("inputs", "weights", "tensors", "targets"):
        for array in document[part].values():
            shape, split = array["shape"], array["split"]
            whole = torch.arange(prod(shape)).reshape(shape)
            places: list[Any] = [
                Replicate() if split[axis] is None else Shard(split[axis]) for axis in axes
            ]
            shards = distribute_tensor(whole, mesh, places).to_local()
            expected = whole
            for level, axis in enumerate(axes):
                if split[axis] is not None:
                    side = rank >> (len(axes) - 1 - level) & 1
                    expected = expected.narrow(split[axis], side, 1)
            assert torch.equal(shards, expected), (part, array)
            checked += 1
    if rank == 0:
        print(f"{checked} arrays on a mesh of {len(axes)} axes, torch {torch.__version__}")
    dist.destroy_process_group()


def main() -> None:
    import socket

    from torch.multiprocessing import spawn

    if len(sys.argv) < 3:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            sys.argv.append(str(free.getsockname()[1]))
    document = json.loads(Path(sys.argv[1]).read_text())
    devices = prod(document["mesh"].values())
    spawn(check, (sys.argv[1], devices), nprocs=devices)


if __name__ == "__main__":
    main()
