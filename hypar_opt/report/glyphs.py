"""How a choice of parallelism looks in a grid of layers and levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import HyparError
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import DATA_CHOICE, INPUT_CHANNELS, OUTPUT_CHANNELS
from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from hypar_opt.workload.operators.base import Operator


class Symbol(NamedTuple):
    """How all words of one column look, whatever a kind of layer calls its choice.

    Parameters
    ----------
    name
        The column's name on the page, as its style sheet has it.
    """

    name: str
    glyph: str
    ascii_glyph: str
    colour: str


SYMBOLS = tuple(
    Symbol(choice.word, choice.glyph, choice.ascii_glyph, colour)
    for choice, colour in (
        (DATA_CHOICE, "cyan"),
        (INPUT_CHANNELS, "yellow"),
        (OUTPUT_CHANNELS, "magenta"),
    )
)
"""A symbol a column of a cost table.

Source: Figure 5, whose open dots are data and filled dots model parallelism.
"""

_COLUMNS = {choice: column for column, choice in enumerate(Parallelism)}


def symbol(choice: Parallelism) -> Symbol:
    """Return how a choice is drawn: as its column, or as the paper's choice of its own name.

    A kind may list `output` before `model`; they look the same in every layer all the same.
    """
    column = _COLUMNS.get(choice)
    return SYMBOLS[_declared_column(choice) if column is None else column]


def _declared_column(choice: Parallelism) -> int:
    """Return the column of a word in the kind of layer that has it."""
    for operator in _kinds():
        words = [declared.word for declared in operator.choices]
        if choice in words:
            return words.index(choice)
    raise ValueError(f"no kind of layer has {choice}")  # or it would be no choice


def _kinds() -> Iterator[type[Operator]]:
    # Our own first: to know what is installed costs a search of the environment.
    yield from OPERATORS.built_in()
    for kind in OPERATORS:
        with suppress(HyparError):  # a broken plug-in: reported when its own kind is looked up
            yield OPERATORS[kind]


def glyph(choice: Parallelism, *, ascii_only: bool = False) -> str:
    """Return the character that stands for a choice."""
    own = symbol(choice)
    return own.ascii_glyph if ascii_only else own.glyph


def colour(choice: Parallelism) -> str:
    """Return a choice's colour on a terminal."""
    return symbol(choice).colour


def legend(choices: Iterable[Parallelism]) -> list[tuple[Symbol, str]]:
    """Return each symbol with the words that it stands for: ``model, channel parallelism``."""
    words: dict[Symbol, list[str]] = {}
    # The paper's words first; a sort keeps the order of the others.
    for choice in sorted(choices, key=lambda choice: choice not in _COLUMNS):
        words.setdefault(symbol(choice), []).append(str(choice))
    order = sorted(words, key=SYMBOLS.index)
    return [(own, f"{', '.join(words[own])} parallelism") for own in order]
