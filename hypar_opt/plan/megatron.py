"""Megatron-LM's tensor parallelism: how each layer of a transformer is split.

Layers are recognised by the graph. The fully-connected layers that attention reads, and the first
of an MLP, are split by output features; attention, and norms of its heads, by heads; those behind
attention, and the second of an MLP, by input features; the token embedding and the network's head
by words of the vocabulary. `tensor_parallelism` returns these; a strategy leaves all else
(residuals, other norms, stored tensors) to the search, which finds sequence parallelism where that
moves less. `roles` returns the choice of every node under a configuration of degrees.

Source: Shoeybi et al., "Megatron-LM", arXiv 2019, section 3; Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", MLSys 2023, for sequence parallelism.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.attention import HEADS, QUERIES, Attention
from hypar_opt.workload.operators.axes import (
    CHANNELS,
    DATA_CHOICE,
    EXPERTS,
    FALLBACK_REPLICATED,
    REPLICATED,
    TOKENS,
)
from hypar_opt.workload.operators.norm import NORMED_HEADS
from hypar_opt.workload.patterns import OTHER_LAYERS, patterns_naming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.tensors import Workload

COLUMN, ROW = "output", "model"
"""A layer split by output features, and one behind it by input features."""


def tensor_parallelism(network: Network) -> dict[str, str]:
    """Return the choice of each layer that tensor parallelism splits, by the layer's name."""
    graph = _Graph.of(network)
    layers = network.layers
    words: dict[int, str] = {}
    token = _token_embedding(network)
    if token is not None:
        # By words of the vocabulary; with all tables that are the same weights.
        shared = getattr(layers[token], "tied", None) or layers[token].name
        words |= {
            n: ROW
            for n, layer in enumerate(layers)
            if layer.reads_ids and shared in (layer.name, getattr(layer, "tied", None))
        }
    for n, layer in enumerate(layers):
        if HEADS in layer.splits.values():
            words[n] = HEADS.word
            words |= dict.fromkeys(graph.before(n), COLUMN)
            words |= dict.fromkeys(graph.behind(n), ROW)
        elif NORMED_HEADS in layer.splits.values():
            words[n] = NORMED_HEADS.word
        elif getattr(layer, "loss", None) == "softmax":
            (head,) = network.sources[n]
            if head >= 0 and layers[head].axes.is_matrix_product:
                words |= {n: CHANNELS.word, head: COLUMN}
    for n, layer in enumerate(layers):
        if not layer.axes.is_matrix_product or n in words:
            continue
        second = graph.behind(n)
        # An MLP's first layer, or its first two where one gates the other.
        if len(second) == 1 and words.get(second[0], ROW) == ROW:
            words[n], words[second[0]] = COLUMN, ROW
    return {layers[n].name: words[n] for n in sorted(words)}


class Role(NamedTuple):
    """The choice of a node at the levels of each dimension of a configuration; data is by batch.

    Parameters
    ----------
    cp
        At levels of context parallelism.
    tp, sp
        At levels of tensor parallelism, without sequence parallelism and with it.
    ep
        At levels of expert parallelism; None for the choice at the levels that it borrows.
    kv_heads, below
        Key-value heads, and the choice at the inner levels of tensor parallelism that has more
        parts than these: each head is replicated over those of the inner levels. 0 and "" of
        layers without, and where a problem does not split queries.
    """

    cp: str
    tp: str
    sp: str
    ep: str | None = None
    kv_heads: int = 0
    below: str = ""


@lru_cache(maxsize=64)
def roles(network: Network, workload: Workload) -> tuple[Role, ...]:
    """Return the role of every node: the tensors and weights that layers share, then the layers.

    What tensor parallelism does not split is whole, or split by token with sequence parallelism. A
    tensor with several readers is stored as column-parallel layers read it, gathered once, if one
    is among its readers. Experts are column- and row-parallel like the layers of an MLP.

    Parameters
    ----------
    workload
        Of the network, with shared tensors as nodes, and with `whole` among its choices where a
        layer has no other word for it.
    """
    shared, names = workload.shared, [layer.name for layer in network.layers]
    split, experts = _with_experts(network)
    replicated = _below_heads(network) if QUERIES.word in workload.choices else {}
    sizes = [
        size
        for word, row in zip(workload.choices, workload.split_sizes.tolist(), strict=True)
        if word == TOKENS.word
        for size in row
    ]
    readers: dict[int, list[str]] = {node: [] for node in range(shared)}
    for boundary in workload.boundaries:
        if boundary.source < shared <= boundary.target:
            readers[boundary.source].append(names[boundary.target - shared])

    def role(node: int, word: str | None, *, gathered: bool = False, by_expert: bool) -> Role:
        words = workload.words[node]
        whole = REPLICATED.word if REPLICATED.word in words else DATA_CHOICE.word
        several = bool(sizes) and sizes[node] > 1 and TOKENS.word in words
        tokens = TOKENS.word if several else whole
        ep = EXPERTS.word if by_expert and EXPERTS.word in words else None
        return Role(tokens, word or whole, word or (whole if gathered else tokens), ep)

    def of_tensor(node: int, writer: str) -> Role:
        inside = split.get(writer) in (COLUMN, HEADS.word, CHANNELS.word)
        return role(
            node,
            CHANNELS.word if inside else None,
            gathered=any(split.get(name) == COLUMN for name in readers[node]),
            by_expert=not experts.isdisjoint(readers[node]),
        )

    layers = [
        role(node, split.get(name), by_expert=name in experts)._replace(
            **replicated.get(node - shared, {})
        )
        for node, name in enumerate(names, shared)
    ]
    tensors = {
        node: of_tensor(node, names[writer - shared])
        for node, writer in workload.tensor_writers.items()
    }
    # Shared weights are split as by the layers that use them: never by token.
    weights = {
        node: layers[min(users) - shared]._replace(cp=DATA_CHOICE.word)
        for node, users in workload.weight_users.items()
    }
    return (*(pair for _, pair in sorted((tensors | weights).items())), *layers)


