"""The problem, the plan that answers it, and the plan file."""
