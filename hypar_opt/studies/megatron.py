"""Megatron-LM's tensor parallelism as pins: which layer of a transformer is split how.

Which layer is which follows from the graph. The fully-connected layers that attention reads, and
the first of an MLP, are split by output features; attention by heads; those behind attention, and
the second of an MLP, by input features; the token embedding and the network's head by words of the
vocabulary. All else (residuals, norms, stored tensors) is left to the search, which finds
sequence parallelism there where it moves less.

Source: Shoeybi et al., "Megatron-LM", arXiv 2019, section 3; Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", MLSys 2023, for sequence parallelism.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network

_FC = ("fc", "linear")

_PASSED = ("mul", "flatten", "shuffle", "pool", "global_pool")
"""Layers that may lie between the two layers of a pair: gates and views, no residuals or norms."""


def degrees(network: Network, levels: int) -> tuple[int, ...]:
    """Return the degrees of tensor parallelism on 2^levels accelerators; none without attention."""
    if all(layer.kind != "attention" for layer in network.layers):
        return ()
    return tuple(2**k for k in range(levels + 1))


def megatron_pins(network: Network, levels: int, degree: int) -> tuple[str, ...]:
    """Return the pins of tensor parallelism at the deepest levels, inside data parallelism.

    Parameters
    ----------
    degree
        Accelerators that share a layer's weights, a power of two up to 2^levels.
    """
    outer = levels - degree.bit_length() + 1
    pins = [f"*@H{level + 1}={Parallelism.DATA}" for level in range(outer)]
    for name, word in tensor_parallelism(network).items():
        # A pin's layer is a pattern, in which a name's own brackets have to be escaped.
        pins += [f"{glob.escape(name)}@H{level + 1}={word}" for level in range(outer, levels)]
    return tuple(pins)


def tensor_parallelism(network: Network) -> dict[str, str]:
    """Return the choice of each layer that tensor parallelism splits, by the layer's name."""
    graph = _Graph.of(network)
    layers = network.layers
    words: dict[int, str] = {}
    token = _token_embedding(network)
    if token is not None:
        words[token] = "model"
    for n, layer in enumerate(layers):
        if layer.kind == "attention":
            words[n] = "heads"
            words |= dict.fromkeys(graph.before(n), "output")
            words |= dict.fromkeys(graph.behind(n), "model")
        elif layer.kind == "output" and getattr(layer, "loss", None) == "softmax":
            (head,) = network.sources[n]
            if head >= 0 and layers[head].kind in _FC:
                words |= {n: "channel", head: "output"}
    for n, layer in enumerate(layers):
        if layer.kind not in _FC or n in words:
            continue
        second = graph.behind(n)
        # An MLP's first layer, or its first two where one gates the other.
        if len(second) == 1 and words.get(second[0], "model") == "model":
            words[n], words[second[0]] = "output", "model"
    return {layers[n].name: words[n] for n in sorted(words)}


def _token_embedding(network: Network) -> int | None:
    """Return the embedding of the input's tokens; the largest table, if several read them."""
    rows = {
        n: getattr(layer, "vocabulary", None) or 0
        for n, layer in enumerate(network.layers)
        if layer.kind == "embedding" and network.sources[n]
    }
    return max(rows, key=rows.__getitem__, default=None)


@dataclass(frozen=True)
class _Graph:
    """The kinds of a network's layers, and the layers before and after each."""

    kinds: tuple[str, ...]
    sources: tuple[tuple[int, ...], ...]
    readers: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, network: Network) -> _Graph:
        readers: list[list[int]] = [[] for _ in network.layers]
        for target, reads in enumerate(network.sources):
            for source in dict.fromkeys(reads):
                if source >= 0:
                    readers[source].append(target)
        kinds = tuple(layer.kind for layer in network.layers)
        return cls(kinds, network.sources, tuple(map(tuple, readers)))

    def before(self, layer: int) -> list[int]:
        """Return the fully-connected layers whose outputs a layer reads; norms may lie between."""
        reads = [source for source in self.sources[layer] if source >= 0]
        return self._reached(reads, self.sources, (*_PASSED, "norm"))

    def behind(self, layer: int) -> list[int]:
        """Return the fully-connected layers that read a layer's output."""
        return self._reached(self.readers[layer], self.readers, _PASSED)

    def _reached(
        self, start: Iterable[int], ends: tuple[tuple[int, ...], ...], passed: tuple[str, ...]
    ) -> list[int]:
        layers, waiting = [], list(start)
        seen = set(waiting)
        while waiting:
            layer = waiting.pop()
            if self.kinds[layer] in _FC:
                layers.append(layer)
            elif self.kinds[layer] in passed:
                new = {end for end in ends[layer] if end >= 0} - seen
                seen |= new
                waiting += sorted(new)
        return sorted(layers)
