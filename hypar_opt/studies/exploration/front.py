"""The Pareto front of a subspace in time, energy and memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError
from hypar_opt.frozen import Frozen
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.problem import Problem
from hypar_opt.step.states import shard_counts
from hypar_opt.studies.exploration.pricing import values_of
from hypar_opt.studies.exploration.subspace import allowed_states, digits_of
from hypar_opt.studies.exploration.values import TIE, Values
from hypar_opt.studies.pareto import priced_by
from hypar_opt.workload.network import Network

MAX_PLANS = 2**20
"""The front is computed for up to this many plans."""


@dataclass(frozen=True, eq=False)
class ExploredFront(Frozen):
    """The Pareto front of a subspace, in the shape of the exploration's ``values``."""

    amounts: Mapping[str, Values]
    """``time`` in seconds, ``energy`` in joules and ``memory`` in bytes of an accelerator, rounded
    up; without an array the exploration's own objective and ``memory``."""
    on_front: NDArray[np.bool_]
    """Whether no other plan takes less of one amount and no more of the others. Plans that are
    equal in all amounts are on the front together."""

    @property
    def plans(self) -> int:
        """The number of plans on the front."""
        return int(np.count_nonzero(self.on_front))


def front_of(
    network: Network,
    problem: Problem,
    states: Sequence[NDArray[np.intp]],
    axes: Sequence[int],
    values: Values,
) -> ExploredFront:
    """Return the front of the plans that an exploration prices, with its states, axes and values.

    Raises
    ------
    RefusedError
        If there are too many plans, or layers share tensors.
    """
    if values.size > MAX_PLANS:
        raise RefusedError(
            f"the Pareto front is computed for at most {MAX_PLANS:,} plans, and there are"
            f" {values.size:,}"
        )
    instance = Instance(network, problem)
    if instance.workload.shared:
        # Each amount would be minimal for different layouts of the shared tensors: no single plan.
        raise RefusedError(
            "the Pareto front needs a chain; here layers share tensors, whose best layouts differ"
            " between objectives"
        )
    costs = [cost for cost in priced_by(problem) if cost != "bytes"] or [problem.cost]
    amounts = {}
    for cost in costs:
        amounts[cost] = values
        if cost != problem.cost:
            of_cost = Instance(network, problem.model_copy(update={"cost": cost}))
            amounts[cost] = values_of(of_cost, allowed_states(of_cost), states, axes).values
    amounts["memory"] = _memory(instance, states, axes)
    # Seconds and joules are rounded; bytes are not.
    ranks = [
        _ranks(amount, TIE if name in ("time", "energy") else 0.0)
        for name, amount in amounts.items()
    ]
    return ExploredFront(amounts, pareto_mask(ranks).reshape(values.shape))


def _memory(instance: Instance, states: Sequence[NDArray[np.intp]], axes: Sequence[int]) -> Values:
    """Return the bytes of memory that every plan takes of an accelerator, rounded up."""
    levels, choices = instance.problem.levels, len(instance.problem.choices)
    load = cache(instance.constraints.load)
    terms = []
    for layer, layer_states in enumerate(states):
        digits = digits_of(layer_states, choices, levels)
        # Few are distinct: the memory of a state depends on the parts of each choice alone.
        parts = shard_counts(digits, len(layer_states), choices, instance.problem.hierarchy)
        terms.append(np.array([load(tuple(column))[layer] for column in parts.T.tolist()], object))
    # A layer without an axis has one state, and all plans its load.
    fixed = sum(term[0] for layer, term in enumerate(terms) if layer not in axes)
    total = reduce(np.add.outer, [terms[layer] for layer in axes]) + fixed
    whole: Values = (-(-total // instance.problem.accelerators)).astype(np.float64)
    return whole


def _ranks(values: Values, tie: float) -> NDArray[np.intp]:
    """Return the rank of each value, from 0; ties share a rank."""
    flat = values.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ascending = flat[order]
    ranks = np.zeros(flat.size, np.intp)
    ranks[order[1:]] = np.cumsum(ascending[1:] > ascending[:-1] * (1 + tie))
    return ranks


def pareto_mask(amounts: Sequence[NDArray[np.intp]]) -> NDArray[np.bool_]:
    """Return which points no other point dominates: lower in one amount and no higher in any.

    Amounts are two or three arrays of ranks, from 0: (points,) each.
    """
    # One number per point, which sorts faster than a row: at most 2^20 ranks of three amounts.
    sizes = [int(amount.max()) + 1 for amount in amounts]
    code, inverse = np.unique(np.ravel_multi_index(tuple(amounts), sizes), return_inverse=True)
    # In the order of the first amount: only those before can dominate a point.
    distinct = np.stack(np.unravel_index(code, sizes), axis=1)
    optimal = np.zeros(len(distinct), bool)
    # The other two amounts of the points kept so far: the first ascends, the second descends.
    firsts: list[int] = []
    seconds: list[int] = []
    for n, (_, first, *rest) in enumerate(distinct.tolist()):
        second = rest[0] if rest else 0
        position = bisect_right(firsts, first)
        if position and seconds[position - 1] <= second:
            continue
        optimal[n] = True
        # What the new point dominates need not be compared with any more.
        stop = position
        while stop < len(seconds) and seconds[stop] >= second:
            stop += 1
        start = position - 1 if position and firsts[position - 1] == first else position
        firsts[start:stop], seconds[start:stop] = [first], [second]
    on_front: NDArray[np.bool_] = optimal[inverse]
    return on_front
