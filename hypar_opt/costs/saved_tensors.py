"""The tensors that a step keeps for its backward pass, each once, and those it computes again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from hypar_opt.workload.recomputation import repeated
from hypar_opt.workload.repeats import CONVERTED, ONCE

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.kernels import Fused
    from hypar_opt.workload.operators.saved import OwnTensor
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class SavedTensor:
    """A tensor from a forward to a backward pass.

    Parameters
    ----------
    node
        Whose choices lay it out: its writer, the shared node of a tensor with several readers, or
        of the network's input its first reader.
    shape
        Of all of it, where it is a feature map.
    reads
        Whether it is laid out as ``node`` reads its input, and not as it stores its output.
    own
        A tensor that only ``node`` has.
    """

    node: int
    shape: tuple[int, ...] = ()
    reads: bool = False
    own: OwnTensor | None = None


@dataclass(frozen=True)
class SavedTensors:
    """The tensors of a step by layer.

    Parameters
    ----------
    kept
        By the first layer that saves them.
    again
        Those that a layer's backward pass, or its block's, computes or converts again.
    """

    kept: Mapping[int, tuple[SavedTensor, ...]]
    again: Mapping[int, tuple[SavedTensor, ...]]


def saved_tensors(
    network: Network, workload: Workload, again: Mapping[int, int | None], *, fused: Fused
) -> SavedTensors:
    """Return what a training step of a network saves.

    A tensor is kept as its writer stores it, and the network's input as its first reader reads it;
    one that several layers read as it is stored for these, unless it is converted again.

    Parameters
    ----------
    again
        What is computed again, as `Repeats.again`: a block keeps what it starts from.
    fused
        What kernels do not write.

    Source: docs/decisions/0029-memory-of-a-device.md.
    """
    return _saved(network, repeated(workload, ONCE), again, fused=fused)


@lru_cache(maxsize=64)
def _saved(
    network: Network, workload: Workload, again: Mapping[int, int | None], *, fused: Fused
) -> SavedTensors:
    segment = {node: first for node, first in again.items() if first is not None}
    converted: dict[int, list[int]] = {}
    kept: dict[Hashable, tuple[int, SavedTensor]] = {}
    dropped: dict[int, dict[Hashable, SavedTensor]] = {}
    for node in range(workload.shared, len(workload.nodes)):
        inside = segment.get(node)
        saves = workload.nodes[node].operator.saves(fused=fused)
        for writer, tensor in inputs_of(network, workload, node):
            # A block keeps what it starts from, whatever its layers read of it backward.
            starts = inside is not None and segment.get(writer) != inside
            if again.get(tensor.node) == CONVERTED:
                if saves.inputs:
                    converted.setdefault(writer, []).append(node)
                as_written = SavedTensor(writer, tensor.shape)
            else:
                as_written = tensor
            if starts or (inside is None and saves.inputs):
                kept.setdefault(writer, (node, as_written))
            elif inside is not None and saves.inputs:
                dropped.setdefault(inside, {}).setdefault(writer, tensor)
        for key, tensor in _written(workload, node, fused=fused):
            if inside is not None:
                dropped.setdefault(inside, {}).setdefault(key, tensor)
            elif tensor.own is not None and node in again:
                dropped.setdefault(node, {})[key] = tensor
            else:
                kept.setdefault(key, (node, tensor))
    by_layer: dict[int, tuple[SavedTensor, ...]] = {}
    for first, tensor in kept.values():
        by_layer[first] = (*by_layer.get(first, ()), tensor)
    moments = {
        place: tuple(tensor for key, tensor in tensors.items() if key not in kept)
        for place, tensors in dropped.items()
    }
    layers = range(workload.shared, len(workload.nodes))
    at_once = {n: moments.get(segment.get(n, n), ()) for n in layers}
    for writer, readers in converted.items():
        # From the first backward pass that reads it to the last.
        for node in range(min(readers), max(readers) + 1):
            at_once[node] = (*at_once[node], stored_output(workload, writer))
    return SavedTensors(by_layer, at_once)


def inputs_of(network: Network, workload: Workload, node: int) -> Iterator[tuple[int, SavedTensor]]:
    """Yield the writer of each of a layer's inputs, `INPUT` for the network's, and its tensor.

    Ids, which have no error, are left out.
    """
    layer = workload.nodes[node]
    sources, shapes = network.sources[node - workload.shared], [layer.input, *layer.others]
    if sources and layer.others and len(sources) == 1:  # several operands side by side
        shapes = [(*layer.input[:-1], sum(shape[-1] for shape in shapes))]
    for number, source in enumerate(sources):
        if source >= 0:
            writer = source + workload.shared
            yield writer, stored_output(workload, writer)
        elif not layer.operator.reads_ids:
            yield INPUT, SavedTensor(node, shapes[number], reads=True)


INPUT = -1
"""The network's input, among the layers whose outputs tensors are."""


def stored_output(workload: Workload, writer: int) -> SavedTensor:
    """Return a layer's output as it is stored for its readers."""
    into = workload.boundary_into_shared.get(writer)
    node = writer if into is None else workload.boundaries[into].target
    return SavedTensor(node, workload.nodes[writer].pooled)


def errors_at_once(
    network: Network, workload: Workload, fused: Fused
) -> dict[SavedTensor, tuple[int, int]]:
    """Return the nodes from whose backward pass, back to which, the error of each tensor exists.

    It exists from its last reader's pass to its writer's.
    """
    last: dict[int, int] = {}
    for node in range(workload.shared, len(workload.nodes)):
        for writer, _ in inputs_of(network, workload, node):
            saves = workload.nodes[node].operator.saves(fused=fused)
            if not saves.unwritten:
                # The error of logits is the loss's own.
                last[writer] = node - bool(saves.singles)
    return {
        stored_output(workload, writer): (writer, reader)
        for writer, reader in last.items()
        if writer != INPUT
    }


def _written(
    workload: Workload, node: int, *, fused: Fused
) -> Iterator[tuple[Hashable, SavedTensor]]:
    """Yield what a layer saves besides its inputs."""
    layer = workload.nodes[node]
    saves = layer.operator.saves(fused=fused)
    if saves.output and layer.operator.fused_pool is None:
        yield node, stored_output(workload, node)
    elif saves.output:
        yield (node, "before pool"), SavedTensor(node, layer.output)
    if saves.before_activation:
        yield (node, "before activation"), SavedTensor(node, layer.output)
    for number, own in enumerate(saves.own):
        yield (node, number), SavedTensor(node, own=own)
