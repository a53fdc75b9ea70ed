"""Runs of equal layers, repeated: the blocks of a network file."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from hypar_opt.integers import divisors
from hypar_opt.onnx.features import Layer

MAX_BLOCK_LAYERS = 1000
"""The maximum number of layers of a block."""


@dataclass(frozen=True)
class RepeatedRun:
    """Layers from ``first``: ``count`` repetitions of ``length`` equal layers."""

    first: int
    length: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.length * self.count


def runs_of(layers: Sequence[Layer], names: Sequence[str]) -> list[RepeatedRun]:
    """Return the repeated runs of a network, in order; one tensor enters and one leaves each.

    A repetition reads only its own layers and the last layer of the repetition before it (the first
    one: the layer before the run). Among overlapping runs the one that shortens the file most is
    chosen, among equally long ones the one that most layers' names count.
    """
    if len(layers) < 4:
        return []
    marks = _marks(layers)
    cuts = _cuts(layers)
    candidates: list[RepeatedRun] = []
    periodic: dict[int, list[tuple[int, int]]] = {}
    for length in range(1, min(len(layers) // 2, MAX_BLOCK_LAYERS) + 1):
        edges = [-1, *np.flatnonzero(marks[length:] != marks[:-length]), len(layers) - length]
        # Between two edges every layer equals the one ``length`` later.
        for edge in np.flatnonzero(np.diff(edges) > length).tolist():
            first, end = int(edges[edge]) + 1, int(edges[edge + 1]) + length
            # A run whose period divides this length is known already.
            if not any(
                _within(periodic.get(part, []), first, end) for part in divisors(length)[:-1]
            ):
                periodic.setdefault(length, []).append((first, end))
                if length > 1:
                    candidates += _aligned(cuts, first, end, length)
    candidates.sort(key=lambda run: (-_saved(run), run.length, run.first))
    chosen: list[RepeatedRun] = []
    covered = bytearray(len(layers))
    for (_, _), group in groupby(candidates, key=lambda run: (_saved(run), run.length)):
        free = [run for run in group if covered.find(1, run.first, run.end) < 0]
        while free:
            # Prefer the overlapping run that most names count, then the first.
            rivals = _before(free, free[0].end)
            best = max(rivals, key=lambda run: (_agreement(names, run), -run.first))
            chosen.append(best)
            covered[best.first : best.end] = b"\1" * (best.end - best.first)
            near = _before(free, best.end)
            free = [run for run in near if not _overlap(run, best)] + free[len(near) :]
    return sorted(chosen, key=lambda run: run.first)


def _within(stretches: Sequence[tuple[int, int]], first: int, end: int) -> bool:
    """Whether one of some stretches, sorted by start, contains another."""
    after = bisect_right(stretches, first, key=lambda stretch: stretch[0])
    return after > 0 and end <= stretches[after - 1][1]


def _before(runs: Sequence[RepeatedRun], end: int) -> Sequence[RepeatedRun]:
    """Return the runs, sorted by start, that begin before a position."""
    return runs[: bisect_left(runs, end, key=lambda run: run.first)]


def _saved(run: RepeatedRun) -> int:
    """Return the number of layers that a block saves in the file."""
    return (run.count - 1) * run.length


def _overlap(a: RepeatedRun, b: RepeatedRun) -> bool:
    return a.first < b.end and b.first < a.end


def _marks(layers: Sequence[Layer]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number for each layer, the same for layers of equal keys and relative inputs."""
    numbers: dict[str, int] = {}
    marks = []
    for position, layer in enumerate(layers):
        # A further input is one for all repetitions.
        inputs = [source if source < -1 else (position - source,) for source in layer.inputs]
        # In a block ``input`` is the block's: a layer that reads the network's is in no block.
        alone = position if -1 in layer.inputs else None
        text = repr((layer.kind, layer.keys, inputs, alone))
        marks.append(numbers.setdefault(text, len(numbers)))
    return np.asarray(marks, np.int64)


