"""A plan's H1 row as the stages of a pipeline: which layers each part has, and what crosses.

A staged plan is one whose H1 row has every layer in a part of H1 (``first``, ..., ``part-9``, ...).
Along the network, with layers in topological order, parts take turns, and each run of layers in one
part is a chunk: parts 1 2 3 4 are four stages of one chunk each, parts 1 2 3 4 1 2 3 4 four stages
of two (interleaved). Between one chunk and the next a single tensor crosses a border: the output of
a layer, sent forward, and its error, sent back. Token ids cross no border: each accelerator reads
its own.

Source: Y. Huang et al., "GPipe", NeurIPS 2019; D. Narayanan et al., "Efficient large-scale language
model training on GPU clusters using Megatron-LM", SC 2021 (interleaved stages).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import HyparError, argument, nearest
from hypar_opt.workload.parallelism import PART_WORDS, part_word
from hypar_opt.workload.stages import block_starts, blocks_of_layers, check_cut

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.maps import Map


class StageBorder(NamedTuple):
    """What crosses from one chunk to the next.

    Parameters
    ----------
    writer
        The position of the layer whose output crosses: the last one before the border.
    readers
        The positions of the layers that read it, all of the next chunk.
    map
        The output, of one image or sequence, after pooling.
    """

    writer: int
    readers: tuple[int, ...]
    map: Map


class TiedWeights(NamedTuple):
    """Weights that layers of several parts share: each part holds them; gradients are summed.

    Parameters
    ----------
    owner
        The position of the layer that owns them; in most networks the embedding.
    users
        The positions of the layers that share them, such as the head at the end.
    parts
        The parts of H1 that hold them, from 0, in order; two or more.
    """

    owner: int
    users: tuple[int, ...]
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Stages:
    """A network in the stages of a pipeline.

    Parameters
    ----------
    network
    parts
        p, the parts of H1, each of which is a stage: a group of accelerators of its own.
    ends
        The position before which each chunk ends, in order; there are ``parts * chunks``, and the
        last is the number of layers. Chunk ``n`` is in part ``n % parts``.

    Raises
    ------
    HyparError
        If anything but the output of the layer before a border crosses it, naming what does.
    """

    network: Network
    parts: int
    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        count, layers = len(self.ends), len(self.network.layers)
        rising = all(first < last for first, last in pairwise((0, *self.ends)))
        if self.parts < 1 or count % self.parts or not rising or self.ends[-1:] != (layers,):
            raise ValueError(
                f"{self.ends} should end chunks of {self.parts} parts, {layers} layers"
            )
        for end in self.ends[:-1]:
            check_cut(self.network, end)

    @property
    def chunks(self) -> int:
        """v, the chunks of each part: more than one are interleaved."""
        return len(self.ends) // self.parts

    @property
    def layers(self) -> tuple[range, ...]:
        """The positions of each chunk's layers, in the order of the network."""
        return tuple(range(first, last) for first, last in pairwise((0, *self.ends)))

    def chunks_of(self, part: int) -> tuple[range, ...]:
        """Return the positions of the layers of each chunk of a part of H1, from 0."""
        return self.layers[part :: self.parts]

    @property
    def part_of_layers(self) -> tuple[int, ...]:
        """The part, from 0, of each layer."""
        return tuple(n % self.parts for n, layers in enumerate(self.layers) for _ in layers)

    @cached_property
    def borders(self) -> tuple[StageBorder, ...]:
        """What crosses each border between chunks."""
        borders, sources = [], self.network.sources
        for layers in self.layers[1:]:
            writer = layers.start - 1
            readers = tuple(n for n in layers if writer in sources[n])
            borders.append(StageBorder(writer, readers, self.network.map_of(writer)))
        return tuple(borders)

    @cached_property
    def tied(self) -> tuple[TiedWeights, ...]:
        """The weights that several parts hold, such as those of tied embeddings at both ends."""
        part = self.part_of_layers
        return tuple(
            TiedWeights(owner, users[1:], parts)
            for owner, users in self.network.weight_users.items()
            if len(parts := tuple(sorted({part[n] for n in users}))) > 1
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The blocks, or else the layers, of each chunk in short: ``decoder.0-11``, ``12-23``.

        Layers outside blocks are left out, and so is a block's name if the last chunk ended in it.
        """
        block, labels = "", list[str]()
        for stage in self.layers:
            whole = [
                (repeat.name, label)
                for repeat in self.network.repeats
                for label, layers in zip(repeat.labels, repeat.repetitions, strict=True)
                if layers.start in stage and layers[-1] in stage
            ]
            inside = len(whole) == len({*self._blocks[stage.start : stage.stop]} - {None})
            if not whole or not inside:
                names = (self.network.layers[n].name for n in (stage[0], stage[-1]))
                labels.append(" to ".join(dict.fromkeys(names)))
                block = ""
                continue
            runs = []
            for name, grouped in groupby(whole, key=lambda one: one[0]):
                numbers = [label.removeprefix(f"{name}.") for _, label in grouped]
                number = "-".join(dict.fromkeys((numbers[0], numbers[-1])))
                runs.append(number if name in (block, number) else f"{name}.{number}")
                block = name
            labels.append(", ".join(runs))
        return tuple(labels)

    @cached_property
    def _blocks(self) -> list[tuple[int, int] | None]:
        return blocks_of_layers(self.network)


def stages_of(network: Network, row: Sequence[str | None], parts: int) -> Stages | None:
    """Return the stages of a plan's H1 row; None where no layer is in a part of H1.

    Parameters
    ----------
    row
        The word of each layer's choice at H1.
    parts
        The number of parts of H1.

    Raises
    ------
    HyparError
        If some layers are in a part and others not, if layers do not visit parts in order, or if
        more than one tensor crosses; naming the layer.
    """
    staged = [word in PART_WORDS for word in row]
    if not any(staged):
        return None
    names = [layer.name for layer in network.layers]
    if not all(staged):
        n = staged.index(False)
        raise HyparError(
            f"layer {names[n]!r}, H1: should be in a part, {part_word(0)} to"
            f" {part_word(parts - 1)}, as other layers are, got {row[n]}"
        )
    runs = [[*run] for _, run in groupby(range(len(row)), key=lambda n: row[n])]
    visited = [PART_WORDS[row[run[0]] or ""] for run in runs]
    _check_visits(visited, [names[run[0]] for run in runs], parts)
    return Stages(network, parts, tuple(run[-1] + 1 for run in runs))


def _check_visits(visited: Sequence[int], names: Sequence[str], parts: int) -> None:
    """Refuse rows that do not visit parts 1, 2, ..., p in order, once or several times.

    Parameters
    ----------
    names
        The first layer of each run of layers in one part.
    """
    if [*visited] == [*range(parts), *reversed(range(parts - 1))]:
        raise HyparError(
            f"layer {names[parts]!r}, H1: stages in a V, 1 2 3 4 4 3 2 1, are not modelled; should"
            f" be in {part_word(0)}, got {part_word(visited[parts])}"
        )
    for number, (part, name) in enumerate(zip(visited, names, strict=True)):
        if part != number % parts:
            before = f" after {part_word((number - 1) % parts)}" if number else ""
            raise HyparError(
                f"layer {name!r}, H1: should be in {part_word(number % parts)}{before}: layers"
                f" visit the {parts} parts in order, got {part_word(part)}"
            )
    if len(visited) % parts:
        raise HyparError(
            f"layer {names[-1]!r}, H1: the last layers should be in {part_word(parts - 1)}, the"
            f" last of {parts} parts, got {part_word(visited[-1])}"
        )


def stage_counts(stages: int | str | None) -> list[int] | None:
    """Return the stated numbers of stages: 1 by default; None for any number.

    Raises
    ------
    HyparError
        If it is neither a positive number nor ``auto``.
    """
    if stages == "auto":
        return None
    if stages is None or (isinstance(stages, int) and stages > 0):
        return [stages or 1]
    raise HyparError(f"{argument('stages')} should be a number of stages or auto, got {stages!r}")


def even_stages(network: Network, parts: int, chunks: int = 1) -> Stages:
    """Return stages with equally many repetitions of blocks, as in Megatron-LM.

    The layers before the first block are in the first chunk, those behind the last in the last.

    Raises
    ------
    HyparError
        If parts times chunks do not divide the repetitions, or tensors skip a border.
    """
    firsts = block_starts(network)
    count = parts * chunks
    if not firsts or len(firsts) % count:
        raise HyparError(
            f"{count:,} stages of equal blocks should divide the {len(firsts):,} blocks of"
            f" {network.name}; {argument('cuts')} says where others begin"
        )
    blocks = len(firsts) // count
    return Stages(network, parts, (*firsts[blocks::blocks], len(network.layers)))


def stages_before(network: Network, parts: int, begins: Sequence[str]) -> Stages:
    """Return stages cut before some layers or repetitions of blocks, such as ``decoder.12``.

    Parameters
    ----------
    begins
        The layer or block at which each chunk but the first begins, by name, in order.

    Raises
    ------
    HyparError
        If there is none of a name, names are out of order or too few, or tensors skip a border.
    """
    positions = {layer.name: n for n, layer in enumerate(network.layers)}
    for repeat in network.repeats:
        positions |= dict(
            zip(repeat.labels, (repetition.start for repetition in repeat.repetitions), strict=True)
        )
    cuts = argument("cuts")
    for name in begins:
        if not name:
            raise HyparError(f"{cuts}: should be names of layers or blocks, got {name!r}")
        if name not in positions:
            near = nearest(name, list(positions))
            hint = f"; did you mean {near}?" if near else ""
            raise HyparError(f"{cuts}: no layer or block is called {name!r}{hint}")
    ends = (*(positions[name] for name in begins), len(network.layers))
    for name, (before, end) in zip(begins, pairwise((0, *ends)), strict=False):
        if end <= before:
            what = "what the chunk before it begins with" if end else "the network's first layer"
            raise HyparError(f"{cuts}: {name!r} should follow {what}")
    if len(ends) % parts:
        raise HyparError(
            f"{cuts}: should be one fewer than a multiple of the {parts:,} stages, got"
            f" {len(begins):,}"
        )
    return Stages(network, parts, ends)


def check_schedule(schedule: str, parts: int, micro_batches: int, chunks: int = 1) -> None:
    """Check that a schedule supports a number of chunks, and of micro-batches.

    Raises
    ------
    HyparError
        If only `1f1b` has several chunks a device, or micro-batches are no multiple of parts.
    """
    if chunks > 1 and schedule != "1f1b":
        raise HyparError(f"schedule {schedule!r} has one chunk a device, got {chunks}")
    if chunks > 1 and micro_batches % parts:
        raise HyparError(
            f"interleaved stages need micro-batches in multiples of {parts}, got {micro_batches}"
        )
