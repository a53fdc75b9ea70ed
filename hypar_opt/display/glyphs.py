"""Symbols of parallelism choices in grids of layers and levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from hypar_opt.display.palette import CHOICES
from hypar_opt.errors import HyparError
from hypar_opt.plan import degrees
from hypar_opt.plan.plan import Plan
from hypar_opt.sharding.layouts import (
    BATCH,
    CHANNEL,
    COLUMN,
    EXPERT,
    ROW,
    TOKEN,
    WHOLE,
    Layout,
)
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.attention import QUERIES
from hypar_opt.workload.operators.axes import (
    ADDENDS,
    COLUMNS,
    DATA_CHOICE,
    EXPERTS,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    REPLICATED,
    ROWS,
    TOKENS,
    one_part_choice,
)
from hypar_opt.workload.operators.base import Operator
from hypar_opt.workload.parallelism import ALL_CHOICES, PART_WORDS


class Shade(NamedTuple):
    """A filled cell's background, and the glyph on it."""

    fill: str
    ink: str


class Symbol(NamedTuple):
    """The symbol of one column of choices, whatever word a kind has for it, or of `whole`."""

    name: str
    """Its class on the page."""
    glyph: str
    ascii_glyph: str
    colour: str
    """On a terminal and in figures."""
    light: Shade
    """Of cells on a light page; ``dark`` on a dark one."""
    dark: Shade

    def drawn(self, *, ascii_only: bool) -> str:
        """Return the character."""
        return self.ascii_glyph if ascii_only else self.glyph


SYMBOLS = tuple(
    Symbol(choice.word, choice.glyph, choice.ascii_glyph, colour, Shade(*light), Shade(*dark))
    for choice, (colour, light, dark) in zip(
        (
            *(DATA_CHOICE, INPUT_CHANNELS, OUTPUT_CHANNELS, TOKENS, ROWS, COLUMNS),
            *(EXPERTS, ADDENDS, REPLICATED),
        ),
        CHOICES,
        strict=True,
    )
)
"""One symbol per column of a cost table, and one for `whole`: the same in all reports.

Source: Figure 5, whose open dots are data and filled dots model parallelism."""

DATA_SYMBOL, MODEL_SYMBOL, OUTPUT_SYMBOL, TOKENS_SYMBOL, *SPATIAL_SYMBOLS = SYMBOLS[:-3]
EXPERTS_SYMBOL, ADDENDS_SYMBOL, WHOLE_SYMBOL = SYMBOLS[-3:]

QUERIES_SYMBOL = MODEL_SYMBOL._replace(glyph=QUERIES.glyph, ascii_glyph=QUERIES.ascii_glyph)
"""For attention split by queries as well as heads: on a page, cells look like those of heads."""

_MAX_NAMED_PARTS = 8
"""The maximum number of parts of H1 that a legend names."""

_UNSPLIT = {WHOLE: WHOLE_SYMBOL, ADDENDS.word: ADDENDS_SYMBOL}

_PARALLELISM = {
    DATA_SYMBOL: degrees.DATA,
    TOKENS_SYMBOL: f"sequence or {degrees.CONTEXT}",
    **dict.fromkeys(SPATIAL_SYMBOLS, degrees.IMAGES),
    EXPERTS_SYMBOL: degrees.EXPERT,
}
"""The other names are those of `degrees.model_or_tensor`."""

_STORED = {
    BATCH: DATA_SYMBOL,
    CHANNEL: MODEL_SYMBOL,
    TOKEN: TOKENS_SYMBOL,
    **dict(zip((ROW, COLUMN), SPATIAL_SYMBOLS, strict=True)),
    EXPERT: EXPERTS_SYMBOL,
    **_UNSPLIT,
}
"""A stored layout has the symbol of the choice that writes it."""


@cache
def symbol_of_part(word: str) -> Symbol:
    """Return the symbol of layers that lie wholly in one part of H1."""
    choice = one_part_choice(word)
    assert choice is not None, f"{word} should be a part of H1"
    # Cells of a page as those of `whole`, by another glyph.
    return WHOLE_SYMBOL._replace(glyph=choice.glyph, ascii_glyph=choice.ascii_glyph)


