"""A training step on an array of accelerators, simulated event by event."""

from __future__ import annotations

from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.simulation import StepTimes, simulate_step, step_times

__all__ = ["RunOptions", "StepTimes", "simulate_step", "step_times"]
