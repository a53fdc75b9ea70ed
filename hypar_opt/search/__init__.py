"""Search over the levels of the hierarchy: level by level, or jointly."""
