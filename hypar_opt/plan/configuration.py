"""Configurations that frameworks for training run: degrees, micro-batches, ZeRO, recomputation.

Source: `hypar_opt.plan.megatron` for which layer is split how; Liu et al., "Ring Attention with
Blockwise Transformers", 2023, for context parallelism; Lepikhin et al., "GShard", ICLR 2021, for
experts; Rajbhandari et al., "ZeRO", SC 2020, and Zhao et al., "PyTorch FSDP", VLDB 2023, for what
data parallelism shards.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, combinations_with_replacement, product, zip_longest
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.errors import HyparError, argument
from hypar_opt.frozen import FrozenDict
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.integers import divisors
from hypar_opt.plan.megatron import COLUMN, ROW, Role, roles
from hypar_opt.plan.stages import Stages, even_stages
from hypar_opt.plan.stored_layouts import stored_layouts
from hypar_opt.plan.training import Training
from hypar_opt.sharding.weights import shared_weights
from hypar_opt.workload.layer_tensors import tensors_of
from hypar_opt.workload.operators.attention import HEADS, QUERIES, Attention
from hypar_opt.workload.operators.axes import (
    CHANNELS,
    DATA_CHOICE,
    EXPERTS,
    FALLBACK_REPLICATED,
    TOKENS,
)
from hypar_opt.workload.parallelism import CHOICES, PART_WORDS, SHARDED, WHOLE_LAYER
from hypar_opt.workload.patterns import OTHER_LAYERS, words_by_layer
from hypar_opt.workload.recomputation import recomputed_words, segments
from hypar_opt.workload.shards import Shards, renumbered_words, shards_of
from hypar_opt.workload.stages import block_starts
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.patterns import Words
    from hypar_opt.workload.tensors import Workload

HYBRID = "state+weights"
"""Weights are sharded over `dp_shard`, the optimizer's state over `dp_replicate`, too (ZeRO++)."""


