"""Settings by layer name: patterns, and the value that each layer is given."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from hypar_opt.errors import HyparError, argument, nearest
from hypar_opt.frozen import FrozenDict

OTHER_LAYERS = "*"
"""The key of the default: it applies to all layers that no other key matches."""

STORED = "output of "
"""The prefix that turns a layer's name into that of its output as a shared tensor."""

Words = str | Mapping[str, str]
"""A word for all layers; or words by layer, block or pattern."""


def parsed_words(value: Words, parameter: str) -> Words:
    """Return a word of all layers, or words by layer, read from ``WORD,LAYER=WORD,...``.

    Parameters
    ----------
    parameter
        The name of the argument, for messages.

    Raises
    ------
    HyparError
        If a layer is named twice.
    """
    if isinstance(value, str) and "=" in value:
        # From the right: a layer's name may hold "=" itself.
        pairs = [part.strip().rpartition("=") for part in value.split(",")]
        names = [name or OTHER_LAYERS for name, _, _ in pairs]
        for name in set(names):
            if names.count(name) > 1:
                raise HyparError(f"{argument(parameter)}: {name!r} has several words in {value!r}")
        value = {name: word for name, (_, _, word) in zip(names, pairs, strict=True)}
    if isinstance(value, str):
        return value
    return value[OTHER_LAYERS] if value.keys() == {OTHER_LAYERS} else FrozenDict(value)


def all_words(words: Words) -> list[str]:
    """Return the distinct words given."""
    return [words] if isinstance(words, str) else [*words.values()]


def matching(names: Sequence[str], pattern: str) -> list[int]:
    """Return the positions of the layers that a pattern names, itself or by their block.

    A string that is a layer's name is not read as a pattern.
    """
    if pattern in names:
        return [names.index(pattern)]
    matched = [n for n, name in enumerate(names) if fnmatchcase(name, pattern)]
    return matched or [n for n, name in enumerate(names) if fnmatchcase(name, f"{pattern}.*")]


def patterns_naming(chosen: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return patterns that match the chosen names and no others, merging those of a block.

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


def words_by_layer(words: Words | None, names: Sequence[str], parameter: str) -> list[str | None]:
    """Return each layer's word; None where there is none.

    A layer's full name takes precedence over patterns, and these over `OTHER_LAYERS`.

    Parameters
    ----------
    parameter
        The name of the argument, for messages.

    Raises
    ------
    HyparError
        If a key names no layer, or two patterns give a layer different words.
    """
    if words is None or isinstance(words, str):
        return [words] * len(names)
    assigned: list[str | None] = [words.get(OTHER_LAYERS)] * len(names)
    positions = {name: n for n, name in enumerate(names)}
    named: dict[int, str] = {}
    for pattern in words.keys() - {OTHER_LAYERS} - positions.keys():
        matched = matching(names, pattern)
        if not matched:
            near = nearest(pattern, names)
            hint = f"; did you mean {near}?" if near else ""
            raise HyparError(f"{argument(parameter)}: no layer is called {pattern!r}{hint}")
        for n in matched:
            earlier = named.setdefault(n, pattern)
            if words[earlier] != words[pattern] and names[n] not in words:
                first, second = sorted((earlier, pattern))
                raise HyparError(
                    f"{argument(parameter)}: {first}={words[first]} and {second}={words[second]}"
                    f" conflict at {names[n]}"
                )
            assigned[n] = words[pattern]
    for name in words.keys() & positions.keys():
        assigned[positions[name]] = words[name]
    return assigned


def most_frequent(words: Sequence[str]) -> str:
    """Return the most frequent word, ``none`` if there are no words."""
    return max(sorted(set(words)), key=words.count, default="none")


def compact(words: Sequence[str], names: Sequence[str]) -> Words:
    """Return layers' words as one word, or as the most frequent one and the exceptions."""
    default = most_frequent(words)
    exceptions = {name: word for name, word in zip(names, words, strict=True) if word != default}
    return FrozenDict({OTHER_LAYERS: default, **exceptions}) if exceptions else default
