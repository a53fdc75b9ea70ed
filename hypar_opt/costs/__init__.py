"""Cost models: communication in bytes, and time and energy on an array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.registry import Registry

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel

COSTS: Registry[type[CostModel]] = Registry(
    "cost",
    "hypar_opt.costs",
    {
        "bytes": "hypar_opt.costs.communication:CommunicationCost",
        "time": "hypar_opt.costs.time:TimeCost",
        "energy": "hypar_opt.costs.energy:EnergyCost",
    },
    base="hypar_opt.costs.base:CostModel",
)
