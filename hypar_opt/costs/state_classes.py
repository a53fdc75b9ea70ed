"""All levels at once on any graph: states in classes, and pairs of states charged on demand.

Levels that cost the same may be permuted, as long as both ends of a boundary are permuted alike. A
state's class is how many levels of each group of such levels make each choice: 100 classes of 729
states where two groups of three levels have three choices. What a boundary is charged at least for
two classes follows from one pair of states for each way to align them.

Source: docs/decisions/0023-classes-of-states.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.kinds import kinds_of_boundaries, kinds_of_nodes, numbered
from hypar_opt.costs.state_tables import MAX_ENTRIES, in_mixed_radix, nodes_by_state
from hypar_opt.costs.states import added_up
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.costs.weights import unlike
from hypar_opt.deadline import NEVER
from hypar_opt.errors import RefusedError
from hypar_opt.sharding.weights import replicated

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.state_tables import State
    from hypar_opt.costs.states import Indices
    from hypar_opt.deadline import Deadline
    from hypar_opt.workload.tensors import Workload

_LARGEST_ARRAY = 2**22
"""Elements of the largest array of pairs of states that is charged at once."""


@dataclass(frozen=True, eq=False)
class ClassTable:
    """A joint table whose pairs of states are charged when a solver asks for them.

    Nodes and boundaries that are charged alike are of one kind: repetitions of a block share
    theirs.

    Parameters
    ----------
    classes : (states,)
        The class of each state; states are in canonical order.
    node : (kinds of nodes, states)
    allowed : (kinds of nodes, states) bool
    node_kinds : (nodes,)
    least : (kinds of boundaries, classes, classes)
        What a boundary is charged at least for states of two classes, the source's first.
    pairs
        Returns what a kind of boundary is charged for some states of its source and some of its
        target: ``(sources, targets)``.
    boundary_kinds : (boundaries,)
    ends, unit, resolution
        As in `CostTable`.
    """

    classes: NDArray[np.intp]
    node: Integers
    allowed: NDArray[np.bool_]
    node_kinds: NDArray[np.intp]
    least: Integers
    pairs: Callable[[int, NDArray[np.intp], NDArray[np.intp]], Integers]
    boundary_kinds: NDArray[np.intp]
    ends: NDArray[np.intp]
    unit: str
    resolution: int

    @property
    def exact(self) -> bool:
        """Whether each class is one state."""
        return bool(self.least.shape[-1] == len(self.classes))

    @cached_property
    def bound(self) -> int:
        """A lower bound on every assignment: each node and each boundary at its cheapest."""
        node = np.where(self.allowed, self.node, self.node.max()).min(axis=1)
        least = self.least.min(axis=(1, 2))
        every = node[self.node_kinds].tolist() + least[self.boundary_kinds].tolist()
        return sum(map(int, every))

    def price(self, assignment: Sequence[int]) -> int:
        """Return an assignment's cost, as the entries count."""
        states = np.array(assignment, np.intp)
        total = sum(map(int, self.node[self.node_kinds, states].tolist()))
        for kind, ends in zip(self.boundary_kinds.tolist(), states[self.ends], strict=True):
            total += int(self.pairs(kind, ends[:1], ends[1:])[0, 0])
        return total


def classed(
    cost: CostModel,
    workload: Workload,
    states: Sequence[State],
    allowed: NDArray[np.bool_],
    deadline: Deadline = NEVER,
) -> ClassTable:
    """Price all levels at once by classes of states.

    Parameters
    ----------
    states : (states, levels)
        In canonical order.
    allowed : (nodes, states)

    Raises
    ------
    RefusedError
        If there are more states or pairs of classes than memory allows.
    NoAnswerError
        If the deadline passes.
    """
    made = np.array(states, np.intp).reshape(len(states), -1).T
    boundary_kinds, boundaries = kinds_of_boundaries(workload)
    alike = zip(kinds_of_nodes(workload).numbers.tolist(), allowed, strict=True)
    node_kinds, nodes = numbered((kind, row.tobytes()) for kind, row in alike)
    _check_size(len(nodes) * len(states))
    node = nodes_by_state(cost, workload, nodes, len(made), deadline)
    order: Indices = in_mixed_radix(states, len(workload.choices))
    node = node[:, order]
    pairs = PairsOfStates(cost, workload, made, boundaries, node.max(axis=1)[node_kinds])
    alignments = Alignments.of(cost.groups(workload, len(made)), made, len(workload.choices))
    _check_size(len(boundaries) * alignments.classes**2)
    least, highest = pairs.least(alignments, deadline)
    most = zip((node.max(axis=1), highest), (node_kinds, boundary_kinds), strict=True)
    dtype = exact_dtype(sum(sum(part[kinds].tolist()) for part, kinds in most))
    return ClassTable(
        classes=alignments.classes_of(made),
        node=node.astype(dtype),
        allowed=allowed[nodes],
        node_kinds=node_kinds,
        least=least.astype(dtype),
        pairs=lambda kind, sources, targets: pairs.of(kind, sources, targets).astype(dtype),
        boundary_kinds=boundary_kinds,
        ends=workload.ends,
        unit=cost.unit,
        resolution=cost.resolution,
    )


