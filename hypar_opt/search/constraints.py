"""What a plan has to keep to: pinned choices, splits that divide, memory.

A constraint on the whole plan becomes a rule on each level: a choice is allowed if some
choices at the levels below it complete it. Layers are independent in that, so the rule is
exact: for pins and even splits layer by layer, for memory on the sum of what each layer
takes at the least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.compute import memory_load
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import HyparError, InfeasibleError, argument
from hypar_opt.search.pins import pinned_choices

if TYPE_CHECKING:
    from hypar_opt.costs.base import SplitCounts
    from hypar_opt.costs.product import FactoredTable
    from hypar_opt.costs.table import CostTable
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.workload.tensors import Workload

Counts = tuple[int, ...]


class Feasibility:
    """Constraints on one network, batch, number of levels and set of choices.

    Raises
    ------
    HyparError
        If pins conflict, or name what is not there.
    InfeasibleError
        If no plan at all keeps to them: naming the layer and level that no choice fits, or the
        smallest memory that would do.
    """

    def __init__(
        self,
        problem: ProblemFields,
        workload: Workload,
    ) -> None:
        self._constraints = problem.constraints
        self._shapes = workload
        self._levels = problem.levels
        self._choices = problem.choices
        self._problem = problem
        names = [layer.name for layer in workload.layers]
        self._pinned = pinned_choices(problem, names)
        self._least: dict[Counts, Integers] = {}
        self._impossible = 1 + sum(self.load((0,) * len(self._choices)).tolist())
        self._raise_if_infeasible()

    @property
    def any(self) -> bool:
        """Whether anything is limited at all."""
        return self._constraints.any

    @property
    def couple_layers(self) -> bool:
        """Whether what one layer takes limits another."""
        return self._constraints.memory is not None

    def level(self, table: CostTable, splits: SplitCounts) -> CostTable:
        """Limit one level's table to choices that levels below can complete."""
        if not self._constraints.any:
            return table
        least = np.zeros(table.node.shape, object)
        for counts in {tuple(column) for column in splits.counts.T.tolist()}:
            here = np.all(np.array(counts) == splits.counts.T, axis=1)
            for choice in range(table.choices):
                after = self._completed(splits.level, counts, choice)
                least[here, choice] = after[here]
        allowed = least < self._impossible
        return self._limited(table, allowed.astype(bool), least)

    def states(
        self, table: CostTable, states: Sequence[tuple[int, ...]], deadline: Deadline = NEVER
    ) -> CostTable:
        """Limit a table of all levels at once, whose columns are ``states``."""
        if not self._constraints.any:
            return table
        allowed, loads = self._of_states(states, deadline)
        return self._limited(table, allowed, loads)

    def factored(
        self, table: FactoredTable, states: Sequence[tuple[int, ...]], deadline: Deadline = NEVER
    ) -> FactoredTable:
        """Forbid states at a penalty (big-M), which the table then names."""
        if not self.any:
            return table
        penalty = 1 + int(table.node.max(axis=1).sum())
        penalty += sum(int(pairs.max(axis=(1, 2, 3)).sum()) for pairs in table.pairs)
        allowed = np.ones(table.node.shape, bool)
        allowed[:, table.columns] = self._of_states(states, deadline)[0]
        dtype = np.result_type(table.node, exact_dtype(penalty * (len(table.node) + 1)))
        node = table.node.astype(dtype) + penalty * (~allowed).astype(dtype)
        return replace(table, node=node, penalty=penalty)

    def _of_states(
        self, states: Sequence[tuple[int, ...]], deadline: Deadline
    ) -> tuple[NDArray[np.bool_], Integers]:
        """Return whether each layer may take each state, and what it then loads, if that counts."""
        shape = len(self._shapes.layers), len(states)
        loads: Integers = np.zeros(shape if self.couple_layers else (0, 0), object)
        allowed = np.ones(shape, bool)
        may, load = cache(self._may), cache(self.load)  # many states, few counts
        for column, state in enumerate(states):
            deadline.check()
            counts: Counts = (0,) * len(self._choices)
            for level, choice in enumerate(state):
                allowed[:, column] &= may(level, counts, choice)
                counts = _one_more(counts, choice)
            if self.couple_layers:
                loads[:, column] = load(counts)
        return allowed, loads

    def check(self, rows: Sequence[Sequence[int]]) -> None:
        """Refuse a plan, levels x layers, that does not keep to what was asked.

        Raises
        ------
        HyparError
            Naming the layer, level and choice, or the memory that the plan takes.
        """
        names = [layer.name for layer in self._shapes.layers]
        load = 0
        for place, name in enumerate(names):
            counts: Counts = (0,) * len(self._choices)
            for level, row in enumerate(rows):
                if not self._may(level, counts, row[place])[place]:
                    choice = self._choices[row[place]]
                    raise HyparError(f"constraints: {name} may not take {choice} at H{level + 1}")
                counts = _one_more(counts, row[place])
            load += int(self.load(counts)[place])
        memory = self._constraints.memory
        if memory is not None and load > memory << self._levels:
            needed = -(-load >> self._levels)
            raise HyparError(f"constraints: the plan takes {needed:,} bytes, memory is {memory:,}")

    def allow(self, rows: Sequence[Sequence[int]]) -> bool:
        """Return whether a plan, levels x layers, keeps to what was asked."""
        try:
            self.check(rows)
        except HyparError:
            return False
        return True

    def load(self, counts: Counts) -> Integers:
        """Return what each layer takes of an accelerator's memory, in bytes times 2^levels.

        ``counts`` are its choices over all levels.
        """
        taken: Integers = np.broadcast_to(
            np.array(counts, object)[:, None], (len(counts), len(self._shapes.layers))
        )
        return memory_load(self._shapes, taken, self._problem)

    def _limited(self, table: CostTable, allowed: NDArray[np.bool_], loads: Integers) -> CostTable:
        memory = self._constraints.memory
        if memory is None:
            return replace(table, allowed=allowed)
        # Loads of what is not allowed do not matter; a sum of the others must not overflow.
        loads = np.where(allowed, loads, 0)
        capacity = memory << self._levels
        number = exact_dtype(max(int(loads.max(axis=1).sum()), capacity))
        return replace(table, allowed=allowed, load=loads.astype(number), capacity=capacity)

    def _may(self, level: int, counts: Counts, choice: int) -> NDArray[np.bool_]:
        """Return the layers that may take a choice at a level, given their choices above."""
        pinned = self._pinned[level]
        allowed = np.array([not pins or choice in pins for pins in pinned])
        if self._constraints.even:
            parts = 2 ** (counts[choice] + 1)
            layers = self._shapes.layers
            batch = [self._shapes.batch] * len(layers)
            sizes = (
                batch,
                [layer.input_channels for layer in layers],
                [layer.output_channels for layer in layers],
            )[choice]
            allowed &= np.array([size % parts == 0 for size in sizes])
        return allowed

    def _completed(self, level: int, counts: Counts, choice: int) -> Integers:
        """Return the least load of each layer once it takes a choice; beyond reach: too much."""
        below = self._least_below(level + 1, _one_more(counts, choice))
        return np.where(self._may(level, counts, choice), below, self._impossible)

    def _least_below(self, level: int, counts: Counts) -> Integers:
        if counts not in self._least:
            if level == self._levels:
                self._least[counts] = self.load(counts)
            else:
                ways = [
                    self._completed(level, counts, choice) for choice in range(len(self._choices))
                ]
                self._least[counts] = np.stack(ways).min(axis=0)
        return self._least[counts]

    def _raise_if_infeasible(self) -> None:
        start: Counts = (0,) * len(self._choices)
        if not self._constraints.any:
            return
        least = self._least_below(0, start)
        for layer, load in zip(self._shapes.layers, least.tolist(), strict=True):
            if load >= self._impossible:
                level = self._first_infeasible_level(layer.name)
                asked = ", ".join(
                    argument(f"constraints.{name}")
                    for name in ("even", "fix")
                    if getattr(self._constraints, name)
                )
                raise InfeasibleError(
                    f"{asked}: no choice fits layer {layer.name!r} at H{level}; its batch is"
                    f" {self._shapes.batch}, its channels {layer.input_channels} in and"
                    f" {layer.output_channels} out"
                )
        memory = self._constraints.memory
        if memory is not None and sum(least.tolist()) > memory << self._levels:
            needed = -(-sum(least.tolist()) >> self._levels)
            raise InfeasibleError(
                f"{argument('constraints.memory')}: no plan fits {memory:,} bytes an accelerator;"
                f" the smallest memory that would do is {needed:,} bytes"
            )

    def _first_infeasible_level(self, name: str) -> int:
        """Return the first level, from 1, at which no way leaves a layer any choice."""
        place = [layer.name for layer in self._shapes.layers].index(name)
        reached = {(0,) * len(self._choices)}
        for level in range(self._levels):
            reached = {
                _one_more(counts, choice)
                for counts in reached
                for choice in range(len(self._choices))
                if self._may(level, counts, choice)[place]
            }
            if not reached:
                return level + 1
        raise AssertionError(f"layer {name!r} can be completed")


def _one_more(counts: Counts, choice: int) -> Counts:
    return (*counts[:choice], counts[choice] + 1, *counts[choice + 1 :])