def symbol(choice: str) -> Symbol:
    """Return the symbol of a choice: that of the problem's choice of that name, or for that word.

    A kind may call its split under `model` `output`; both look the same in every layer.
    """
    if choice in ALL_CHOICES:
        return SYMBOLS[ALL_CHOICES.index(choice)]
    if choice in PART_WORDS:
        return symbol_of_part(choice)
    if choice == QUERIES.word:
        return QUERIES_SYMBOL
    for operator in _kinds():
        for word, declared in operator.choices.items():
            if choice == declared.word:
                # What splits nothing is not a split by output channels.
                return SYMBOLS[ALL_CHOICES.index(word)] if declared.axis else WHOLE_SYMBOL
    raise ValueError(f"no kind of layer has {choice}")  # or it would be no choice


def _kinds() -> Iterator[type[Operator]]:
    # Built-in kinds first: looking for plug-ins searches the environment.
    yield from OPERATORS.built_in()
    for kind in OPERATORS:
        with suppress(HyparError):  # a broken plug-in: reported when its kind is looked up
            yield OPERATORS[kind]


def glyph(choice: str, *, ascii_only: bool = False) -> str:
    """Return the character for a choice."""
    return symbol(choice).drawn(ascii_only=ascii_only)


def cell_styles() -> str:
    """Return a style sheet: a symbol's class sets ``--fill`` and ``--on-fill``, light or dark."""

    def rules(shade: Callable[[Symbol], Shade]) -> str:
        return " ".join(
            f".{symbol.name} {{ --fill: {shade(symbol).fill}; --on-fill: {shade(symbol).ink}; }}"
            for symbol in SYMBOLS
        )

    light, dark = rules(attrgetter("light")), rules(attrgetter("dark"))
    # Pages are printed in light colours.
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}"


def stored_symbol(layout: Layout) -> Symbol:
    """Return the symbol of a stored tensor's layout."""
    return symbol_of_part(layout) if layout in PART_WORDS else _STORED[layout]


def stored_legend(layouts: Iterable[Layout]) -> list[tuple[Symbol, str]]:
    """Return the symbol of each layout that occurs, with its name: ``split by channel``."""
    present = set(layouts)
    parts = sorted(
        (layout for layout in present if layout in PART_WORDS), key=PART_WORDS.__getitem__
    )
    return [
        (symbol, _named(layout) if layout in _UNSPLIT else f"split by {layout}")
        for layout, symbol in _STORED.items()
        if layout in present
    ] + [(symbol_of_part(word), _named(word)) for word in parts if len(parts) <= _MAX_NAMED_PARTS]


def explained(plan: Plan) -> list[str]:
    """Return the words in a plan's legend: its choices, and `whole` if it occurs.

    Parts of H1 are named unless there are many stages.
    """
    chosen = {choice for row in plan.parallelism for choice in row}
    rare, parts = _UNSPLIT.values(), [word for word in chosen if word in PART_WORDS]
    left_out = {*parts} if len(parts) > _MAX_NAMED_PARTS else set()
    return [
        word
        for word in plan.vocabulary
        if (word in chosen or not (word in PART_WORDS or symbol(word) in rare))
        and word not in left_out
    ]


def legend(vocabulary: Iterable[str], choices: Sequence[str]) -> list[tuple[Symbol, str]]:
    """Return each symbol with its meaning: ``tensor parallelism (model, channel)``.

    Parameters
    ----------
    vocabulary
        The words of layers' choices.
    choices
        The problem's.
    """
    words: dict[Symbol, list[str]] = {}
    # The paper's words first; a sort keeps the order of the others.
    for word in sorted(vocabulary, key=lambda word: word not in ALL_CHOICES):
        words.setdefault(symbol(word), []).append(str(word))
    symbols = (*SYMBOLS, QUERIES_SYMBOL)
    parts = {symbol: PART_WORDS[of[0]] for symbol, of in words.items() if of[0] in PART_WORDS}
    order = sorted(
        words, key=lambda own: len(symbols) + parts[own] if own in parts else symbols.index(own)
    )
    unsplit = (*_UNSPLIT.values(), *parts)
    return [
        (
            symbol,
            _named(words[symbol][0])
            if symbol in unsplit
            else _parallelism(symbol, words[symbol], choices),
        )
        for symbol in order
    ]


def _parallelism(symbol: Symbol, words: Sequence[str], choices: Sequence[str]) -> str:
    """Return the name of a kind of parallelism, with the words that it has in plans."""
    named = _PARALLELISM.get(symbol) or degrees.model_or_tensor(choices)
    unnamed = [word for word in words if word.removesuffix("s") not in named]
    return f"{named} ({', '.join(unnamed)})" if unnamed else named


def _named(word: str) -> str:
    """Return the meaning of a word that splits nothing."""
    if word not in PART_WORDS:
        return word
    return f"all in H1's {word} part" if word.isalpha() else f"all in H1's {word.replace('-', ' ')}"
