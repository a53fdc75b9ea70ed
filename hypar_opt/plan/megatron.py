"""Megatron-LM's tensor parallelism: which layer of a transformer is split how.

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
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.attention import HEADS
from hypar_opt.workload.operators.axes import CHANNELS
from hypar_opt.workload.patterns import EVERY, matching

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator


def tensor_parallelism(network: Network) -> dict[str, str]:
    """Return the choice of each layer that tensor parallelism splits, by the layer's name."""
    graph = _Graph.of(network)
    layers = network.layers
    words: dict[int, str] = {}
    token = _token_embedding(network)
    if token is not None:
        words[token] = "model"
    for n, layer in enumerate(layers):
        if HEADS in layer.splits.values():
            words[n] = HEADS.word
            words |= dict.fromkeys(graph.before(n), "output")
            words |= dict.fromkeys(graph.behind(n), "model")
        elif getattr(layer, "loss", None) == "softmax":
            (head,) = network.sources[n]
            if head >= 0 and layers[head].axes.is_matrix_product:
                words |= {n: "channel", head: "output"}
    for n, layer in enumerate(layers):
        if not layer.axes.is_matrix_product or n in words:
            continue
        second = graph.behind(n)
        # An MLP's first layer, or its first two where one gates the other.
        if len(second) == 1 and words.get(second[0], "model") == "model":
            words[n], words[second[0]] = "output", "model"
    return {layers[n].name: words[n] for n in sorted(words)}


def gathered_again(network: Network) -> Mapping[str, str] | None:
    """Return which tensors Megatron-LM keeps a shard of and gathers again, by words for ``gather``.

    Those that several layers read which tensor parallelism splits by output: queries, keys and
    values of a norm by tokens, or a gate and what it gates. None if there are none.
    """
    words = tensor_parallelism(network)
    readers = Counter(
        source
        for layer, sources in zip(network.layers, network.sources, strict=True)
        for source in {*sources}
        if words.get(layer.name) == "output"
    )
    writers = {source for source, count in readers.items() if source >= 0 and count > 1}
    if not writers:
        return None
    names = [layer.name for layer in network.layers]
    # Of all repetitions of a block at once, where that names no others.
    patterns = {re.sub(r"[.]\d+[.]", ".*.", glob.escape(names[n])) for n in writers}
    if {n for pattern in patterns for n in matching(names, pattern)} != writers:
        patterns = {names[n] for n in writers}
    return FrozenDict({EVERY: "once", **dict.fromkeys(sorted(patterns), "again")})


def _token_embedding(network: Network) -> int | None:
    """Return the embedding of the input's tokens; the largest table, if several read them."""
    rows = {
        n: getattr(layer, "vocabulary", None) or 0
        for n, layer in enumerate(network.layers)
        if layer.reads_ids and network.sources[n]
    }
    return max(rows, key=rows.__getitem__, default=None)


@dataclass(frozen=True)
class _Graph:
    """A network's layers, and those before and after each."""

    layers: tuple[Operator, ...]
    sources: tuple[tuple[int, ...], ...]
    readers: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, network: Network) -> _Graph:
        readers: list[list[int]] = [[] for _ in network.layers]
        for target, reads in enumerate(network.sources):
            for source in dict.fromkeys(reads):
                if source >= 0:
                    readers[source].append(target)
        return cls(network.layers, network.sources, tuple(map(tuple, readers)))

    def before(self, layer: int) -> list[int]:
        """Return the fully-connected layers whose outputs a layer reads; norms may lie between."""
        reads = [source for source in self.sources[layer] if source >= 0]
        return self._reached(reads, self.sources, norms=True)

    def behind(self, layer: int) -> list[int]:
        """Return the fully-connected layers that read a layer's output."""
        return self._reached(self.readers[layer], self.readers, norms=False)

    def _reached(
        self, start: Iterable[int], ends: tuple[tuple[int, ...], ...], *, norms: bool
    ) -> list[int]:
        """Return fully-connected layers with only gates, views and perhaps norms between."""
        found, waiting = [], list(start)
        seen = set(waiting)
        while waiting:
            position = waiting.pop()
            layer = self.layers[position]
            if layer.axes.is_matrix_product:
                found.append(position)
            elif (
                CHANNELS in layer.choices.values()
                and not layer.merges
                and (norms or not layer.axes.weight)
            ):
                new = {end for end in ends[position] if end >= 0} - seen
                seen |= new
                waiting += sorted(new)
        return sorted(found)