def _with_experts(network: Network) -> tuple[dict[str, str], set[str]]:
    """Return the words of `tensor_parallelism`, experts and gates; and experts with gates."""
    split, experts = tensor_parallelism(network), set[str]()
    for layer, sources in zip(network.layers, network.sources, strict=True):
        reads = [network.layers[n].name if n >= 0 else "" for n in sources]
        inside = bool(reads) and {split.get(name) for name in reads} <= {COLUMN, CHANNELS.word}
        if EXPERTS in layer.splits.values() and layer.axes.weight:
            split[layer.name] = ROW if inside else COLUMN
            experts.add(layer.name)
        elif inside and CHANNELS in layer.splits.values() and not layer.axes.weight:
            split.setdefault(layer.name, CHANNELS.word)
            if experts.issuperset(reads):
                experts.add(layer.name)
    return split, experts


def _below_heads(network: Network) -> dict[int, dict[str, Any]]:
    """Return fields of `Role`, by position, for levels below one key-value head per part.

    Attention splits the queries of a head. Projections that it alone reads as keys or values, and
    their norms, are whole; other writers of these are split as above, and gathered.
    """
    fields: dict[int, dict[str, Any]] = {}
    readers = defaultdict[int, list[int]](list)
    for n, sources in enumerate(network.sources):
        for source in {source for source in sources if source >= 0}:
            readers[source].append(n)
    for n, layer in enumerate(network.layers):
        if not isinstance(layer, Attention) or QUERIES not in layer.splits.values():
            continue
        fields[n] = {"kv_heads": layer.kv_heads, "below": QUERIES.word}
        query, *keys = network.sources[n]
        whole = {**fields[n], "below": FALLBACK_REPLICATED.word}
        before = [(n, source) for source in {*keys} - {query} if source >= 0]
        for reader, source in before:
            writer = network.layers[source]
            is_norm = NORMED_HEADS in writer.splits.values()
            if readers[source] == [reader] and (is_norm or writer.axes.is_matrix_product):
                fields[source] = whole
                before += [(source, read) for read in network.sources[source] if is_norm]
    return fields


def gathered_again(network: Network) -> Mapping[str, str] | None:
    """Return words for ``gather``: the tensors of which Megatron-LM keeps a shard.

    Those that several column-parallel layers read: a norm's output, split by token, read by
    queries, keys and values, or by a gate and what it gates. None if there are none.
    """
    words = tensor_parallelism(network)
    readers = Counter(
        source
        for layer, sources in zip(network.layers, network.sources, strict=True)
        for source in {*sources}
        if words.get(layer.name) == COLUMN
    )
    writers = {source for source, count in readers.items() if source >= 0 and count > 1}
    if not writers:
        return None
    names = [layer.name for layer in network.layers]
    patterns = patterns_naming([names[n] for n in sorted(writers)], names)
    return FrozenDict({OTHER_LAYERS: "once", **dict.fromkeys(sorted(patterns), "again")})


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
        """Return the fully-connected layers whose outputs a layer reads, perhaps through norms."""
        reads = [source for source in self.sources[layer] if source >= 0]
        return self._reached(reads, self.sources, norms=True)

    def behind(self, layer: int) -> list[int]:
        """Return the fully-connected layers that read a layer's output."""
        return self._reached(self.readers[layer], self.readers, norms=False)

    def _reached(
        self, start: Iterable[int], ends: tuple[tuple[int, ...], ...], *, norms: bool
    ) -> list[int]:
        """Return fully-connected layers reached through gates, views and perhaps norms only."""
        products, waiting = [], list(start)
        seen = set(waiting)
        while waiting:
            position = waiting.pop()
            layer = self.layers[position]
            if layer.axes.is_matrix_product:
                products.append(position)
            elif (
                CHANNELS in layer.choices.values()
                and not layer.merges
                and (norms or not layer.axes.weight)
            ):
                new = {end for end in ends[position] if end >= 0} - seen
                seen |= new
                waiting += sorted(new)
        return sorted(products)
