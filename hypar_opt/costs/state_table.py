"""All levels at once: charges of nodes and boundaries in states, in the view a solver takes.

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.alignments import StateClasses, check_size, numbered_groups
from hypar_opt.costs.kinds import Kinds, index_by_key, kinds_of_boundaries, kinds_of_nodes
from hypar_opt.costs.state_charges import (
    charged_pairs,
    check_states,
    choices_by_level,
    edges_by_level,
    in_blocks,
    nodes_by_state,
    state_indices,
    states_of,
)
from hypar_opt.costs.state_classes import (
    ChargeCache,
    ClassTable,
    PairsOfStates,
    Partition,
    choices_of_ends,
)
from hypar_opt.costs.table import CostTable, Limit
from hypar_opt.costs.weights import constrained, with_penalties
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.step.states import Indices, exact_sum

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.state_charges import State
    from hypar_opt.workload.tensors import Workload

_EXACT = 2**23
"""The most pairs of states that a threshold may leave if classes are those of another cost."""


@dataclass(frozen=True, eq=False)
class FactoredTable:
    """A joint table whose boundary charge is a sum over levels of the charge of each pair.

    Parameters
    ----------
    node : (layers, choices ** levels)
        Columns in mixed-radix order, H1 the most significant digit: not canonical.
    pairs
        For each level, ``(boundaries, prefixes, choices, choices)``: the charge of a pair, by
        the target's choices at the levels above; a single prefix if these do not matter.
    columns : (choices ** levels,)
        The column of each state, in canonical order; an assignment's numbers refer to that
        order.
    ends, unit, resolution
        As in `CostTable`.
    penalty
        An assignment that costs at least this much has a forbidden state; None if none is
        forbidden.
    exact
        Returns the charges of a boundary for some columns of its source and some of its target,
        ``(sources, targets)``, where ``pairs`` are lower bounds; None where they are exact.
    """

    node: Integers
    pairs: tuple[Integers, ...]
    ends: NDArray[np.intp]
    columns: NDArray[np.intp]
    unit: str
    resolution: int
    penalty: int | None = None
    exact: Callable[[int, Indices, Indices], Integers] | None = None

    @property
    def levels(self) -> int:
        return len(self.pairs)

    @property
    def choices(self) -> int:
        return int(self.pairs[0].shape[-1])

    def among(self, allowed: NDArray[np.bool_]) -> FactoredTable:
        """Return the table with a penalty (big-M) on all states but some: ``(layers, states)``.

        States are in canonical order.
        """
        # One more than an upper bound on every assignment: the least penalty that no feasible
        # assignment reaches, and so the narrowest integers.
        penalty = 1 + int(self.node.max(axis=1).sum())
        penalty += sum(int(pairs.max(axis=(1, 2, 3)).sum()) for pairs in self.pairs)
        forbidden = np.zeros(self.node.shape, bool)
        forbidden[:, self.columns] = ~allowed
        # Sums of several penalties are clipped to one, plus a layer's charges.
        dtype = np.result_type(self.node, exact_dtype(4 * penalty))
        node = self.node.astype(dtype) + penalty * forbidden.astype(dtype)
        return replace(self, node=node, penalty=penalty)


@dataclass(frozen=True, eq=False)
class StateTable:
    """The states of nodes at all levels together, and a cost that charges nodes and boundaries.

    Nothing is charged yet: a solver asks for the view that it takes. All views forbid states, and
    all but `by_level` have the limits.

    Parameters
    ----------
    states : (states, levels)
        In canonical order: all states, or some.
    allowed : (nodes, states)
        Which states constraints allow; None for all.
    limits
        Loads ``(nodes, states)``, each with its capacity.
    """

    cost: CostModel
    workload: Workload
    states: Sequence[State]
    allowed: NDArray[np.bool_] | None = None
    limits: tuple[Limit, ...] = ()

    @classmethod
    def of(
        cls, cost: CostModel, workload: Workload, levels: int, deadline: Deadline = NEVER
    ) -> StateTable:
        """Return the table of all states, without constraints.

        Raises
        ------
        RefusedError
            If there are more states than memory allows.
        NoAnswerError
            If the deadline passes, as for every function that builds tables.
        """
        check_states(len(workload.nodes), choices_by_level(workload, levels))
        return cls(cost, workload, states_of(workload, levels, deadline))

    @property
    def levels(self) -> int:
        return len(self.states[0])

    def dense(self, deadline: Deadline = NEVER) -> CostTable:
        """Return the plain table: a column for each state, and an entry for each pair of these.

        Raises
        ------
        RefusedError
            If there are more pairs of states than memory allows.
        """
        cost, workload, choices = self.cost, self.workload, self._choices
        # An edge's matrix has an entry for each pair of states.
        check_states(len(workload.nodes), choices * 2)
        order = state_indices(self.states, choices)
        kinds, of_kinds = kinds_of_boundaries(workload, cost.end_keys)
        charged: list[Integers] = []
        for boundary in of_kinds:
            deadline.check()
            total = exact_sum(
                edges_by_level(cost.attributed, workload, self.levels, boundary[None])
            )
            every_pair = np.broadcast_to(total, (1, *choices * 2))
            charged.append(every_pair.reshape((math.prod(choices),) * 2)[order[:, None], order])
        largest = sum(int(charged[kind].max()) for kind in kinds)
        nodes = np.arange(len(workload.nodes))
        node = nodes_by_state(cost, workload, nodes, self.levels, deadline, largest)[:, order]
        edge: Integers = np.zeros((len(workload.ends), len(order), len(order)), node.dtype)
        for kind, charge in enumerate(charged):
            edge[kinds == kind] = charge
        node, (edge,) = with_penalties(workload, node, [edge], self.states)
        units = cost.unit, cost.resolution
        table = CostTable(node, edge, workload.ends, workload.baselines, *units)
        return constrained(workload, table, self.allowed, self.limits)

    def by_level(
        self, deadline: Deadline = NEVER, *, bounding: bool = False
    ) -> FactoredTable | None:
        """Return the table in which a boundary's charge is a sum over levels.

        None if a charge depends on its source's choices above, replicas below repeat exchanges, or
        levels have different choices. It has no limits.

        Parameters
        ----------
        bounding
            Whether pairs may be lower bounds, as where parts are uneven: the table then is `exact`
            on demand.
        """
        cost, workload, levels = self.cost, self.workload, self.levels
        choices = len(workload.choices)
        separable, exact = cost.level_separable(workload), None
        if separable is None and bounding and cost.time is not None and not workload.shared:
            separable = cost.time.level_separable_bound(workload)
            exact = self._charged_columns
        if separable is None or workload.has_replicas or len({*self._choices}) > 1:
            return None
        pairs: list[Integers] = []
        for level, row in enumerate(edges_by_level(separable, workload, levels)):
            deadline.check()
            # An axis for each level of the source, and then of the target; of size 1 if left out.
            row = row.reshape(*[1] * (2 * levels + 1 - row.ndim), *row.shape)
            source, target = row.shape[1 : levels + 1], row.shape[levels + 1 :]
            above = target[:level]
            elsewhere = *source[:level], *source[level + 1 :], *target[level + 1 :]
            if max(elsewhere, default=1) > 1:
                return None
            row = row.reshape(len(row), source[level], *above, target[level])
            # Charges that do not depend on the target's choices above are stored once, not once
            # per prefix.
            prefixes = [choices if max(above, default=1) > 1 else 1] * level
            full = np.broadcast_to(row, (len(workload.ends), choices, *prefixes, choices))
            pairs.append(
                np.moveaxis(full.reshape(len(full), choices, math.prod(prefixes), choices), 1, 2)
            )
        largest = sum(sum(row.max(axis=(1, 2, 3), initial=0).tolist()) for row in pairs)
        nodes = np.arange(len(workload.nodes))
        node = nodes_by_state(cost, workload, nodes, levels, deadline, largest)
        pairs = [np.array(pair, node.dtype) for pair in pairs]
        each_choice = [(choice,) for choice in range(choices)]
        node, pairs = with_penalties(workload, node, pairs, each_choice)
        columns, units = state_indices(self.states, self._choices), (cost.unit, cost.resolution)
        table = FactoredTable(node, tuple(pairs), workload.ends, columns, *units, exact=exact)
        return table if self.allowed is None else table.among(self.allowed)

    def _charged_columns(self, boundary: int, sources: Indices, targets: Indices) -> Integers:
        """Return a boundary's charges for columns in mixed radix: ``(sources, targets)``."""
        ends = (
            np.array(np.unravel_index(columns, self._choices)) for columns in (sources, targets)
        )
        charges = partial(charged_pairs, self.cost.attributed, self.workload, boundary)
        return in_blocks(charges, *ends)

    def by_classes(
        self,
        deadline: Deadline = NEVER,
        cache: ChargeCache | None = None,
        bounds: tuple[CostModel, CostModel] | None = None,
    ) -> ClassTable:
        """Return the table of classes of states, whose pairs are charged on demand.

        Parameters
        ----------
        cache
            Charges of the same workload and states, under any cost; this table's are added to it.
        bounds
            Costs that bound boundaries' charges from below and above: states that the first charges
            alike form classes. By default the cost itself.

        Raises
        ------
        RefusedError
            If there are more pairs of classes than memory allows.
        """
        cost, workload, cache = self.cost, self.workload, cache or ChargeCache()
        columns, below, above = self._columns, *(bounds or (cost, cost))
        boundary_kinds, boundaries = kinds_of_boundaries(workload, cost.end_keys)
        symmetries = below.symmetries(workload, self.levels)
        (node_kinds, nodes), node = self.of_nodes(deadline, cache, symmetries.node_keys)
        allowed = self._allowed_to_all[nodes]
        # If not all states are given, each is a class by itself: levels may not be permuted.
        has_all = len(self.states) == math.prod(self._choices)
        groups = symmetries.level_groups if has_all else range(self.levels)
        classes = StateClasses(tuple(groups), columns, len(workload.choices))
        check_size(max(len(nodes) * len(self.states), len(boundaries) * classes.count**2))
        costs = [
            (model.level_separable(workload) or model).attributed for model in (cost, below, above)
        ]
        time = costs[1].time
        of_kinds = cache.of(costs[1] if time is None else time.edge_cost_key)
        ends = choices_of_ends(workload, columns, allowed, node_kinds, boundary_kinds)
        arguments = workload, columns, boundaries, ends, node.max(axis=1)[node_kinds]
        pairs, at_least, at_most = (PairsOfStates(model, *arguments) for model in costs)
        lowest, highest = at_least.bounds(classes, of_kinds, deadline)
        if bounds:
            _, highest = at_most.bounds(classes, {}, deadline)
        largest = node.max(axis=1)[node_kinds].tolist() + highest[boundary_kinds].tolist()
        dtype = exact_dtype(sum(largest))
        partitions = [Partition(classes.labels, lowest.astype(dtype))]
        merged = numbered_groups(symmetries.level_kinds)
        if len(set(merged)) < len(set(classes.groups)):
            # Not all levels of a kind may be permuted: bounds are on the states of either.
            partitions.insert(0, partitions[0].merged(replace(classes, groups=merged).labels))
        table = ClassTable(
            states=columns,
            partitions=partitions,
            node=node.astype(dtype),
            allowed=allowed,
            node_kinds=node_kinds,
            pairs=lambda kind, sources, targets: pairs.of(kind, sources, targets).astype(dtype),
            boundary_kinds=boundary_kinds,
            highest=highest,
            ends=workload.ends,
            unit=cost.unit,
            resolution=cost.resolution,
            max_exact_pairs=_EXACT if bounds else None,
        )
        weights = workload.is_weight_boundary
        return table.limited(self.limits, weights) if self.limits else table

    def of_nodes(
        self, deadline: Deadline, cache: ChargeCache, keys: Sequence[Hashable] | None = None
    ) -> tuple[Kinds, Integers]:
        """Return the kinds of nodes, and their charges: ``(kinds, states)``.

        Parameters
        ----------
        cache
            As in `by_classes`.
        keys
            What distinguishes nodes of a kind, besides the states that they may have.
        """
        cost, workload = self.cost, self.workload
        if keys is None:
            keys = cost.symmetries(workload, self.levels).node_keys
        numbers = kinds_of_nodes(workload).numbers.tolist()
        contents = (row.tobytes() for row in self._allowed_to_all)
        kinds = index_by_key(zip(numbers, keys, contents, strict=True))
        return kinds, cache.nodes_in(self._columns, cost, workload, kinds.first, deadline)

    @property
    def _allowed_to_all(self) -> NDArray[np.bool_]:
        """The states that each node may have: ``(nodes, states)``."""
        if self.allowed is not None:
            return self.allowed
        return np.ones((len(self.workload.nodes), len(self.states)), bool)

    @property
    def _columns(self) -> Indices:
        """The choices of each state: ``(levels, states)``."""
        return np.array(self.states, np.intp).reshape(len(self.states), -1).T

    @property
    def _choices(self) -> list[int]:
        return choices_by_level(self.workload, self.levels)
