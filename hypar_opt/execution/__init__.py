"""Execution of plans: on virtual devices, in JAX, and exported to frameworks."""
