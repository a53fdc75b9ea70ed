"""The computation of each kind of layer on one device's parts of tensors and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.execution.virtual.arithmetic.attention import AttentionArithmetic
from hypar_opt.execution.virtual.arithmetic.elementwise import (
    AddArithmetic,
    ConcatArithmetic,
    FlattenArithmetic,
    GlobalPoolArithmetic,
    MulArithmetic,
    PoolArithmetic,
    ShuffleArithmetic,
)
from hypar_opt.execution.virtual.arithmetic.losses import IdentityArithmetic, SoftmaxLoss
from hypar_opt.execution.virtual.arithmetic.norms import NormArithmetic
from hypar_opt.execution.virtual.arithmetic.products import (
    ConvArithmetic,
    EmbeddingArithmetic,
    FullyConnectedArithmetic,
)

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.arithmetic.base import Arithmetic, LayerShard

_KINDS: dict[str, type[Arithmetic]] = {
    "conv": ConvArithmetic,
    "fc": FullyConnectedArithmetic,
    "embedding": EmbeddingArithmetic,
    "attention": AttentionArithmetic,
    "norm": NormArithmetic,
    "add": AddArithmetic,
    "mul": MulArithmetic,
    "concat": ConcatArithmetic,
    "pool": PoolArithmetic,
    "global_pool": GlobalPoolArithmetic,
    "flatten": FlattenArithmetic,
    "shuffle": ShuffleArithmetic,
}

KINDS = (*_KINDS, "output")
"""The kinds of layers that can run."""


def arithmetic(shard: LayerShard) -> Arithmetic:
    """Return the arithmetic of a device's part of a layer."""
    if shard.layer.kind == "output":
        softmax = getattr(shard.layer, "loss", None) == "softmax"
        return SoftmaxLoss(shard) if softmax else IdentityArithmetic(shard)
    return _KINDS[shard.layer.kind](shard)
