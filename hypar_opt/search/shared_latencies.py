"""Bounds on all plans where buckets of gradients share their latencies, by classes of states.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.alignments import states_in_classes
from hypar_opt.costs.buckets import LATENCY, LatencyShares, buckets_of
from hypar_opt.costs.kinds import numbered
from hypar_opt.costs.state_classes import classed
from hypar_opt.costs.state_tables import check_states, choices_by_level
from hypar_opt.integers import scale
from hypar_opt.solvers.elimination.classes import bound_by_classes

if TYPE_CHECKING:
    from hypar_opt.costs.buckets import Buckets
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.costs.time import TimeCost
    from hypar_opt.deadline import Deadline
    from hypar_opt.instance.instance import Instance
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices

Reduction = tuple[int, int]
"""The number of a bucket, and that of a kind of sets of levels that it may be reduced over."""

Paid = Mapping[Reduction, bool]
"""Whether a reduction is paid once, whoever uses it; else each node pays it alone."""

Users = Mapping[Reduction, Sequence[int]]
"""The nodes that take part in each reduction."""


@dataclass(frozen=True, eq=False)
class SharedLatencies:
    """A table without the latencies of reductions, and the latencies of each state's reduction.

    Sets of as many levels of each group are of a kind, if they take as long: else what one is
    charged more another would be charged less, for the same plan with its levels permuted.

    Parameters
    ----------
    cost
    buckets
    table
        All charges but latencies.
    latencies : (kinds of nodes, states)
        Of the whole reduction over the levels that a state reduces over.
    kinds : (kinds of nodes, states)
        The kind of those levels; 0 for none.
    kind_of
        By the set of levels, whose bit 2^h is that of level h.
    of_kinds
        The latencies of each kind.
    """

    cost: TimeCost
    buckets: Buckets
    table: ClassTable
    latencies: Integers
    kinds: Indices
    kind_of: Mapping[int, int]
    of_kinds: Sequence[int]

    @classmethod
    def of(cls, instance: Instance, cost: TimeCost, deadline: Deadline) -> SharedLatencies:
        """Return the latencies that a problem's buckets share.

        Raises
        ------
        RefusedError
            If there are more states or classes of states than memory allows.
        NoAnswerError
            If the deadline passes.
        """
        workload, levels = instance.workload, instance.problem.levels
        check_states(len(workload.nodes), choices_by_level(workload, levels))
        states = states_in_classes(cost, workload, levels, deadline)
        allowed = instance.constraints.allowed(states, deadline)

        def charged(part: int) -> ClassTable:
            ends = np.array([[0], [part]]).repeat(len(workload.nodes), axis=1)[None]
            own = replace(cost, latencies=LatencyShares(ends, {}))
            return classed(own, workload, states, allowed, deadline, instance.known)

        table = charged(0)
        latencies = charged(LATENCY).node - table.node
        nodes = np.unique(table.node_kinds, return_index=True)[1]
        made = np.array(states, np.intp).T
        sets = cost.reduced_over(workload, nodes[:, None], [made[:, None]])
        groups = cost.symmetries(workload, levels).groups
        kinds: dict[tuple[frozenset[tuple[int, int]], int], int] = {}
        kind_of = {0: 0}
        for own in np.unique(sets[sets > 0]).tolist():
            counts = Counter(group for level, group in enumerate(groups) if own >> level & 1)
            key = frozenset(counts.items()), int(latencies[sets == own].min())
            kind_of[own] = kinds.setdefault(key, 1 + len(kinds))
        by_set, number = np.unique(sets, return_inverse=True)
        numbers = np.array([kind_of[own] for own in by_set.tolist()])[number].reshape(sets.shape)
        of_kinds = (0, *(latency for _, latency in kinds))
        buckets = buckets_of(workload, cost.bucket_elements)
        return cls(cost, buckets, table, latencies, numbers, kind_of, of_kinds)

    def shares(self, weights: Sequence[Sequence[int]], paid: Paid) -> LatencyShares:
        """Return what nodes are charged of reductions: of those not decided by their weights."""
        shares = LatencyShares.of(self.buckets, weights, self.kind_of)
        for (bucket, kind), once in paid.items():
            shares.ends[kind][:, self.buckets[bucket]] = [[0], [0 if once else LATENCY]]
        return shares

    def in_units(self, paid: Paid) -> Fraction:
        """Return what is paid once, in the cost's unit."""
        whole = sum(self.of_kinds[kind] for (_, kind), once in paid.items() if once)
        return Fraction(whole, self.cost.resolution)

    def bound(
        self, shares: LatencyShares, paid: Paid, deadline: Deadline
    ) -> tuple[Fraction, Users]:
        """Return a bound on all plans, in the cost's unit, and who reduces in what attains it.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        table = self.table
        parts = shares.ends[:, 1] - shares.ends[:, 0]
        own = zip(table.node_kinds.tolist(), map(bytes, parts.T.copy()), strict=True)
        numbers, nodes = numbered(own)
        kinds = table.node_kinds[nodes]
        part = parts[self.kinds[kinds], nodes[:, None]]
        charges = table.node[kinds] + scale(self.latencies[kinds], (part, LATENCY), "down")
        charged = replace(table, node=charges, allowed=table.allowed[kinds], node_kinds=numbers)
        least, states = bound_by_classes(charged, deadline)
        users = defaultdict(list)
        for bucket, among in enumerate(self.buckets):
            for node in among:
                kind = int(self.kinds[table.node_kinds[node], states[node]])
                if kind:
                    users[bucket, kind].append(node)
        return Fraction(least, table.resolution) + self.in_units(paid), users

    def users(self, instance: Instance, rows: Rows) -> Users:
        """Return the nodes that take part in each reduction of a plan, ``(levels, nodes)``."""
        users: defaultdict[Reduction, list[int]] = defaultdict(list)
        together = self.cost.reductions(instance.workload, rows)
        for (bucket, levels, _), nodes in together.items():
            users[bucket, self.kind_of[levels]] += nodes
        return users

    def unpaid(self, shares: LatencyShares, paid: Paid, users: Users) -> dict[Reduction, int]:
        """Return what reductions that are not decided take beyond what their users are charged."""
        parts = shares.ends[:, 1] - shares.ends[:, 0]
        left = {
            (bucket, kind): LATENCY - int(parts[kind, nodes].sum())
            for (bucket, kind), nodes in users.items()
        }
        return {
            reduction: part * self.of_kinds[reduction[1]]
            for reduction, part in left.items()
            if part > 0 and reduction not in paid
        }
