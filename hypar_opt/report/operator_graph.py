"""The operator graph as a drawing has it: a node a layer, repetitions that are alike drawn once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from hypar_opt.report.folding import Repetitions, local_name, ranges

INPUT = -1
"""The network's input, among a layer's sources."""


@dataclass(frozen=True)
class Box:
    """A box of the drawing.

    Parameters
    ----------
    position
        The layer's, of the first repetition where several are drawn as one; -1 for the input.
    label
        The layer's name, without its block's.
    frame
        The number of the frame that it stands in; None outside of blocks.
    """

    position: int
    label: str
    frame: int | None = None


@dataclass(frozen=True)
class Frame:
    """Neighbouring repetitions of a block that are alike, drawn as one.

    Parameters
    ----------
    block
        The block's name.
    label
        That with the repetitions' numbers: ``decoder.0-3``.
    first
        The position of the first layer of the first of them.
    length
        Layers of one repetition.
    count
        How many repetitions these are.
    """

    block: str
    label: str
    first: int
    length: int
    count: int

    @property
    def stop(self) -> int:
        """One past the position of the last layer of the last of them."""
        return self.first + self.length * self.count


@dataclass(frozen=True)
class OperatorGraph:
    """Nodes in topological order, the input first; an edge is a pair of their numbers."""

    nodes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]
    frames: tuple[Frame, ...]


def operator_graph(
    names: Sequence[str],
    sources: Sequence[Iterable[int]],
    repeats: Iterable[Repetitions],
    keys: Sequence[Hashable],
) -> OperatorGraph:
    """Return the graph of a network's layers, with repetitions that are alike as one.

    Parameters
    ----------
    names, keys
        Of each layer; repetitions are alike whose layers have the same keys.
    sources
        The positions of the layers that each layer reads; -1 is the network's input.
    repeats
        The blocks that are repeated.
    """
    frames = tuple(
        frame
        for repeat in sorted(repeats, key=lambda repeat: repeat.first)
        for frame in _frames(names, repeat, keys)
    )
    nodes = [Box(INPUT, "input")]
    number = {INPUT: 0}
    frame_of = {position: n for n, frame in enumerate(frames) for position in _all(frame)}
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
        # From a repetition to the next one, drawn in the same place, an edge would lead upwards.
        if number[source] < number[position]
    }
    return OperatorGraph(tuple(nodes), tuple(edges), frames)


def _all(frame: Frame) -> range:
    return range(frame.first, frame.stop)


def _frames(names: Sequence[str], repeat: Repetitions, keys: Sequence[Hashable]) -> list[Frame]:
    starts = [repeat.first + n * repeat.length for n in range(repeat.count + 1)]
    bodies = [tuple(keys[start : start + repeat.length]) for start in starts[:-1]]
    # Neighbours only: those between would be drawn elsewhere, and edges lead there.
    changes = [n for n in range(repeat.count) if n == 0 or bodies[n] != bodies[n - 1]]
    numbered = names[repeat.first].startswith(f"{repeat.name}.0.")
    return [
        Frame(
            repeat.name,
            f"{repeat.name}.{ranges(range(n, after))}" if numbered else repeat.name,
            starts[n],
            repeat.length,
            after - n,
        )
        for n, after in zip(changes, [*changes[1:], repeat.count], strict=True)
    ]
