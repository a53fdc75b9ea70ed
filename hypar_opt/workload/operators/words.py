"""The words of all kinds' choices, and how each is drawn."""

from __future__ import annotations

from hypar_opt.errors import HyparError
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import Choice


def choice_of(word: str) -> Choice | None:
    """Return the choice that some kind of layer calls by a word; None where none does."""
    for kind in OPERATORS:
        try:
            choices = OPERATORS[kind].choices
        except HyparError:  # somebody else's, and broken; whoever asks for it is told
            continue
        for choice in choices:
            if choice.word == word:
                return choice
    return None
