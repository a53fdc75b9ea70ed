"""The words of the choices of all kinds of layers."""

from __future__ import annotations

from collections.abc import Iterator

from hypar_opt.errors import HyparError
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import Choice


def choice_of(word: str) -> Choice | None:
    """Return the choice that a word names in any kind of layer; None if it names none."""
    return next((choice for choice in _choices() if choice.word == word), None)


def _choices() -> Iterator[Choice]:
    # Our own first: to know what is installed costs a search of the environment.
    for operator in OPERATORS.built_in():
        yield from operator.choices
    for kind in OPERATORS:
        try:
            yield from OPERATORS[kind].choices
        except HyparError:  # a broken plug-in: reported when its own kind is looked up
            continue
