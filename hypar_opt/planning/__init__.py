"""From problems to priced plans."""
