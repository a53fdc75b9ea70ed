"""Pipeline stages: where a network may be cut, and the network of one device.

A network may be cut behind a layer if only its output crosses the cut. Token ids are available in
all stages, and weights that stages share are stored in each of them.

Source: Y. Huang et al., "GPipe", NeurIPS 2019; D. Narayanan et al., SC 2021, whose devices have
several chunks of a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
    from collections.abc import Hashable

    from hypar_opt.workload.expansion import Repeat
    from hypar_opt.workload.operators.base import Operator

RECEIVED, SENT = "received", "sent"
"""The names of a stage's messages; each further chunk adds an apostrophe."""

_NAMED = 2
"""The maximum number of crossing tensors that an error message names."""


class Message(Weightless):
    """A tensor that a stage receives (its error is sent back), or sends (its error is received)."""

    kind: Literal["message"]

    ends: ClassVar[bool] = True

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        return NOTHING_RUNS


def cuts(network: Network) -> tuple[int, ...]:
    """Return where a network may be cut, as the positions of the layers behind the cuts.

    Only the output of the layer before the cut (and ids) crosses it, and that is not routed tokens.
    In a network of residual blocks, cuts are behind the additions.
    """
    return tuple(end for end in range(1, len(network.layers)) if _fault(network, end) is None)


def cuts_between_blocks(network: Network) -> tuple[int, ...]:
    """Return the `cuts` that are not inside a repetition of a block."""
    blocks = blocks_of_layers(network)
    return tuple(
        end for end in cuts(network) if blocks[end] is None or blocks[end] != blocks[end - 1]
    )


def blocks_of_layers(network: Network) -> list[tuple[int, int] | None]:
    """Return the block and the repetition, by number, of each layer; None outside blocks."""
    blocks: list[tuple[int, int] | None] = [None] * len(network.layers)
    for block, repeat in enumerate(network.repeats):
        for number, layers in enumerate(repeat.repetitions):
            blocks[layers.start : layers.stop] = [(block, number)] * len(layers)
    return blocks


def block_starts(network: Network) -> list[int]:
    """Return the position of the first layer of each repetition of a block, in order."""
    return sorted(layers.start for repeat in network.repeats for layers in repeat.repetitions)


def kinds_of_layers(network: Network) -> tuple[int, ...]:
    """Return the position of the first layer equal to each one, so that equal stages are seen.

    Layers are equal if they have one place in a repeated block and the same maps (which may grow
    from one repetition to the next, and differ in experts' loads). Layers outside blocks, and the
    first and the last layer, equal no other.
    """
    kinds, maps = [*range(len(network.layers))], [*network.maps()]
    first: dict[Hashable, int] = {}
    for number, block in enumerate(network.repeats):
        for repetition in block.repetitions:
            for place, layer in enumerate(repetition):
                if layer not in (0, len(kinds) - 1):
                    kinds[layer] = first.setdefault((number, place, maps[layer]), layer)
    return tuple(kinds)


@lru_cache(maxsize=16)
def _crossing(network: Network) -> tuple[tuple[int, ...], ...]:
    """Return the sources that are read across the border behind each layer but the last.

    Inputs of the network are negative, as in `Network.sources`; ids are left out.
    """
    last_reader: dict[int, int] = {}
    for position, (layer, reads) in enumerate(zip(network.layers, network.sources, strict=True)):
        if not layer.reads_ids:
            last_reader.update(dict.fromkeys(reads, position))
    crossing = {source for source in last_reader if source < 0}
    borders = []
    for position, reads in enumerate(network.sources[:-1]):
        crossing -= {source for source in reads if last_reader.get(source) == position}
        crossing |= {position} & last_reader.keys()
        borders.append(tuple(sorted(crossing)))
    return tuple(borders)


def _fault(network: Network, end: int) -> str | None:
    """Return why a network may not be cut before a layer; None if it may."""
    names, crossing = network.source_names, _crossing(network)[end - 1]
    if crossing == (end - 1,):
        if not any(-1 in reads for reads in network.sources[:end]):
            return f"no layer before it reads {INPUT!r}"
        routed = isinstance(network.map_of(end - 1), ExpertMap | LogitMap)
        return "it reads routed tokens" if routed else None
    shown = [
        f"{'input' if source < 0 else 'the output of'} {names[source]!r}"
        for source in crossing[:_NAMED]
    ]
    more = [f"{len(crossing) - _NAMED} more"] if len(crossing) > _NAMED else []
    crosses = " and ".join((*shown, *more)) or "nothing"
    output = f"the output of {names[end - 1]!r}"
    return f"{crosses} would cross; {output} should, and nothing else"


def check_cut(network: Network, end: int) -> None:
    """Check that a network may be cut before a layer.

    Raises
    ------
    HyparError
        If a tensor other than the output of the layer before it crosses there, or if that output is
        routed tokens.
    """
    fault = _fault(network, end)
    if fault is not None:
        raise HyparError(
            f"layer {network.layers[end].name!r}, H1: no stage can begin here, as {fault}"
        )


