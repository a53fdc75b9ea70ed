"""All levels at once on any graph: states in classes, and pairs of states charged on demand.

Levels that cost the same may be permuted, as long as both ends of a boundary are permuted alike. A
state's class is how many levels of each group of such levels make each choice: 100 classes of 729
states where two groups of three levels have three choices. The least charge of a boundary for two
classes follows from one pair of states per alignment.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.alignments import (
    StateClasses,
    alignments,
)
from hypar_opt.costs.kinds import index_by_key, kinds_of_boundaries
from hypar_opt.costs.state_charges import (
    charged_pairs,
    choices_by_level,
    in_blocks,
    nodes_by_state,
    state_indices,
)
from hypar_opt.costs.weights import mismatch
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.sharding.weights import replicated
from hypar_opt.step.uneven import sizes_at_ends
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import SINGLE_PASS

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.table import Limit
    from hypar_opt.deadline import Deadline
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.tensors import Workload

_CACHED = 2**14
"""Alignments of states that are charged at once: their arrays stay in a processor's cache."""


@dataclass(frozen=True, eq=False)
class Partition:
    """States in classes.

    Parameters
    ----------
    classes : (states,)
        The class of each state.
    lower_bounds : (kinds of boundaries, classes, classes)
        The least charge of a boundary for states of two classes, the source's first.
    """

    classes: NDArray[np.intp]
    lower_bounds: Integers

    @property
    def exact(self) -> bool:
        """Whether each class is one state."""
        return bool(self.lower_bounds.shape[-1] == len(self.classes))

    def merged(self, classes: NDArray[np.intp]) -> Partition:
        """Return a partition whose classes, ``(states,)``, are unions of these."""
        into = np.zeros(self.lower_bounds.shape[-1], np.intp)
        into[self.classes] = classes
        order = into.argsort(kind="stable")
        starts = np.searchsorted(into[order], np.arange(classes.max() + 1))
        rows = np.minimum.reduceat(self.lower_bounds[:, order], starts, axis=1)
        lowest: Integers = np.minimum.reduceat(rows[:, :, order], starts, axis=2)
        return Partition(classes, lowest)


