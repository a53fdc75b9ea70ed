"""The layouts of a plan's tensors under DTensor, and where they differ from the plan's.

Hooks of modules convert what they read and write. What a layer without weights reads is converted
where it is written, if nothing else reads it; else DTensor converts it where it must. A choice that
DTensor has no rule for becomes data parallelism.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from math import prod
from operator import and_
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import HyparError
from hypar_opt.execution.batches import sizes_remedy
from hypar_opt.execution.torch.rules import has_hook, has_module, otherwise, without_rule
from hypar_opt.frozen import FrozenDict
from hypar_opt.sharding.conversions import exchanges, scatter_layout
from hypar_opt.sharding.layouts import BATCH, CHANNEL, PARTIAL, SHUFFLED, TOKEN, WHOLE, is_split
from hypar_opt.workload.operators.axes import BATCH as BATCH_AXIS
from hypar_opt.workload.operators.axes import (
    DATA_CHOICE,
    REPLICATED,
    TOKENS,
    Choice,
    operand_layout,
    output_layout,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hypar_opt.execution.torch.mesh import DeviceMesh
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.maps import LayerMaps

MAX_ORDERED = 6
"""The maximum number of dimensions whose orders are all tried."""


class LayerFlow(NamedTuple):
    """A layer's choices, and the layouts of its tensors, on each dimension of tensor parallelism.

    Parameters
    ----------
    arrives, reads
        The layouts of each input before and after the module's hook.
    writes, leaves
        Those of the output.
    differences
        What DTensor does otherwise than the plan, a phrase each.
    """

    choices: tuple[Choice, ...]
    arrives: tuple[Layouts, ...]
    reads: tuple[Layouts, ...]
    writes: Layouts
    leaves: Layouts
    differences: tuple[str, ...]

    @property
    def conversions(self) -> tuple[tuple[Layouts, Layouts], ...]:
        """The layouts before and after each conversion."""
        return (*zip(self.arrives, self.reads, strict=True), (self.writes, self.leaves))


@dataclass(frozen=True)
class Flow:
    """A plan's tensors on a mesh.

    Parameters
    ----------
    program
        The plan's, with the batch of a micro-batch.
    sent
        The layouts, at each level, of the outputs of layers that cross from one stage to the next.
    """

    network: Network
    program: Program
    mesh: DeviceMesh
    sent: Mapping[int, Layouts] = FrozenDict()

    @cached_property
    def layers(self) -> tuple[LayerFlow, ...]:
        """The layouts of each layer, in order.

        Raises
        ------
        HyparError
            If a size is not a multiple of its parts.
        """
        flows: list[LayerFlow] = []
        for position, sources in enumerate(self.network.sources):
            plain = (WHOLE,) * len(self.mesh.tensor)
            arrives = tuple(plain if source < 0 else flows[source].leaves for source in sources)
            choices, reads, writes = self._computed[position]
            leaves = self._leaves(position)
            flow = LayerFlow(choices, arrives, reads, writes, leaves, ())
            self._check_even(position, flow)
            differences = tuple(dict.fromkeys(filter(None, self._differences(position, flow))))
            flows.append(flow._replace(differences=differences))
        return tuple(flows)

    @cached_property
    def _computed(self) -> list[tuple[tuple[Choice, ...], tuple[Layouts, ...], Layouts]]:
        """Each layer's choices, and the layouts that it reads and writes under them."""
        computed = []
        for position, (layer, sources) in enumerate(
            zip(self.network.layers, self.network.sources, strict=True)
        ):
            choices, count = self._choices(position), len(sources)
            # Token ids are not an operand, and have only a batch and tokens.
            reads = tuple(
                tuple(operand_layout(axes, choice) for choice in choices)
                if layer.axes.inputs
                else tuple(_ID_LAYOUTS.get(choice.axis, WHOLE) for choice in choices)
                for axes in layer.axes.read(count, count)
            )
            writes = tuple(output_layout(layer.axes.output, choice) for choice in choices)
            computed.append((choices, reads, writes if sources else _without_batch(writes)))
        return computed

    def _planned(self, position: int) -> tuple[Choice, ...]:
        workload = self.program.workload
        node = position + workload.shared
        rows = (self.program.rows[dimension.levels[0]] for dimension in self.mesh.tensor)
        return tuple(workload.choices_of_nodes[node][row[node]] or DATA_CHOICE for row in rows)

    def _reasons(self, position: int) -> tuple[str, ...]:
        """Why DTensor has no rule for a layer's choice, on each dimension; empty if it has one."""
        layer, inputs = self.network.layers[position], len(self.network.sources[position])
        planned = self._planned(position)
        if layer.ends and len(planned) > 1 and any(map(_splits_channels, planned)):
            return tuple(_LOSS if _splits_channels(choice) else "" for choice in planned)
        if len(parts := self.parts_of_weight(position)) > 1:
            columns = zip(*map(self._planned, parts), strict=True)
            conflicts = tuple("" if len({*column}) == 1 else _UNLIKE for column in columns)
        else:
            cut = self._behind_parts[position] and not has_hook(layer)
            conflicts = tuple(
                _IN_ONE if cut and _splits_channels(choice) else "" for choice in planned
            )
        reasons = (without_rule(layer, choice, inputs) for choice in planned)
        return tuple(
            reason or conflict for reason, conflict in zip(reasons, conflicts, strict=True)
        )

    def parts_of_weight(self, position: int) -> tuple[int, ...]:
        """Return the layers whose weights one module holds, a given layer among them."""
        return self._parts_of_modules[self.network.layers[position].module]

    @cached_property
    def _parts_of_modules(self) -> Mapping[str, tuple[int, ...]]:
        parts: dict[str, tuple[int, ...]] = {}
        for position, layer in enumerate(self.network.layers):
            parts[layer.module] = (*parts.get(layer.module, ()), position)
        return parts

    @cached_property
    def _behind_parts(self) -> Sequence[bool]:
        """Whether each layer reads a part of what a module writes, as it is or through others."""
        behind: list[bool] = []
        for sources in self.network.sources:
            layers = (source for source in sources if source >= 0)
            behind.append(
                any(
                    len(self.parts_of_weight(source)) > 1
                    or (behind[source] and not has_hook(self.network.layers[source]))
                    for source in layers
                )
            )
        return behind

    def _choices(self, position: int) -> tuple[Choice, ...]:
        """Return a layer's choices, by batch where DTensor has no rule.

        There its weights are replicated.
        """
        return self._by_batch(self._planned(position), map(bool, self._reasons(position)))

    def _by_batch(self, choices: Sequence[Choice], instead: Iterable[bool]) -> tuple[Choice, ...]:
        """Return choices, some replaced by the batch, or by whole if the batch is too small."""
        parts = self._parts(choice.axis == BATCH_AXIS for choice in choices) * self._data
        changed = []
        for choice, change, dimension in zip(choices, instead, self.mesh.tensor, strict=True):
            fits = self.program.workload.batch % (parts * dimension.size) == 0
            if change:
                parts *= dimension.size if fits else 1
            changed.append((DATA_CHOICE if fits else REPLICATED) if change else choice)
        return tuple(changed)

    @property
    def _data(self) -> int:
        return self.mesh.data.size if self.mesh.data else 1

    def _parts(self, split: Iterable[bool]) -> int:
        """Return the parts of the dimensions that split something."""
        return prod(
            dimension.size
            for dimension, it_splits in zip(self.mesh.tensor, split, strict=True)
            if it_splits
        )

    @cached_property
    def _readers(self) -> list[list[tuple[int, int]]]:
        """The layers that read each layer's output, and as which of their inputs."""
        readers: list[list[tuple[int, int]]] = [[] for _ in self.network.layers]
        for reader, sources in enumerate(self.network.sources):
            for number, source in enumerate(sources):
                if source >= 0:
                    readers[source].append((reader, number))
        return readers

    def _leaves(self, position: int) -> Layouts:
        """Return the layouts in which a layer's output leaves its module.

        If the module holds several layers, its output is one tensor with unsplit channels, of which
        the model takes parts.
        """
        if position in self.sent:
            return tuple(self.sent[position][dimension.levels[0]] for dimension in self.mesh.tensor)
        layouts = self._wanted(position)
        if len(parts := self.parts_of_weight(position)) == 1:
            return layouts
        columns = zip(*map(self._wanted, parts), strict=True)
        cut = [len({*wanted}) > 1 or wanted[0] in (CHANNEL, PARTIAL) for wanted in columns]
        output, choices = self.network.layers[position].axes.output, self._computed[position][0]
        whole = (output_layout(output, choice) for choice in self._by_batch(choices, cut))
        return tuple(
            new if it_is else old for new, it_is, old in zip(whole, cut, layouts, strict=True)
        )

    def _wanted(self, position: int) -> Layouts:
        """Return the layouts in which a layer's output leaves a module of that layer alone."""
        writes, workload = self._computed[position][2], self.program.workload
        if not has_hook(self.network.layers[position]):
            return writes
        boundary = workload.boundary_into_shared.get(position + workload.shared)
        wanted = (WHOLE,) * len(writes)
        if boundary is not None:
            stored = self.program.stored[workload.boundaries[boundary].target]
            wanted = tuple(stored[dimension.levels[0]] for dimension in self.mesh.tensor)
        elif self._readers[position]:
            ((reader, number),) = self._readers[position]
            wanted = self._computed[reader][1][number]
        if boundary is None and not self._converts(position):
            # The reader's hook converts the rest.
            wanted = tuple(
                scatter_layout(to) if layout == PARTIAL else layout
                for layout, to in zip(writes, wanted, strict=True)
            )
        wanted = tuple(CHANNEL if layout == SHUFFLED else layout for layout in wanted)
        return wanted if self.network.sources[position] else _without_batch(wanted)

    def _converts(self, position: int) -> bool:
        """Whether the only reader of a layer's output has no hook, as those without weights."""
        readers = self._readers[position]
        return len(readers) == 1 and not has_hook(self.network.layers[readers[0][0]])

    def is_shared_whole(self, position: int) -> tuple[bool, ...]:
        """Return whether a layer shares a weight that is kept whole, on each dimension.

        It is if its users split it differently.
        """
        workload = self.program.workload
        node = position + workload.shared
        shared = [owner for owner, users in workload.weight_users.items() if node in users]
        stored = [self.program.weights(owner) for owner in shared]
        return tuple(
            any(layouts[dimension.levels[0]] == WHOLE for layouts in stored)
            for dimension in self.mesh.tensor
        )

    def _differences(self, position: int, flow: LayerFlow) -> Iterable[str]:
        layer = self.network.layers[position]
        for reason, choice, dimension in zip(
            self._reasons(position), flow.choices, self.mesh.tensor, strict=True
        ):
            if reason:
                instead = "by batch" if choice is DATA_CHOICE else "whole"
                yield f"{reason}; {instead} on {dimension.name}"
        yield otherwise(layer, flow.choices)
        if len(self.parts_of_weight(position)) > 1 and any(c.axis == "o" for c in flow.choices):
            yield "its outputs are split in one with other parts of its weight, not part by part"
        splits = (choice.axis in layer.axes.weight for choice in flow.choices)
        if any(map(and_, splits, self.is_shared_whole(position))):
            yield "its weight is shared with a layer that splits it otherwise, and replicated"
        if position in self.sent and self._is_sent_otherwise(position, flow):
            yield "is sent to the next stage as levels of one dimension are split, not each alone"
        if not has_hook(layer):
            if flow.arrives != flow.reads:
                what = "has no hook" if has_module(layer) else "is no module"
                yield f"{what}: DTensor converts what it reads"
            return
        if any(_crosses(*pair) for pair in flow.conversions):
            yield "DTensor splits an axis in the mesh's order, and may move more to convert it"
        if self.program.joined and any(_exchanges_twice(*pair) for pair in flow.conversions):
            yield "DTensor exchanges dimension by dimension what the plan exchanges at once"
        changed = (
            layout not in (PARTIAL, to) for layout, to in zip(flow.writes, flow.leaves, strict=True)
        )
        if _slices_a_replica(self.network.sources[position], flow):
            yield "DTensor gathers the error of a replica that is sliced"
        if layer.fused_pool and any(changed):
            yield "its output is converted before its pool, not behind it"

    def _is_sent_otherwise(self, position: int, flow: LayerFlow) -> bool:
        """Whether the next stage gets a layer's output in other layouts than planned."""
        data = ((BATCH, self.mesh.data),) if self.mesh.data else ()
        return any(
            self.sent[position][level] != layout
            for layout, dimension in (*data, *zip(flow.leaves, self.mesh.tensor, strict=True))
            for level in dimension.levels
        )

    def _check_even(self, position: int, flow: LayerFlow) -> None:
        """Check that sizes are multiples of their parts."""
        layer, maps = self.network.layers[position], self._maps[position]
        sizes = self.program.workload.layers[position].sizes
        axes = [choice.axis for choice in flow.choices]
        tensors = (*flow.reads, flow.writes, flow.leaves)

        def max_parts(axis: str) -> int:
            return max(self._parts(layout == axis for layout in tensor) for tensor in tensors)

        checks = [("the batch", self.program.workload.batch, max_parts(BATCH) * self._data)]
        checks.append((f"{layer.name}: its tokens", maps.output.tokens or 0, max_parts(TOKEN)))
        checks += [
            (
                f"{layer.name}: its number of {parts.name}s",
                parts.count,
                self._parts(choice.axis == parts.axis for choice in flow.choices),
            )
            for parts in layer.parts(maps)
        ]
        checks += [
            (f"{layer.name}: its size", sizes[axis], self._parts(other == axis for other in axes))
            for axis in layer.axes.weight
            if axis in sizes
        ]
        checks += [
            (f"{layer.name}: its size", size, self._parts(layout == CHANNEL for layout in tensor))
            for tensor, size in (
                (flow.writes, maps.output.channels),
                (flow.leaves, maps.pooled.channels),
            )
        ]
        for name, size, parts in checks:
            if size % parts:
                words = layer.name if layer.reads_ids and size == sizes.get("i") else None
                raise HyparError(
                    f"{name} {size} should be divisible by {parts}, its parts:"
                    f" {sizes_remedy(words, parts)}"
                )

    @cached_property
    def _maps(self) -> Sequence[LayerMaps]:
        return tuple(self.network.maps())