class Configuration(NamedTuple):
    """The degrees of a mesh of accelerators, and the training settings of a step on it.

    The levels of the hierarchy are, H1 first: ``pp``, ``dp_replicate``, ``dp_shard``, ``cp``,
    ``tp``. ``ep`` borrows the innermost parts of ``dp_shard`` and ``cp``, as in torchtitan,
    Megatron-LM and DeepSpeed.

    Parameters
    ----------
    dp_replicate
        Data parallelism that replicates weights.
    dp_shard
        Data parallelism over which, with the parts of ``cp``, ``zero`` shards.
    cp
        Context parallelism: parts of each sequence.
    tp
        Tensor parallelism.
    ep
        Expert parallelism.
    sp
        Sequence parallelism: whether what tensor parallelism leaves whole is split by token.
    micro_batches
        The equal parts of the batch that are processed one after the other.
    recompute
        What the backward pass recomputes: one of `RECOMPUTED`.
    blocks
        The number of blocks that are recomputed, from the first of the network, or with stages of
        each chunk; None for all.
    zero
        What data parallelism shards: a word of ``--shard``, or ``state+weights``: weights and
        gradients over ``dp_shard``, the optimizer's state over ``dp_replicate``, too (ZeRO++).
    pp
        Pipeline parallelism: stages.
    interleave
        The chunks of a stage; more than one are interleaved.
    cuts
        The number of blocks in each chunk, in order; empty if all are equal.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    sp: bool = True
    micro_batches: int = 1
    recompute: str = "none"
    blocks: int | None = None
    zero: str = "none"
    pp: int = 1
    interleave: int = 1
    cuts: tuple[int, ...] = ()

    @property
    def devices(self) -> int:
        """The number of accelerators."""
        return self.pp * self.dp_replicate * self.dp_shard * self.cp * self.tp

    @property
    def inside(self) -> Configuration:
        """The configuration of each of its stages."""
        return self._replace(pp=1, interleave=1, cuts=())


DIMENSIONS = Configuration._fields[:4]
"""The dimensions of a mesh in a stage, the outermost first."""


class Levels(NamedTuple):
    """The dimension of each level, H1 first, and whether expert parallelism borrows the level."""

    dimensions: tuple[str, ...]
    experts: tuple[bool, ...]


def levels_of(configuration: Configuration, sizes: Sequence[int]) -> Levels:
    """Return the dimensions of a configuration at levels with some numbers of parts.

    Raises
    ------
    HyparError
        If a degree is no product of the parts of consecutive levels, naming it and what would be
        right.
    """
    dimensions: list[str] = []
    for name in reversed(("pp", *DIMENSIONS)):
        rest = sizes[: len(sizes) - len(dimensions)]
        count = _innermost(rest, getattr(configuration, name), name)
        dimensions += [name] * count
    dimensions.reverse()
    if len(dimensions) < len(sizes):
        raise HyparError(
            f"{argument('degrees')} should have {prod(sizes):,} accelerators in all, got"
            f" {configuration.devices:,}"
        )
    lent = [level for level, name in enumerate(dimensions) if name in ("dp_shard", "cp")]
    count = _innermost([sizes[level] for level in lent], configuration.ep, "ep")
    borrowed = lent[len(lent) - count :]
    return Levels(tuple(dimensions), tuple(n in borrowed for n in range(len(sizes))))


def _innermost(sizes: Sequence[int], degree: int, name: str) -> int:
    """Return how many levels, from the innermost, have as many parts as a degree."""
    suffixes = [prod(sizes[len(sizes) - count :]) for count in range(len(sizes) + 1)]
    if degree not in suffixes:
        raise HyparError(
            f"{argument('degrees')}: {name} should be the parts of inner levels,"
            f" {', '.join(map(str, suffixes))}, got {degree}"
        )
    return suffixes.index(degree)


@lru_cache(maxsize=16)
def choices_of_configurations(network: Network, *, kv_replicated: bool = False) -> tuple[str, ...]:
    """Return the choices of a problem that has all configurations of a network among its plans.

    Parameters
    ----------
    kv_replicated
        With the choices of tensor parallelism of more parts than key-value heads.
    """
    splits = [layer.splits.values() for layer in network.layers]
    # Layers that split tokens may read images or vectors.
    of = zip(network.layers, network.maps(), strict=True)
    by_token = any(
        TOKENS in layer.splits.values() and tensors_of(layer, maps, 1).has(TOKENS)
        for layer, maps in of
    )
    more = [TOKENS.word] if by_token else []
    layers = zip(network.layers, splits, strict=True)
    more += (
        [EXPERTS.word]
        if any(EXPERTS in splits_of_layer and x.axes.weight for x, splits_of_layer in layers)
        else []
    )
    replicates = any(QUERIES in splits_of_layer for splits_of_layer in splits) and kv_replicated
    more += [QUERIES.word] if replicates else []
    choices = (*CHOICES, *more, WHOLE_LAYER)
    workload = workload_of(network, 1, choices, shared_tensors=True)
    # For kinds that are not whole under any other choice.
    whole = any(
        FALLBACK_REPLICATED.word in role and choices[-1] == FALLBACK_REPLICATED
        for role, choices in zip(roles(network, workload), workload.choices_of_nodes, strict=True)
    )
    return choices if whole else choices[:-1]


@lru_cache(maxsize=16)
def key_value_heads(network: Network) -> int:
    """Return the key-value heads of the attention that has the fewest; 0 without attention."""
    layers = zip(network.layers, network.maps(), strict=True)
    heads = (layer.sizes(maps)["g"] for layer, maps in layers if isinstance(layer, Attention))
    return min(heads, default=0)


def words_of(
    configuration: Configuration, by_node: Sequence[Role], sizes: Sequence[int]
) -> list[tuple[str, ...]]:
    """Return the word of every node's choice at each level, ``(levels, nodes)``.

    Parameters
    ----------
    by_node
        As `hypar_opt.plan.megatron.roles` returns them.
    sizes
        The parts of each level.
    """
    dimensions, experts = levels_of(configuration, sizes)
    rows = []
    for level, (dimension, borrowed) in enumerate(zip(dimensions, experts, strict=True)):
        key = "sp" if dimension == "tp" and configuration.sp else dimension
        words = [getattr(role, key, DATA_CHOICE.word) for role in by_node]
        if dimension == "tp":
            inner = prod(sizes[level:])
            words = [
                role.below if 0 < role.kv_heads * inner <= configuration.tp else word
                for role, word in zip(by_node, words, strict=True)
            ]
        if borrowed:
            words = [role.ep or word for role, word in zip(by_node, words, strict=True)]
        rows.append(tuple(words))
    return rows


def rows_of(
    configuration: Configuration, network: Network, workload: Workload, hierarchy: Hierarchy
) -> list[tuple[int, ...]]:
    """Return the choices of all nodes as columns, ``(levels, nodes)``, H1 first.

    Parameters
    ----------
    workload
        Of the network, with shared tensors as nodes and `choices_of_configurations`.

    Raises
    ------
    HyparError
        As `levels_of`.
    """
    levels = words_of(configuration, roles(network, workload), hierarchy.sizes)
    return [_columns(words, workload) for words in levels]


@lru_cache(maxsize=256)
def _columns(words: tuple[str, ...], workload: Workload) -> tuple[int, ...]:
    """Return the choices of all nodes at a level, as columns."""
    row = [0] * len(words)
    for node, word in enumerate(words):
        if node not in workload.weight_users:
            row[node] = workload.words[node].index(word)
    for node, column in shared_weights(workload, row).items():
        row[node] = column
    return tuple(row)


def training_of(
    configuration: Configuration,
    network: Network,
    hierarchy: Hierarchy,
    stated: Training = Training(),  # noqa: B008
) -> Training:
    """Return a configuration's training; ``gather`` and ``reduce_bytes`` are taken from ``stated``.

    Raises
    ------
    HyparError
        If the network has fewer blocks than are recomputed.
    """
    recompute: str | dict[str, str] = configuration.recompute
    blocks = blocks_of(network)
    count = configuration.blocks
    if count is not None and not 0 <= count <= len(blocks):
        raise HyparError(
            f"{argument('recompute')}: {network.name} has {len(blocks)} blocks, got {count}"
        )
    if count is not None and count < len(blocks):
        recompute = dict.fromkeys(blocks[:count], configuration.recompute) | {OTHER_LAYERS: "none"}
    if configuration.pp > 1 and recompute != "none":
        recompute = dict.fromkeys(_first_of_chunks(configuration, network), configuration.recompute)
        recompute |= {OTHER_LAYERS: "none"}
    zero, levels = configuration.zero, hierarchy.levels
    # From the first level below the replicas.
    dimensions = levels_of(configuration, hierarchy.sizes).dimensions
    top = dimensions.count("pp")
    first = top + dimensions.count("dp_replicate")
    if zero == HYBRID:
        shards = Shards(top, first, first)
    else:
        stage = SHARDED.index(zero)
        shards = Shards(*(first if number < stage else None for number in range(3)))
    return Training.model_validate(
        {
            **stated.stated,
            "micro_batches": configuration.micro_batches,
            "recompute": recompute,
            "shard": shards.word(levels),
        }
    )


def stages_of_configuration(configuration: Configuration, network: Network) -> Stages:
    """Return the stages of a configuration of a network.

    Raises
    ------
    HyparError
        If blocks are not as many as the configuration says, or cannot be cut there.
    """
    parts, cuts = configuration.pp, configuration.cuts
    if not cuts:
        return even_stages(network, parts, configuration.interleave)
    firsts = block_starts(network)
    if len(cuts) != parts * configuration.interleave or sum(cuts) != len(firsts) or 0 in cuts:
        raise HyparError(
            f"cuts: should be {parts * configuration.interleave} numbers of blocks,"
            f" {len(firsts)} in all, got {'+'.join(map(str, cuts))}"
        )
    begins = [firsts[number] for number in accumulate(cuts[:-1])]
    return Stages(network, parts, (*begins, len(network.layers)))


def _first_of_chunks(configuration: Configuration, network: Network) -> list[str]:
    """Return the patterns of the blocks of each chunk that are recomputed."""
    blocks = sorted(
        (layers.start, label)
        for repeat in network.repeats
        for label, layers in zip(repeat.labels, repeat.repetitions, strict=True)
    )
    return [
        glob.escape(label)
        for chunk in stages_of_configuration(configuration, network).layers
        for label in [label for first, label in blocks if first in chunk][: configuration.blocks]
    ]


def trains_as(
    configuration: Configuration, network: Network, hierarchy: Hierarchy, stated: Training
) -> bool:
    """Return whether a configuration's training agrees with all that is stated.

    Parameters
    ----------
    hierarchy
        The hierarchy of the whole array, to whose levels words refer; the topmost may be stages.
    """
    if not stated.stated:
        return True
    if configuration.pp > 1:
        if stated.recompute is not None and configuration.blocks is not None:
            return False  # of each chunk
        merged = hierarchy.merged(configuration.pp)
        assert merged is not None
        below = Hierarchy(merged.sizes[1:])
        above = hierarchy.levels - below.levels
        shard = None if stated.shard is None else renumbered_words(stated.shard, -above)
        stated = stated.model_copy(update={"shard": shard})
        return trains_as(configuration.inside, network, below, stated)
    training = training_of(configuration, network, hierarchy, stated)
    return stated.stated.items() <= training.stated.items()


def is_named(configuration: Configuration) -> bool:
    """Return whether a configuration's degrees and shards have a name among frameworks.

    Data parallelism, and Megatron-LM's tensor parallelism inside it, with any of ZeRO's stages, of
    which the last is FSDP; and HSDP.
    """
    dp_replicate, _, cp, tp, ep = configuration[:5]
    zeros, tensor = (SHARDED, tp) if dp_replicate == 1 else (SHARDED[-1:], 1)
    alone = configuration.pp == cp == ep == 1
    return alone and tp == tensor and configuration.zero in zeros


def blocks_of(network: Network) -> list[str]:
    """Return the patterns of the network's blocks, in order: what full recomputation repeats."""
    return [glob.escape(label) for block in network.repeats for label in block.labels]


