"""The interface of a training framework's settings, and of what they cannot express."""

from __future__ import annotations

import json
from abc import abstractmethod
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from hypar_opt.errors import HyparError, argument, printable
from hypar_opt.execution.docstrings import docstring
from hypar_opt.execution.export import check_trains
from hypar_opt.execution.formats import ExportFormat
from hypar_opt.plan.configuration import (
    HYBRID,
    Configuration,
    configuration_of,
    key_value_heads,
)
from hypar_opt.version import __version__
from hypar_opt.workload.network import TokenInput
from hypar_opt.workload.operators.attention import HEADS
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hypar_opt.plan.plan import Plan

NOTHING, STATE, GRADIENTS, WEIGHTS = SHARDED
NONE, SELECTIVE, *_, FULL = RECOMPUTED

ELEMENTS = {2: "bfloat16", 4: "float32"}
"""The types that frameworks train in, by their bytes."""


class TrainingRun(NamedTuple):
    """What a configuration trains, and on how many devices.

    Parameters
    ----------
    batch
        The sequences, or images, of a step, over all devices.
    tokens
        The tokens of a sequence.
    layers
        The blocks that the network repeats.
    per_node
        The devices of a node.
    experts
        The experts of a layer; 1 without.
    element_bytes
        The bytes of an element of weights and activations.
    kv_heads
        The key-value heads of the attention that has the fewest; 0 without attention.
    images
        Whether the network reads images.
    name
        The network's, for the reader.
    schedule
        Of pipeline stages' passes.
    """

    batch: int
    tokens: int
    devices: int
    layers: int
    per_node: int = 8
    experts: int = 1
    element_bytes: int = 2
    kv_heads: int = 0
    images: bool = False
    name: str = "a network"
    schedule: str = "1f1b"

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return what a plan trains."""
        network, devices = plan.network.description, plan.accelerators
        attention = [n for n, layer in enumerate(network.layers) if HEADS in layer.splits.values()]
        maps = [*network.maps()]
        topology = plan.array.description.topology if plan.array else None
        return cls(
            batch=plan.batch,
            tokens=max((maps[n].output.tokens or 1 for n in attention), default=1),
            devices=devices,
            layers=sum(block.count for block in network.repeats),
            per_node=min(getattr(topology, "per_node", devices), devices),
            experts=max(getattr(layer, "experts", 1) for layer in network.layers),
            element_bytes=plan.element_bytes,
            kv_heads=key_value_heads(network),
            images=not isinstance(network.input, TokenInput),
            name=network.name,
            schedule=plan.training.schedule or "1f1b",
        )

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return -(-self.devices // self.per_node)


class Framework(ExportFormat):
    """A framework that trains configurations, and its settings for one of them.

    Attributes
    ----------
    sources
        Where its keys are defined: repository, file, and commit or release.
    elsewhere
        What these settings leave to the user's program.
    has_models
        Whether it trains models of its own, which read tokens, and not any model.
    schedules
        Those of pipeline stages that it has; none if it has no stages.
    """

    sources: ClassVar[tuple[str, ...]]
    elsewhere: ClassVar[str]
    has_models: ClassVar[bool] = True
    schedules: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def unexpressed(self, configuration: Configuration, run: TrainingRun) -> Iterator[str]:
        """Yield what the framework cannot express of a `plain` configuration."""

    @abstractmethod
    def document(self, configuration: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        """Return the settings that come nearest to a `plain` configuration, as a file.

        Parameters
        ----------
        remarks
            Comments for the reader, one per line.
        """

    def lacks(self, configuration: Configuration, run: TrainingRun) -> list[str]:
        """Return what the framework cannot express; empty if it trains the configuration."""
        lacks = [*self.unexpressed(plain(configuration, run), run)]
        if 0 < run.kv_heads < configuration.tp:
            heads = f"{run.kv_heads} key-value heads in tp of {configuration.tp}"
            lacks.append(f"{heads}: it does not replicate the projections of a head")
        if run.element_bytes not in ELEMENTS:
            lacks.append(f"elements of {run.element_bytes} bytes: it trains in 2 or 4")
        if run.images and self.has_models:
            lacks.append("a network that reads images: its models read tokens")
        if configuration.pp > 1 and run.schedule not in self.schedules:
            has = f": it has {' and '.join(self.schedules)}" if self.schedules else ""
            lacks.append(f"{configuration.pp} pipeline stages in the order {run.schedule}{has}")
        return lacks

    def settings(self, configuration: Configuration, run: TrainingRun) -> str:
        """Return the settings for a configuration, with a comment for each thing left out.

        Raises
        ------
        HyparError
            If the degrees do not multiply to the number of devices, or do not divide the batch.
        """
        if configuration.devices != run.devices:
            raise HyparError(
                f"{argument('degrees')} should have {run.devices:,} accelerators in all, got"
                f" {configuration.devices:,}"
            )
        if configuration.pp > 1 and not self.schedules:
            name, pp = type(self).__name__, configuration.pp
            raise HyparError(f"{name} has no pipeline stages, got pp {pp}")
        parts = configuration.dp_replicate * configuration.dp_shard * configuration.micro_batches
        if run.batch % parts:
            raise HyparError(
                f"{argument('micro_batches')}: dp x micro_batches = {parts:,} should divide the"
                f" batch of {run.batch:,}"
            )
        tokens = f" x {run.tokens:,} tokens" if run.tokens > 1 else ""
        remarks = [
            f"{printable(run.name)}, batch {run.batch:,}{tokens}, on {run.devices:,} devices:"
            f" {self.summary}, by hypar-opt {__version__}.",
            *(f"Keys: {source}." for source in self.sources),
            f"Left to your own program: {self.elsewhere}.",
            *(f"Not expressed: {lack}." for lack in self.lacks(configuration, run)),
        ]
        return self.document(plain(configuration, run), run, remarks)

    def text(self, plan: Plan, *, approximate: bool) -> str:  # noqa: ARG002
        # Settings name no layer, so they also fit a model of which the network leaves out parts.
        check_trains(plan)
        return self.settings(configuration_of(plan), TrainingRun.of(plan))


def plain(configuration: Configuration, run: TrainingRun) -> Configuration:
    """Return the canonical form of a configuration.

    Nothing is sharded over a single part, and unsharded data parallelism counts as replicas;
    without tensor parallelism there is no sequence parallelism; recomputation of all blocks is
    None, and of no blocks is ``none``.
    """
    replicas, shards, cp, tp, ep, sp, micro_batches, recompute, blocks, zero = configuration[:10]
    largest = max(blocks_of_chunks(configuration, run))
    if zero == HYBRID and replicas == 1:
        zero = WEIGHTS
    if shards * cp == 1:
        # The state of the only part, over the replicas.
        replicas, shards, zero = (1, replicas, STATE) if zero == HYBRID else (replicas, 1, NOTHING)
    if zero == NOTHING:
        replicas, shards = replicas * shards, 1
    if recompute == NONE or blocks == 0:
        recompute, blocks = NONE, None
    elif blocks is not None and blocks >= largest:
        blocks = None
    ep = ep if run.experts > 1 else 1
    return Configuration(
        *(replicas, shards, cp, tp, ep, sp and tp > 1, micro_batches, recompute, blocks, zero),
        *configuration[10:],
    )


def blocks_of_chunks(configuration: Configuration, run: TrainingRun) -> tuple[int, ...]:
    """Return the blocks of each pipeline chunk, in order."""
    count = configuration.pp * configuration.interleave
    return configuration.cuts or (run.layers // count,) * count


def micro_batch_of(configuration: Configuration, run: TrainingRun) -> int:
    """Return the sequences of a micro-batch in each part of data parallelism."""
    replicas, shards = configuration.dp_replicate, configuration.dp_shard
    return run.batch // (replicas * shards * configuration.micro_batches)


def commented(lines: list[str]) -> str:
    """Return lines as comments of YAML or of a shell script."""
    return "".join(f"# {line}\n" for line in _wrapped(lines))


def _wrapped(lines: list[str]) -> list[str]:
    wrap = TextWrapper(98, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [part for line in lines for part in wrap.wrap(line)]


def module_text(
    remarks: list[str],
    use: str,
    imports: list[str],
    parameter: str,
    kind: str,
    values: Mapping[str, Any],
) -> str:
    """Return a Python module with a function that sets attributes of a configuration.

    Parameters
    ----------
    use
        How it is used: a sentence, and a line of Python.
    parameter, kind
        The function's parameter, and its class.
    values
        By attribute; those of class `PythonCode` are Python already, others become literals.
    """
    lines = [
        f"    {parameter}.{name} = {value if isinstance(value, PythonCode) else _literal(value)}"
        for name, value in values.items()
    ]
    return "\n".join(
        [
            docstring("\n".join(_wrapped(remarks)) + f"\n\n{use}\n"),
            "",
            *imports,
            "",
            "",
            f"def configured({parameter}: {kind}) -> {kind}:",
            *lines,
            f"    return {parameter}",
            "",
        ]
    )


class PythonCode(str):
    """A value that is written as Python already."""

    __slots__ = ()


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def mirrored(configuration: Configuration, run: TrainingRun, name: str) -> Iterator[str]:
    """Yield why tokens do not split as a framework does: in mirrored pairs, under causal masks.

    Parameters
    ----------
    name
        The framework's name for the tokens of a sequence.
    """
    parts = configuration.tp if configuration.sp else 1
    parts *= 2 * configuration.cp if configuration.cp > 1 else 1
    if run.tokens % parts:
        yield f"{run.tokens:,} tokens: {name} should be a multiple of {parts}"


def recomputed_blocks(configuration: Configuration, run: TrainingRun) -> str:
    """Return the recomputation, and of which blocks, as text."""
    where = "all" if configuration.blocks is None else f"{configuration.blocks} of {run.layers}"
    if configuration.pp > 1 and configuration.blocks is not None:
        where = f"{configuration.blocks} of each chunk's"
    return f"{configuration.recompute} recomputation in {where} blocks"


def fully_shard_limits(
    configuration: Configuration, replicas: str, shards: str, reshard: str
) -> Iterator[str]:
    """Yield shardings that PyTorch's `fully_shard` lacks, for frameworks that call it.

    Source: pytorch/pytorch torch/distributed/fsdp/_fully_shard/_fully_shard.py, v2.13.0.

    Parameters
    ----------
    replicas, shards
        The framework's names of the degrees.
    reshard
        The framework's setting with which the backward pass gathers no weights.
    """
    if configuration.zero == STATE:
        yield f"the optimizer's state sharded alone (ZeRO-1): {shards} shards weights, too"
    elif configuration.zero == GRADIENTS and configuration.micro_batches > 1:
        yield (
            "weights gathered once a step (ZeRO-2): with"
            f" {reshard} each of {configuration.micro_batches} micro-batches gathers them"
        )
    elif configuration.zero == HYBRID:
        yield f"state over all, weights over a part: {shards} shards both, {replicas} neither"
    elif configuration.zero == NOTHING and configuration.cp > 1:
        yield "weights whole in context parallelism: they are sharded over its parts"
