"""Runs of equal layers, repeated: the blocks of a network file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hypar_opt.workload.onnx.features import INPUT, Layer


@dataclass(frozen=True)
class Run:
    """Layers ``first`` to ``first + length * count``, of which each ``length`` are the same."""

    first: int
    length: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.length * self.count


def runs_of(layers: Sequence[Layer]) -> list[Run]:
    """Return the repeated runs of a network, in order, each read and left through one tensor.

    A repetition reads nothing but its own layers, the last layer of the repetition before it (the
    first one: the layer before the run), and the network's input. Of overlapping runs the one that
    shortens the file most is taken first.
    """
    if len(layers) < 4:
        return []
    marks = _marks(layers)
    cuts = _cuts(layers)
    found = []
    for length in range(2, len(layers) // 2 + 1):
        same = np.flatnonzero(marks[length:] != marks[:-length])
        edges = [-1, *same.tolist(), len(layers) - length]
        for before, after in zip(edges, edges[1:], strict=False):
            if after - before - 1 >= length:
                found += _aligned(cuts, before + 1, after + length, length)
    found.sort(key=lambda run: (-(run.count - 1) * run.length, run.length, run.first))
    taken: list[Run] = []
    for run in found:
        if all(run.end <= other.first or other.end <= run.first for other in taken):
            taken.append(run)
    return sorted(taken, key=lambda run: run.first)


def _marks(layers: Sequence[Layer]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number for each layer, the same for layers of equal keys and relative inputs."""
    numbers: dict[str, int] = {}
    marks = []
    for position, layer in enumerate(layers):
        # The network's input is the same wherever a layer stands; others are where they are.
        inputs = [position - s if s != INPUT else "input" for s in layer.inputs]
        text = json.dumps([layer.kind, layer.keys, inputs], sort_keys=True)
        marks.append(numbers.setdefault(text, len(numbers)))
    return np.asarray(marks, np.int64)


def _cuts(layers: Sequence[Layer]) -> list[bool]:
    """Whether all that layers from a position on read of those before it is the one before it."""
    cut = [True] * (len(layers) + 1)
    for position, layer in enumerate(layers):
        for source in layer.inputs:
            if source != INPUT:
                # From two after the source on, this edge reaches over more than the last layer.
                for between in range(source + 2, position + 1):
                    cut[between] = False
    return cut


def _aligned(cuts: list[bool], first: int, end: int, length: int) -> list[Run]:
    """Return the runs of a period in a stretch, one for each alignment that starts at a cut."""
    runs = []
    for start in range(first, min(first + length, end)):
        count = (end - start) // length
        # The layer before the run is its input: the network's own input is named, not passed on.
        if count > 1 and start > 0:
            whole = all(cuts[start + n * length] for n in range(count))
            if whole:
                runs.append(Run(start, length, count))
    return runs


def block_names(names: Sequence[str], run: Run) -> tuple[str, list[str]]:
    """Return the name of a run's block, and those of its layers, from the layers' own names.

    Where the layers of all repetitions are named alike but for a number that counts them, what is
    before the number is the block's name, what is after it the layer's.
    """
    repetitions = [
        list(names[run.first + n * run.length : run.first + (n + 1) * run.length])
        for n in range(run.count)
    ]
    prefixes: set[str] = set()
    inner: list[str] = []
    for row in zip(*repetitions, strict=True):
        split = _counted(row)
        if split is None:
            inner.append(_bare(row[0]))
            continue
        prefixes.add(split[0])
        inner.append(split[1])
    name = prefixes.pop().strip("._-") if len(prefixes) == 1 else ""
    return name, inner


def _counted(row: Sequence[str]) -> tuple[str, str] | None:
    """Return what is before and after the one number that counts up, in some names."""
    fields = [re.split(r"(\d+)", name) for name in row]
    if not row[0] or len({len(parts) for parts in fields}) > 1:
        return None
    columns = list(zip(*fields, strict=True))
    differing = [place for place, column in enumerate(columns) if len(set(column)) > 1]
    if len(differing) != 1 or not differing[0] % 2:
        return None
    place = differing[0]
    counts = [int(text) for text in columns[place]]
    if counts != list(range(counts[0], counts[0] + len(counts))):
        return None
    after = "".join(fields[0][place + 1 :]).strip("._-")
    return "".join(fields[0][:place]), after


def _bare(name: str) -> str:
    return re.sub(r"_\d+$", "", name)
