"""Layers by name: those that a pattern names, and the word that each is given."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from hypar_opt.errors import HyparError, argument, nearest
from hypar_opt.frozen import FrozenDict

EVERY = "*"
"""The key of the word of all layers that no other key names."""

STORED = "output of "
"""What stands before a layer's name for the tensor that it writes and that several read."""

Words = str | Mapping[str, str]
"""A word for all layers; or words by layer, block or pattern."""


def parsed_words(value: Words, what: str) -> Words:
    """Return a word of all layers, or words by layer, read from ``WORD,LAYER=WORD,...``.

    Parameters
    ----------
    what
        The argument that states them, for messages.

    Raises
    ------
    HyparError
        If a layer is named twice.
    """
    if isinstance(value, str) and "=" in value:
        # From the right: a layer's name may hold "=" itself.
        pairs = [part.strip().rpartition("=") for part in value.split(",")]
        names = [name or EVERY for name, _, _ in pairs]
        for name in set(names):
            if names.count(name) > 1:
                raise HyparError(f"{argument(what)}: {name!r} has several words in {value!r}")
        value = {name: word for name, (_, _, word) in zip(names, pairs, strict=True)}
    if isinstance(value, str):
        return value
    return value[EVERY] if value.keys() == {EVERY} else FrozenDict(value)


def all_words(words: Words) -> list[str]:
    """Return the words that layers are given."""
    return [words] if isinstance(words, str) else [*words.values()]


def matching(names: Sequence[str], pattern: str) -> list[int]:
    """Return the positions of the layers that a pattern names, itself or by their block.

    The name of a layer is not read as a pattern.
    """
    if pattern in names:
        return [names.index(pattern)]
    matched = [n for n, name in enumerate(names) if fnmatchcase(name, pattern)]
    return matched or [n for n, name in enumerate(names) if fnmatchcase(name, f"{pattern}.*")]


def patterns_naming(chosen: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return patterns that match some of the names and no others, one for all of a block's.

    >>> patterns_naming(["h.0.up", "h.1.up", "h.0.down"], ["h.0.up", "h.1.up", "h.0.down"])
    ['h.*.up', 'h.*.down']
    """
    wanted = {*chosen}
    patterns: dict[str, None] = {}
    is_exact: dict[str, bool] = {}
    for name in chosen:
        pattern = re.sub(r"[.]\d+[.]", ".*.", glob.escape(name))
        if pattern not in is_exact:
            is_exact[pattern] = wanted.issuperset(n for n in names if fnmatchcase(n, pattern))
        patterns[pattern if is_exact[pattern] else glob.escape(name)] = None
    return [*patterns]


def words_by_layer(words: Words | None, names: Sequence[str], what: str) -> list[str | None]:
    """Return each layer's word; None where there is none.

    A layer's own name outweighs patterns, and these outweigh `EVERY`.

    Parameters
    ----------
    what
        The argument that states the words, for messages.

    Raises
    ------
    HyparError
        If a key names no layer, or two patterns give a layer different words.
    """
    if words is None or isinstance(words, str):
        return [words] * len(names)
    assigned: list[str | None] = [words.get(EVERY)] * len(names)
    positions = {name: n for n, name in enumerate(names)}
    named: dict[int, str] = {}
    for pattern in words.keys() - {EVERY} - positions.keys():
        matched = matching(names, pattern)
        if not matched:
            near = nearest(pattern, names)
            hint = f"; did you mean {near}?" if near else ""
            raise HyparError(f"{argument(what)}: no layer is called {pattern!r}{hint}")
        for n in matched:
            other = named.setdefault(n, pattern)
            if words[other] != words[pattern] and names[n] not in words:
                first, second = sorted((other, pattern))
                raise HyparError(
                    f"{argument(what)}: {first}={words[first]} and {second}={words[second]}"
                    f" conflict at {names[n]}"
                )
            assigned[n] = words[pattern]
    for name in words.keys() & positions.keys():
        assigned[positions[name]] = words[name]
    return assigned


def most_frequent(words: Sequence[str]) -> str:
    """Return the most frequent of some words, ``none`` of none."""
    return max(sorted(set(words)), key=words.count, default="none")


def compact(words: Sequence[str], names: Sequence[str]) -> Words:
    """Return layers' words as one, or as the most frequent and those of the other layers."""
    default = most_frequent(words)
    exceptions = {name: word for name, word in zip(names, words, strict=True) if word != default}
    return FrozenDict({EVERY: default, **exceptions}) if exceptions else default
