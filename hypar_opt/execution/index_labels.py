"""Labels of indices: which part of each level keeps which channels, rows and images.

An index of an axis has a digit for each level, H1's the most significant; where a level splits the
axis, a device keeps the indices with its own digit, regardless of which other levels split it too.
Layers without weights tie the channels that they read to those that they write, so labels are given
to classes of tied indices. Classes with indices in the same tensors are split together: each tensor
is then split as evenly as these segments allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.execution.ties import Axis, Tie, dealt, ties_of
from hypar_opt.hierarchy import Shares, parts_by_share
from hypar_opt.sharding.layouts import CHANNEL, PARTIAL, SHUFFLED, TOKEN, Layout, is_split
from hypar_opt.workload.mirrored import are_mirrored
from hypar_opt.workload.operands import operands_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network

    Integers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of all axes of a plan's tensors.

    Parameters
    ----------
    of : axis -> (size,)
        The label of every index; digits of levels that do not split the axis are 0.
    splits : axis -> levels
        Where the axis is split, H1 first.
    """

    of: Mapping[Axis, Integers]
    splits: Mapping[Axis, tuple[int, ...]]

    def shuffled(self, network: Network, position: int) -> Integers:
        """Return the labels with which a shuffle reads its input: those of its output."""
        output = Axis(position)
        labels = np.empty_like(self.of[output])
        labels[dealt(network.layers[position], len(labels))] = self.of[output]
        return labels


def labels_of(network: Network, program: Program) -> Labels:
    """Return the labels of a plan's axes; channels tied by layers without weights stay together."""
    return _Labelling(network, program).labels()


def levels_by(program: Program, axis: Layout) -> tuple[int, ...]:
    """Return the levels at which any feature map is split by an axis, H1 first."""
    weights = program.workload.weight_users
    layouts = [
        node_layouts
        for by_node in (program.read, program.written, program.stored)
        for node, node_layouts in enumerate(by_node)
        if node not in weights
    ]
    return tuple(
        level
        for level in range(len(program.rows))
        if any(layout[level] == axis for layout in layouts)
    )


def contiguous_labels(program: Program, size: int, axis: Layout) -> Integers:
    """Return the label of each image or token: contiguous parts, as equal as possible."""
    labels = np.zeros(size, np.intp)
    for level in levels_by(program, axis):
        turn, digits = 0, []
        for images in np.unique(labels, return_counts=True)[1].tolist():
            block, turn = _digits(program, level, images, turn)
            digits.append(block)
        labels += np.concatenate(digits) * program.hierarchy.stride(level)
    return labels


