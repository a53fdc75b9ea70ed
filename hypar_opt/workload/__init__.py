"""What is trained: networks, their layers' operators, and the tensors of a batch."""