@dataclass(frozen=True, eq=False)
class ClassTable:
    """A joint table whose pairs of states are charged when a solver asks for them.

    Nodes and boundaries that are charged alike are of one kind: repetitions of a block share
    theirs.

    Parameters
    ----------
    states : (levels, states)
        The choices of each, in canonical order.
    partitions
        Partitions of the states, from coarse to fine. The first always fits into memory.
    node : (kinds of nodes, states)
    allowed : (kinds of nodes, states) bool
    node_kinds : (nodes,)
    pairs
        Returns the charges of a kind of boundary for some states of its source and some of its
        target: ``(sources, targets)``.
    boundary_kinds : (boundaries,)
    highest : (kinds of boundaries,)
        The highest charge of a boundary.
    ends, unit, resolution
        As in `CostTable`.
    limits
        Loads ``(kinds of nodes, states)``, each with its capacity.
    hard_kinds
        The kinds of boundaries whose charges are penalties, above those of all assignments.
    max_exact_pairs
        The most pairs of states that are charged exactly at a threshold; None for no limit.
    cache
        Optima at prices of loads, and labels, which do not depend on capacities.
    """

    states: Indices
    partitions: Sequence[Partition]
    node: Integers
    allowed: NDArray[np.bool_]
    node_kinds: NDArray[np.intp]
    pairs: Callable[[int, NDArray[np.intp], NDArray[np.intp]], Integers]
    boundary_kinds: NDArray[np.intp]
    highest: Integers
    ends: NDArray[np.intp]
    unit: str
    resolution: int
    limits: tuple[Limit, ...] = ()
    hard_kinds: frozenset[int] = frozenset()
    max_exact_pairs: int | None = None
    cache: dict[Hashable, Any] = field(default_factory=dict)

    @cached_property
    def bound(self) -> int:
        """A lower bound on every assignment: each node and each boundary at its cheapest."""
        node = np.where(self.allowed, self.node, self.node.max()).min(axis=1)
        of_boundaries = self.partitions[0].lower_bounds.min(axis=(1, 2))
        lowest = node[self.node_kinds].tolist() + of_boundaries[self.boundary_kinds].tolist()
        return sum(map(int, lowest))

    @property
    def max_total(self) -> int:
        """An upper bound on an assignment's cost: the highest charge of each node and boundary."""
        node = self.node.max(axis=1)[self.node_kinds], self.highest[self.boundary_kinds]
        return sum(sum(part.tolist()) for part in node)

    def within(self, capacities: Sequence[int]) -> ClassTable:
        """Return the table with other capacities of its loads."""
        loads = (load for load, _ in self.limits)
        return replace(self, limits=tuple(zip(loads, capacities, strict=True)))

    def limited(self, limits: Sequence[Limit], weights: NDArray[np.bool_]) -> ClassTable:
        """Return the table with limits, and a penalty above all costs where weights differ.

        Storing weights whole takes memory, so that other nodes may have to change too.

        Parameters
        ----------
        limits
            Loads, ``(nodes, states)``, with their capacities.
        weights : (boundaries,)
            Which boundaries lead from shared weights.
        """
        rows = np.concatenate([load for load, _ in limits], axis=1).tolist()
        kinds, nodes = index_by_key(zip(self.node_kinds.tolist(), map(tuple, rows), strict=True))
        kinds_before = self.node_kinds[nodes]
        hard = frozenset(self.boundary_kinds[weights].tolist())
        penalised = self.with_big_m(hard, 1 + self.max_total)
        return replace(
            penalised,
            node=penalised.node[kinds_before],
            allowed=self.allowed[kinds_before],
            node_kinds=kinds,
            limits=tuple((load[nodes], capacity) for load, capacity in limits),
            hard_kinds=hard,
            cache={},
        )

    def with_big_m(self, kinds: frozenset[int], penalty: int) -> ClassTable:
        """Return the table with a penalty for each nonzero charge of some kinds of boundaries."""
        if not kinds:
            return self
        highest = self.highest.astype(object)
        highest[[*kinds]] = penalty
        charging = replace(self, highest=highest)
        dtype = exact_dtype(charging.max_total)

        def charged(kind: int, charges: Integers) -> Integers:
            entries: Integers = (charges > 0).astype(dtype) * penalty if kind in kinds else charges
            return entries.astype(dtype)

        partitions = [
            Partition(
                part.classes, np.stack([charged(*kind) for kind in enumerate(part.lower_bounds)])
            )
            for part in self.partitions
        ]
        return replace(
            charging,
            partitions=partitions,
            node=self.node.astype(dtype),
            pairs=lambda kind, *ends: charged(kind, self.pairs(kind, *ends)),
        )

    @property
    def classes(self) -> int:
        """The number of classes in the first partition."""
        return int(self.partitions[0].lower_bounds.shape[-1])

    @property
    def cheapest_states(self) -> tuple[int, ...]:
        """Each node's allowed state of the least charge, regardless of boundaries."""
        node = np.where(self.allowed, self.node, self.node.max() + 1)
        return tuple(node.argmin(axis=1)[self.node_kinds].tolist())

    def fits(self, assignment: Sequence[int]) -> bool:
        """Return whether an assignment keeps to all capacities."""
        return all(
            sum(load[self.node_kinds, list(assignment)].tolist()) <= capacity
            for load, capacity in self.limits
        )

    def price(self, assignment: Sequence[int]) -> int:
        """Return an assignment's cost, as the entries count."""
        states = np.array(assignment, np.intp)
        total = sum(map(int, self.node[self.node_kinds, states].tolist()))
        for kind, ends in zip(self.boundary_kinds.tolist(), states[self.ends], strict=True):
            total += int(self.pairs(kind, ends[:1], ends[1:])[0, 0])
        return total


