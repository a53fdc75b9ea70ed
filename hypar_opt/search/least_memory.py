"""What every plan of a problem holds at least, however it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.search.result import SearchRequest
from hypar_opt.search.ways_by_layer import WaysByLayer
from hypar_opt.solvers import SOLVERS

if TYPE_CHECKING:
    from hypar_opt.instance.instance import Instance


def least_memory(instance: Instance) -> int:
    """Return a lower bound on what a device holds, in bytes, however a problem's plans train."""
    count = instance.problem.training.micro_batches or instance.problem.batch
    ways = WaysByLayer(SearchRequest(instance, SOLVERS["dp"]()), count)
    return ways.least_load // instance.problem.accelerators
