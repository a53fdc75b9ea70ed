"""What a plan is charged for."""

from __future__ import annotations

from hypar_opt.registry import Registry

COSTS = Registry(
    "cost",
    "hypar_opt.costs",
    {
        "bytes": "hypar_opt.costs.communication:CommunicationCost",
        "time": "hypar_opt.costs.time:TimeCost",
        "energy": "hypar_opt.costs.energy:EnergyCost",
    },
)
