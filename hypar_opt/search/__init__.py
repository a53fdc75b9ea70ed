"""Search over the levels of the hierarchy: instances, constraints, prices and proofs."""
