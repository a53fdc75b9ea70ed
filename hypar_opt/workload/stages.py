"""Stages of a network: where it may be cut, and the network of what one device has of it.

A network is cut behind a tensor that alone crosses: all layers before the cut read nothing behind
it, and those behind it read of those before only that tensor. A network's inputs are there in all
stages, and weights that stages share in each of them.

Source: Y. Huang et al., "GPipe", NeurIPS 2019; D. Narayanan et al., SC 2021, whose devices have
several chunks of a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from hypar_opt.documents.document import validate
from hypar_opt.errors import HyparError
from hypar_opt.workload.blocks import Block
from hypar_opt.workload.expansion import INPUT
from hypar_opt.workload.network import (
    SCHEMA,
    ImageInput,
    Input,
    Network,
    TokenInput,
    VectorInput,
)
from hypar_opt.workload.operators.kernels import NOTHING_RUNS, Fused, PassesKernels
from hypar_opt.workload.operators.maps import ExpertMap, FeatureMap, LogitMap, TokenMap
from hypar_opt.workload.operators.weightless import Weightless

if TYPE_CHECKING:
    from hypar_opt.workload.expansion import Repeat
    from hypar_opt.workload.operators.base import Operator

RECEIVED, SENT = "received", "sent"
"""The names of a stage's messages; of further chunks with their number behind it."""


class Message(Weightless):
    """A tensor that a stage receives, and whose error it sends back; or the other way round."""

    kind: Literal["message"]

    ends: ClassVar[bool] = True

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        return NOTHING_RUNS


class Cut(NamedTuple):
    """A place between two layers of a network where a stage may end.

    Parameters
    ----------
    layer
        The position of the first layer behind it.
    writer
        The position of the layer whose output crosses.
    """

    layer: int
    writer: int


def cuts(network: Network) -> tuple[Cut, ...]:
    """Return the places where a network may be cut, in order; inside of no repeated block."""
    inside = {
        position
        for block in network.repeats
        for repetition in block.repetitions
        for position in repetition[1:]
    }
    places = range(1, len(network.layers))
    crossing = _crossing(network)
    return tuple(
        Cut(place, *crossing[place])
        for place in places
        if place not in inside and len(crossing[place]) == 1
    )


def cut_before(network: Network, layer: int) -> Cut:
    """Return the cut before a layer.

    Raises
    ------
    HyparError
        If more than one tensor crosses there, naming two, or none does.
    """
    writers = _crossing(network)[layer]
    if len(writers) == 1:
        return Cut(layer, *writers)
    name = network.layers[layer].name
    if not writers:
        raise HyparError(f"a stage cannot begin with layer {name!r}: no layer before it is read")
    several = " and ".join(repr(network.layers[writer].name) for writer in writers[-2:])
    raise HyparError(
        f"a stage cannot begin with layer {name!r}: the outputs of {several} are read behind it"
    )


def _crossing(network: Network) -> list[list[int]]:
    """Return the layers before each layer that it, or one behind it, reads, in order."""
    last: dict[int, int] = {}
    for reader, reads in enumerate(network.sources):
        last.update((source, reader) for source in reads if source >= 0)
    crossing: list[list[int]] = [[] for _ in network.layers]
    for writer, reader in last.items():
        for place in range(writer + 1, reader + 1):
            crossing[place].append(writer)
    return [sorted(writers) for writers in crossing]


def stage_of(network: Network, chunks: Sequence[range]) -> Network:
    """Return the network of one device: its chunks, with what they receive and send as layers.

    Blocks stay blocks, and layers keep their names. Of weights that other stages share a device has
    its own.

    Parameters
    ----------
    chunks
        The positions of the layers of each, which begin and end at `cuts`.

    Raises
    ------
    HyparError
        If what is between two layers is no cut.
    """
    return _Stage(network, chunks).network


def message_writers(network: Network, chunks: Sequence[range]) -> dict[str, int]:
    """Return the position of the layer whose output each message of a stage is, by its name.

    Parameters
    ----------
    chunks
        As for `stage_of`.
    """
    return _Stage(network, chunks).writers


