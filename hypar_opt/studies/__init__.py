"""Many plans: comparisons, explorations, sweeps, alternatives and advice."""
