"""Expansion of a network file's layers and blocks to one list, in topological order."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.documents.document import rule
from hypar_opt.documents.parsing import shown

if TYPE_CHECKING:
    from hypar_opt.workload.blocks import Block
    from hypar_opt.workload.operators.base import Operator

INPUT = "input"
"""The network's first input, among the names that a layer reads; in a block, the block's."""

MAX_LAYERS = 100_000

Reads = tuple[str, ...]


@dataclass(frozen=True)
class Repeat:
    """A block whose repetitions are consecutive in a network's layers."""

    name: str
    first: int
    """The position of the first repetition's first layer."""
    length: int
    """Layers per repetition."""
    count: int
    number: int | None = 0
    """The number of the first repetition in the names of its layers; None where they have none."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the repetitions, which begin those of their layers: ``decoder.0``."""
        if self.number is None:
            return (self.name,)
        return tuple(f"{self.name}.{self.number + n}" for n in range(self.count))

    @property
    def repetitions(self) -> tuple[range, ...]:
        """The positions of each repetition's layers."""
        starts = range(self.first, self.first + self.length * self.count, self.length)
        return tuple(range(start, start + self.length) for start in starts)


def starred(names: Iterable[str], repeats: Sequence[Repeat]) -> list[str]:
    """Return layer names, ``*`` replacing the number where all repetitions have the layer.

    Where several blocks share a name, a range of numbers stands for one of them.

    >>> starred(["token", "h.0.up", "h.1.up", "h.1.down"], [Repeat("h", 1, 2, 2)])
    ['token', 'h.*.up', 'h.1.down']
    >>> starred(["h.0.up", "h.1.up", "h.2.up"], [Repeat("h", 0, 1, 1), Repeat("h", 1, 1, 2, 1)])
    ['h.0.up', 'h.1-2.up']
    """
    shortened = dict.fromkeys(names)
    blocks = Counter(block.name for block in repeats)
    for block in repeats:
        numbered = [f"{label}." for label in block.labels]
        number_range = f"{block.number}-{(block.number or 0) + block.count - 1}"
        numbers = "*" if blocks[block.name] == 1 else number_range
        first = (name for name in shortened if name.startswith(numbered[0]))
        for rest in [name.removeprefix(numbered[0]) for name in first]:
            members = {before + rest for before in numbered}
            if block.count > 1 and members <= shortened.keys():
                star = f"{block.name}.{numbers}.{rest}"
                shortened = dict.fromkeys(star if name in members else name for name in shortened)
    return list(shortened)


class Expanded(NamedTuple):
    """All layers of a network, blocks expanded, each after those that it reads."""

    layers: tuple[Operator, ...]
    sources: tuple[tuple[int, ...], ...]
    """The positions of each layer's inputs, in their order; below zero, inputs of the network."""
    repeats: tuple[Repeat, ...]


def expand(
    layers: Sequence[Operator], blocks: Sequence[Block], inputs: Sequence[str] = (INPUT,)
) -> Expanded:
    """Return the layers of a file, its blocks expanded, in a stable topological order.

    Layers keep the order of the file, those outside blocks first, each as soon as all that it reads
    precede it.

    Parameters
    ----------
    inputs
        The names of the network's inputs, which are at the positions -1, -2 and so on.

    Raises
    ------
    ValueError
        At an unknown input, a repeated name, a cycle, or a layer that no layer reads.
    """
    count = len(layers) + sum((block.repeat or 1) * len(block.layers) for block in blocks)
    if count > MAX_LAYERS:
        raise rule(f"block: should expand to at most {MAX_LAYERS:,} layers, got {count:,}")
    named = [*_stated(layers, blocks, inputs)]
    names = [layer.name for layer, _ in named]
    _check_names(layers, blocks, names, inputs)
    position = {name: index for index, name in enumerate(names)}
    position |= {name: ~number for number, name in enumerate(inputs)}
    sources = [tuple(position[read] for read in reads) for _, reads in named]
    order = _topological(sources, names)
    rank = {index: position for position, index in enumerate(order)}
    sorted_sources = tuple(
        tuple(rank.get(source, source) for source in sources[index]) for index in order
    )
    expanded = tuple(named[index][0] for index in order)
    _check_all_read(expanded, sorted_sources, inputs)
    return Expanded(expanded, sorted_sources, tuple(_repeats(layers, blocks, rank)))