@dataclass(frozen=True, eq=False)
class Alignments:
    """All ways to align the levels of two states, but for the order of levels of one group.

    Parameters
    ----------
    groups
        The group of each level.
    states : (levels, states)
        All of them. Classes are numbered in the order of their first states.
    choices
    sources, targets : (levels, alignments)
        One pair of states for each.
    """

    groups: tuple[int, ...]
    states: Indices
    choices: int
    sources: Indices
    targets: Indices

    @classmethod
    def of(cls, groups: Sequence[int], states: Indices, choices: int) -> Alignments:
        """Return the alignments of levels in groups.

        Raises
        ------
        RefusedError
            If they are more than memory allows.
        """
        levels = [np.flatnonzero(np.array(groups) == group) for group in dict.fromkeys(groups)]
        counts = [math.comb(choices**2 + len(some) - 1, len(some)) for some in levels]
        _check_size(math.prod(counts) * len(groups))
        numbers = np.unravel_index(np.arange(math.prod(counts)), counts)
        pairs = np.zeros((len(groups), math.prod(counts)), np.intp)
        for some, number in zip(levels, numbers, strict=True):
            kinds = itertools.combinations_with_replacement(range(choices**2), len(some))
            pairs[some] = np.array(list(kinds), np.intp).T[:, number]
        return cls(tuple(groups), states, choices, pairs // choices, pairs % choices)

    @cached_property
    def classes(self) -> int:
        """The number of classes of states."""
        return len(self._counts[0])

    def classes_of(self, states: Indices) -> Indices:
        """Return the classes of states, ``(levels, states)``."""
        counts, numbers = self._counts
        found: Indices = numbers[np.searchsorted(counts, self._counts_of(states))]
        return found

    @cached_property
    def by_classes(self) -> tuple[Indices, Indices]:
        """The alignments by the classes of source and target, and where each pair begins."""
        source, target = map(self.classes_of, (self.sources, self.targets))
        pair = source * self.classes + target
        order = pair.argsort(kind="stable")
        return order, np.searchsorted(pair[order], np.arange(self.classes**2))

    @cached_property
    def _counts(self) -> tuple[Indices, Indices]:
        """The counts of each class, ascending, and its number."""
        counts, first = np.unique(self._counts_of(self.states), return_index=True)
        return counts, first.argsort().argsort()

    def _counts_of(self, states: Indices) -> Indices:
        """Return how many levels of each group make each choice, as one number."""
        counts = np.zeros(states.shape[1], np.intp)
        for group in dict.fromkeys(self.groups):
            here = states[np.array(self.groups) == group]
            for choice in range(self.choices):
                counts = counts * (len(here) + 1) + (here == choice).sum(axis=0)
        return counts


@dataclass(frozen=True, eq=False)
class PairsOfStates:
    """What boundaries are charged for pairs of states.

    Parameters
    ----------
    states : (levels, states)
    boundaries : (kinds,)
        One boundary of each kind.
    highest : (nodes,)
        The highest charge of each node.
    """

    cost: CostModel
    workload: Workload
    states: Indices
    boundaries: Indices
    highest: Integers

    def of(self, kind: int, sources: Indices, targets: Indices) -> Integers:
        """Return what a kind of boundary is charged for some states: ``(sources, targets)``."""
        step = max(1, _LARGEST_ARRAY // (len(self.states) * len(targets)))
        rows = [
            self._charges(
                kind,
                self.states[:, sources[first : first + step], None],
                self.states[:, None, targets],
            )
            for first in range(0, len(sources), step)
        ]
        return np.concatenate(rows)

    def least(self, alignments: Alignments, deadline: Deadline) -> tuple[Integers, Integers]:
        """Return what each kind is charged at least for two classes, and at most for any."""
        order, starts = alignments.by_classes
        shape = alignments.classes, alignments.classes
        least, highest = [], []
        for kind in range(len(self.boundaries)):
            deadline.check()
            charges = self._charges(kind, alignments.sources, alignments.targets)
            least.append(np.minimum.reduceat(charges[order], starts).reshape(shape))
            highest.append(int(charges.max()))
        if not least:
            return np.zeros((0, *shape), np.int64), np.zeros(0, object)
        return np.array(least), np.array(highest, object)

    def _charges(self, kind: int, sources: Indices, targets: Indices) -> Integers:
        """Return a kind's charges for pairs of states, whose first axis is their levels."""
        boundary, shape = self.boundaries[kind], np.broadcast_shapes(sources.shape, targets.shape)
        if self.workload.boundaries[boundary].weights:
            stored = self.workload.ends[boundary, 0]
            differ = unlike(sources, targets, replicated(self.workload, stored)).any(axis=0)
            penalty = 1 + int(self.highest[stored])
            charge: Integers = np.where(differ, np.array(penalty, exact_dtype(penalty)), 0)
            return charge
        number = boundary.reshape((1,) * (len(shape) - 1))
        charges = self.cost.edge(self.workload, number, [sources], [targets])
        return np.broadcast_to(added_up(charges), shape[1:])


def _check_size(entries: int) -> None:
    if entries > MAX_ENTRIES:
        raise RefusedError(
            f"all levels together need {entries:,} entries; at most {MAX_ENTRIES:,} are kept in"
            " memory"
        )
