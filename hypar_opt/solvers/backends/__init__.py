"""The programs behind PuLP: their options, their processes, and their answers."""
