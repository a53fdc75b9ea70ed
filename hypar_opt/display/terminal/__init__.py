"""Tables and grids on a terminal and in a notebook."""
