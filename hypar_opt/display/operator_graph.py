"""The operator graph to draw: one box per layer, with equal repetitions drawn once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from hypar_opt.display.folding import Repetitions, local_name, ranges


@dataclass(frozen=True)
class Box:
    """A box of the drawing, labelled with the layer's name without the block's."""

    position: int
    """That of its layer, in the first of the repetitions drawn as one; below zero for an input."""
    label: str
    frame: int | None = None
    """The number of its frame; None outside blocks."""


@dataclass(frozen=True)
class Frame:
    """Neighbouring equal repetitions of a block, drawn as one; labelled ``decoder.0-3``.

    The first layer is at position ``first``; each of ``count`` repetitions has ``length`` layers.
    """

    block: str
    label: str
    first: int
    length: int
    count: int

    @property
    def stop(self) -> int:
        """One past the position of the last layer."""
        return self.first + self.length * self.count


@dataclass(frozen=True)
class OperatorGraph:
    """Nodes in topological order, the inputs first; an edge is a pair of their numbers."""

    nodes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]
    frames: tuple[Frame, ...]


def operator_graph(
    names: Sequence[str],
    sources: Sequence[Iterable[int]],
    repeats: Iterable[Repetitions],
    keys: Sequence[Hashable],
    inputs: Sequence[str] = ("input",),
) -> OperatorGraph:
    """Return the graph of a network's layers, with equal repetitions as one.

    Parameters
    ----------
    names, keys
        The name and the key of each layer; repetitions are equal if their layers' keys are.
    sources
        The positions of the layers that each layer reads; below zero, inputs of the network.
    repeats
        The repeated blocks.
    inputs
        The names of the network's inputs, from -1 downwards.
    """
    frames = tuple(
        frame
        for repeat in sorted(repeats, key=lambda repeat: repeat.first)
        for frame in _frames(repeat, keys)
    )
    nodes = [Box(~n, name) for n, name in enumerate(inputs)]
    number = {~n: n for n in range(len(inputs))}
    frame_of = {p: n for n, frame in enumerate(frames) for p in range(frame.first, frame.stop)}
    for position, name in enumerate(names):
        n = frame_of.get(position)
        if n is None:
            number[position] = len(nodes)
            nodes.append(Box(position, name))
            continue
        frame = frames[n]
        drawn = frame.first + (position - frame.first) % frame.length
        if drawn == position:
            number[position] = len(nodes)
            nodes.append(Box(position, local_name(name, frame.block), n))
        number[position] = number[drawn]
    edges = {
        (number[source], number[position]): None
        for position, read in enumerate(sources)
        for source in read
        # An edge from a repetition to the next, drawn in the same place, would lead upwards.
        if number[source] < number[position]
    }
    return OperatorGraph(tuple(nodes), tuple(edges), frames)


def _frames(repeat: Repetitions, keys: Sequence[Hashable]) -> list[Frame]:
    starts = [repeat.first + n * repeat.length for n in range(repeat.count + 1)]
    bodies = [tuple(keys[start : start + repeat.length]) for start in starts[:-1]]
    # Neighbours only: repetitions between others are drawn elsewhere, with edges to them.
    changes = [n for n in range(repeat.count) if n == 0 or bodies[n] != bodies[n - 1]]
    return [
        Frame(
            repeat.name,
            repeat.name
            if repeat.number is None
            else f"{repeat.name}.{ranges(range(repeat.number + n, repeat.number + after))}",
            starts[n],
            repeat.length,
            after - n,
        )
        for n, after in zip(changes, [*changes[1:], repeat.count], strict=True)
    ]