class Limits(NamedTuple):
    """What the degrees of a network's configurations have to divide.

    Distinct sizes are by name, as ``8 key-value heads of decoder.0.attention``.

    Parameters
    ----------
    tensor
        Heads and features of blocks that tensor parallelism splits; empty where it splits nothing.
        With each size the key-value heads that may be replicated instead, and the heads that tensor
        parallelism then splits; 0 for none.
    context
        Tokens that context parallelism splits; twice them where they are mirrored, for a causal
        mask. None where the network has no attention.
    sequence
        Tokens that sequence parallelism splits.
    experts
        Experts of layers that have them.
    batch
        The sequences, or images, of a step.
    inner
        The parts of inner levels together, over which key-value heads may be replicated.
    """

    network: str
    tensor: Mapping[str, tuple[int, int, int]]
    context: Mapping[str, tuple[int, int]]
    sequence: Mapping[str, int]
    experts: Mapping[str, int]
    batch: int
    inner: tuple[int, ...]

    def fault(self, configuration: Configuration) -> str | None:
        """Return why the network has no such configuration, naming the degree; None if it has."""
        return self.fault_in_degrees(configuration) or self.fault_in_training(configuration)

    def fault_in_degrees(self, configuration: Configuration) -> str | None:
        """Return what is wrong with the degrees and sequence parallelism alone."""
        if configuration.tp > 1 and not self.tensor:
            return (
                "tp needs attention, or fully-connected layers of which one reads the other,"
                f" and {self.network} has none"
            )
        if configuration.cp > 1 and not self.context:
            return f"cp needs attention, and {self.network} has none"
        if configuration.ep > 1 and not self.experts:
            return f"ep needs experts, and {self.network} has none"
        sp = configuration.tp if configuration.sp else 1
        parts = configuration.cp * sp
        for name, (size, kv_heads, heads) in self.tensor.items():
            several = [
                kv_heads * n for n in sorted(self.inner) if kv_heads and not heads % (kv_heads * n)
            ]
            if size % configuration.tp and configuration.tp not in several:
                more = f", or be {' or '.join(map(str, several))}" if several and heads else ""
                return f"tp: {configuration.tp} should divide the {name}{more}"
        dividing = (
            *(
                ("cp", configuration.cp * two, size, name)
                for name, (size, two) in self.context.items()
                if configuration.cp > 1
            ),
            *(("cp x tp", parts, size, name) for name, size in self.sequence.items()),
            *(("ep", configuration.ep, size, name) for name, size in self.experts.items()),
        )
        for degree, count, size, name in dividing:
            if size % count:
                return f"{degree}: {count} should divide the {name}"
        if configuration.ep > configuration.dp_shard * configuration.cp:
            max_ep = configuration.dp_shard * configuration.cp
            return f"ep should be at most dp_shard x cp = {max_ep}, got {configuration.ep}"
        if self.experts and configuration.tp > 1 and not configuration.sp:
            return "sp: experts with tensor parallelism need sequence parallelism"
        if configuration.tp == 1 and not configuration.sp:
            return "sp: without tensor parallelism there is no sequence parallelism to turn off"
        return None

    def fault_in_training(self, configuration: Configuration) -> str | None:
        """Return what is wrong with micro-batches and what is sharded."""
        parts = configuration.dp_replicate * configuration.dp_shard * configuration.micro_batches
        if self.batch % parts:
            return f"dp x micro_batches: {parts} should divide the batch of {self.batch}"
        words = shardings_of(configuration)
        if configuration.zero not in words:
            return f"zero should be {' or '.join(words)} of these degrees, got {configuration.zero}"
        return None