def place_labels(program: Program, size: int, layout: Layout) -> Integers:
    """Return the label of each row, token or expert: contiguous, but for mirrored tokens.

    Source: `hypar_opt.workload.mirrored`.
    """
    equal, accelerators = program.shares is None, program.hierarchy.accelerators
    if layout == TOKEN and equal and size > 1 and are_mirrored(program.workload, accelerators):
        half = contiguous_labels(program, size // 2, layout)
        return np.concatenate([half, half[::-1]])
    return contiguous_labels(program, size, layout)


def _digits(program: Program, level: int, count: int, turn: int) -> tuple[Integers, int]:
    """Return a level's digits of some indices, in order, and the turn of the next piece.

    Parameters
    ----------
    turn
        The part whose turn it is: 0, or the result of the last call.
    """
    size = program.hierarchy.sizes[level]
    if level or program.shares is None:
        parts, turn = _round_robin(count, size, turn)
    else:
        parts, turn = _by_share(count, program.shares, turn)
    return np.repeat(np.arange(size), parts), turn


def _round_robin(count: int, size: int, turn: int) -> tuple[Integers, int]:
    """Return the number of indices of each part, and the part whose turn is next.

    Parts get the remainder in turn, so that even if an axis is divided piece by piece, the first
    parts have one index more than the others.
    """
    parts = np.full(size, count // size)
    parts[np.arange(turn, turn + count % size) % size] += 1
    return parts, (turn + count) % size


def _by_share(count: int, shares: Shares, before: int) -> tuple[Integers, int]:
    """Return the number of indices of each unequal part, and the number divided so far.

    Rounding is over all pieces of an axis together.
    """
    after = before + count
    parts = np.subtract(parts_by_share(after, shares), parts_by_share(before, shares))
    return parts, after


class _Labelling:
    """The indices of all axes in one numbering, and their ties at each level."""

    def __init__(self, network: Network, program: Program) -> None:
        self.network, self.program = network, program
        self.levels = len(program.rows)
        sizes = {
            Axis(~number): network.map_of(~number).channels
            for number in range(len(network.input_names))
        }
        for position, (layer, maps) in enumerate(zip(network.layers, network.maps(), strict=True)):
            sizes[Axis(position)] = maps.pooled.channels
            if layer.reads_ids and "i" in (axis_sizes := layer.sizes(maps)):
                sizes[Axis(position, rows=True)] = axis_sizes["i"]
        self.axes = list(sizes)
        ends = np.cumsum(list(sizes.values()))
        self.slices = {
            axis: slice(end - size, end)
            for (axis, size), end in zip(sizes.items(), ends.tolist(), strict=True)
        }
        self.count = int(ends[-1])
        self.axis_of = np.repeat(np.arange(len(sizes)), list(sizes.values()))
        # Results that are read as separate operands are divided separately.
        begins = {where.start for where in self.slices.values()} | {
            self.slices[Axis(operand.source)].start + operand.channels[0]
            for operand in chain.from_iterable(operands_of(network))
            if operand.channels
        }
        self.result_of = np.isin(np.arange(self.count), list(begins)).cumsum()
        self.label = np.zeros(self.count, np.intp)
        self.ties: dict[tuple[int, str], list[Tie]] = {}

    def labels(self) -> Labels:
        splits = {axis: tuple(self.levels_of(axis)) for axis in self.axes}
        for level in range(self.levels):
            split = np.array([level in splits[axis] for axis in self.axes])
            self.divide(level, split[self.axis_of])
        of = {axis: self.label[where] for axis, where in self.slices.items()}
        return Labels(of, splits)

    def levels_of(self, axis: Axis) -> list[int]:
        return [level for level in range(self.levels) if axis in self.split_axes[level]]

    @cached_property
    def split_axes(self) -> list[set[Axis]]:
        """The axes that each level splits."""
        program, shared = self.program, self.program.workload.shared
        split: list[set[Axis]] = [set() for _ in range(self.levels)]
        for level, axes in enumerate(split):
            for node in range(len(program.workload.nodes)):
                position = program.workload.tensor_writers.get(node, node) - shared
                layouts = (program.written[node][level], program.stored[node][level])
                if position >= 0 and CHANNEL in layouts:
                    axes.add(Axis(position))
                if node < shared:
                    continue
                if self.network.layers[position].reads_ids:
                    if program.written[node][level] == PARTIAL:
                        axes.add(Axis(position, rows=True))
                else:
                    axes.update(
                        Axis(operand.source)
                        for number, operand in enumerate(operands_of(self.network)[position])
                        if program.read_as(node, number)[level] == CHANNEL
                    )
        return split

    def divide(self, level: int, split: NDArray[np.bool_]) -> None:
        """Give each class of tied indices of split axes its digit of a level."""
        root = self.classes(level)
        members = np.flatnonzero(split)
        first, member_class = np.unique(root[members], return_inverse=True)
        size = self.program.hierarchy.sizes[level]
        part = np.full(self.count, -1)
        dealt_from = self.dealt_from(level)
        waiting = np.ones(len(first), bool)
        component = self.components(level)
        turns: dict[int, int] = {}
        while waiting.any():
            # A shuffle's own channels are labelled after those that it reads: as many stay as can.
            waits = np.zeros(len(first), bool)
            source = dealt_from[members]
            unknown = (source >= 0) & (part[source] < 0) & split[source]
            waits[member_class[unknown]] = True
            ready = waiting & ~waits if (waiting & ~waits).any() else waiting.copy()
            chosen = ready[member_class]
            source_part = np.where(source >= 0, part[source], -1)[chosen]
            results, labels = self.result_of[members[chosen]], self.label[members[chosen]]
            codes = results * self.program.hierarchy.accelerators + labels
            codes = codes * (size + 1) + source_part + 1
            of_class = np.full(len(first), -1)
            for together in _classes_by_codes(member_class[chosen], codes):
                among = component[self.axis_of[first[together[0]]]]
                of_class[together], turns[among] = _digits(
                    self.program, level, len(together), turns.get(among, 0)
                )
            part[members[chosen]] = of_class[member_class[chosen]]
            waiting &= ~ready
        self.label[members] += part[members] * self.program.hierarchy.stride(level)

    def classes(self, level: int) -> Integers:
        """Return, for each index, the smallest index that it is tied to at a level."""
        pairs = [self.pairs(tie) for tie in self.tied_at(level)]
        parent = np.arange(self.count)
        if not pairs:
            return parent
        left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
        while True:
            low = np.minimum(parent[left], parent[right])
            high = np.maximum(parent[left], parent[right])
            if (low == high).all():
                return parent
            np.minimum.at(parent, high, low)
            while (parent[parent] != parent).any():
                parent = parent[parent]

    def components(self, level: int) -> Integers:
        """Return, for each axis, the first axis that it is tied to at a level, transitively."""
        first = np.arange(len(self.axes))
        number = {axis: position for position, axis in enumerate(self.axes)}
        for tie in self.tied_at(level):
            left, right = first[number[tie.left]], first[number[tie.right]]
            first[first == max(left, right)] = min(left, right)
        return first

    def tied_at(self, level: int) -> list[Tie]:
        program, shared = self.program, self.program.workload.shared
        tied = []
        for position in range(len(self.network.layers)):
            if program.read[position + shared][level] == CHANNEL:
                column = program.rows[level][position + shared]
                choice = program.workload.choices_of_nodes[position + shared][column]
                assert choice is not None, "it reads a part of its channels"
                key = position, choice.axis
                if key not in self.ties:
                    self.ties[key] = list(ties_of(self.network, *key))
                tied += self.ties[key]
        for node, users in program.workload.weight_users.items():
            if is_split(program.weights(node)[level]):
                axes = [
                    self.weight_axis(user - shared, program.rows[level][node]) for user in users
                ]
                sizes = [
                    np.arange(self.slices[axis].stop - self.slices[axis].start) for axis in axes
                ]
                tied += [
                    Tie(axes[0], sizes[0], axis, size)
                    for axis, size in zip(axes[1:], sizes[1:], strict=True)
                    if len(size) == len(sizes[0])
                ]
        return tied

    def weight_axis(self, position: int, column: int) -> Axis:
        """Return the axis along which a choice of a layer splits the weights that it shares."""
        layer, workload = self.network.layers[position], self.program.workload
        choice = workload.choices_of_nodes[position + workload.shared][column]
        if choice and choice.axis in layer.axes.output:
            return Axis(position)
        if layer.reads_ids:
            return Axis(position, rows=True)
        return Axis(self.network.sources[position][0])

    def pairs(self, tie: Tie) -> tuple[Integers, Integers]:
        left, right = self.slices[tie.left].start, self.slices[tie.right].start
        return tie.left_indices + left, tie.right_indices + right

    def dealt_from(self, level: int) -> Integers:
        """Return, for each channel that a split shuffle writes, the one that it reads; else -1."""
        source = np.full(self.count, -1)
        shared = self.program.workload.shared
        for position, layer in enumerate(self.network.layers):
            if self.program.read[position + shared][level] == SHUFFLED:
                where = self.slices[Axis(position)]
                read = self.slices[Axis(self.network.sources[position][0])]
                source[where] = read.start + dealt(layer, where.stop - where.start)
        return source


def _classes_by_codes(of: Integers, codes: Integers) -> list[Integers]:
    """Return the classes with the same codes together, each in order.

    Parameters
    ----------
    of, codes : (members,)
        The class of each member, and what has to agree.
    """
    order = np.lexsort((codes, of))
    classes, starts = np.unique(of[order], return_index=True)
    together: dict[bytes, list[int]] = {}
    for one, part in zip(classes.tolist(), np.split(codes[order], starts[1:]), strict=True):
        together.setdefault(part.tobytes(), []).append(one)
    return [np.array(members) for members in together.values()]