@dataclass(eq=False)
class ChargeCache:
    """The least and highest charges of kinds of boundaries, under the last cost that was used.

    Parameters
    ----------
    cost
        The cost; for a time, its `TimeCost.edge_cost_key`.
    of_kinds
        The results of `PairsOfStates.bounds`, by the kind of boundary in a single pass, how often
        its ends exchange, and the choices that they may make.
    of_nodes
        The results of `nodes_in`, by node without weights and the number of its passes. None where
        costs with equal charges of boundaries may differ in those of nodes.
    """

    cost: CostModel | None = None
    of_kinds: dict[tuple[Hashable, ...], tuple[Integers, int]] = field(default_factory=dict)
    of_nodes: dict[tuple[int, ...], Integers] | None = None

    def of(self, cost: CostModel) -> dict[tuple[Hashable, ...], tuple[Integers, int]]:
        """Return the cache of a cost, to which its tables add."""
        if cost != self.cost:
            self.cost, self.of_kinds = cost, {}
            self.of_nodes = None if self.of_nodes is None else {}
        return self.of_kinds

    def nodes_in(
        self,
        states: Indices,
        cost: CostModel,
        workload: Workload,
        nodes: Indices,
        deadline: Deadline,
    ) -> Integers:
        """Return what nodes are charged in states, ``(levels, states)``: ``(nodes, states)``."""
        if self.of_nodes is None:
            return _nodes_in(states, cost, workload, nodes, deadline)
        repeats, count = workload.repeats, len(workload.nodes)
        often = [counts[nodes].tolist() for counts in repeats.counts(count)]
        keys = [*zip(nodes.tolist(), *often, strict=True)]
        missing = [number for number, key in enumerate(keys) if key not in self.of_nodes]
        rows = dict(self.of_nodes)
        if missing:
            charged = _nodes_in(states, cost, workload, nodes[missing], deadline)
            rows |= {keys[number]: row for number, row in zip(missing, charged, strict=True)}
        # Sharding of weights concerns only nodes with weights.
        self.of_nodes = {key: row for key, row in rows.items() if not workload.stored[key[0]]}
        return np.array([rows[key] for key in keys])


def _nodes_in(
    states: Indices, cost: CostModel, workload: Workload, nodes: Indices, deadline: Deadline
) -> Integers:
    """Return what nodes are charged in states, ``(levels, states)``: ``(nodes, states)``."""
    levels, count = states.shape
    choices = choices_by_level(workload, levels)
    if count < prod(choices):
        return nodes_by_state(cost, workload, nodes, levels, deadline, some=states)
    # All states, with shared subexpressions, are faster than a list of them.
    charged = nodes_by_state(cost, workload, nodes, levels, deadline)
    return charged[:, state_indices(states.T, choices)]


def choices_of_ends(
    workload: Workload,
    states: Indices,
    allowed: NDArray[np.bool_],
    node_kinds: Indices,
    boundary_kinds: Indices,
) -> NDArray[np.bool_]:
    """Return which choices the two ends of kinds of boundaries may make at each level.

    Parameters
    ----------
    states : (levels, states)
    allowed : (kinds of nodes, states)

    Returns
    -------
    (kinds of boundaries, 2, levels, choices)
    """
    makes = states[:, :, None] == np.arange(len(workload.choices))
    # Products of floats are faster than products of flags.
    of_nodes = (allowed.astype(np.float32) @ makes.astype(np.float32) > 0).swapaxes(0, 1)
    ends = np.zeros((1 + boundary_kinds.max(initial=-1), 2, *of_nodes.shape[1:]), bool)
    np.logical_or.at(ends, boundary_kinds, of_nodes[node_kinds[workload.ends]])
    return ends


