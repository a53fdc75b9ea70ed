"""Configurations that frameworks for training run: degrees, micro-batches, ZeRO, recomputation."""

from __future__ import annotations

from typing import NamedTuple


class Configuration(NamedTuple):
    """The degrees of a mesh of accelerators, and how a step trains on it.

    The levels of the hierarchy are, H1 first: `dp_replicate`, `dp_shard`, `cp`, `tp`. `ep` borrows
    the innermost parts of `dp_shard` and `cp`, as torchtitan, Megatron-LM and DeepSpeed have it.

    Parameters
    ----------
    dp_replicate
        Data parallelism between whose parts weights are copies.
    dp_shard
        Data parallelism over which `zero` shards, with the parts of `cp`.
    cp
        Context parallelism: parts of each sequence.
    tp
        Tensor parallelism.
    ep
        Expert parallelism.
    sp
        Whether what tensor parallelism leaves whole is split by token: sequence parallelism.
    micro_batches
        The equal parts of the batch that pass one after the other.
    recompute
        What the backward pass computes again, of `RECOMPUTED`.
    blocks
        In how many of the network's blocks, from the first, it does; None in all.
    zero
        What data parallelism shards: of `SHARDED`, or ``state+weights``: weights and gradients over
        `dp_shard`, the optimizer's state over `dp_replicate`, too (ZeRO++).
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    sp: bool = True
    micro_batches: int = 1
    recompute: str = "none"
    blocks: int | None = None
    zero: str = "none"
