"""What a backward pass recomputes, and the workload of a step that repeats passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError, argument
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.early_stop import reads_back
from hypar_opt.workload.patterns import OTHER_LAYERS, Words, matching, words_by_layer
from hypar_opt.workload.repeats import CONVERTED, EPILOGUE, INPUTS, PASS, SINGLE_PASS, Repeats
from hypar_opt.workload.shards import Shards, shards_of

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.kernels import Fused
    from hypar_opt.workload.tensors import Workload


OF_BLOCKS = ("full", "op")
"""The words for recomputation of whole blocks, the most recomputed first."""


@lru_cache(maxsize=64)
def with_repeats(workload: Workload, repeats: Repeats) -> Workload:
    """Return a workload whose passes are repeated; cached, so equal arguments give one object."""
    if workload.repeats == repeats:
        return workload
    once = workload if workload.repeats == SINGLE_PASS else workload.single_pass
    assert once is not None
    return once if repeats == SINGLE_PASS else replace(once, repeats=repeats, single_pass=once)


def repeats_of(
    network: Network,
    workload: Workload,
    micro_batches: int,
    recompute: Words | None,
    shard: Words | None,
    gather: Words | None = None,
    reduced: int = 1,
    *,
    fused: Fused,
) -> Repeats:
    """Return how often a step repeats the passes of a network's tensors.

    Parameters
    ----------
    recompute, shard, gather
        A word for all layers, or words by layer; none applies to layers that are not named.
    reduced
        As in `Repeats`.
    fused
        What kernels do not write.

    Raises
    ------
    HyparError
        If a named layer does not exist, or layers that share weights shard them differently.
    """
    again: FrozenDict[int, int | None] = FrozenDict()
    sharded: FrozenDict[int, Shards] = FrozenDict()
    blocks: list[tuple[int, ...]] = []
    if recompute is not None:
        layers = recomputed_words(network, recompute)
        again = recomputed(network, workload, layers, fused=fused)
        blocks = [
            tuple(workload.shared + n for n in block if not network.layers[n].ends)
            for block in segments(network)
            if "op" in layers[block.start : block.stop]
        ]
    block_of = {node: block[0] for block in blocks for node in block}
    by_op = recomputed_by_op(workload, block_of, fused=fused)
    if gather is not None:
        writers = workload.tensor_writers.items()
        excluded = {*again, *(node for node, writer in writers if writer in block_of)}
        again = FrozenDict(again | _converted(network, workload, gather, excluded, fused=fused))
    if shard is not None:
        names = [layer.name for layer in network.layers]
        words = words_by_layer(with_tied(network, shard), names, "shard")
        sharded = _sharded(workload, words)
    blocks = [block for block in blocks if not by_op.keys().isdisjoint(block)]
    return Repeats(micro_batches, sharded, again, reduced, by_op, tuple(blocks))


def _converted(
    network: Network,
    workload: Workload,
    gather: Words,
    excluded: Collection[int],
    *,
    fused: Fused,
) -> dict[int, int]:
    """Return the shared tensors that are gathered again without recomputation.

    They are those that a backward pass reads and that do not cross a block's border, unless their
    block is recomputed.

    Parameters
    ----------
    excluded
        The tensors of recomputed blocks.
    """
    words = words_by_layer(gather, [layer.name for layer in network.layers], "gather")
    block_of = {n: number for number, block in enumerate(segments(network)) for n in block}
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for boundary in workload.boundaries:
        readers[boundary.source].append(boundary.target)
    converted = {}
    for node, writer in workload.tensor_writers.items():
        blocks = {block_of.get(n - workload.shared) for n in (writer, *readers[node])}
        saved = (workload.nodes[n].operator.saves(fused=fused).inputs for n in readers[node])
        stated = words[writer - workload.shared] == "again" and node not in excluded
        if stated and len(blocks) == 1 and any(saved):
            converted[node] = CONVERTED
    return converted


def with_tied(network: Network, shard: Words | None) -> Words | None:
    """Return words that name every layer that shares weights with a named one.

    So the default for other layers does not apply to them.
    """
    if shard is None or isinstance(shard, str):
        return shard
    names = [layer.name for layer in network.layers]
    named = {n for pattern in shard if pattern != OTHER_LAYERS for n in matching(names, pattern)}
    words = words_by_layer(shard, names, "shard")
    sharing: defaultdict[str, list[int]] = defaultdict(list)
    for n, layer in enumerate(network.layers):
        sharing[getattr(layer, "tied", None) or layer.name].append(n)
    more: dict[str, str] = {}
    for layers in sharing.values():
        stated = {word for n in layers if n in named and (word := words[n])}
        if len(stated) == 1:
            more |= dict.fromkeys((names[n] for n in layers if n not in named), stated.pop())
    return FrozenDict({**shard, **more}) if more else shard


def repetitions(network: Network) -> tuple[range, ...]:
    """Return the layers of each repetition of the network's blocks."""
    return tuple(layers for block in network.repeats for layers in block.repetitions)


