"""A plan's step as a program of JAX: its text, and what XLA makes of it."""
