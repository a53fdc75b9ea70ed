"""The programs behind PuLP: their options, how they are run, and their answers."""