def in_best_order(flow: Flow) -> Flow:
    """Return a flow on a mesh whose order of dimensions lets most conversions stay in their own.

    DTensor splits an axis by the dimensions in their order: to convert an outer one, it gathers
    what inner ones split of the same axis.
    """
    if len(flow.mesh.tensor) > MAX_ORDERED:
        return flow
    weighted = Counter(pair for layer in flow.layers for pair in layer.conversions)

    def crossing(order: tuple[int, ...]) -> int:
        return sum(
            times * _crosses(*(tuple(layouts[n] for n in order) for layouts in pair))
            for pair, times in weighted.items()
        )

    best = min(permutations(range(len(flow.mesh.tensor))), key=crossing)
    tensor = tuple(flow.mesh.tensor[n] for n in best)
    return replace(flow, mesh=replace(flow.mesh, tensor=tensor))


_ID_LAYOUTS = {BATCH_AXIS: BATCH, TOKENS.axis: TOKEN}
"""The layouts of token ids, by the axis that a table's reader splits."""

_UNLIKE = "parts of one weight are not split alike"
_IN_ONE = "DTensor splits what a model takes parts of as if it were one"
_LOSS = "loss_parallel takes logits split on one dimension, of batch or of vocabulary"


def _splits_channels(choice: Choice) -> bool:
    return choice.axis not in ("", *_ID_LAYOUTS)


