"""How a tensor is laid out over the parts of a group of accelerators."""
