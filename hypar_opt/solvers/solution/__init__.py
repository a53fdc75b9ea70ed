"""Answers that another program found: its solution file, checked like a solver's answer."""
