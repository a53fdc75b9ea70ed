"""The steps of configurations of a network with blocks, with few repetitions of each block.

A configuration's step is derived from that of a network with few repetitions of its blocks, where
equal repetitions count several times.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.costs.buckets import buckets_of
from hypar_opt.plan.configuration import (
    Configuration,
    choices_of_configurations,
    rows_of,
    training_of,
)
from hypar_opt.sharding.program import Program
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.step import repeats_on
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import RECOMPUTED
from hypar_opt.workload.recomputation import repetitions, with_repeats
from hypar_opt.workload.stages import Message
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload

Lengths = tuple[int, ...]
"""The repetitions of each run of a network's blocks."""
Mesh = tuple[int, int, int, int, int, bool]
"""The degrees of a configuration, and whether it has sequence parallelism."""


class ShortStep(NamedTuple):
    """A step with one repetition of a block in place of several equal ones.

    Parameters
    ----------
    again
        The number of blocks, from the first, that are recomputed.
    starts, times
        The number of each block's first repetition, and the number of its repetitions.
    """

    lengths: Lengths
    again: int
    starts: tuple[int, ...]
    times: tuple[int, ...]


class ShortSteps:
    """Steps of a network with blocks on equal accelerators, with few repetitions of each block.

    Parameters
    ----------
    problem
        Has the array; its batch, optimizer and reading are used.
    choices
        The choices of nodes; None for those that configurations need.
    early_stop
        Whether recomputation of blocks stops at the last tensor that a backward pass reads.
    kv_replicated
        Whether tensor parallelism may have more parts than key-value heads.

    Attributes
    ----------
    meshes
        The meshes that may be evaluated: computations are made for all at once.
    """

    def __init__(
        self,
        network: Network,
        problem: Problem,
        *,
        choices: tuple[str, ...] | None = None,
        early_stop: bool = False,
        kv_replicated: bool = False,
    ) -> None:
        assert problem.array is not None
        self.meshes: set[Mesh] = set()
        self.network, self.early_stop = network, early_stop
        if choices is None:
            choices = choices_of_configurations(network, kv_replicated=kv_replicated)
        self.problem = problem.model_copy(update={"choices": choices})
        self.array: Array = problem.array.description
        self._hierarchy = problem.hierarchy
        self._fused = Fused.on(self.array.accelerator)
        # A batch that the degrees of all meshes divide.
        self._base = self._hierarchy.accelerators
        self._counts = tuple(block.count for block in network.repeats)
        self._network, self._workload = cache(self._new_network), cache(self._new_workload)
        self._rows, self._blocks = cache(self._new_rows), cache(self._new_blocks)
        self._shortened, self._program = cache(self._new_shortened), cache(self._new_program)
        self._options = cache(self._new_options)

    @property
    def blocks(self) -> int:
        """The blocks of the network."""
        return sum(self._counts)

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """The words for recomputation; of equivalent words, the first."""
        one, short = Configuration(dp_shard=self._base), self._uniform
        whole = short._replace(again=len(short.times))
        network, workload = self._network(short.lengths), self._workload(short.lengths, self._base)
        again: dict[object, str] = {}
        for word in RECOMPUTED:
            options = self._options(one._replace(recompute=word), whole)
            repeats = repeats_on(network, self.problem, workload, self.array, options)
            again.setdefault((repeats.recomputed, repeats.by_op), word)
        return tuple(again.values())

    @property
    def is_branched(self) -> bool:
        """Whether more than one queue runs beside the program."""
        options = RunOptions()
        return options.on(self.array)[1] == "branches" or any(options.in_parts_on(self.array))

    @cached_property
    def _uniform(self) -> ShortStep:
        return self._shortened(0)

    def _meshes_with(self, mesh: Mesh, *, degrees: int = 0) -> list[Mesh]:
        """Return a mesh, and the others of `meshes` whose first degrees are the same."""
        rest = (
            other for other in self.meshes if other[:degrees] == mesh[:degrees] and other != mesh
        )
        return [mesh, *rest]

    def _again(self, configuration: Configuration) -> int:
        """Return the number of blocks that are recomputed."""
        again = self.blocks if configuration.blocks is None else configuration.blocks
        return 0 if configuration.recompute == "none" else again

    def _new_shortened(self, again: int, last: Lengths | None = None) -> ShortStep:
        """Return a step with one repetition of each group of equal ones.

        Parameters
        ----------
        again
            The number of blocks that are recomputed.
        last
            The number of repetitions at the end of each run that differ; None for those that differ
            in size.
        """
        remaining, short, begun = again, ShortStep((), 0, (), ()), 0
        for count, alone in zip(self._counts, last or self._last_in_size, strict=True):
            run_again = min(remaining, count)
            remaining -= run_again
            ends = sorted({0, 1, run_again, *range(max(count - alone, 0), count + 1)})
            short = ShortStep(
                (*short.lengths, len(ends) - 1),
                short.again + sum(start < run_again for start in ends),
                (*short.starts, *(begun + start for start in ends[:-1])),
                (*short.times, *(end - start for start, end in pairwise(ends))),
            )
            begun += count
        return short

    def _last_alone(self, zero: str) -> Lengths:
        """Return how many repetitions at the end of each run differ, in size or exchanges."""
        by_unit = RunOptions().on(self.array)[1] == "prefetch" and zero not in ("none", "state")
        return self._last_in_size if by_unit else self._last_in_buckets

    @cached_property
    def _last_in_size(self) -> Lengths:
        """The number that differ in size, or in their readers; else only the last one.

        All if maps grow, as in DenseNet; all from one on that is read by layers beyond the next
        repetition.
        """
        layers, maps = self.network.layers, [*self.network.maps()]
        place = {layer.name: position for position, layer in enumerate(layers)}
        reads = [
            (reader, writer)
            for reader, (layer, writers) in enumerate(
                zip(layers, self.network.sources, strict=True)
            )
            for writer in (*writers, place.get(layer.shares_weights_with or "", reader))
        ]
        lasts = []
        for run in self.network.repeats:
            of_run = run.repetitions
            sizes = [maps[layers.start : layers.stop] for layers in of_run]
            # The first repetition is one by itself, and each one reads the one before.
            elsewhere = [
                number
                for reader, writer in reads
                if (number := (writer - run.first) // run.length) in range(1, run.count)
                and reader - of_run[number].start not in range(2 * run.length)
            ]
            last = run.count - min(elsewhere, default=run.count - 1)
            lasts.append(last if sizes.count(sizes[0]) == run.count else run.count)
        return tuple(lasts)

    @cached_property
    def _last_in_buckets(self) -> Lengths:
        """The number that differ in which gradients are reduced together, or in size.

        All, if this never settles: the room left in a bucket is known only where one begins.
        """
        workload = self._workload(self._counts, self._base)
        buckets = buckets_of(workload, self.array.bucket_elements(self.problem.element_bytes))
        firsts, blocks = {bucket[0] for bucket in buckets}, self._blocks(self._counts)
        begins: list[list[int]] = [[] for _ in range(1 + sum(self._counts))]
        layers: list[int] = [0] * len(begins)
        for node in range(workload.shared, len(blocks)):
            if node in firsts:
                begins[blocks[node]].append(layers[blocks[node]])
            layers[blocks[node]] += 1
        lasts, first = [], 1
        for count, last in zip(self._counts, self._last_in_size, strict=True):
            # From the last repetition on, each determines how the one before it begins.
            of_run = begins[first : first + count]
            position = next((n for n, begin in enumerate(of_run) if begin != of_run[0]), count)
            fresh = layers[first] - 1 in of_run[0]
            differ = count - position + (1 if fresh else 2) if of_run[0] else count
            lasts.append(max(last, differ))
            first += count
        return tuple(lasts)

    def _new_network(self, lengths: Lengths) -> Network:
        runs = ((repeat.name, repeat.number) for repeat in self.network.repeats)
        counts, renamed, blocks = dict(zip(runs, lengths, strict=True)), dict[str, str](), []
        for block in self.network.blocks or ():
            first, repeat = block.first or 0, block.repeat or 1
            count = counts.get((block.name, first), repeat)
            # Repetitions that others read by number are kept, at the same distance from the last
            # one.
            renamed |= {
                f"{block.name}.{first + n}.": f"{block.name}.{first + n - repeat + count}."
                for n in range(repeat - count + 1, repeat)
            }
            # Repetitions that are left out are equal, and so are their loads.
            blocks.append(block.repetitions(range(count)))
        shorter = self.network.model_copy(update={"blocks": tuple(blocks) or None})
        described = shorter.description()
        _rename(described, renamed)
        if self.problem.stage is not None:  # messages are in no described network
            described["layer"] = [
                Message.model_validate(layer) if layer["kind"] == "message" else layer
                for layer in described["layer"]
            ]
        return type(self.network).model_validate(described)

    def _new_workload(self, lengths: Lengths, batch: int) -> Workload:
        choices = self.problem.choices
        return workload_of(self._network(lengths), batch, choices, shared_tensors=True)

    def _new_rows(self, mesh: Mesh, lengths: Lengths) -> Rows:
        of = self._network(lengths), self._workload(lengths, self._base), self._hierarchy
        return rows_of(Configuration(*mesh), *of)

    def _new_program(self, mesh: Mesh, lengths: Lengths) -> Program:
        workload = self._workload(lengths, self._base)
        return Program(workload, self._rows(mesh, lengths), self._hierarchy)

    def _new_blocks(self, lengths: Lengths) -> NDArray[np.intp]:
        """Return the block that each node belongs to, from 1: ``(nodes,)``; 0 outside all."""
        workload = self._workload(lengths, self._base)
        blocks = np.zeros(len(workload.nodes), np.intp)
        for number, layers in enumerate(repetitions(self._network(lengths)), 1):
            blocks[workload.shared + layers.start : workload.shared + layers.stop] = number
        for node, users in workload.weight_users.items():
            blocks[node] = blocks[min(users)]
        for node, writer in workload.tensor_writers.items():
            blocks[node] = blocks[writer]
        return blocks

    def _new_options(self, configuration: Configuration, short: ShortStep) -> RunOptions:
        """Return the options of a shortened step."""
        blocks = None if configuration.recompute == "none" else short.again
        of = self._network(short.lengths), self._hierarchy, self.problem.training
        training = training_of(configuration._replace(blocks=blocks), *of)
        return RunOptions(**training.stated, early_stop=self.early_stop)

    def _trained(self, configuration: Configuration, short: ShortStep, batch: int) -> Workload:
        """Return the tensors of a shortened step, with its recomputation and shards."""
        network, workload = self._network(short.lengths), self._workload(short.lengths, batch)
        options, element_bytes = self._options(configuration, short), self.problem.element_bytes
        repeats = options.repeats(network, workload, element_bytes, fused=self._fused)
        return with_repeats(workload, repeats)


def _rename(described: dict[str, Any], renamed: Mapping[str, str]) -> None:
    """Rename repetitions where the layers and blocks of a description read them."""

    def new(name: str) -> str:
        old = next(filter(name.startswith, renamed), "")
        return renamed.get(old, "") + name.removeprefix(old)

    for reader in (*described.get("layer", ()), *described.get("block", ())):
        if reader.get("inputs"):
            reader["inputs"] = [new(name) for name in reader["inputs"]]
        if reader.get("tied"):
            reader["tied"] = new(reader["tied"])
        _rename(reader, renamed)
