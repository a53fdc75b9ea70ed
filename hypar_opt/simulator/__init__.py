"""A training step on an array of accelerators, simulated event by event."""
