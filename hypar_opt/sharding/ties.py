"""Which channels of what a layer reads and writes belong together, so that a split keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.attention import Attention
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.elementwise import Concat, Flatten, Shuffle
    from hypar_opt.workload.operators.maps import LayerMaps

    Indices = NDArray[np.intp]

INPUT = -1
"""The network's input, where positions of layers stand."""


class Axis(NamedTuple):
    """An axis that a level may halve: the channels of a tensor, or the rows of a table.

    Parameters
    ----------
    layer
        The position in `Network.layers` of the layer whose output it is, after pooling; `INPUT`.
    rows
        The rows of an embedding's table, in place of its output's features.
    """

    layer: int
    rows: bool = False


class Tie(NamedTuple):
    """Indices of two axes that have one label, pair by pair."""

    left: Axis
    left_indices: Indices
    right: Axis
    right_indices: Indices


def ties_of(network: Network, position: int) -> Iterator[Tie]:
    """Yield the ties between what a layer reads and writes, where it splits its channels.

    Convolutions in one group, fully-connected layers, and embeddings have none: their choices
    split either side alone.
    """
    layer, maps = network.layers[position], list(network.maps())[position]
    sources = [Axis(source) for source in network.sources[position]]
    output = Axis(position)
    if layer.kind in ("fc", "embedding", "shuffle"):
        return
    if layer.kind == "conv":
        groups = getattr(layer, "groups", None) or 1
        if groups > 1:
            for axis, channels in (
                (sources[0], maps.input.channels),
                (output, maps.output.channels),
            ):
                yield _in_parts(output, axis, np.arange(channels) // (channels // groups), maps)
        return
    if layer.kind == "attention":
        yield from _of_heads(cast("Attention", layer), maps, sources, output)
        return
    start = 0
    for axis, read in zip(sources, (maps.input, *maps.others), strict=True):
        own = np.arange(read.channels)
        written = own
        if layer.kind == "concat" and cast("Concat", layer).axis == "channels":
            written, start = start + own, start + read.channels
        elif layer.kind == "flatten" and cast("Flatten", layer).to == "features":
            own = flattened(own, read.positions, tokens=bool(read.tokens))
            written = np.arange(len(own))
        yield Tie(axis, own, output, written)


def flattened(of_channels: Indices, positions: int, *, tokens: bool) -> Indices:
    """Return for each feature of a flattened map what its channel has."""
    # An image is flattened channel by channel, a sequence token by token.
    return np.tile(of_channels, positions) if tokens else np.repeat(of_channels, positions)


def dealt(shuffle: Operator, channels: int) -> Indices:
    """Return the channel that a shuffle reads for each that it writes."""
    groups = cast("Shuffle", shuffle).groups
    return np.arange(channels).reshape(groups, -1).T.reshape(-1)


def _in_parts(output: Axis, axis: Axis, part: Indices, maps: LayerMaps) -> Tie:
    """Tie each index of an axis to the first channel of its part of the output."""
    size = maps.output.channels // (int(part.max()) + 1)
    return Tie(axis, np.arange(len(part)), output, part * size)


def _of_heads(
    layer: Attention, maps: LayerMaps, sources: Sequence[Axis], output: Axis
) -> Iterator[Tie]:
    """Yield ties of all features of a key-value head and of the queries that see it."""
    heads = layer.heads
    shared = layer.kv_heads or heads
    features = maps.output.channels
    query = np.repeat(np.arange(shared), heads // shared)
    one = np.arange(shared)
    parts = [query, one, one] if maps.others else [np.concatenate([query, one, one])]
    for axis, read, part in zip(sources, (maps.input, *maps.others), parts, strict=True):
        yield _in_parts(output, axis, np.repeat(part, read.channels // len(part)), maps)
    yield _in_parts(output, output, np.arange(features) // (features // shared), maps)
