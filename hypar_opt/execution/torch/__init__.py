"""Plans in PyTorch's DTensor: a mesh, placements, and what these cannot express."""
