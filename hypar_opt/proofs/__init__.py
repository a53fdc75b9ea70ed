"""A certificate of a plan's optimality, and what checks it."""
