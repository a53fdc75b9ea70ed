"""One problem on one network: its tensors, its cost, its constraints, and the price of a plan."""