def units_of(network: Network, workload: Workload) -> tuple[range, ...]:
    """Return the units: nodes whose weights are gathered, and gradients reduced, together.

    Each repetition of a block is a unit, and the layers outside all blocks are one more, the root;
    without blocks each layer is a unit.

    Source: PyTorch, ``torch.distributed.fsdp.fully_shard``, applied to each block and the model.
    """
    layers = [range(layer, layer + 1) for layer in range(len(network.layers))]
    return tuple(
        range(unit.start + workload.shared, unit.stop + workload.shared)
        for unit in repetitions(network) or layers
    )


def segments(network: Network) -> tuple[range, ...]:
    """Return the segments of layers that full recomputation runs again together.

    Each repetition of a block is a segment; without blocks all layers but the last are one.
    """
    if blocks := repetitions(network):
        return blocks
    inside = [n for n, layer in enumerate(network.layers) if not layer.ends]
    whole = range(inside[0], inside[-1] + 1) if inside else range(0)
    return (whole,) if whole else ()


def recomputed_words(network: Network, recompute: Words | None) -> list[str | None]:
    """Return what is recomputed of each layer; a block follows its most recomputed layer.

    Raises
    ------
    HyparError
        If a named layer does not exist, or is in no block although whole blocks are recomputed.
    """
    names = [layer.name for layer in network.layers]
    words = words_by_layer(recompute, names, "recompute")
    blocks = segments(network)
    inside = {n for block in blocks for n in block}
    if not isinstance(recompute, str | None):
        for pattern, word in recompute.items():
            if (
                word in OF_BLOCKS
                and pattern != OTHER_LAYERS
                and inside.isdisjoint(matching(names, pattern))
            ):
                raise HyparError(
                    f"{argument('recompute')}: {pattern!r} names no layer of a block, whose layers"
                    " are computed again together"
                )
    for block in blocks:
        for word in OF_BLOCKS:  # a block recomputed as a whole overrides its layers' lesser words
            if word in words[block.start : block.stop]:
                words[block.start : block.stop] = [word] * len(block)
    return [
        "none" if word in OF_BLOCKS and n not in inside else word for n, word in enumerate(words)
    ]


def in_blocks_only(words: Mapping[str, str], in_blocks: Collection[str]) -> dict[str, str]:
    """Return words by layer without those of whole blocks of layers that are in no block.

    Such a word has no effect, and is refused where it is stated of one layer.
    """
    return {
        name: "none" if word in OF_BLOCKS and name not in in_blocks else word
        for name, word in words.items()
    }