class _Stage:
    """The parts of a device's network, as a description has them."""

    def __init__(self, whole: Network, chunks: Sequence[range]) -> None:
        self._whole = whole
        self._positions = {position for chunk in chunks for position in chunk}
        self._taken = {*whole.source_names}
        self._names = dict(enumerate(whole.source_names))
        self._names |= {~n: name for n, name in enumerate(whole.input_names)}
        """What each source is called: a layer of another stage by its message."""
        names = [*whole.input_names]
        read = {source for position in self._positions for source in whole.sources[position]}
        self._inputs = {name: whole.input_of(~n) for n, name in enumerate(names) if ~n in read}
        self._messages: list[dict[str, Any]] = []
        self.writers: dict[str, int] = {}
        """The layer whose output each message is."""
        for chunk in chunks:
            if chunk.start:
                self._receive(cut_before(whole, chunk.start))
        for chunk in chunks:
            if chunk.stop < len(whole.layers):
                writer = cut_before(whole, chunk.stop).writer
                self._add_message(SENT, whole.layers[writer].name, writer)

    def _receive(self, cut: Cut) -> None:
        over, layers = self._whole.map_of(cut.writer), self._whole.layers
        if isinstance(over, ExpertMap | LogitMap):
            name = layers[cut.layer].name
            raise HyparError(f"a stage cannot begin with layer {name!r}: it reads routed tokens")
        tensor = INPUT
        if tensor in self._inputs:
            tensor = self._unused(f"tensor of {layers[cut.writer].name}")
        self._inputs[tensor] = _input(over)
        self._names[cut.writer] = self._add_message(RECEIVED, tensor, cut.writer)

    def _add_message(self, name: str, reads: str, writer: int) -> str:
        name = self._unused(name)
        self._messages.append({"name": name, "kind": "message", "inputs": (reads,)})
        self.writers[name] = writer
        return name

    def _unused(self, name: str) -> str:
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name

    @property
    def network(self) -> Network:
        """The device's network."""
        whole, blocks = self._whole, [*self._blocks()]
        inside = {position for _, positions in blocks for position in positions}
        layers: list[Operator] = [Message.model_validate(own) for own in self._messages]
        layers += [
            self._alone(self._with_reads(whole.layers[n], n))
            for n in sorted(self._positions - inside)
        ]
        further = {name: own for name, own in self._inputs.items() if name != INPUT}
        described: dict[str, Any] = {
            "schema": SCHEMA,
            "name": whole.name,
            "source": whole.source,
            "input": self._inputs[INPUT],
            "layer": layers,
            "element_type": whole.element_type,
        }
        described |= {"inputs": further} if further else {}
        described |= {"block": [block for block, _ in blocks]} if blocks else {}
        return validate(Network, described)

    def _blocks(self) -> Iterator[tuple[Block, list[int]]]:
        """Yield repetitions of blocks that are there, and the positions of their layers."""
        stated = {
            (own.name, own.repeat and (own.first or 0)): own for own in self._whole.blocks or ()
        }
        for repeat in self._whole.repeats:
            block = stated[repeat.name, repeat.number]
            there = [self._positions.issuperset(own) for own in repeat.repetitions]
            for is_there, run in groupby(range(repeat.count), there.__getitem__):
                if is_there:
                    numbers = [*run]
                    yield (
                        self._repetitions(block, repeat, numbers),
                        [n for own in numbers for n in repeat.repetitions[own]],
                    )

    def _repetitions(self, block: Block, repeat: Repeat, numbers: Sequence[int]) -> Block:
        """Return some repetitions of a block, which keep their numbers."""
        positions = repeat.repetitions[numbers[0]]
        local = {INPUT, *(layer.name for layer in block.layers)}
        layers, entries = [], []
        for position, layer in zip(positions, block.layers, strict=True):
            reads = layer.inputs or ((INPUT,) if position == positions[0] else ())
            sources = self._whole.sources[position]
            entries += [n for read, n in zip(reads, sources, strict=False) if read == INPUT]
            if layer.inputs:
                named = zip(layer.inputs, sources, strict=True)
                reads = tuple(read if read in local else self._names[n] for read, n in named)
                layer = layer.model_copy(update={"inputs": reads})
            layers.append(self._alone(layer))
        update: dict[str, Any] = {"layers": tuple(layers)}
        update |= {"inputs": (self._names[entries[0]],)} if entries else {}
        if block.repeat is not None:
            first = (block.first or 0) + numbers[0]
            update |= {"repeat": len(numbers), "first": first or None}
        return block.model_copy(update=update)

    def _with_reads(self, layer: Operator, position: int) -> Operator:
        reads = tuple(self._names[source] for source in self._whole.sources[position])
        return layer.model_copy(update={"inputs": reads})

    def _alone(self, layer: Operator) -> Operator:
        """Return a layer with weights of its own, if those that it shares are another stage's."""
        owner = layer.shares_weights_with
        if owner is None or owner in {self._whole.layers[n].name for n in self._positions}:
            return layer
        return layer.model_copy(update={"tied": None})


def _input(over: FeatureMap | TokenMap) -> Input:
    """Return a map as an input of a network."""
    if isinstance(over, TokenMap):
        return TokenInput(tokens=over.tokens, features=over.channels)
    if over.positions == 1:
        return VectorInput(features=over.channels)
    return ImageInput(channels=over.channels, height=over.height, width=over.width)
