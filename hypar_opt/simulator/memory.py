"""The memory of a training step as a device holds it, tensor by tensor.

Source: docs/decisions/0029-memory-of-a-device.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice, pairwise
from math import prod
from typing import TYPE_CHECKING

from hypar_opt.costs.device_load import WeightBytes
from hypar_opt.costs.saved_tensors import INPUT, inputs_of, saved_tensors, stored_output
from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.accelerator import SINGLE, AcceleratorGroup
from hypar_opt.hierarchy import parts_by_share
from hypar_opt.sharding.layouts import BATCH as BY_BATCH
from hypar_opt.sharding.layouts import CHANNEL, COLUMN, EXPERT, ROW, SHUFFLED, TOKEN
from hypar_opt.sharding.program import Program
from hypar_opt.simulator.device_memory import DeviceMemory, LayerMemory, Moment
from hypar_opt.step.shares import Share
from hypar_opt.workload.layer_tensors import Boundary, Extent, Shape
from hypar_opt.workload.operators.axes import BATCH, EXPERTS, REPLICATING, Axes
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import SIDES
from hypar_opt.workload.shards import Shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.saved_tensors import SavedTensor
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.hardware.array import Array
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.simulator.options import RunOptions
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.saved import Saved
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload


def memory_of(
    plan: Plan,
    workload: Workload,
    rows: Rows,
    options: RunOptions,
    array: Array | None = None,
    weight_bytes: WeightBytes | None = None,
) -> DeviceMemory:
    """Return the bytes that the fullest accelerator holds in a plan's step.

    Between groups of accelerators the one that has the least left of its own memory.

    Parameters
    ----------
    workload
        The tensors of one micro-batch.
    rows : (levels, nodes)
        The choices of all the workload's nodes.
    options
        What is computed again and what is sharded, and whether shares are exact.
    array
        Attention is fused unless its accelerators say otherwise.
    weight_bytes
        None for those of the plan's optimizer.
    """
    network, of_training = plan.network.description, FrozenDict(options.of_training)
    held = []
    parts: Sequence[tuple[Accelerator | None, Share | None]] = [(None, None)]
    if array is not None:
        parts = parts_between_groups(plan, array)
    for accelerator, share in parts:
        fused = Fused.on(accelerator)
        repeats = options.repeats(network, workload, plan.element_bytes, fused=fused)
        counted = counted_memory(
            *(plan, network, workload, rows, repeats),
            *(accelerator, weight_bytes),
            exact_shares=options.exact_shares,
            share=share,
        )
        if accelerator is None:
            return DeviceMemory(plan, *counted, options=of_training)
        reserve = reserved_by(accelerator, workload, rows, repeats, plan.hierarchy)
        capacity = int(accelerator.dram_capacity)
        group = accelerator.name if isinstance(accelerator, AcceleratorGroup) else ""
        held.append(DeviceMemory(plan, *counted, reserve, capacity, of_training, group))
    return max(held, key=lambda own: Fraction(own.total, own.capacity or 1))


def reserved_by(
    accelerator: Accelerator,
    workload: Workload,
    rows: Rows,
    repeats: Repeats,
    hierarchy: Hierarchy,
) -> int:
    """Return the bytes that no tensor of a plan may take: those of its communicators, too.

    A communicator is of the accelerators of some levels: those at which a layer is split along one
    axis, or reduces gradients, or gathers what is sharded. Parameters as for `memory_of`.
    """
    groups: set[tuple[int, ...]] = set()
    axes: set[str] = set()
    alike = {
        (*(row[n] for row in rows), node.kind, workload.weights[n] > 0, n in repeats.sharded): n
        for n, node in enumerate(workload.nodes)
    }
    for node in alike.values():
        choices = [workload.choices_of_nodes[node][row[node]] for row in rows]
        of_levels = [choice.axis if choice else BATCH for choice in choices]
        axes.update(of_levels)
        for axis in {*of_levels} - {"", BATCH}:
            groups.add(tuple(n for n, own in enumerate(of_levels) if own == axis))
        if workload.weights[node]:
            begins = repeats.begins if node in repeats.sharded else repeats.begins[:1]
            for first, end in pairwise((*begins, hierarchy.levels)):
                groups.add(tuple(n for n in range(first, end) if of_levels[n] == BATCH))
    return accelerator.reserved(len(groups - {()}), experts=EXPERTS.axis in axes)


def parts_between_groups(
    problem: ProblemFields, array: Array
) -> Sequence[tuple[Accelerator, Share | None]]:
    """Return an accelerator of each part of H1 between groups with its share; else one of all."""
    shares = Share.each(problem.part_shares) if array.groups else [None]
    return [*zip(array.accelerators_of_parts, shares, strict=True)]


def counted_memory(
    problem: ProblemFields,
    network: Network,
    workload: Workload,
    rows: Rows,
    repeats: Repeats,
    accelerator: Accelerator | None,
    weight_bytes: WeightBytes | None = None,
    *,
    exact_shares: bool = False,
    share: Share | None = None,
) -> tuple[tuple[LayerMemory, ...], Moment]:
    """Return the bytes of each layer, and the largest moment; parameters as for `memory_of`.

    Parameters
    ----------
    repeats
        What is computed again and what is sharded.
    share
        That of the accelerator's part of H1, between groups of accelerators.
    """
    if weight_bytes is None:
        asked = problem.element_bytes, problem.constraints.optimizer
        weight_bytes = WeightBytes.of(*asked, problem.training.reduce_bytes)
    each = weight_bytes
    if problem.inference:
        each = WeightBytes(each.weight, 0, 0)
    fused = Fused.on(accelerator)
    program = Program(workload, rows, problem.hierarchy)
    count = _Count(program, network, problem, repeats, exact_shares, fused, share)
    saved, again = count.saved()
    live, borders = count.live(), count.borders()
    held = count.weights(each)
    layers, moments = [], []
    for node, layer in enumerate(workload.layers, workload.shared):
        # The network's input has no error.
        errors = live[node] + borders[node] * (node in workload.readers)
        moments.append(
            Moment(layer.name, again.get(node, 0), *count.while_running(node, each), errors)
        )
        layers.append(LayerMemory(layer.name, *held[node], saved.get(node, 0), moments[-1].total))
    # Among equal layers the last: backward it comes first, when all that is saved is there.
    return tuple(layers), max(reversed(moments), key=lambda own: own.total)


@dataclass(frozen=True)
class _Count:
    """The elements of tensors on the accelerator that has most of each."""

    program: Program
    network: Network
    problem: ProblemFields
    repeats: Repeats
    exact_shares: bool
    fused: Fused
    share: Share | None = None
    known: dict[tuple[Extent, Layouts], int] = field(default_factory=dict)
    """The bytes of feature maps."""
    known_parts: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    """What `_parts` found."""

    @property
    def _workload(self) -> Workload:
        return self.program.workload

    @property
    def _layers(self) -> range:
        return range(self._workload.shared, len(self._workload.nodes))

    def _map(self, extent: Extent, layouts: Layouts) -> int:
        """Return the bytes of a feature map in some layouts."""
        key = extent, layouts
        if key not in self.known:
            self.known[key] = self.problem.element_bytes * self._elements_of_map(*key)
        return self.known[key]

    def _elements_of_map(self, extent: Extent, layouts: Layouts) -> int:
        if layouts and self._is_elsewhere(layouts[0]):
            return 0
        axes = ((BY_BATCH,), (CHANNEL, SHUFFLED), (TOKEN,), (ROW,), (COLUMN,), (EXPERT,))
        parts = [self.program.parts(layouts, *among) for among in axes]
        at_h1 = [bool(layouts) and layouts[0] in among for among in axes]
        rest = extent.elements // prod(extent[1:])
        sizes, parts, at_h1 = [rest, *extent[1:]], [1, *parts], [False, *at_h1]
        return self._longest(sizes, parts, at_h1)

    def _is_elsewhere(self, side: str) -> bool:
        """Return whether a layout or choice at H1 is all of a tensor in another part."""
        return self.share is not None and side in SIDES and SIDES.index(side) != self.share.side

    def _longest(self, sizes: Sequence[int], parts: Sequence[int], at_h1: Sequence[bool]) -> int:
        """Return the elements in which an accelerator has most of a tensor with some axes.

        Parameters
        ----------
        parts, at_h1
            Of each axis: into how many parts it is split, and whether H1 splits it.
        """
        split = [*zip(sizes, parts, strict=True)]
        if self.share is not None:
            split = [
                self._of_share(*own) if here else own
                for own, here in zip(split, at_h1, strict=True)
            ]
        if self.exact_shares:
            return _up(prod(size for size, _ in split), prod(each for _, each in split))
        return prod(_up(size, each) for size, each in split)

    def _of_share(self, size: int, parts: int) -> tuple[int, int]:
        """Return what a part of H1 has of an axis that H1 splits, and the parts below, for each."""
        assert self.share is not None
        own, count = self.share.parts[self.share.side], len(self.share.parts)
        if self.exact_shares:
            return size * own, self.share.whole * parts // count
        return parts_by_share(size, self.share.parts)[self.share.side], parts // count

    def _parts(self, node: int, first: int = 0) -> dict[str, int]:
        """Return into how many parts a node's choices from a level on split each axis."""
        if (node, first) in self.known_parts:
            return self.known_parts[node, first]
        parts = self.known_parts[node, first] = {}
        choices = self._workload.choices_of_nodes[node]
        levels = zip(self.program.rows, self.program.hierarchy.sizes, strict=True)
        for row, size in islice(levels, first, None):
            choice = choices[row[node]]
            axis = choice.axis if choice else BATCH
            parts[axis] = parts.get(axis, 1) * size
        return parts

    def _shards(self, node: int) -> list[int]:
        """Return into how many shards a node's weights, gradient and state are split."""
        firsts = self.repeats.sharded.get(node, Shards())
        weight = self._workload.nodes[node].operator.axes.weight
        shards = []
        for first in reversed(firsts):
            parts = {} if first is None else self._parts(node, first)
            shards.append(prod(parts.get(axis, 1) for axis in REPLICATING if axis not in weight))
        return shards

    def _elements(self, node: int, axes: Axes) -> int:
        """Return the elements of a tensor with some of a node's axes; 0 for none."""
        sizes, parts = self._workload.nodes[node].sizes, self._parts(node)
        own = [axis for axis in axes if axis in sizes]
        rows = self.program.rows
        made = rows[0][node] if rows else 0
        if not own or (rows and self._is_elsewhere(self._workload.choices[made])):
            return 0
        choice = self._workload.choices_of_nodes[node][made]
        top = (choice.axis if choice else BATCH) if rows else None
        each = [parts.get(axis, 1) for axis in own]
        return self._longest([sizes[axis] for axis in own], each, [axis == top for axis in own])

    def weights(self, each: WeightBytes) -> dict[int, tuple[int, int, int]]:
        """Return the bytes of weights, gradients and state by layer; shared ones', of a user."""
        held: dict[int, list[int]] = {node: [0, 0, 0] for node in self._layers}
        users = self._workload.weight_users
        for node, stored in enumerate(self._workload.stored):
            if not stored:
                continue
            own = self._elements(node, self._workload.nodes[node].operator.axes.weight)
            layer = min(users[node]) if node in users else node
            for n, (size, shards) in enumerate(zip(each, self._shards(node), strict=True)):
                held[layer][n] += size * _up(own, shards)
        return {node: (own[0], own[1], own[2]) for node, own in held.items()}

    def while_running(self, node: int, each: WeightBytes) -> tuple[int, int]:
        """Return the bytes of a layer's gathered weights and gradients, and of its loss."""
        layer = self._workload.nodes[node]
        gathered = 0
        if node in self.repeats.sharded and not layer.operator.reads_ids:
            weights, gradient, _ = self._shards(node)
            copies = (weights > 1) + (bool(each.gradient) and gradient > 1)
            if copies:
                own = self._elements(node, layer.operator.axes.weight)
                gathered = own * each.weight * copies
        if self.problem.inference:
            return gathered, 0
        # Single precision needs no copy.
        singles = self._saves(node).singles
        singles -= bool(singles) and self.problem.element_bytes >= SINGLE
        if not singles:
            return gathered, 0
        logits = self._map(_extent(layer.pooled), self.program.stored[node])
        return gathered, singles * SINGLE * logits // self.problem.element_bytes

    def _saves(self, node: int) -> Saved:
        return self._workload.nodes[node].operator.saves(fused=self.fused)

    def live(self) -> dict[int, int]:
        """Return the bytes of errors between layers that exist while each layer runs backward.

        A tensor's error exists from its last reader's pass to its writer's; in inference a feature
        map from its writer's pass to its last reader's.
        """
        last: dict[int, int] = {}
        for node in self._layers:
            for writer, _ in inputs_of(self.network, self._workload, node):
                saves = self._saves(node)
                if self.problem.inference or not saves.unwritten:
                    # The error of logits is the loss's own.
                    last[writer] = node - bool(saves.singles or saves.unwritten)
        found = dict.fromkeys(self._layers, 0)
        for writer, reader in last.items():
            if writer != INPUT:
                size = self._bytes(stored_output(self._workload, writer))
                for node in range(writer, reader + 1):
                    found[node] += size
        for node in self._layers:
            # Backward the error of scores that are written is, too.
            if not (self.fused.attention or self.problem.inference):
                inner = self._workload.nodes[node].operator.inner
                found[node] += self.problem.element_bytes * self._elements(node, inner)
        return found

    def saved(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the bytes saved at each layer, and those that its backward pass computes again."""
        if self.problem.inference:
            return {}, {}
        tensors = saved_tensors(self.network, self._workload, self.repeats.again, fused=self.fused)
        kept, again = (
            {node: sum(map(self._bytes, own)) for node, own in of_layers.items()}
            for of_layers in (tensors.kept, tensors.again)
        )
        # Who reads its input backward, too, does not exchange the borders twice.
        for node, own in self.borders().items():
            if not self._saves(node).inputs:
                continue
            first = self.repeats.again.get(node)
            if first is None:
                kept[node] = kept.get(node, 0) + own
            for other, group in self.repeats.again.items():
                if first is not None and group == first:
                    again[other] = again.get(other, 0) + own
        return kept, again

    def borders(self) -> dict[int, int]:
        """Return the bytes of rows and columns of other parts that each layer reads of images."""
        return dict.fromkeys(self._layers, 0) | {
            node: self.problem.element_bytes * self._of_borders(node)
            for node in self._layers
            if self._workload.nodes[node].borders
        }

    def _of_borders(self, node: int) -> int:
        """Return the elements at the borders of a part that lies between others."""
        layer, read = self._workload.nodes[node], self.program.read[node]
        axes = ((BY_BATCH,), (CHANNEL, SHUFFLED), (ROW,), (COLUMN,))
        each = (self.program.parts(read, *among) for among in axes)
        own = list(map(_up, layer.input, each))
        before = prod(own)
        for halo in self.program.halos(node, of_input=True):
            own[2 + (halo.layout == COLUMN)] += halo.before + halo.behind
        return prod(own) - before

    def _bytes(self, tensor: SavedTensor) -> int:
        if tensor.own is not None:
            each = tensor.own.elements * self.problem.element_bytes + tensor.own.bytes
            return each * self._elements(tensor.node, tensor.own.axes)
        laid_out = self.program.read if tensor.reads else self.program.stored
        return self._map(_extent(tensor.shape), laid_out[tensor.node])


def _extent(shape: Shape) -> Extent:
    return Boundary(0, 0, shape).extent


def _up(size: int, parts: int) -> int:
    return -(-size // parts)