def stage_of(network: Network, chunks: Sequence[range]) -> Network:
    """Return the network of one device: its chunks, with messages received and sent as layers.

    Blocks stay blocks, and layers keep their names. Of weights shared with other stages a device
    has a copy, which its layers outside blocks share.

    Parameters
    ----------
    chunks
        The positions of the layers of each, which begin and end at `cuts`.

    Raises
    ------
    HyparError
        If a chunk does not begin and end at a cut.
    """
    return _Device(network, chunks).network


def message_writers(network: Network, chunks: Sequence[range]) -> dict[str, int]:
    """Return the position of the layer that writes each message of a stage, by message name.

    Parameters
    ----------
    chunks
        As for `stage_of`.
    """
    return _Device(network, chunks).writers


class _Device:
    """The network of a device under construction, as a description."""

    def __init__(self, whole: Network, chunks: Sequence[range]) -> None:
        self._whole = whole
        self._positions = {position for chunk in chunks for position in chunk}
        self._taken = {*whole.source_names}
        self._names = dict(enumerate(whole.source_names))
        self._names |= {~n: name for n, name in enumerate(whole.input_names)}
        """The name of each source; a layer of another stage goes by its message."""
        names = [*whole.input_names]
        read = {source for position in self._positions for source in whole.sources[position]}
        self._inputs = {name: whole.input_of(~n) for n, name in enumerate(names) if ~n in read}
        self._messages: list[dict[str, Any]] = []
        self.writers: dict[str, int] = {}
        """The writer of each message."""
        for chunk in chunks:
            if chunk.start:
                check_cut(whole, chunk.start)
                self._receive(chunk.start - 1)
        for chunk in chunks:
            if chunk.stop < len(whole.layers):
                check_cut(whole, chunk.stop)
                self._add_message(SENT, whole.layers[chunk.stop - 1].name, chunk.stop - 1)

    def _receive(self, writer: int) -> None:
        over, layers = self._whole.map_of(writer), self._whole.layers
        assert not isinstance(over, ExpertMap)  # no cut is there
        tensor = INPUT
        if tensor in self._inputs:
            tensor = self._unused(f"tensor of {layers[writer].name}")
        images = any(layers[n].reads_images for n in self._positions)
        self._inputs[tensor] = _input(over, images=images)
        self._names[writer] = self._add_message(RECEIVED, tensor, writer)

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
        layers: list[Operator] = [Message.model_validate(message) for message in self._messages]
        layers += [
            self._alone(self._with_reads(whole.layers[n], n), sorted(self._positions - inside))
            for n in sorted(self._positions - inside)
        ]
        further = {name: entry for name, entry in self._inputs.items() if name != INPUT}
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
        """Yield the repetitions of blocks on the device, and the positions of their layers."""
        stated = {
            (block.name, block.repeat and (block.first or 0)): block
            for block in self._whole.blocks or ()
        }
        for repeat in self._whole.repeats:
            block = stated[repeat.name, repeat.number]
            there = [self._positions.issuperset(layers) for layers in repeat.repetitions]
            for is_there, run in groupby(range(repeat.count), there.__getitem__):
                if is_there:
                    first, *rest = run
                    numbers = range(first, first + 1 + len(rest))
                    yield (
                        self._repetitions(block.repetitions(numbers), repeat, first),
                        [n for number in numbers for n in repeat.repetitions[number]],
                    )

    def _repetitions(self, block: Block, repeat: Repeat, first: int) -> Block:
        """Return consecutive repetitions of a block, from ``first`` on, with their inputs."""
        positions = repeat.repetitions[first]
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
        return block.model_copy(update=update)

    def _with_reads(self, layer: Operator, position: int) -> Operator:
        reads = tuple(self._names[source] for source in self._whole.sources[position])
        return layer.model_copy(update={"inputs": reads})

    def _alone(self, layer: Operator, positions: Sequence[int] = ()) -> Operator:
        """Return a layer with its own copy of weights whose owner is in another stage.

        Parameters
        ----------
        positions
            Of the layers with which it shares the weights.
        """
        owner, layers = layer.shares_weights_with, self._whole.layers
        if owner is None or owner in {layers[n].name for n in self._positions}:
            return layer
        users = [layers[n] for n in positions if layers[n].shares_weights_with == owner]
        # An embedding may only name an embedding as the owner.
        first = min(users, key=lambda user: not user.reads_ids, default=layer)
        return layer.model_copy(update={"tied": None if first.name == layer.name else first.name})


def _input(over: FeatureMap | TokenMap, *, images: bool) -> Input:
    """Return a map as an input of a network, one pixel as an image where layers read images."""
    if isinstance(over, TokenMap):
        return TokenInput(tokens=over.tokens, features=over.channels)
    if over.positions == 1 and not images:
        return VectorInput(features=over.channels)
    return ImageInput(channels=over.channels, height=over.height, width=over.width)
