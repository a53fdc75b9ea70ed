"""How a step trains, in words: micro-batches, recomputation, shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypar_opt.workload.patterns import words_by_layer
from hypar_opt.workload.recomputation import recomputed_words, segments

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.patterns import Words


_UNIFORM = {
    "micro_batches": "{:,} micro-batches",
    "recompute": "{} recomputation",
    "shard": "{} sharded",
}


def trained(options: Mapping[str, int | Words], network: Network) -> str:
    """Return how a step of a network trains, given what is not the default.

    Words by layer are counted: of blocks, layers with an inner tensor, and layers with weights.
    """
    parts = []
    for name, value in options.items():
        if isinstance(value, int | str):
            parts.append(_UNIFORM[name].format(value))
        else:
            parts += (_again if name == "recompute" else _shards)(value, network)
    return ", ".join(parts)


def _again(words: Words, network: Network) -> list[str]:
    by_layer, blocks = recomputed_words(network, words), segments(network)
    inner = [n for n, layer in enumerate(network.layers) if layer.inner]
    fully = sum(by_layer[block.start] == "full" for block in blocks)
    selectively = sum(by_layer[n] == "selective" for n in inner)
    parts = [f"selective recomputation in {selectively} of {len(inner)} layers"] * bool(selectively)
    return parts + [f"full recomputation of {fully} of {len(blocks)} blocks"] * bool(fully)


def _shards(words: Words, network: Network) -> list[str]:
    names = [layer.name for layer in network.layers]
    by_layer = zip(names, words_by_layer(words, names, "shard"), strict=True)
    weighty = {row["name"] for row in network.rows() if row["weights"]}
    counts = Counter(word or "none" for name, word in by_layer if name in weighty)
    sharded = [(word, count) for word, count in counts.most_common() if word != "none"]
    if len(counts) == 1 and sharded:
        return [_UNIFORM["shard"].format(sharded[0][0])]
    total = counts.total()
    return [f"{word} sharded in {count} of {total} layers" for word, count in sharded]
