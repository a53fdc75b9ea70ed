"""Folding of layers: equal repetitions of a block, and equal neighbours, are shown as one.

The caller says what is equal, by a key for each layer: for a plan the choices at all levels, for a
network the shapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol


class Repetitions(Protocol):
    """A block's consecutive repetitions: the first layer's position, layers of one, how many.

    Their numbers, which layers' names contain, begin with ``number``; None if there are none.
    """

    @property
    def name(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def number(self) -> int | None: ...


@dataclass(frozen=True)
class FoldedLayers:
    """Layers shown as one row or column.

    The names are of a run's first and last layer, without the block's name.
    """

    first: str
    last: str
    positions: tuple[int, ...]
    """All layers it stands for, in the network's order: those of the run in every repetition."""

    def label(self, dash: str = "–") -> str:
        """Return the layer's name, or the run's first and last with their common prefix once."""
        if self.first == self.last:
            return self.first
        block, dot, _ = self.first.rpartition(".")
        return self.first + dash + self.last.removeprefix(block + dot)


@dataclass(frozen=True)
class Section:
    """Layers outside blocks, or equal repetitions of a block with their numbers."""

    block: str
    numbers: tuple[int, ...]
    rows: tuple[FoldedLayers, ...]
    numbered: bool = False
    """Whether layers' names contain the numbers of repetitions, as those of repeated blocks do."""

    @property
    def label(self) -> str:
        """The block's name with the numbers of its repetitions: ``decoder.0-3,8-11``."""
        return f"{self.block}.{ranges(self.numbers)}" if self.numbered else self.block

    def heading(self, times: str = "×") -> str:
        """Return the label with the number of repetitions: ``decoder.0-3 × 4``."""
        count = len(self.numbers)
        return f"{self.label} {times} {count}" if count > 1 else self.label


def fold(
    names: Sequence[str],
    repeats: Iterable[Repetitions],
    keys: Sequence[Hashable],
    *,
    runs: bool = True,
) -> tuple[Section, ...]:
    """Return a network's layers, with equal ones folded into one.

    Every layer is in one row, together with layers of the same key only.

    Parameters
    ----------
    names, keys
        The name and the key of each layer.
    repeats
        The repeated blocks; their layers are named ``block.0.layer``. Neighbours of one name are
        one block in several runs.
    runs
        Whether to fold neighbours of the same key too.
    """
    sections: list[Section] = []
    start = 0
    for block in _blocks(repeats):
        sections += _outside(names, keys, start, block[0].first, runs)
        sections += _folded_block(names, keys, block, runs)
        start = _end(block[-1])
    return (*sections, *_outside(names, keys, start, len(names), runs))


def _blocks(repeats: Iterable[Repetitions]) -> list[list[Repetitions]]:
    """Return the runs of each block, in order: neighbours of one name."""
    blocks: list[list[Repetitions]] = []
    for repeat in sorted(repeats, key=lambda repeat: repeat.first):
        before = blocks[-1][-1] if blocks else None
        if before and (before.name, _end(before)) == (repeat.name, repeat.first):
            blocks[-1].append(repeat)
        else:
            blocks.append([repeat])
    return blocks


def _end(repeat: Repetitions) -> int:
    return repeat.first + repeat.length * repeat.count


def _outside(
    names: Sequence[str], keys: Sequence[Hashable], start: int, stop: int, runs: bool
) -> list[Section]:
    rows = [
        FoldedLayers(names[run[0]], names[run[-1]], tuple(run))
        for run in _runs(range(start, stop), keys, runs)
    ]
    return [Section("", (), tuple(rows))] if rows else []


def _folded_block(
    names: Sequence[str], keys: Sequence[Hashable], block: Sequence[Repetitions], runs: bool
) -> list[Section]:
    name, numbered = block[0].name, block[0].number is not None
    repetitions: dict[tuple[Hashable, ...], list[tuple[int, int]]] = {}
    for repeat in block:
        for n in range(repeat.count):
            first = repeat.first + n * repeat.length
            # By the keys of the whole repetition, so that equal ones are together wherever they
            # are.
            of_layers = tuple(keys[first : first + repeat.length])
            repetitions.setdefault(of_layers, []).append(((repeat.number or 0) + n, first))
    sections = []
    for of_layers, places in repetitions.items():
        numbers, starts = zip(*places, strict=True)
        first = starts[0]
        rows = tuple(
            FoldedLayers(
                local_name(names[run[0]], name),
                local_name(names[run[-1]], name),
                tuple(start - first + layer for start in starts for layer in run),
            )
            for run in _runs(range(first, first + len(of_layers)), keys, runs)
        )
        sections.append(Section(name, numbers, rows, numbered))
    return sections


def _runs(positions: range, keys: Sequence[Hashable], runs: bool) -> list[list[int]]:
    if not runs:
        return [[position] for position in positions]
    return [list(run) for _, run in groupby(positions, key=lambda position: keys[position])]


def local_name(name: str, block: str) -> str:
    """Return a layer's name without the name of its block and the repetition's number.

    Other names are unchanged.
    """
    rest = name.removeprefix(f"{block}.")
    if rest == name:
        return name
    number, dot, local = rest.partition(".")
    return local if dot and number.isdecimal() else rest


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers, with neighbours as ranges: ``0-3,8``."""
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        first, *rest = [number for _, number in run]
        parts.append(f"{first}-{rest[-1]}" if rest else f"{first}")
    return ",".join(parts)
