"""Search over the levels of the hierarchy: problems, constraints, prices and proofs."""
