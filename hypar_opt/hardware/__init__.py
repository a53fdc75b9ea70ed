"""Accelerators, and arrays of them on a topology."""