def check(configuration: Configuration, network: Network, problem: ProblemFields) -> None:
    """Check that a network has a configuration on a problem's accelerators.

    Raises
    ------
    HyparError
        Naming the degree, and what it should be.
    """
    levels_of(configuration, problem.hierarchy.sizes)
    limits = limits_of(network, problem, kv_replicated=True)
    fault = limits.fault(configuration)
    if fault is None and problem.inference:
        once = configuration.micro_batches, configuration.recompute, configuration.zero
        if once != (1, "none", "none"):
            fault = "a step of inference has no micro-batches, recomputation or shards"
    if fault is not None:
        raise HyparError(f"{argument('degrees')}: {fault}")


def shardings_of(configuration: Configuration) -> tuple[str, ...]:
    """Return what configurations with some degrees may shard: with replicas, at least weights."""
    several = configuration.dp_shard * configuration.cp > 1
    if configuration.dp_replicate == 1:
        return SHARDED if several else SHARDED[:1]
    return (SHARDED[-1], HYBRID) if several else ()


@lru_cache(maxsize=16)
def limits_of(
    network: Network,
    problem: ProblemFields,
    *,
    kv_replicated: bool = False,
) -> Limits:
    """Return what the degrees of a network's configurations have to divide.

    Parameters
    ----------
    problem
        Its batch and hierarchy are used.
    kv_replicated
        Whether tensor parallelism may have more parts than key-value heads, and replicate these.
    """
    choices = choices_of_configurations(network, kv_replicated=kv_replicated)
    workload = workload_of(network, 1, choices, shared_tensors=True)
    inside_blocks = {n for block in segments(network) for n in block} if network.repeats else None
    tensor: dict[tuple[int, int, int], str] = {}
    context: dict[tuple[int, int], str] = {}
    sequence: dict[int, str] = {}
    experts: dict[int, str] = {}
    for node, role in enumerate(roles(network, workload)[workload.shared :], workload.shared):
        layer, words = workload.nodes[node], workload.words[node]
        size = dict(zip(words, workload.split_sizes[:, node].tolist(), strict=True))
        in_block = inside_blocks is None or node - workload.shared in inside_blocks
        if in_block and role.tp in (COLUMN, ROW, HEADS.word, CHANNELS.word):
            choice = workload.choices_of_nodes[node][words.index(role.tp)]
            part = f"{choice.part}s" if choice and role.tp == HEADS.word else "features"
            heads = layer.operator.heads if isinstance(layer.operator, Attention) else 0
            key = size[role.tp], role.kv_heads, heads
            tensor.setdefault(key, f"{part} of {layer.name}")
        if role.cp == TOKENS.word and HEADS in layer.operator.splits.values():
            two = 2 if getattr(layer.operator, "causal", False) else 1
            context.setdefault((size[TOKENS.word], two), f"tokens of {layer.name}")
        if role.sp == TOKENS.word:
            sequence.setdefault(size[TOKENS.word], f"tokens of {layer.name}")
        if role.ep:
            experts.setdefault(size[role.ep], f"experts of {layer.name}")
    sizes = problem.hierarchy.sizes
    return Limits(
        network.name,
        {f"{key[0]:,} {name}": key for key, name in tensor.items()},
        {f"{size:,} {name}": (size, two) for (size, two), name in context.items()},
        {f"{size:,} {name}": size for size, name in sequence.items()},
        {f"{size:,} {name}": size for size, name in experts.items()},
        problem.batch,
        tuple(prod(sizes[level:]) for level in range(len(sizes))),
    )


