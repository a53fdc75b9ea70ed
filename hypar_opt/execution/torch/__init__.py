"""Plans in the words of PyTorch's DTensor: a mesh, placements, and what these cannot say."""
