"""What data parallelism shards of a layer's weights, and from which level down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.patterns import Words


class Shards(NamedTuple):
    """The topmost level, 0 for H1, from which on each is sharded; None if at no level.

    Sharding at a level extends to all levels below it; weights are sharded with their gradients,
    and gradients with the optimizer's state.

        >>> shards_of("state+weights@H4-H6")
        Shards(state=0, gradients=3, weights=3)
        >>> shards_of("state+weights@H4-H6").at(2)
        'state'
    """

    state: int | None = None
    gradients: int | None = None
    weights: int | None = None

    def at(self, level: int) -> str:
        """Return the strongest sharding at a level, one of `SHARDED`."""
        return _split_at(self, level)

    def word(self, levels: int) -> str:
        """Return the word for these shards in a hierarchy of ``levels`` levels."""
        begins = zip(self, SHARDED[1:], strict=True)
        # Where gradients are split from the same level on, the state goes without saying.
        words = {first: word for first, word in begins if first is not None and first < levels}
        return "+".join(word + _where(first, levels) for first, word in words.items()) or SHARDED[0]

    @property
    def by_level(self) -> bool:
        """Whether the sharding differs between levels."""
        return not {*self} <= {0, None}


@lru_cache(maxsize=1024)
def _split_at(shards: Shards, level: int) -> str:
    begins = zip(SHARDED[1:], shards, strict=True)
    return max(
        (word for word, first in begins if first is not None and first <= level),
        key=SHARDED.index,
        default=SHARDED[0],
    )


def _where(first: int, levels: int) -> str:
    last = f"-H{levels}" if first + 1 < levels else ""
    return f"@H{first + 1}{last}" if first else ""


INSIDE_NODES = "@node"
"""Stands for the levels inside a node of the array, as in ``weights@node``."""


def with_node_levels(word: str, inside: Sequence[int]) -> str:
    """Return a word with the levels inside a node given by number.

    >>> with_node_levels("state+weights@node", [4, 5, 6])
    'state+weights@H4-H6'

    If the array is a single node, these are all levels, and weights are sharded with their state.

    Parameters
    ----------
    inside
        The numbers of those levels, from 1 for H1; the last is the lowest level.
    """
    if INSIDE_NODES in word and inside[0] == 1:
        word = next(part for part in reversed(word.split("+")) if INSIDE_NODES in part)
        return word.replace(INSIDE_NODES, "")
    last = f"-H{inside[-1]}" if len(inside) > 1 else ""
    return word.replace(INSIDE_NODES, f"@H{inside[0]}{last}")


_STAGE = re.compile(rf"({'|'.join(SHARDED[1:])})(?:@H([1-9]\d{{0,2}})(?:-H([1-9]\d{{0,2}}))?)?")


def shards_of(word: str) -> Shards:
    """Return the parsed word: ``none``, or what is sharded and from which level down.

    Raises
    ------
    ValueError
        With the expected form.
    """
    return _parsed(word)[0]


@lru_cache(maxsize=1024)
def _parsed(word: str) -> tuple[Shards, int | None]:
    """Return the parsed word, and the last level that it names."""
    if word == SHARDED[0]:
        return Shards(), None
    matches = [_STAGE.fullmatch(part) for part in word.split("+")]
    stages = [(SHARDED.index(match[1]), int(match[2] or 1) - 1) for match in matches if match]
    if len(stages) < len(matches):
        raise ValueError(
            f"{', '.join(SHARDED[:-1])} or {SHARDED[-1]}, or that from a level down, as"
            " weights@H2-H3, or inside the nodes of an array, as weights@node"
        )
    if any(one >= other or above >= below for (one, above), (other, below) in pairwise(stages)):
        raise ValueError(
            "state, gradients, weights in this order, each from a lower level down, as"
            " state+weights@H2-H3"
        )
    last = {int(match[3] or match[2]) for match in matches if match and match[2]}
    if len(last) > 1 or any(below >= end for _, below in stages for end in last):
        raise ValueError("levels down to one last level, as gradients@H2-H4+weights@H3-H4")
    # Weights are split with their gradients, and these with their state.
    begins = [next((first for stage, first in stages if stage >= n), None) for n in (1, 2, 3)]
    return Shards(*begins), next(iter(last), None)


def fault_in_levels(words: Iterable[str], levels: int) -> str | None:
    """Return what is wrong with words whose levels do not end at the last one; None if nothing."""
    for word in words:
        last = _parsed(word)[1]
        if last not in (None, levels):
            down = f"down to H{levels}, the last" if levels else "none: there is one accelerator"
            return f"should name levels {down}, got {word!r}"
    return None


def renumbered(word: str, by: int) -> str:
    """Return a word with the levels of its sharding shifted by a number.

    A level that moves above H1 becomes H1.

    >>> renumbered("state@H2-H4+weights@H4", -2)
    'state+weights@H2'
    """
    if "@" not in word:
        return word
    shards, last = _parsed(word)
    assert last is not None
    moved = (first and max(first + by, 0) for first in shards)
    return Shards(*moved).word(last + by)


def renumbered_words(words: Words, by: int) -> Words:
    """Return words of all layers, or by layer, each `renumbered`."""
    if isinstance(words, str):
        return renumbered(words, by)
    return FrozenDict({name: renumbered(word, by) for name, word in words.items()})
