"""Training settings in words: micro-batches, recomputation, shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypar_opt.plan.degrees import data_parallelism_below
from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.patterns import words_by_layer
from hypar_opt.workload.recomputation import OF_BLOCKS, recomputed_words, segments
from hypar_opt.workload.shards import shards_of

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.patterns import Words


_UNIFORM = {
    "micro_batches": "{:,} micro-batches",
    "gather": "shared tensors gathered {}",
    "reduce_bytes": "gradients of {} bytes",
    "schedule": "{}",
}
_LEVELS = {"op": "op-level"}
_SHARDED = {
    "state": "optimizer state sharded (ZeRO-1)",
    "gradients": "gradients sharded (ZeRO-2)",
    "weights": "weights sharded (ZeRO-3)",
    "state+weights": "optimizer state and weights sharded (ZeRO++)",
}


def recomputation(word: str) -> str:
    """Return what a word for recomputation means: ``op-level recomputation``."""
    return f"{_LEVELS.get(word, word)} recomputation"


def sharding(word: str) -> str:
    """Return what a word for shards means, if it names no levels."""
    return _SHARDED[word]


def trained(options: Mapping[str, int | Words], plan: Plan) -> str:
    """Return how a step of a plan trains, given what is not the default.

    Words by layer are counted: of blocks, layers with an inner tensor, and layers with weights.
    """
    parts, network = [], plan.network.description
    for name, value in options.items():
        if name == "shard" and not isinstance(value, int):
            parts += _shards(value, plan)
        elif name == "recompute" and isinstance(value, str):
            parts.append(recomputation(value))
        elif isinstance(value, int | str):
            parts.append(_UNIFORM[name].format(value))
        elif name == "gather":
            parts.append(f"tensors of {_gathering(value, network)} gathered again")
        else:
            parts += _again(value, network)
    return ", ".join(parts)


def _again(words: Words, network: Network) -> list[str]:
    by_layer, blocks = recomputed_words(network, words), segments(network)
    inner = [n for n, layer in enumerate(network.layers) if layer.inner]
    selectively = sum(by_layer[n] == "selective" for n in inner)
    parts = [f"selective recomputation in {selectively} of {len(inner)} layers"] * bool(selectively)
    for word in OF_BLOCKS:
        if count := sum(by_layer[block.start] == word for block in blocks):
            parts.append(f"{recomputation(word)} of {count} of {len(blocks)} blocks")
    return parts


def _gathering(words: Words, network: Network) -> str:
    names = [layer.name for layer in network.layers]
    count = sum(word == "again" for word in words_by_layer(words, names, "gather"))
    return f"{count} {'layer' if count == 1 else 'layers'}"


def _shards(words: Words, plan: Plan) -> list[str]:
    if isinstance(words, str):
        return [_split(words, plan)]
    network = plan.network.description
    names = [layer.name for layer in network.layers]
    by_layer = zip(names, words_by_layer(words, names, "shard"), strict=True)
    weighty = {row["name"] for row in network.rows() if row["weights"]}
    counts = Counter(word or "none" for name, word in by_layer if name in weighty)
    sharded = [(word, count) for word, count in counts.most_common() if word != "none"]
    if len(counts) == 1 and sharded:
        return [_split(sharded[0][0], plan)]
    total = counts.total()
    return [f"{_split(word, plan)} in {count} of {total} layers" for word, count in sharded]


def _split(word: str, plan: Plan) -> str:
    """Return what is sharded, and over which parts: ``over 8 inside the nodes, state over 64``.

    Sharded weights imply sharded gradients, and these a sharded state.
    """
    shards = shards_of(word)
    if not shards.by_level:
        return sharding(word)
    begins = {first: name for name, first in zip(SHARDED[1:], shards, strict=True)}
    levels = sorted(
        ((first, name) for first, name in begins.items() if first is not None), reverse=True
    )
    over = [(name, data_parallelism_below(plan, first)) for first, name in levels]
    # In one part nothing is split.
    (largest, parts), *rest = [entry for entry in over if entry[1] != "1"] or over
    largest = "optimizer state" if largest == "state" else largest
    return f"{largest} sharded over {parts}" + "".join(f", {name} over {n}" for name, n in rest)
