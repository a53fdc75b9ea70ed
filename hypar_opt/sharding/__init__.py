"""How a tensor lies on the two halves of a group of accelerators."""
