"""The plan of least time where gradients are all-reduced in buckets, with a bound on all plans.

A bucket has an all-reduce, and its latencies, for each set of levels that its nodes reduce over. A
table charges nodes, so each is charged a share of them. However they are shared, a plan is charged
no more than it takes: the least sum of charges bounds all plans. The shares are then raised where
the plan found reduces, which is a Lagrangian relaxation solved by multiplicative weights, and every
plan found is priced as it is.

Source: docs/decisions/0027-fused-gradients.md; Arora, Hazan and Kale, "The multiplicative weights
update method", Theory of Computing 8, 2012.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from typing import TYPE_CHECKING

from hypar_opt.costs.buckets import buckets_of
from hypar_opt.costs.time import TimeCost
from hypar_opt.deadline import TIME_LIMIT
from hypar_opt.errors import NoAnswerError
from hypar_opt.instance.pricing import nodes_of, total_cost
from hypar_opt.solvers.base import Status
from hypar_opt.solvers.baselines import BASELINES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.search.result import SearchRequest, SearchResult
    from hypar_opt.workload.tensors import Workload

    Search = Callable[[SearchRequest], SearchResult]

_ROUNDS = 12
_STATES = 2**18
"""The most rounds, and the states that are charged in all of them, in one of each layer."""

_MORE = 3
"""By how much more than in the rounds before the shares of nodes that reduce are raised."""


def in_buckets(
    search: SearchRequest, solve: Search, first: SearchResult | None = None
) -> SearchResult:
    """Search with the latencies of buckets shared out in several ways.

    Parameters
    ----------
    first
        What `solve` finds, if it was asked before.

    Returns
    -------
    SearchResult
        The best of the plans found and of the baselines, and the best of the bounds.
    """
    first, cost = first or solve(search), search.instance.cost
    if cost.is_sum:
        return first
    best = _Priced.of(search, first)
    joint = first.scope == "joint"
    if isinstance(cost, TimeCost) and joint and search.solver.searches:
        best = _of_least_time(search, solve, cost, best)
    found = best.found
    proved = found.bound == best.total and (joint or found.status is Status.OPTIMAL)
    limit = None if proved or not search.deadline.passed() else TIME_LIMIT
    return replace(
        found,
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        stopped_by=found.stopped_by or limit,
        statistics=first.statistics,
    )


@dataclass(frozen=True)
class _Priced:
    """A plan, what it costs, and the choices of all its nodes, ``(levels, nodes)``."""

    found: SearchResult
    total: Fraction
    nodes: Rows

    @classmethod
    def of(cls, search: SearchRequest, found: SearchResult) -> _Priced:
        instance, rows, tensors = search.instance, found.assignments, found.tensors
        nodes = nodes_of(instance.workload, instance.cost, rows, tensors, rule=instance.rule)
        return cls(found, total_cost(instance, rows, tensors), nodes)

    def or_better(self, other: _Priced) -> _Priced:
        """Return the cheaper plan with the better bound; of equals this one."""
        known = [each.found.bound for each in (self, other) if each.found.bound is not None]
        best = min(self, other, key=lambda each: each.total)
        return replace(best, found=replace(best.found, bound=max(known, default=None)))


def _of_least_time(search: SearchRequest, solve: Search, cost: TimeCost, best: _Priced) -> _Priced:
    """Return the best plan that is found in some rounds, with the best bound."""
    latest: _Priced | None = best
    instance, workload = search.instance, search.instance.workload
    for row in [workload.baselines[key][workload.shared :] for key in BASELINES.values()]:
        rows = (tuple(row),) * search.levels
        if instance.constraints.allow(rows):
            baseline = replace(best.found, assignments=rows, tensors=None)
            best = best.or_better(_Priced.of(search, baseline))

    def solved(other: TimeCost) -> _Priced | None:
        """Return the plan of the least sum of other charges; none if a limit comes first."""
        try:
            asked = replace(search.quiet, instance=instance.with_cost(other), falls_back=False)
            found = solve(asked)
        except NoAnswerError:
            return None
        return _Priced.of(search, found)

    weights = _Weights(cost, workload, cost.symmetries(workload, search.levels).groups)
    states = len(workload.nodes) * len(workload.choices) ** search.levels
    for number in range(1, 1 + max(1, min(_ROUNDS, _STATES // states))):
        done = best.found.bound in (None, best.total)
        if latest is None or done or search.deadline.passed():
            break
        weights.raised(latest.nodes, number)
        latest = solved(cost.in_buckets(workload, weights.rows, weights.kinds))
        best = best if latest is None else best.or_better(latest)
    return best


class _Weights:
    """The weights by which nodes share latencies, for each kind of set of levels.

    Sets of as many levels of each group are of a kind: else what one is charged more another would
    be charged less, for the same plan with its levels permuted.
    """

    def __init__(self, cost: TimeCost, workload: Workload, groups: Sequence[int]) -> None:
        self._cost, self._workload = cost, workload
        self._groups = [
            [level for level, own in enumerate(groups) if own == group] for group in set(groups)
        ]
        self.rows: list[Sequence[int]] = [workload.stored]
        self.kinds: dict[int, int] = {}

    def raised(self, nodes: Rows, number: int) -> None:
        """Raise the weights of the nodes that a plan reduces by themselves, in a round."""
        buckets = buckets_of(self._workload, self._cost.bucket_elements)
        together = self._cost.reductions(self._workload, nodes)
        for (bucket, levels), reduced in together.items():
            others = {*buckets[bucket]}.difference(reduced)
            if not others:
                continue
            if levels not in self.kinds:
                self.kinds.update(dict.fromkeys(self._alike(levels), len(self.rows)))
                self.rows.append([1] * len(self._workload.nodes))
            row = [*self.rows[self.kinds[levels]]]
            for node in buckets[bucket]:
                row[node] *= number if node in others else number + _MORE
            self.rows[self.kinds[levels]] = row

    def _alike(self, levels: int) -> Iterator[int]:
        """Yield the sets of as many levels of each group."""
        counts = [sum(levels >> level & 1 for level in group) for group in self._groups]
        chosen = map(combinations, self._groups, counts)
        for sets in product(*chosen):
            yield sum(1 << level for each in sets for level in each)
