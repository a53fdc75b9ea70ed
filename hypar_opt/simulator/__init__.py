"""A training step on an array of accelerators, simulated event by event."""

from __future__ import annotations

from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.simulation import simulate_step, step_seconds

__all__ = ["RunOptions", "simulate_step", "step_seconds"]
