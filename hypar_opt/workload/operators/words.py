"""The words of the choices of all kinds of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hypar_opt.errors import HyparError
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import ON_ONE_SIDE, Choice


def choice_of(word: str) -> Choice | None:
    """Return the choice that a word names in any kind of layer; None if it names none."""
    return next((choice for choice in _choices() if choice.word == word), None)


def words_of_kind(splits: Mapping[str, Choice], choices: Sequence[str]) -> tuple[str | None, ...]:
    """Return a kind's words for a problem's choices; None for a choice that it lacks."""
    own = choices_of_kind(splits, choices)
    return tuple(choice.word if choice else None for choice in own)


def choices_of_kind(
    splits: Mapping[str, Choice], choices: Sequence[str]
) -> tuple[Choice | None, ...]:
    """Return a kind's choices for those of a problem; None for one that it lacks."""
    return tuple(splits.get(word) or ON_ONE_SIDE.get(word) for word in choices)


def _choices() -> Iterator[Choice]:
    yield from ON_ONE_SIDE.values()
    # Built-in kinds first: listing installed plug-ins takes a search of the environment.
    for operator in OPERATORS.built_in():
        yield from operator.choices.values()
    for kind in OPERATORS:
        try:
            yield from OPERATORS[kind].choices.values()
        except HyparError:  # a broken plug-in: reported when its own kind is looked up
            continue