def family(
    network: Network,
    problem: ProblemFields,
    *,
    fixed: Mapping[str, Any] | None = None,
    recompute: Sequence[str] = ("none", "full"),
) -> Iterator[Configuration]:
    """Yield every configuration of a network on a problem's accelerators.

    Degrees are products of the parts of consecutive levels; micro-batches are any that divide the
    sequences of an accelerator.

    Parameters
    ----------
    problem
        Its batch and hierarchy, its array if there is one, and its micro-batches if they are
        stated.
    fixed
        Fields of `Configuration`, each with its only value, or a list of values. If they include
        ``tp``, it may have more parts than key-value heads, which are then replicated.
    recompute
        What the backward pass may recompute, for all blocks.
    """
    kv_replicated = "tp" in (fixed or {})
    limits = limits_of(network, problem, kv_replicated=kv_replicated)
    values = {
        name: set(value) if isinstance(value, list | tuple | set | frozenset) else {value}
        for name, value in (fixed or {}).items()
    }
    if problem.training.micro_batches is not None:
        values.setdefault("micro_batches", {problem.training.micro_batches})

    def allowed(name: str, value: object) -> bool:
        return name not in values or value in values[name]

    for mesh in _meshes(problem.hierarchy.sizes):
        degrees = zip((*DIMENSIONS, "ep", "sp"), mesh[:6], strict=True)
        if not all(allowed(name, value) for name, value in degrees):
            continue
        if mesh.tp > 1 and mesh.sp and not limits.sequence:  # nothing is split by token
            continue
        if limits.fault_in_degrees(mesh) or problem.batch % (mesh.dp_replicate * mesh.dp_shard):
            continue
        counts = divisors(problem.batch // (mesh.dp_replicate * mesh.dp_shard))
        for zero, again, count in product(shardings_of(mesh), recompute, counts):
            configuration = mesh._replace(micro_batches=count, recompute=again, zero=zero)
            if all(
                allowed(name, getattr(configuration, name)) for name in configuration._fields[6:]
            ):
                yield configuration


def _meshes(sizes: Sequence[int]) -> Iterator[Configuration]:
    """Yield all degrees on levels of some parts, with sequence parallelism and without it."""
    levels = len(sizes)
    for ends in combinations_with_replacement(range(levels + 1), 3):
        replicate, shard, context = (
            prod(sizes[first:last]) for first, last in zip((0, *ends), ends, strict=False)
        )
        tensor = prod(sizes[ends[2] :])
        for sp in (True, False) if tensor > 1 else (True,):
            for first in range(ends[2], ends[0] - 1, -1):
                yield Configuration(
                    replicate, shard, context, tensor, prod(sizes[first : ends[2]]), sp
                )


def configuration_of(plan: Plan) -> Configuration:
    """Return the configuration that a plan corresponds to.

    Raises
    ------
    HyparError
        If there is none, naming the first layer and level, and the choice of a configuration there;
        or the training setting that no configuration has.
    """
    network, sizes = plan.network.description, plan.hierarchy.sizes
    if plan.is_staged:
        return _staged_configuration_of(plan)
    if plan.unequal_shares is not None:
        raise HyparError("no configuration: parts of H1 have unequal shares")
    choices = choices_of_configurations(network, kv_replicated=True)
    workload = workload_of(network, 1, choices, shared_tensors=True)
    by_node = roles(network, workload)
    by_layer = by_node[workload.shared :]
    degrees, replicas = _degrees_of(plan, by_layer)
    zero = _zero_of(plan, replicas)
    if zero == SHARDED[0]:
        degrees = degrees._replace(dp_replicate=1, dp_shard=degrees.dp_replicate * degrees.dp_shard)
    recompute, blocks = _recomputed_by(plan)
    configuration = degrees._replace(
        micro_batches=plan.training.micro_batches or 1,
        recompute=recompute,
        blocks=blocks,
        zero=zero,
    )
    for level, words in enumerate(words_of(configuration, by_node, sizes)):
        for layer, has, word in zip(
            plan.layers, plan.parallelism[level], words[workload.shared :], strict=True
        ):
            if has != word:
                raise _unlike(layer, level, has, word, configuration)
    rows = rows_of(configuration, network, workload, plan.hierarchy)
    for layer, stored in stored_layouts(workload, rows, plan.hierarchy).items():
        for level, (has, word) in enumerate(zip((plan.layouts or {})[layer], stored, strict=True)):
            if has != word:
                raise _unlike(f"output of {layer}", level, has, word, configuration)
    check(configuration, network, plan)
    return configuration


def _staged_configuration_of(plan: Plan) -> Configuration:
    """Return the configuration that a plan in stages corresponds to; as `configuration_of`."""
    network, stages = plan.network.description, plan.stages
    assert stages is not None
    shard = plan.training.shard and renumbered_words(plan.training.shard, -1)
    inside = configuration_of(_below_h1(plan, shard))
    of_layers = recomputed_words(network, plan.training.recompute)
    counts, again = [], {"": 0}
    for chunk in stages.layers:
        words = [
            of_layers[segment.start] for segment in segments(network) if segment.start in chunk
        ]
        counts.append(len(words))
        for word in {*words} - {None, "none"}:
            again[word or ""] = max(again.get(word or "", 0), words.count(word))
    recompute = max(again, key=lambda word: again[word]) or "none"
    blocks = again.get(recompute)
    result = inside._replace(
        pp=stages.parts,
        interleave=stages.chunks,
        cuts=() if len({*counts}) == 1 else tuple(counts),
        recompute=recompute,
        blocks=None if blocks is None or blocks >= max(counts) else blocks,
    )
    if stages_of_configuration(result, network).ends != stages.ends:
        raise HyparError("no configuration: stages begin elsewhere than between blocks")
    training = training_of(result, network, plan.hierarchy, plan.training)
    if recomputed_words(network, training.recompute) != [word or "none" for word in of_layers]:
        raise HyparError("no configuration: chunks do not compute their first blocks again")
    return result


def degrees_of_stages(plan: Plan) -> Configuration:
    """Return the degrees of a plan's stages; training inside stages is left open.

    Raises
    ------
    HyparError
        As `configuration_of`.
    """
    stages = plan.stages
    assert stages is not None
    inside = configuration_of(_below_h1(plan, None))
    return inside._replace(pp=stages.parts, interleave=stages.chunks)


def _below_h1(plan: Plan, shard: Words | None) -> Plan:
    """Return a plan in stages as a plan of the levels below H1, without recomputation."""
    sizes = plan.hierarchy.sizes[1:]
    update = {
        "parallelism": plan.parallelism[1:],
        "layouts": FrozenDict(
            {name: rows_of_node[1:] for name, rows_of_node in (plan.layouts or {}).items()}
        ),
        "choices": tuple(word for word in plan.choices if word not in PART_WORDS),
        "levels": len(sizes),
        "parts": sizes,
        "training": plan.training.model_copy(update={"recompute": None, "shard": shard}),
    }
    return plan.model_copy(update=update)


def _unlike(name: str, level: int, has: str, word: str, configuration: Configuration) -> HyparError:
    named = ((dimension, getattr(configuration, dimension)) for dimension in (*DIMENSIONS, "ep"))
    degrees = ", ".join(f"{dimension} {degree}" for dimension, degree in named if degree > 1)
    return HyparError(
        f"no configuration: {name}, H{level + 1} should be {word}, as {degrees or 'dp 1'} has it,"
        f" got {has}"
    )


def _degrees_of(plan: Plan, by_layer: Sequence[Role]) -> tuple[Configuration, int]:
    """Return a plan's degrees, and in how many levels its first layers are replicas.

    They are those of the first layer that tensor parallelism splits by heads or output features,
    else of the first; expert parallelism those of the first layer of experts.
    """
    sizes = plan.hierarchy.sizes
    main = next((n for n, role in enumerate(by_layer) if role.tp in (HEADS.word, COLUMN)), 0)
    role, words = by_layer[main], [row[main] for row in plan.parallelism]
    dimension_of = {role.below: "tp", role.tp: "tp", role.cp: "cp", DATA_CHOICE.word: "dp_shard"}
    dimensions = [dimension_of.get(word) for word in words]
    order = [
        name for name in ("dp_shard", "cp", "tp") for dimension in dimensions if dimension == name
    ]
    if order != dimensions:
        # A word without a dimension is not in the order.
        expected = zip_longest(dimensions, order, fillvalue="")
        level = next(n for n, (has, word) in enumerate(expected) if has != word)
        raise HyparError(
            f"no configuration: {plan.layers[main]}, H{level + 1} is {words[level]}; levels are"
            " those of data, of context and of tensor parallelism, in this order"
        )
    first = next((n for n, roles_of_layer in enumerate(by_layer) if roles_of_layer.ep), None)
    ep = prod(
        size
        for size, row in zip(sizes, plan.parallelism, strict=True)
        if first is not None and row[first] == EXPERTS.word
    )
    shards = _shards_of(plan)
    first_shard = next((level for level in (shards.weights, shards.state) if level is not None), 0)
    if any(dimension != "dp_shard" for dimension in dimensions[:first_shard]):
        raise HyparError(
            f"no configuration: weights are sharded from H{first_shard + 1} on, and levels above it"
            " are not all of data parallelism"
        )
    degree = {
        name: prod(
            size
            for level, size in enumerate(sizes)
            if dimensions[level] == name and level >= first_shard
        )
        for name in ("dp_shard", "cp", "tp")
    }
    tensor = [level for level, dimension in enumerate(dimensions) if dimension == "tp"]
    sp = not tensor or any(
        roles_of_layer.sp != roles_of_layer.tp
        and plan.parallelism[tensor[0]][n] == roles_of_layer.sp
        for n, roles_of_layer in enumerate(by_layer)
    )
    configuration = Configuration(
        prod(sizes[:first_shard]), degree["dp_shard"], degree["cp"], degree["tp"], ep, sp
    )
    return configuration, first_shard


def _shards_of(plan: Plan) -> Shards:
    """Return what all layers of a plan shard."""
    names = plan.layers
    words = words_by_layer(plan.training.shard, names, "shard")
    for name, word in zip(names, words, strict=True):
        if word != words[0]:
            raise HyparError(
                f"no configuration: {name} shards {word or SHARDED[0]}, {names[0]}"
                f" {words[0] or SHARDED[0]}"
            )
    return shards_of(words[0] or SHARDED[0])


def _zero_of(plan: Plan, first: int) -> str:
    shards = _shards_of(plan)
    if shards == Shards(0, first, first) and first:
        return HYBRID
    for stage, word in enumerate(SHARDED):
        if shards == Shards(*(first if number < stage else None for number in range(3))):
            return word
    raise HyparError(
        f"no configuration: {shards.word(plan.levels)} is sharded; it should be one stage from one"
        " level on, or the state from H1 and weights from a lower one"
    )


def _recomputed_by(plan: Plan) -> tuple[str, int | None]:
    """Return what a plan recomputes, and in how many blocks; None for all."""
    network, names = plan.network.description, plan.layers
    words = [word or "none" for word in words_by_layer(plan.training.recompute, names, "recompute")]
    if len({*words}) == 1:
        return words[0], None
    layers = segments(network)
    of_blocks = [words[block.start] for block in layers]
    word = of_blocks[0]
    count = of_blocks.index("none") if "none" in of_blocks else len(layers)
    expected = ["none"] * len(words)
    for block in layers[:count]:
        expected[block.start : block.stop] = [word] * len(block)
    has = [word or "none" for word in recomputed_words(network, plan.training.recompute)]
    for name, actual, wanted in zip(names, has, expected, strict=True):
        if actual != wanted:
            raise HyparError(
                f"no configuration: {name} has recomputation {actual}, not {wanted}: the first"
                " blocks all have one word, the others none"
            )
    return word, count if count < len(layers) else None
