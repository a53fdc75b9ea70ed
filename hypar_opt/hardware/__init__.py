"""Accelerators, and the array that they make on a topology."""