def _without_batch(layouts: Layouts) -> Layouts:
    """Return the layouts of a tensor without a batch: whole where others are split by it.

    So is a table of positions where others are split by token: slices of it take no exchange.
    """
    return tuple(WHOLE if layout in (BATCH, TOKEN) else layout for layout in layouts)


def _slices_a_replica(sources: Sequence[int], flow: LayerFlow) -> bool:
    """Whether a layer reads only its part of a tensor that is whole, and has an error for it."""
    return any(
        source >= 0 and before == WHOLE and is_split(after)
        for source, arrives, reads in zip(sources, flow.arrives, flow.reads, strict=True)
        for before, after in zip(arrives, reads, strict=True)
    )


def _exchanges_twice(source: Layouts, target: Layouts) -> bool:
    """Return whether several dimensions change the axis that they split."""
    return sum(map(exchanges, source, target)) > 1


def _crosses(source: Layouts, target: Layouts) -> bool:
    """Whether a dimension's layout changes while one inside of it splits the same axis."""
    for outer, (before, after) in enumerate(zip(source, target, strict=True)):
        if before == after:
            continue
        for inner_before, inner_after in zip(source[outer + 1 :], target[outer + 1 :], strict=True):
            if is_split(before) and inner_before == before and inner_after != WHOLE:
                return True
            if is_split(after) and inner_after == after and is_split(inner_before):
                return True
    return False
