"""Results, for a person to read."""
