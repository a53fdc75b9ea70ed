"""Constraints on a plan: pinned choices, even splits, memory.

A constraint on all levels becomes one on each level: a choice is allowed if there are choices at
the levels below that complete it feasibly. Layers are independent in that, except for the memory of
weights that several of them share, so the rule is exact: layer by layer for pins and even splits,
and for memory on the sum of the least loads that layers can still reach.

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.device_load import papers_loads, papers_memory
from hypar_opt.costs.weights import constrained
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import HyparError, InfeasibleError, RefusedError, argument, worded
from hypar_opt.instance.least_loads import LeastLoads, Parts, axes_of, level_splits, one_more
from hypar_opt.instance.pins import Pin, columns_of
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.sharding.weights import with_users
from hypar_opt.solvers.feasibility import trivially_infeasible
from hypar_opt.step.shares import Share
from hypar_opt.step.states import shard_counts
from hypar_opt.workload.contiguous import check_contiguous, split_leading_levels, stays_contiguous
from hypar_opt.workload.parallelism import PAPERS_CHOICES, choices_below_h1
from hypar_opt.workload.splitting import may_split_tensors

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.table import CostTable, Limit
    from hypar_opt.instance.least_loads import WeightSplits
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.contiguous import Orders
    from hypar_opt.workload.tensors import Workload

MAX_WEIGHT_SPLITS = 1_000
"""The most splits of shared weights that are compared at a level, each in a separate table."""


class ConstraintSet:
    """The constraints of a problem on one network and batch.

    Raises
    ------
    HyparError
        If pins name a layer, level or choice that does not exist.
    InfeasibleError
        If pins conflict; `check_feasible` checks whether there is a plan.

    Parameters
    ----------
    corners
        The corners of a simplex of shares for which constraints hold; empty for the problem's
        shares.
    """

    def __init__(
        self,
        problem: Problem,
        workload: Workload,
        corners: Sequence[Sequence[int]] = (),
    ) -> None:
        self._constraints = problem.constraints
        # A device's memory is a matter of the whole step: `hypar_opt.search.memory.search`.
        self._memory = None if problem.device_memory else problem.constraints.memory
        self._shares: list[Share] = []  # of unequal parts of H1, each with a memory of its own
        if self._memory is not None and problem.part_memory:
            self._memory = min(problem.part_memory)  # of equal parts
            if problem.has_unequal_parts:
                simplex = [*map(tuple, corners)] or [problem.part_shares]
                shares_of_parts = zip(*map(Share.of_parts, simplex), strict=True)
                self._shares = [
                    min(shares, key=lambda share: share.scaled) for shares in shares_of_parts
                ]
        self._workload, self._problem = workload, problem
        self._rule = problem.rule_at_any_share if corners else problem.split_rule
        self._hierarchy = self._rule.hierarchy if self._rule else problem.hierarchy
        self._levels, self._choices = problem.levels, problem.choices
        self._orders: Orders = {}
        below = choices_below_h1(problem.choices)
        self._lacks_choices = self._loads.forbids or below != problem.choices

    @cached_property
    def _loads(self) -> LeastLoads:
        return LeastLoads(self._problem, self._workload, self._rule)

    def within(self, orders: Orders) -> ConstraintSet:
        """Return the constraints if only the first levels of an order split images."""
        limited = copy(self)
        limited._orders = orders
        return limited

    @cached_property
    def any(self) -> bool:
        """Whether any choice may be infeasible: by a constraint, a layer's kind, or below H1."""
        stated = self._constraints.limits_splits or self._memory is not None
        return stated or self._lacks_choices

    @property
    def couple_layers(self) -> bool:
        """Whether layers share a capacity, so that they cannot be constrained one by one."""
        return self._memory is not None

    @property
    def capacity(self) -> int | None:
        """The bytes of all accelerators together; None without a limit."""
        return None if self._memory is None else self._memory * self._problem.accelerators

    @property
    def by_counts(self) -> bool:
        """Whether constraints only limit the number of levels at which a layer makes each choice.

        Pins for all levels and rules on splits limit it to an interval.
        """
        pins = map(Pin.parse, self._constraints.fix)
        return not self.couple_layers and all(pin.level is None for pin in pins)

    def level(self, table: CostTable, above: Rows) -> CostTable:
        """Restrict a level's table to choices that the levels below can complete.

        Under a memory limit each layer is completed separately, even layers that share weights: an
        assignment of this table extends to a plan if one of `by_weight_layout` allows it.
        """
        return self._completed(table, above, None) if self.any else table

    def by_weight_layout(self, table: CostTable, above: Rows) -> list[CostTable]:
        """Return a level's tables, one for each split of shared weights from that level on.

        Together they allow the assignments that the levels below can complete within the memory.
        Tables that allow nothing are left out; there are none where `level` suffices.
        """
        if not (self.couple_layers and self._workload.weight_users):
            return []
        splits = list(islice(self._loads.weight_splits(len(above)), MAX_WEIGHT_SPLITS + 1))
        if len(splits) > MAX_WEIGHT_SPLITS:
            memory, joint = argument("constraints.memory"), argument("search", "joint")
            raise RefusedError(
                f"{memory} level by level compares all splits of the weights that layers share, at"
                f" most {MAX_WEIGHT_SPLITS:,}; it needs {joint}"
            )
        tables = (self._completed(table, above, split) for split in splits)
        return [table for table in tables if not trivially_infeasible(table)]

    def _completed(
        self, table: CostTable, above: Rows, weight_splits: WeightSplits | None
    ) -> CostTable:
        if self._shares:
            raise RefusedError(
                f"{argument('constraints.memory')} in unequal groups of accelerators needs"
                f" {argument('search', 'joint')}"
            )
        loads = np.zeros(table.node.shape, object)
        # Layers with the same splits above have the same loads below: computed once.
        split = shard_counts(above, table.layers, table.choices, self._hierarchy).T
        for parts in {tuple(column) for column in split.tolist()}:
            layers = np.all(split == np.array(parts, split.dtype), axis=1)
            for choice in range(table.choices):
                load = self._loads.completed(len(above), parts, choice, weight_splits)
                loads[layers, choice] = load[layers]
        allowed = loads < self._loads.impossible
        allowed &= stays_contiguous(self._workload, above)
        allowed = allowed.astype(bool)
        return constrained(self._workload, table, allowed, self._limits(allowed, loads))

    def of_states(
        self, states: Sequence[tuple[int, ...]], deadline: Deadline = NEVER
    ) -> tuple[NDArray[np.bool_] | None, tuple[Limit, ...]]:
        """Return which states nodes may have, and limits on loads, as a `StateTable` has them."""
        if not self.any:
            return None, ()
        allowed, loads = self._of_states(states, deadline)
        return allowed, self._limits(allowed, loads)

    def allowed(
        self, states: Sequence[tuple[int, ...]], deadline: Deadline = NEVER
    ) -> NDArray[np.bool_]:
        """Return the states over all levels that each node may have: ``(nodes, states)``."""
        return self._of_states(states, deadline)[0]

    @property
    def capacities(self) -> list[int]:
        """The bytes of all accelerators together; one for each unequal part, scaled to all."""
        if self.capacity is None:
            return []
        memory, count = self._problem.part_memory, self._problem.accelerators
        return [bytes_ * count for bytes_ in memory] if self._shares else [self.capacity]

    def thresholds(self) -> NDArray[np.bool_]:
        """Return the choices that constraints `by_counts` on two choices allow at each threshold.

        Returns
        -------
        (levels, nodes, 2) bool
            For each t, whether a node may take model parallelism at fewer than t levels, and
            whether at t or more.
        """
        levels = self._levels
        counts = [(1,) * model + (0,) * (levels - model) for model in range(levels + 1)]
        allowed = self.allowed(counts)
        fewest = allowed.argmax(axis=1)
        highest = levels - allowed[:, ::-1].argmax(axis=1)
        t = np.arange(1, levels + 1)[:, None]
        return np.stack([fewest < t, highest >= t], axis=2)

    def _of_states(
        self, states: Sequence[tuple[int, ...]], deadline: Deadline
    ) -> tuple[NDArray[np.bool_], Integers]:
        """Return the states that each layer may have, and their loads if memory is limited."""
        shape = len(self._workload.nodes), len(states)
        loads: Integers = np.zeros(shape if self.couple_layers else (0, 0), object)
        allowed = np.ones(shape, bool)
        deadline.check()
        if not (self.any or self._orders):
            return allowed, loads
        columns = np.array(states, np.intp).reshape(len(states), -1).T
        parts = np.ones((len(states), len(self._choices)), exact_dtype(self._problem.accelerators))
        # Many of the thousands of states split a layer into equally many parts above a level, and
        # are equivalent there.
        for level, size in enumerate(self._hierarchy.sizes):
            for choice in range(len(self._choices)):
                deadline.check()
                making = np.flatnonzero(columns[level] == choice)
                for above in np.unique(parts[making, choice]):
                    equal = making[parts[making, choice] == above]
                    never = np.flatnonzero(~self._loads.may(level, int(above), choice))
                    allowed[np.ix_(never, equal)] = False
                parts[making, choice] *= size
        groups: dict[Parts, list[int]] = {}
        for number, key in enumerate(map(tuple, parts.tolist())):
            groups.setdefault(key, []).append(number)
        if self._orders:
            allowed &= split_leading_levels(columns, self._orders)
        for split, numbers in groups.items():
            deadline.check()
            allowed[: self._workload.shared, numbers] &= self._allowed_tensors(split)[:, None]
            if self.couple_layers and not self._shares:
                loads[:, numbers] = self._loads.load(split)[:, None]
        if self._shares:
            nodes = np.arange(len(self._workload.nodes))[:, None]
            arguments = self._workload, nodes, [columns[:, None]], self._problem, self._shares
            loads = np.stack([np.broadcast_to(load, shape) for load in papers_loads(*arguments)])
        return allowed, loads

    def check(
        self, rows: Sequence[Sequence[int]], nodes: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Refuse a plan, ``(levels, layers)``, that violates the constraints.

        Parameters
        ----------
        nodes : (levels, nodes)
            The choices of all nodes, if those of shared tensors are known.

        Raises
        ------
        HyparError
            Naming the layer, level and choice, or the memory that the plan needs.
        """
        if not self.any:
            return
        self._check_tensors(nodes or ())
        rows = [self._with_shared_weights(row) for row in rows]
        for position, layer in enumerate(self._workload.nodes):
            parts = self._loads.start
            for level, row in enumerate(rows):
                column = row[position]
                if (
                    position >= self._workload.shared
                    and not self._loads.may(level, parts[column], column)[position]
                ):
                    word = self._workload.words[position][column] or self._choices[column]
                    problem = f"{layer.name} may not take {word} at H{level + 1}"
                    raise HyparError(f"constraints: {problem}")
                parts = one_more(parts, column, self._hierarchy.sizes[level])
        check_contiguous(self._workload, nodes or rows)
        if self._memory is not None:
            needs = papers_memory(self._workload, rows, self._problem, self._shares)
            limits = self._problem.part_memory if self._shares else (self._memory,)
            for needed, memory in zip(needs, limits, strict=True):
                if needed > memory:
                    raise HyparError(
                        f"constraints: the plan takes {needed:,} bytes, memory is {memory:,}"
                    )

    @cached_property
    def only_plan(self) -> tuple[tuple[int, ...], ...] | None:
        """The choices of all nodes, ``(levels, nodes)``, if pins leave only one plan; else None."""
        workload = self._workload
        free = {*range(len(workload.nodes))} - workload.weight_users.keys()
        if not self._constraints.fix or not self._levels:
            return None
        rows = []
        for pinned in columns_of(self._loads.pinned, free):
            if len(pinned) < len(free):
                return None
            row = [pinned.get(node, 0) for node in range(len(workload.nodes))]
            rows.append(with_users(workload, row))
        return tuple(rows)

    def _check_tensors(self, nodes: Sequence[Sequence[int]]) -> None:
        if not nodes:
            return
        pinned = columns_of(self._loads.pinned, self._workload.tensor_writers)
        for level, (stated, row) in enumerate(zip(pinned, nodes, strict=True), 1):
            for node, column in stated.items():
                if row[node] != column:
                    tensor, words = self._workload.nodes[node], self._workload.words[node]
                    raise HyparError(
                        f"constraints: {tensor.name} should be {words[column]} at H{level}, got"
                        f" {words[row[node]]}"
                    )
        parts = shard_counts(nodes, len(self._workload.nodes), len(self._choices), self._hierarchy)
        for position, split in enumerate(parts.T[: self._workload.shared].tolist()):
            if not self._allowed_tensors(tuple(split))[position]:
                tensor = self._workload.nodes[position]
                axes = axes_of(tensor, self._choices)
                which = "unequal" if self._constraints.even else "empty"
                raise HyparError(
                    f"constraints: the {tensor.name} is split into {which} parts; {axes}"
                )

    def _with_shared_weights(self, row: Sequence[int]) -> Sequence[int]:
        """Return choices of all nodes; those of shared tensors, without memory, are arbitrary."""
        return with_users(self._workload, [0] * self._workload.shared + list(row))

    def allow(self, rows: Sequence[Sequence[int]]) -> bool:
        """Return whether a plan, ``(levels, layers)``, satisfies the constraints."""
        try:
            self.check(rows)
        except HyparError:
            return False
        return True

    def memory_of(self, rows: Sequence[Sequence[int]]) -> int:
        """Return the memory of a plan, ``(levels, layers)``, per accelerator in bytes."""
        nodes = [*map(self._with_shared_weights, rows)]
        return papers_memory(self._workload, nodes, self._problem)[0]

    def load(self, parts: Parts) -> Integers:
        """Return each layer's load on memory, in bytes of all accelerators together.

        Parameters
        ----------
        parts : (choices,)
            The number of parts into which each choice splits every layer over all levels.
        """
        return self._loads.load(parts)

    def least_memory(self) -> int:
        """Return the least memory of any plan, per accelerator in bytes."""
        return -(-self._loads.least_of_plans() // self._problem.accelerators)

    def _limits(self, allowed: NDArray[np.bool_], loads: Integers) -> tuple[Limit, ...]:
        """Return loads with their capacities, one for each unequal part of H1; none without memory.

        Raises
        ------
        InfeasibleError
            If the sum of all least loads exceeds them.
        """
        if not self.couple_layers:
            return ()
        # `impossible` marks loads without a feasible choice; it must not widen the dtype.
        loads = np.where(allowed, loads, 0)
        if not self._shares:
            (capacity,) = self.capacities
            dtype = exact_dtype(max(int(loads.max(axis=1).sum()), capacity))
            return ((loads.astype(dtype), capacity),)
        count, memory = self._problem.accelerators, self._problem.part_memory
        together = loads.sum(axis=0)
        lower_bound = np.where(allowed, together, together.max(initial=0)).min(axis=1).sum()
        if lower_bound > sum(memory) * count:
            mean = -(-int(lower_bound) // (count * len(memory)))
            raise InfeasibleError(
                f"{argument('constraints.memory')}: no plan fits {max(memory):,} bytes per"
                f" accelerator; on average they hold at least {mean:,}"
            )
        return tuple(zip(loads, self.capacities, strict=True))

    def _allowed_tensors(self, parts: Parts) -> NDArray[np.bool_]:
        """Return which shared tensors may be split into some numbers of parts."""
        return may_split_tensors(self._workload, self._rule, parts)

    def check_feasible(self) -> None:
        """Raise an `InfeasibleError` that says why, if no plan satisfies the constraints."""
        if not self.any:
            return
        loads = self._loads.minima()
        for position, layer in enumerate(self._workload.layers, self._workload.shared):
            if loads[position] >= self._loads.impossible:
                constraints = ", ".join(
                    argument(f"constraints.{name}")
                    for name in ("even", "runnable", "fix")
                    if getattr(self._constraints, name)
                )
                pins, remedy = self._constraints.fix, ""
                if self._problem.reading not in RUN_READINGS and not pins:
                    remedy = f"; with {argument('reading', 'executed')} it may be whole"
                if self._problem.depends_on_shares and self._problem.share is not None:
                    remedy += f"; H1's parts have shares of {self._problem.shown_shares}"
                if self._constraints.runnable and not pins:
                    any_split = worded("runnable=False among the constraints", "--uneven")
                    remedy += f"; {any_split} allows less than one of them in a part"
                raise InfeasibleError(
                    f"{constraints}: no choice fits layer {layer.name!r}"
                    f" at H{self._loads.first_infeasible_level(position)};"
                    f" {axes_of(layer, self._choices)}{remedy}"
                )
        # At least one layout of a shared tensor has to be even; whole it always is.
        splits = level_splits(self._hierarchy.sizes, len(self._choices))
        even = [self._allowed_tensors(parts) for parts in splits]
        for layer, fits in zip(self._workload.nodes, np.any(even, axis=0), strict=False):
            if not fits:
                rule = argument(f"constraints.{'even' if self._constraints.even else 'runnable'}")
                axes = axes_of(layer, PAPERS_CHOICES)
                raise InfeasibleError(
                    f"{rule}: no layout fits the {layer.name}, which several layers read; {axes}"
                )
        if (memory := self._memory) is not None and (needed := self.least_memory()) > memory:
            raise InfeasibleError(
                f"{argument('constraints.memory')}: no plan fits {memory:,} bytes per accelerator;"
                f" the smallest memory that suffices is {needed:,} bytes, counting every layer's"
                " input and output with their errors"
            )
