"""Layers that a report shows as one: repetitions of a block, and runs of layers, that are alike.

What is alike is the caller's to say, by a key for each layer: for a plan the choices at all levels,
for a network the shapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol


class Repetitions(Protocol):
    """Where a block's repetitions stand among a network's layers, one after the other."""

    @property
    def name(self) -> str: ...

    @property
    def first(self) -> int:
        """The position of the first repetition's first layer."""

    @property
    def length(self) -> int:
        """Layers of one repetition."""

    @property
    def count(self) -> int: ...


@dataclass(frozen=True)
class FoldedLayers:
    """Layers that are shown as one row or column.

    Parameters
    ----------
    first, last
        The names of a run's first and last layer, without their block's; one name where the run
        is a single layer.
    positions
        All the layers that it stands for, in the network's order: a run's, in every repetition.
    """

    first: str
    last: str
    positions: tuple[int, ...]

    def label(self, dash: str = "–") -> str:
        """Return the layer's name, or the run's first and last, what both begin with once."""
        if self.first == self.last:
            return self.first
        block, dot, _ = self.first.rpartition(".")
        return self.first + dash + self.last.removeprefix(block + dot)


@dataclass(frozen=True)
class Section:
    """Layers outside of blocks, or the repetitions of a block that are alike.

    Parameters
    ----------
    block
        The block's name; empty outside of blocks.
    numbers
        Which repetitions these are; empty outside of blocks.
    numbered
        Whether the repetitions' numbers are in their layers' names: a block that is not repeated
        has none.
    """

    block: str
    numbers: tuple[int, ...]
    rows: tuple[FoldedLayers, ...]
    numbered: bool = False

    @property
    def label(self) -> str:
        """The block's name with the numbers of its repetitions: ``decoder.0-3,8-11``."""
        return f"{self.block}.{ranges(self.numbers)}" if self.numbered else self.block

    def heading(self, times: str = "×") -> str:
        """Return the label, and how many repetitions there are: ``decoder.0-3 × 4``."""
        count = len(self.numbers)
        return f"{self.label} {times} {count}" if count > 1 else self.label


def fold(
    names: Sequence[str],
    repeats: Iterable[Repetitions],
    keys: Sequence[Hashable],
    *,
    runs: bool = True,
) -> tuple[Section, ...]:
    """Return a network's layers with those that are alike as one.

    Every layer stands in one row, with layers of its own key alone.

    Parameters
    ----------
    names, keys
        Of each layer.
    repeats
        The blocks that are repeated; their layers are called ``block.0.layer``.
    runs
        Whether neighbours with one key are folded too.
    """
    sections: list[Section] = []
    start = 0
    for repeat in sorted(repeats, key=lambda repeat: repeat.first):
        sections += _outside(names, keys, start, repeat.first, runs)
        sections += _folded_block(names, keys, repeat, runs)
        start = repeat.first + repeat.length * repeat.count
    return (*sections, *_outside(names, keys, start, len(names), runs))


def _outside(
    names: Sequence[str], keys: Sequence[Hashable], start: int, stop: int, runs: bool
) -> list[Section]:
    rows = [
        FoldedLayers(names[run[0]], names[run[-1]], tuple(run))
        for run in _runs(range(start, stop), keys, runs)
    ]
    return [Section("", (), tuple(rows))] if rows else []


def _folded_block(
    names: Sequence[str], keys: Sequence[Hashable], repeat: Repetitions, runs: bool
) -> list[Section]:
    alike: dict[tuple[Hashable, ...], list[int]] = {}
    for number in range(repeat.count):
        first = repeat.first + number * repeat.length
        # By the keys of the whole repetition: wherever it stands, it is shown with its like.
        alike.setdefault(tuple(keys[first : first + repeat.length]), []).append(number)
    return [
        Section(
            repeat.name,
            tuple(numbers),
            tuple(
                FoldedLayers(
                    local_name(names[run[0]], repeat.name),
                    local_name(names[run[-1]], repeat.name),
                    tuple(n * repeat.length + layer for n in _offsets(numbers) for layer in run),
                )
                for run in _runs(_layers(repeat, numbers[0]), keys, runs)
            ),
            numbered=names[repeat.first].startswith(f"{repeat.name}.0."),
        )
        for numbers in alike.values()
    ]


def _layers(repeat: Repetitions, number: int) -> range:
    first = repeat.first + number * repeat.length
    return range(first, first + repeat.length)


def _offsets(numbers: Sequence[int]) -> list[int]:
    return [number - numbers[0] for number in numbers]


def _runs(positions: range, keys: Sequence[Hashable], runs: bool) -> list[list[int]]:
    if not runs:
        return [[position] for position in positions]
    return [list(run) for _, run in groupby(positions, key=lambda position: keys[position])]


def local_name(name: str, block: str) -> str:
    """Return a layer's name without its block's and the repetition's number.

    Names that do not begin so are left as they are.
    """
    if not name.startswith(f"{block}."):
        return name
    rest = name.removeprefix(f"{block}.")
    number, dot, local = rest.partition(".")
    return local if dot and number.isdecimal() else rest


def ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers, neighbours as a range: ``0-3,8``."""
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        first, *others = [number for _, number in run]
        parts.append(f"{first}-{others[-1]}" if others else f"{first}")
    return ",".join(parts)
