"""Plans within a device's memory: layouts and training modes, by a Lagrangian relaxation."""
