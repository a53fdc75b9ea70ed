"""The least cost of the first nodes of a plan, given the states of later nodes (cost-to-go).

A node's state is its choices at all levels. A search from the last node back thereby has the least
total cost of every partial plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hypar_opt.costs.state_charges import states_of
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.solvers.elimination.buckets import eliminate
from hypar_opt.solvers.elimination.order import in_given_order
from hypar_opt.solvers.elimination.solve import allowed_charges
from hypar_opt.solvers.feasibility import allowed_choices
from hypar_opt.solvers.product_states import costs_to_come, step_into

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.state_charges import State
    from hypar_opt.costs.state_table import FactoredTable
    from hypar_opt.instance.instance import Instance
    from hypar_opt.integers import Integers
    from hypar_opt.solvers.elimination.buckets import Buckets


class Completion(Protocol):
    """The least cost of the nodes up to each, given the states of later nodes in its scope."""

    @property
    def states(self) -> Sequence[State]:
        """All states, in canonical order."""

    @property
    def allowed(self) -> Sequence[NDArray[np.intp]]:
        """By node, its allowed states in canonical order.

        Elsewhere a state is an index of these.
        """

    @property
    def scopes(self) -> Sequence[Sequence[int]]:
        """By node, the later nodes that share a boundary with it, or with an earlier node."""

    @property
    def minimum(self) -> int:
        """The least cost of all nodes."""

    def column(self, node: int, scope: Sequence[int]) -> Integers:
        """Return the least cost of the nodes up to one, by its state, given those of its scope."""


@dataclass(frozen=True, eq=False)
class ChainCompletion:
    """Costs-to-go along a chain whose boundary charges are sums over levels."""

    table: FactoredTable
    states: Sequence[State]
    allowed: Sequence[NDArray[np.intp]]

    @cached_property
    def scopes(self) -> list[tuple[int, ...]]:
        last = len(self.allowed) - 1
        return [(node + 1,) if node < last else () for node in range(last + 1)]

    @cached_property
    def minimum(self) -> int:
        return int(self._costs[-1].min())

    def column(self, node: int, scope: Sequence[int]) -> Integers:
        columns = self._columns[node]
        costs = self._costs[node]
        for state in scope:
            into = step_into(self.table, node, int(self._columns[node + 1][state]))
            costs = costs + into[columns]
        return costs

    @cached_property
    def _columns(self) -> list[NDArray[np.intp]]:
        """By node, the table's columns of its allowed states."""
        return [self.table.columns[states] for states in self.allowed]

    @cached_property
    def _costs(self) -> list[Integers]:
        costs = costs_to_come(self.table)
        return [cost[columns] for cost, columns in zip(costs, self._columns, strict=True)]


@dataclass(frozen=True, eq=False)
class GraphCompletion:
    """An elimination of the nodes in their order."""

    buckets: Buckets
    states: Sequence[State]
    allowed: Sequence[NDArray[np.intp]]

    @property
    def scopes(self) -> Sequence[Sequence[int]]:
        return self.buckets.order.scopes

    @cached_property
    def minimum(self) -> int:
        return self.buckets.minimum(0)

    def column(self, node: int, scope: Sequence[int]) -> Integers:
        return self.buckets.column(node, 0, scope)


def completion_along_chain(instance: Instance, deadline: Deadline) -> Completion | None:
    """Return the completions along a chain, without a memory limit; None as for `chain_table`.

    Raises
    ------
    RefusedError
        As `chain_table`.
    """
    table = chain_table(instance, deadline)
    if table is None:
        return None
    states = states_of(instance.workload, instance.problem.levels)
    allowed = [np.flatnonzero(row) for row in instance.constraints.allowed(states)]
    return ChainCompletion(table, states, allowed)


def completion_by_elimination(instance: Instance, deadline: Deadline) -> Completion:
    """Return the completions on any graph, without a memory limit.

    Raises
    ------
    RefusedError
        If a table of pairs of states, or of the elimination, is larger than memory allows.
    """
    of_states = instance.states(deadline)
    table = of_states.dense(deadline)
    allowed = [np.flatnonzero(row) for row in allowed_choices(table)]
    charges = allowed_charges(table, allowed)
    order = in_given_order(charges.sizes, tuple(charges.pairs), range(table.layers))
    return GraphCompletion(eliminate(charges, order, deadline), of_states.states, allowed)


def chain_table(instance: Instance, deadline: Deadline = NEVER) -> FactoredTable | None:
    """Return a chain's joint table, with forbidden states at a penalty.

    None if the graph is not a chain, or a boundary's charge is not a sum over levels.

    Raises
    ------
    RefusedError
        If there are more states than memory allows.
    """
    if not instance.problem.levels or not instance.workload.is_chain:
        return None
    return instance.states(deadline).by_level(deadline)