def recomputed(
    network: Network, workload: Workload, words: Sequence[str | None], *, fused: Fused
) -> FrozenDict[int, int | None]:
    """Return the nodes whose forward pass runs twice, as in `Repeats.recomputed`.

    ``full``: the nodes of each repetition of a block; a shared tensor is stored again by its
    writer. ``selective`` and ``op``: the nodes with a large inner tensor, such as attention's
    scores if kernels write them.

    Parameters
    ----------
    words
        By layer.
    """
    shared = workload.shared
    again: dict[int, int | None] = {
        shared + n: shared + block.start
        for block in segments(network)
        for n in block
        if words[n] == "full" and not network.layers[n].ends
    }
    if again:
        written = workload.tensor_writers.items()
        again |= {node: again[writer] for node, writer in written if writer in again}
    if not fused.attention:
        for n, (layer, word) in enumerate(zip(network.layers, words, strict=True)):
            if word in ("selective", "op") and layer.inner:
                again[shared + n] = None
    return FrozenDict(sorted(again.items()))


def recomputed_by_op(
    workload: Workload,
    block_of: Mapping[int, int],
    *,
    fused: Fused,
    trained: Sequence[bool] | None = None,
) -> FrozenDict[int, str]:
    """Return what is recomputed of the nodes of blocks that keep their products' results.

    As in `Repeats.by_op`. A block keeps its input and the results of matrix products (of weights,
    attention, and experts) after the reduction of partial sums; from these its backward pass
    recomputes what else it reads: norms, activations, gates, residual sums. What layers outside the
    block read in their backward pass is kept, so that the result does not depend on how other
    blocks train.

    Parameters
    ----------
    block_of
        The first layer of each such node's block.
    trained
        The nodes that have a backward pass; all by default.

    Source: torchtitan, ``distributed/activation_checkpoint.py``, of matrix products, attention and
    reduce-scatters, each or every second; MaxText, ``remat_policy: minimal_with_context``; JAX,
    ``jax.checkpoint_policies.dots_saveable``.
    """
    if not block_of:
        return FrozenDict()
    writers, readers = workload.tensor_writers, defaultdict[int, list[int]](list)
    for edge in workload.boundaries:
        if not edge.weights and edge.target >= workload.shared:
            readers[writers.get(edge.source, edge.source)].append(edge.target)
    tensors = {writer: node for node, writer in writers.items()}
    words: dict[int, str] = {}
    for node in sorted(block_of, reverse=True):
        operator = workload.nodes[node].operator
        saves, passes_back = operator.saves(fused=fused), trained is None or trained[node]
        stored = dropped = False
        for reader in readers[node]:
            saved = workload.nodes[reader].operator.saves(fused=fused).inputs
            reads = saved and reads_back(workload, reader, node, trained)
            if block_of.get(reader) == block_of[node]:
                dropped |= reads or words.get(reader) == PASS
            else:
                stored |= reads
        dropped &= not stored
        if not operator.sums:
            of_its_own = saves.output or saves.before_activation or bool(saves.intermediates)
            if dropped or (passes_back and of_its_own):
                words[node] = PASS
        elif not operator.leaves_addends and (dropped or (passes_back and saves.output)):
            words[node] = EPILOGUE
        elif saves.inputs and passes_back:
            words[node] = INPUTS
        if dropped and node in tensors and words.get(node) in (PASS, EPILOGUE):
            words[tensors[node]] = PASS
    return FrozenDict(sorted(words.items()))


def _sharded(workload: Workload, layers: Sequence[str | None]) -> FrozenDict[int, Shards]:
    """Return how nodes' weights are sharded, as in `Repeats.sharded`; all users must agree."""
    of_node = dict(enumerate(layers, workload.shared))
    for node, users in workload.weight_users.items():
        words = {of_node[user] for user in users} - {None}
        if len(words) > 1:
            names = " and ".join(workload.nodes[user].name for user in users)
            raise HyparError(
                f"{argument('shard')}: {names} share weights, and are sharded differently"
            )
        of_node |= dict.fromkeys((node, *users), next(iter(words), None))
    shards = ((node, shards_of(word)) for node, word in sorted(of_node.items()) if word)
    return FrozenDict((node, split) for node, split in shards if split != Shards())