@dataclass(frozen=True, eq=False)
class PairsOfStates:
    """The charges of boundaries for pairs of states.

    Parameters
    ----------
    states : (levels, states)
    boundaries : (kinds,)
        One boundary of each kind.
    choices : (kinds, 2, levels, choices) bool
        Which the two ends of each kind may make at each level.
    highest : (nodes,)
        The highest charge of each node.
    """

    cost: CostModel
    workload: Workload
    states: Indices
    boundaries: Indices
    choices: NDArray[np.bool_]
    highest: Integers

    def of(self, kind: int, sources: Indices, targets: Indices) -> Integers:
        """Return the charges of a kind of boundary for some states: ``(sources, targets)``."""
        ends = self.states[:, sources], self.states[:, targets]
        return in_blocks(partial(self._charges, kind), *ends)

    def bounds(
        self,
        classes: StateClasses,
        cache: dict[tuple[Hashable, ...], tuple[Integers, int]],
        deadline: Deadline,
    ) -> tuple[Integers, Integers]:
        """Return each kind's least charge for two classes, and its highest charge for any.

        The latter includes classes of choices that its ends may not make.

        Parameters
        ----------
        cache
            That of some kinds, to which this adds all but those of weights.

        Raises
        ------
        RefusedError
            If there are more alignments than memory allows.
        """
        kinds = kinds_of_boundaries(with_repeats(self.workload, SINGLE_PASS), self.cost.end_keys)
        once = kinds.numbers[self.boundaries]
        counts = self.workload.repeats.counts(len(self.workload.nodes))[-2:]
        sources, targets = self.workload.ends[self.boundaries].T
        read, written = (
            of_nodes[ends] for of_nodes, ends in zip(counts, (targets, sources), strict=True)
        )
        choices = [of_kind.tobytes() for of_kind in self.choices]
        keys = [*zip(once.tolist(), read.tolist(), written.tolist(), choices, strict=True)]
        missing = [kind for kind, key in enumerate(keys) if key not in cache]
        charged = self._kind_charges(classes, missing, deadline)
        charges = cache | {keys[kind]: charge for kind, charge in charged.items()}
        # Charges of weights depend on their nodes' charges.
        weights = self.workload.is_weight_boundary[self.boundaries].tolist()
        cache.update(
            (key, charges[key])
            for key, is_weight in zip(keys, weights, strict=True)
            if not is_weight
        )
        rows = [charges[key][0] for key in keys]
        dtype = np.result_type(np.int64, *rows)
        lowest = np.array(rows, dtype).reshape(-1, classes.count, classes.count)
        return lowest, np.array([charges[key][1] for key in keys], object)

    def _kind_charges(
        self, classes: StateClasses, kinds: Sequence[int], deadline: Deadline
    ) -> dict[int, tuple[Integers, int]]:
        """Return the least and the highest charges of some kinds."""
        groups: dict[tuple[bytes, ...], list[int]] = {}
        for kind in kinds:
            contents = *self._firsts(kind), self.choices[kind]
            groups.setdefault(tuple(part.tobytes() for part in contents), []).append(kind)
        charged = {}
        for members in groups.values():
            deadline.check()
            sources, targets, starts, places = self._aligned(classes, members[0], deadline)
            for kind in members:
                deadline.check()
                parts = (
                    (
                        ends[:, first : first + _CACHED].astype(np.intp)
                        for ends in (sources, targets)
                    )
                    for first in range(0, sources.shape[1], _CACHED)
                )
                charges = np.concatenate([self._charges(kind, *part) for part in parts])
                lowest = np.append(np.minimum.reduceat(charges, starts), charges.max())
                charged[kind] = lowest[places].reshape(-1), int(charges.max())
        return charged

    def _firsts(self, kind: int) -> tuple[Indices, Indices]:
        """Return, for each choice of a kind's ends, the first choice that is charged the same.

        Only layouts matter, and the axes that they split.
        """
        workload, boundary = self.workload, self.boundaries[kind]
        layouts, (source, target) = workload.layouts, workload.ends[boundary]
        if workload.boundaries[boundary].weights:
            choices = np.arange(len(layouts.output))
            return choices, choices
        written, read = (sizes[:, boundary] for sizes in sizes_at_ends(workload))
        of_source = layouts.output[:, source], written
        inputs = layouts.inputs[workload.operand[boundary], :, target]
        of_target = inputs, layouts.addends[:, target], read
        firsts = []
        for layouts_of_end in (of_source, of_target):
            _, first, number = np.unique(
                np.array(layouts_of_end), axis=1, return_index=True, return_inverse=True
            )
            firsts.append(first[number.reshape(-1)])
        return firsts[0], firsts[1]

    def _aligned(
        self, classes: StateClasses, kind: int, deadline: Deadline
    ) -> tuple[Indices, Indices, Indices, Indices]:
        """Return the alignments of states, by choices that a kind may make and charges differently.

        Returns
        -------
        sources, targets : (levels, alignments)
        starts : (pairs,)
            Where the alignments of each pair of classes begin.
        places : (classes, classes)
            The number of that pair; for classes of other choices, the number of pairs.
        """
        of_sources, of_targets = self._firsts(kind)
        if classes.count == self.states.shape[1]:  # each state is a class
            (first, source), (to, target) = (
                np.unique(firsts[self.states], axis=1, return_index=True, return_inverse=True)[1:]
                for firsts in (of_sources, of_targets)
            )
            number = np.indices((len(first), len(to))).reshape(2, -1)
            sources, targets = self.states[:, first[number[0]]], self.states[:, to[number[1]]]
            places = source.reshape(-1)[:, None] * len(to) + target.reshape(-1)
            return sources, targets, np.arange(sources.shape[1]), places
        groups = np.array(classes.groups)
        # An end without allowed choices has no plan, whatever is aligned.
        makes = self.choices[kind] | ~self.choices[kind].any(axis=2, keepdims=True)
        written, read = (
            [np.unique(firsts[may[groups == group].any(axis=0)]) for group in classes.groups]
            for firsts, may in zip((of_sources, of_targets), makes, strict=True)
        )
        sources, targets = alignments(classes.groups, written, read, deadline)
        _, first = np.unique(classes.labels, return_index=True)
        of_classes = [
            classes.of(firsts[self.states[:, first]]) for firsts in (of_sources, of_targets)
        ]
        (source_classes, source), (target_classes, target) = (
            np.unique(classes_of_choices, return_inverse=True) for classes_of_choices in of_classes
        )
        # Small integers are sorted faster.
        pair = np.empty(
            sources.shape[1], np.min_scalar_type(len(source_classes) * len(target_classes))
        )
        for start in range(0, len(pair), _CACHED):
            deadline.check()
            part = slice(start, start + _CACHED)
            numbers = np.searchsorted(source_classes, classes.of(sources[:, part]))
            pair[part] = numbers * len(target_classes) + np.searchsorted(
                target_classes, classes.of(targets[:, part])
            )
        order = pair.argsort(kind="stable")
        pairs, starts = np.unique(pair[order], return_index=True)
        numbers = np.full(len(source_classes) * len(target_classes), len(pairs))
        numbers[pairs] = np.arange(len(pairs))
        deadline.check()
        places = numbers[source[:, None] * len(target_classes) + target]
        return sources[:, order], targets[:, order], starts, places

    def _charges(self, kind: int, sources: Indices, targets: Indices) -> Integers:
        """Return a kind's charges for pairs of states, whose first axis is their levels."""
        boundary = self.boundaries[kind]
        if self.workload.boundaries[boundary].weights:
            stored = self.workload.ends[boundary, 0]
            differ = mismatch(sources, targets, replicated(self.workload, stored)).any(axis=0)
            penalty = 1 + int(self.highest[stored])
            charge: Integers = np.where(differ, np.array(penalty, exact_dtype(penalty)), 0)
            return charge
        return charged_pairs(self.cost, self.workload, boundary, sources, targets)