def _stated(
    layers: Sequence[Operator], blocks: Sequence[Block], inputs: Sequence[str]
) -> Iterator[tuple[Operator, Reads]]:
    """Yield each layer under its full name, with the full names of its inputs."""
    outside = {name: name for name in (*inputs, *(layer.name for layer in layers))}
    inside = {
        _named(block, n, layer.name)
        for block in blocks
        for n in range(block.repeat or 1)
        for layer in block.layers
    }
    for block in blocks:  # of several with one name, the last
        outside[block.name] = _named(block, (block.repeat or 1) - 1, block.layers[-1].name)

    def resolved(read: str, where: str, local: Mapping[str, str]) -> str:
        # A layer of a block can be read from anywhere by its full name.
        name = local.get(read) or outside.get(read) or (read if read in inside else None)
        if name is None:
            raise rule(f"{where}, inputs: no layer is called {shown(read)}")
        return name

    before: str = INPUT
    for layer in layers:
        where = f"layer {layer.name!r}"
        reads = (before,) if layer.inputs is None else layer.inputs
        yield layer, tuple(resolved(read, where, {}) for read in reads)
        before = layer.name
    entry: str | None = None
    for block in blocks:
        where = f"block {block.name!r}"
        if block.inputs is not None:
            entry = resolved(block.inputs[0], where, {})
        elif entry is None:
            raise rule(f"{where}: missing key 'inputs', required of the first block")
        for n in range(block.repeat or 1):
            local = {INPUT: entry} | {
                layer.name: _named(block, n, layer.name) for layer in block.layers
            }
            before = INPUT
            for layer in block.layers:
                reads = (before,) if layer.inputs is None else layer.inputs
                name = local[layer.name]
                inputs = tuple(resolved(read, f"layer {name!r}", local) for read in reads)
                repeated = layer.in_repetition(n, block.repeat or 1)
                yield repeated.model_copy(update={"name": name}), inputs
                before = layer.name
            entry = local[block.layers[-1].name]


def _named(block: Block, repetition: int, layer: str) -> str:
    if block.repeat is None:
        return f"{block.name}.{layer}"
    return f"{block.name}.{(block.first or 0) + repetition}.{layer}"


def _check_names(
    layers: Sequence[Operator],
    blocks: Sequence[Block],
    names: Sequence[str],
    inputs: Sequence[str],
) -> None:
    stated = {layer.name for layer in layers} | {block.name for block in blocks}
    stated |= {layer.name for block in blocks for layer in block.layers}
    for name in inputs:
        if name in stated:
            owner = "the network's input" if name == INPUT else "an input of the network"
            raise rule(f"layer {name!r}, name: is {owner}; rename the layer")
    # A block and a layer of one name would be ambiguous. Runs of blocks that are numbered may be
    # numbered as one.
    runs = {block.name for block in blocks if block.repeat is not None}
    alone = (block.name for block in blocks if block.repeat is None)
    for name, times in Counter([*names, *runs, *alone]).items():
        if times > 1:
            raise rule(f"layer {name!r}, name: should be unique, appears twice")


def _topological(sources: Sequence[tuple[int, ...]], names: Sequence[str]) -> list[int]:
    """Return the positions in topological order, ties broken by position."""
    readers: list[list[int]] = [[] for _ in sources]
    missing = [0] * len(sources)
    for reader, read in enumerate(sources):
        for source in {source for source in read if source >= 0}:
            readers[source].append(reader)
            missing[reader] += 1
    ready = [index for index, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(sources):
        cycle = " -> ".join(names[index] for index in _cycle(sources, missing))
        raise rule(f"layer: should have no cycle, got {cycle}")
    return order


def _cycle(sources: Sequence[tuple[int, ...]], missing: Sequence[int]) -> list[int]:
    """Return a cycle of layers, its first layer repeated at the end."""
    # Every missing layer reads a missing one, so following inputs ends in a cycle.
    index = next(index for index, count in enumerate(missing) if count)
    path: list[int] = []
    while index not in path:
        path.append(index)
        index = next(source for source in sources[index] if source >= 0 and missing[source])
    return [*path[path.index(index) :], index][::-1]


def _check_all_read(
    layers: Sequence[Operator], sources: Sequence[tuple[int, ...]], inputs: Sequence[str]
) -> None:
    read = {source for reads in sources for source in reads}
    for position, layer in enumerate(layers[:-1]):
        if position not in read and not layer.ends:
            raise rule(f"layer {layer.name!r}: no layer reads it; make it an 'output' or remove it")
    for number, name in enumerate(inputs[1:], start=1):
        if ~number not in read:
            raise rule(f"inputs, {shown(name)}: no layer reads it; remove it")


def _repeats(
    layers: Sequence[Operator], blocks: Sequence[Block], rank: Mapping[int, int]
) -> Iterator[Repeat]:
    start = len(layers)
    for block in blocks:
        length, count = len(block.layers), block.repeat or 1
        positions = [rank[index] for index in range(start, start + length * count)]
        # A layer outside that reads the middle of a block may come between its layers.
        first = positions[0]
        if positions == list(range(first, first + len(positions))):
            number = None if block.repeat is None else block.first or 0
            yield Repeat(block.name, first, length, count, number)
        start += length * count