def _cuts(layers: Sequence[Layer]) -> list[bool]:
    """For each position, whether later layers read no earlier layer but the one before it."""
    passing = np.zeros(len(layers) + 2, np.int64)
    for position, layer in enumerate(layers):
        for source in layer.inputs:
            # From two after its source to its reader an edge skips a layer.
            if source >= 0 and source + 2 <= position:
                passing[source + 2] += 1
                passing[position + 1] -= 1
    return [not count for count in np.cumsum(passing[:-1]).tolist()]


def _aligned(cuts: list[bool], first: int, end: int, length: int) -> list[RepeatedRun]:
    """Return the runs of a period in a stretch, one for each alignment that starts at a cut."""
    runs = []
    for start in range(first, min(first + length, end)):
        count = (end - start) // length
        # The layer before the run is its input, so that a run cannot start with the first layer.
        if count > 1 and start > 0 and all(cuts[start + n * length] for n in range(count)):
            runs.append(RepeatedRun(start, length, count))
    return runs


def block_names(names: Sequence[str], run: RepeatedRun) -> tuple[str, str, list[str]]:
    """Return the name of a run's block, its first number, and the names of its layers.

    Where the names of a layer's repetitions differ only in a number that counts them, the text
    before the number names the block, the text after it the layer. The block has no name where
    fewer than half of the counting names agree on it.
    """
    rows = list(zip(*_repetitions(names, run), strict=True))
    split = [_counted(row) for row in rows]
    head, number = _head(split)
    inner = []
    for row, parts in zip(rows, split, strict=True):
        if parts is None:
            inner.append(re.sub(r"_\d+$", "", row[0]))
        elif parts.step == 1 and parts.before == head:
            inner.append(parts.after.strip("._-"))
        else:
            inner.append(re.sub(r"([._-])[._-]+", r"\1", parts.before + parts.after).strip("._-"))
    return head.strip("._-"), number, inner


def _repetitions(names: Sequence[str], run: RepeatedRun) -> list[Sequence[str]]:
    starts = range(run.first, run.end, run.length)
    return [names[start : start + run.length] for start in starts]


class _NumberedName(NamedTuple):
    """Names that differ in one number, which counts repetitions."""

    before: str
    after: str
    first: str
    step: int


def _counted(row: Sequence[str]) -> _NumberedName | None:
    fields = [re.split(r"(\d+)", name) for name in row]
    if not row[0] or len({len(parts) for parts in fields}) > 1:
        return None
    columns = list(zip(*fields, strict=True))
    differing = [place for place, column in enumerate(columns) if len(set(column)) > 1]
    if len(differing) != 1 or not differing[0] % 2:
        return None
    (place,) = differing
    counts = [int(text) for text in columns[place]]
    step = counts[1] - counts[0]
    if step < 1 or any(b - a != step for a, b in pairwise(counts)):
        return None
    parts = fields[0]
    return _NumberedName("".join(parts[:place]), "".join(parts[place + 1 :]), parts[place], step)


def _head(split: Sequence[_NumberedName | None]) -> tuple[str, str]:
    """Return the prefix on which most names of a block agree, and its first number."""
    heads = Counter((parts.before, parts.first) for parts in split if parts and parts.step == 1)
    counted = sum(parts is not None for parts in split)
    ((head, number), votes), *_ = heads.most_common(1) or [(("", ""), 0)]
    return (head, number) if votes * 2 >= counted and head.strip("._-") else ("", "")


def _agreement(names: Sequence[str], run: RepeatedRun) -> int:
    """Return how many of a run's layers have names that count the repetitions."""
    # Two repetitions are enough to tell.
    rows = zip(*_repetitions(names, RepeatedRun(run.first, run.length, 2)), strict=True)
    split = [_counted(row) for row in rows]
    head, _ = _head(split)
    return sum(1 for parts in split if parts and parts.step == 1 and parts.before == head)
