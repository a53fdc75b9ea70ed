"""Kinds of layers by name: one file each, which declares axes and what each choice splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.registry import Registry

if TYPE_CHECKING:
    from hypar_opt.workload.operators.base import Operator

OPERATORS: Registry[type[Operator]] = Registry(
    "kind of layer",
    "hypar_opt.operators",
    {
        "conv": "hypar_opt.workload.operators.conv:Conv",
        "fc": "hypar_opt.workload.operators.fc:FullyConnected",
        "embedding": "hypar_opt.workload.operators.embedding:Embedding",
        "attention": "hypar_opt.workload.operators.attention:Attention",
        "router": "hypar_opt.workload.operators.experts:Router",
        "dispatch": "hypar_opt.workload.operators.experts:Dispatch",
        "experts": "hypar_opt.workload.operators.experts:Experts",
        "combine": "hypar_opt.workload.operators.experts:Combine",
        "norm": "hypar_opt.workload.operators.norm:Norm",
        "add": "hypar_opt.workload.operators.elementwise:Add",
        "mul": "hypar_opt.workload.operators.elementwise:Mul",
        "concat": "hypar_opt.workload.operators.elementwise:Concat",
        "pool": "hypar_opt.workload.operators.elementwise:Pool",
        "upsample": "hypar_opt.workload.operators.elementwise:Upsample",
        "global_pool": "hypar_opt.workload.operators.elementwise:GlobalPool",
        "flatten": "hypar_opt.workload.operators.views:Flatten",
        "unflatten": "hypar_opt.workload.operators.views:Unflatten",
        "shuffle": "hypar_opt.workload.operators.views:Shuffle",
        "pixel_shuffle": "hypar_opt.workload.operators.views:PixelShuffle",
        "slice": "hypar_opt.workload.operators.views:Slice",
        "sinusoid": "hypar_opt.workload.operators.sinusoid:Sinusoid",
        "output": "hypar_opt.workload.operators.elementwise:Output",
    },
    base="hypar_opt.workload.operators.base:Operator",
)
