"""The plan of least time where gradients are all-reduced in buckets, with a bound on all plans.

A bucket has an all-reduce, with latencies, for each set of levels that its nodes reduce over. A
table charges nodes, so each node is charged a share of the latencies. However they are shared, the
charges of a plan are a lower bound on its time, and their minimum, by classes of states, is a bound
on all plans. At first, shares are raised for the nodes that reduce in the plan of the bound: a
Lagrangian relaxation, solved by multiplicative weights. Then follows a branch and bound on
reductions: plans that pay for one once, whichever nodes use it, and plans without it.

Source: docs/algorithms.md; Arora, Hazan and Kale, "The multiplicative weights
update method", Theory of Computing 8, 2012; Land and Doig, "An automatic method of solving discrete
programming problems", Econometrica 28, 1960.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.alignments import states_in_classes
from hypar_opt.costs.buckets import LATENCY, LatencyShares, buckets_of
from hypar_opt.costs.kinds import index_by_key
from hypar_opt.costs.state_charges import check_states, choices_by_level
from hypar_opt.costs.state_table import StateTable
from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.instance.pricing import nodes_of, total_cost
from hypar_opt.integers import scale
from hypar_opt.solvers.base import Status
from hypar_opt.solvers.baselines import BASELINES
from hypar_opt.solvers.elimination.classes import bound_by_classes

if TYPE_CHECKING:
    from hypar_opt.costs.buckets import Buckets
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.costs.time import TimeCost
    from hypar_opt.deadline import Deadline
    from hypar_opt.instance.instance import Instance
    from hypar_opt.integers import Integers
    from hypar_opt.search.result import Search, SearchRequest, SearchResult
    from hypar_opt.step.states import Indices

_ROUNDS = 8
"""The rounds of weights before branching."""

_GROWTH = 3
"""The additional growth, per round, of the shares of nodes that reduce."""

_BOUNDS = 200
_WORK = 2**20
"""The most bounds that are computed, and the most classes of nodes in all of them."""


def in_buckets(
    search: SearchRequest, solve: Search, first: SearchResult | None = None
) -> SearchResult:
    """Search with the latencies of buckets shared out in several ways.

    Parameters
    ----------
    first
        The result of `solve`, if it is known.

    Returns
    -------
    SearchResult
        The best of the plans found and of the baselines, and the best of the bounds.
    """
    first, cost = first or solve(search), search.instance.cost
    if cost.is_additive:
        return first
    best = _Priced.of(search, first)
    joint = first.scope == "joint"
    if joint and search.solver.searches and search.instance.constraints.only_plan is None:
        best = _fastest(search, solve, cost.time, best)
    result = best.result
    proved = result.bound == best.total and (joint or result.status is Status.OPTIMAL)
    limit = None if proved or not search.deadline.passed() else TIME_LIMIT
    return replace(
        result,
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        stopped_by=result.stopped_by or limit,
        statistics=first.statistics,
    )


@dataclass(frozen=True)
class _Priced:
    """A plan, its cost, and the choices of all its nodes, ``(levels, nodes)``."""

    result: SearchResult
    total: Fraction
    nodes: Rows

    @classmethod
    def of(cls, search: SearchRequest, result: SearchResult) -> _Priced:
        instance, rows, tensors = search.instance, result.assignments, result.tensors
        nodes = nodes_of(instance.workload, instance.cost, rows, tensors, rule=instance.rule)
        return cls(result, total_cost(instance, rows, tensors), nodes)


def _fastest(search: SearchRequest, solve: Search, cost: TimeCost, best: _Priced) -> _Priced:
    """Return the best plan and the best bound."""
    instance, bound = search.instance, best.result.bound
    workload = instance.workload
    for row in [workload.baselines[key][workload.shared :] for key in BASELINES.values()]:
        rows = (tuple(row),) * search.levels
        if instance.constraints.allow(rows):
            baseline = replace(best.result, assignments=rows, tensors=None, priced=None)
            best = min(best, _Priced.of(search, baseline), key=attrgetter("total"))
    if bound in (None, best.total) or len(workload.repeats.shard_start_levels) > 1:
        return best
    try:
        latencies = SharedLatencies.of(instance, cost, search.deadline)
    except (NoAnswerError, RefusedError):  # the first result is known
        return best
    branches = _Branches(search, solve, latencies, best)
    bound = branches.lower_bound(bound)
    best = branches.best
    return replace(best, result=replace(best.result, bound=bound))


@dataclass(frozen=True, order=True)
class _Branch:
    """The plans that agree with decisions on some reductions.

    Parameters
    ----------
    bound
        A lower bound on all of them.
    number
        The number of the branch, in the order of branching.
    paid
        The decisions.
    unpaid
        The latencies of undecided reductions that the plan of the bound is not charged.
    """

    bound: Fraction
    number: int
    paid: Paid = field(compare=False)
    unpaid: Mapping[Reduction, int] = field(compare=False)

    def halves(self) -> Iterator[Paid]:
        """Yield both decisions on the reduction with most unpaid latency."""
        reduction = max(self.unpaid, key=self.unpaid.__getitem__)
        for once in (True, False):
            yield {**self.paid, reduction: once}


class _Branches:
    """Branch and bound over which reductions are paid once, the least bound first.

    Attributes
    ----------
    best
        The best plan found.
    """

    def __init__(
        self, search: SearchRequest, solve: Search, latencies: SharedLatencies, best: _Priced
    ) -> None:
        self._search, self._solve, self._latencies = search, solve, latencies
        self.best = best
        nodes, classes = len(latencies.table.node_kinds), latencies.table.classes
        self._weights = [[1] * nodes for _ in latencies.of_kinds]
        self._count, self._max_bounds = 0, min(_BOUNDS, _WORK // (nodes * classes))

    def lower_bound(self, bound: Fraction) -> Fraction:
        """Return a bound on all plans: the cost of the best plan, unless a limit comes first.

        Parameters
        ----------
        bound
            A bound on all plans.
        """
        branches, settled = [_Branch(bound, 0, {}, {})], []
        try:
            branches = [self._root()]
            while (
                branches and branches[0].bound < self.best.total and self._count < self._max_bounds
            ):
                branch = branches[0]
                if branch.unpaid:
                    children = [self._bounded(half)[0] for half in branch.halves()]
                else:
                    children = [self._solved(branch)]
                heappop(branches)
                for child in children:
                    if child.unpaid or branch.unpaid:
                        heappush(branches, child)
                    else:  # still charged less: sets of levels share charges by kind
                        settled.append(child.bound)
        except (NoAnswerError, RefusedError):  # a limit
            pass
        return max(bound, min([self.best.total, *settled, *(branch.bound for branch in branches)]))

    def _root(self) -> _Branch:
        """Return the branch of all plans, after some rounds of weights."""
        root, users = self._bounded({})
        best = root, self._weights
        for number in range(1, _ROUNDS):
            if not best[0].unpaid or best[0].bound >= self.best.total:
                break
            self._raise(users, number)
            root, users = self._bounded({})
            if root.bound > best[0].bound:
                best = root, self._weights
        root, self._weights = best
        return root

    def _raise(self, users: Users, number: int) -> None:
        """Raise the weights of the nodes that reduce by themselves, in a round."""
        self._weights = [[*row] for row in self._weights]
        for (bucket, kind), reduced in users.items():
            nodes = self._latencies.buckets[bucket]
            if len(reduced) < len(nodes):
                row, reducing = self._weights[kind], {*reduced}
                for node in nodes:
                    row[node] *= number + _GROWTH if node in reducing else number

    def _bounded(self, paid: Paid) -> tuple[_Branch, Users]:
        """Return a branch with a bound by classes, and the reducing nodes of its plan."""
        shares = self._latencies.shares(self._weights, paid)
        bound, users = self._latencies.bound(shares, paid, self._search.deadline)
        self._count += 1
        unpaid = self._latencies.unpaid(shares, paid, users)
        return _Branch(bound, self._count, paid, unpaid), users

    def _solved(self, branch: _Branch) -> _Branch:
        """Return a branch with the solver's bound; the solver's plan may be the best."""
        latencies, paid, instance = self._latencies, branch.paid, self._search.instance
        shares = latencies.shares(self._weights, paid)
        cost = replace(latencies.cost, latencies=shares)
        without_progress = replace(
            self._search.without_progress, instance=instance.with_cost(cost), uses_fallback=False
        )
        result = self._solve(without_progress)
        priced = _Priced.of(self._search, result)
        self.best = min(self.best, priced, key=attrgetter("total"))
        self._count += 1
        bound = (result.bound or Fraction()) + latencies.in_units(paid)
        unpaid = latencies.unpaid(shares, paid, latencies.users(instance, priced.nodes))
        return _Branch(max(bound, branch.bound), self._count, paid, unpaid)


Reduction = tuple[int, int]
"""The number of a bucket, and the kind of sets of levels over which it is reduced."""

Paid = Mapping[Reduction, bool]
"""Whether a reduction is paid once, whichever nodes use it; else each node pays all of it."""

Users = Mapping[Reduction, Sequence[int]]
"""The nodes that take part in each reduction."""


@dataclass(frozen=True, eq=False)
class SharedLatencies:
    """A table without the latencies of reductions, and the latencies of each state's reduction.

    Sets with equally many levels of each group are of one kind if they take equally long: otherwise
    a plan with permuted levels would be charged differently.

    Parameters
    ----------
    cost
    buckets
    table
        All charges but latencies.
    latencies : (kinds of nodes, states)
        The latencies of the whole reduction over the levels that a state reduces over.
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
            sharing = replace(cost, latencies=LatencyShares(ends, {}))
            of_states = StateTable(sharing, workload, states, allowed)
            return of_states.by_classes(deadline, instance.charge_cache)

        table = charged(0)
        latencies = charged(LATENCY).node - table.node
        nodes = np.unique(table.node_kinds, return_index=True)[1]
        by_level = np.array(states, np.intp).T
        sets = cost.reduction_levels(workload, nodes[:, None], [by_level[:, None]])
        groups = cost.symmetries(workload, levels).level_groups
        kinds: dict[tuple[frozenset[tuple[int, int]], int], int] = {}
        kind_of = {0: 0}
        for levels_set in np.unique(sets[sets > 0]).tolist():
            counts = Counter(group for level, group in enumerate(groups) if levels_set >> level & 1)
            key = frozenset(counts.items()), int(latencies[sets == levels_set].min())
            kind_of[levels_set] = kinds.setdefault(key, 1 + len(kinds))
        by_set, number = np.unique(sets, return_inverse=True)
        numbers = np.array([kind_of[bits] for bits in by_set.tolist()])[number].reshape(sets.shape)
        of_kinds = (0, *(latency for _, latency in kinds))
        buckets = buckets_of(workload, cost.bucket_elements)
        return cls(cost, buckets, table, latencies, numbers, kind_of, of_kinds)

    def shares(self, weights: Sequence[Sequence[int]], paid: Paid) -> LatencyShares:
        """Return nodes' shares of reductions; undecided reductions are shared by weights."""
        shares = LatencyShares.of(self.buckets, weights, self.kind_of)
        for (bucket, kind), once in paid.items():
            shares.ends[kind][:, self.buckets[bucket]] = [[0], [0 if once else LATENCY]]
        return shares

    def in_units(self, paid: Paid) -> Fraction:
        """Return the latencies that are paid once, in the cost's unit."""
        whole = sum(self.of_kinds[kind] for (_, kind), once in paid.items() if once)
        return Fraction(whole, self.cost.resolution)

    def bound(
        self, shares: LatencyShares, paid: Paid, deadline: Deadline
    ) -> tuple[Fraction, Users]:
        """Return a bound on all plans, in the cost's unit, and the reducing nodes of its plan.

        Raises
        ------
        RefusedError, NoAnswerError
        """
        table = self.table
        parts = shares.ends[:, 1] - shares.ends[:, 0]
        keys = zip(table.node_kinds.tolist(), map(bytes, parts.T.copy()), strict=True)
        numbers, nodes = index_by_key(keys)
        kinds = table.node_kinds[nodes]
        part = parts[self.kinds[kinds], nodes[:, None]]
        charges = table.node[kinds] + scale(self.latencies[kinds], (part, LATENCY), "down")
        charged = replace(table, node=charges, allowed=table.allowed[kinds], node_kinds=numbers)
        bound, states = bound_by_classes(charged, deadline)
        users = defaultdict(list)
        for bucket, among in enumerate(self.buckets):
            for node in among:
                kind = int(self.kinds[table.node_kinds[node], states[node]])
                if kind:
                    users[bucket, kind].append(node)
        return Fraction(bound, table.resolution) + self.in_units(paid), users

    def users(self, instance: Instance, rows: Rows) -> Users:
        """Return the nodes that take part in each reduction of a plan, ``(levels, nodes)``."""
        users: defaultdict[Reduction, list[int]] = defaultdict(list)
        together = self.cost.reductions(instance.workload, rows)
        for (bucket, levels, _), nodes in together.items():
            users[bucket, self.kind_of[levels]] += nodes
        return users

    def unpaid(self, shares: LatencyShares, paid: Paid, users: Users) -> dict[Reduction, int]:
        """Return the latencies of undecided reductions that their users are not charged."""
        parts = shares.ends[:, 1] - shares.ends[:, 0]
        uncharged = {
            (bucket, kind): LATENCY - int(parts[kind, nodes].sum())
            for (bucket, kind), nodes in users.items()
        }
        return {
            reduction: part * self.of_kinds[reduction[1]]
            for reduction, part in uncharged.items()
            if part > 0 and reduction not in paid
        }
