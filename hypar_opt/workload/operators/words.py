"""The words of the choices of all kinds of layers."""

from __future__ import annotations

from hypar_opt.errors import HyparError
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import Choice


def choice_of(word: str) -> Choice | None:
    """Return the choice that a word names in any kind of layer; None if it names none."""
    for kind in OPERATORS:
        try:
            choices = OPERATORS[kind].choices
        except HyparError:  # a broken plug-in: reported when its own kind is looked up
            continue
        for choice in choices:
            if choice.word == word:
                return choice
    return None
