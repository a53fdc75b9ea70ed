"""Kinds of layers by name: a file each, which declares axes and what each choice halves."""

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
    },
)
