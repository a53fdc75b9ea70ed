"""The programs behind PuLP: what each takes, how it is run, and what it answers."""
