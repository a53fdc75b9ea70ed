"""Reductions of a problem over all levels to one table, and back to the choices of each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.costs.state_charges import check_states, choices_by_level, states_of
from hypar_opt.costs.state_classes import ClassTable
from hypar_opt.costs.state_table import FactoredTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError
from hypar_opt.solvers.base import too_large
from hypar_opt.solvers.elimination.pruning import program_columns, pruned_states

if TYPE_CHECKING:
    from hypar_opt.costs.row_names import RowNames
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.table import CostTable
    from hypar_opt.instance.instance import Instance
    from hypar_opt.solvers.base import Solver

Assignment = tuple[int, ...]

_MANY = 2**10
"""From this many states, a chain's layers are bounded level by level before pairs are charged."""


class TableReduction(Protocol):
    """A problem over all levels, stated as one table."""

    @classmethod
    def accepts(cls, instance: Instance) -> Self | None:
        """Return the reduced problem; None if this reduction does not apply."""

    def check_size(self, solver: Solver, *, instead: str = "try dp") -> None:
        """Refuse a problem that the solver would refuse, before its table is built.

        Parameters
        ----------
        instead
            The alternative that a refusal proposes.

        Raises
        ------
        RefusedError
            If the table or its program would be too large.
        """

    def compact(
        self, solver: Solver, deadline: Deadline = NEVER
    ) -> ThresholdTable | FactoredTable | ClassTable | None:
        """Return the compact table, if the solver accepts it and it states the whole problem."""

    def pruned(self, solver: Solver, deadline: Deadline = NEVER) -> PrunedTable | None:
        """Return the states in plans up to a cost; None if all states are few enough.

        Raises
        ------
        InfeasibleError
            If no plan satisfies the constraints.
        RefusedError
            If the states in plans up to the cost of the best plan are too many for the solver, too.
        """

    def apply(self, deadline: Deadline = NEVER) -> tuple[CostTable, RowNames]:
        """Return the table, and the names of its rows and columns."""

    def assigned(self, rows: Rows) -> Assignment:
        """Return the assignment of a plan, ``(levels, nodes)``."""

    def invert(self, assignment: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the plan of an assignment, ``(levels, nodes)``."""


@dataclass(frozen=True)
class ByThresholds:
    """Whether each node takes model parallelism at t levels or more, for each t = 1..H.

    Where the levels are equal and nothing couples them, a layer's charges telescope and the
    thresholds are independent: one two-choice graph per t, with the table of a level below t - 1
    model and H - t data choices of every layer. For a given number of levels in model parallelism
    the topmost are best, so threshold t is that of level Ht.

    Source: docs/decisions/0005-joint-optimum.md.
    """

    instance: Instance
    table: ThresholdTable

    @classmethod
    def accepts(cls, instance: Instance) -> Self | None:
        table = instance.thresholds
        return None if table is None else cls(instance, table)

    def check_size(self, solver: Solver, *, instead: str = "try dp") -> None:
        """Thresholds are one table of a level for each level."""

    def compact(self, solver: Solver, deadline: Deadline = NEVER) -> ThresholdTable | None:  # noqa: ARG002
        # A table by thresholds forbids nothing.
        says_all = not self.instance.constraints.any
        return self.table if says_all and ThresholdTable in solver.accepted_tables else None

    def pruned(self, solver: Solver, deadline: Deadline = NEVER) -> None:
        """Thresholds are few."""

    def apply(self, deadline: Deadline = NEVER) -> tuple[CostTable, RowNames]:  # noqa: ARG002
        constraints, levels = self.instance.constraints, self.table.levels
        rows = self.instance.workload.baselines
        baselines = {name: row * levels for name, row in rows.items()}
        table = replace(self.table.as_one_table(), baselines=baselines)
        if constraints.any:
            table = replace(table, allowed=constraints.thresholds().reshape(-1, 2))
        return table, self.instance.labels(*self.instance.problem.hierarchy.names)

    def assigned(self, rows: Rows) -> Assignment:
        model = np.sum(rows, axis=0)
        return tuple(int(m >= t) for t in range(1, self.table.levels + 1) for m in model)

    def invert(self, assignment: Sequence[int]) -> list[tuple[int, ...]]:
        # In an optimum "t levels or more" implies "t - 1 or more"; if a limit left an assignment
        # in which it does not, the number of levels is still a plan, and priced as such.
        levels = self.table.levels
        counts = np.reshape(assignment, (levels, -1)).sum(axis=0).tolist()
        return [tuple([int(level < count) for count in counts]) for level in range(levels)]


@dataclass(frozen=True)
class ByStates:
    """The state of each node, its choices at all levels: for any problem."""

    instance: Instance

    @classmethod
    def accepts(cls, instance: Instance) -> Self | None:
        return cls(instance)

    def check_size(self, solver: Solver, *, instead: str = "try dp") -> None:
        refusal = too_large(solver.max_columns, *self._size(), instead=instead)
        if refusal:
            raise RefusedError(refusal)

    def _size(self) -> tuple[int, int, int]:
        """Return the nodes, boundaries and states of the table.

        Raises
        ------
        RefusedError
            If there are more states than memory allows.
        """
        workload = self.instance.workload
        choices = choices_by_level(workload, self.instance.problem.levels)
        check_states(len(workload.nodes), choices)
        return len(workload.nodes), len(workload.ends), prod(choices)

    def compact(
        self, solver: Solver, deadline: Deadline = NEVER
    ) -> FactoredTable | ClassTable | None:
        instance, workload = self.instance, self.instance.workload
        if ClassTable not in solver.accepted_tables:
            return None
        if workload.is_chain and not instance.constraints.couple_layers:
            # Few states are eliminated at once, without bounds.
            many = len(workload.choices) ** instance.problem.levels >= _MANY
            table = instance.states(deadline).by_level(deadline, bounding=many)
            if table is not None:
                return table
        return instance.classes(deadline)

    def pruned(self, solver: Solver, deadline: Deadline = NEVER) -> PrunedTable | None:
        instance, most, size = self.instance, solver.max_columns, self._size()
        # A bound without the loads of a capacity leaves more states.
        if most is None or not too_large(most, *size) or instance.constraints.couple_layers:
            return None
        try:
            table = instance.classes(deadline)
            states, cutoff = pruned_states(table, most, deadline)
        except RefusedError:  # by memory, as the size of the whole table shows
            return None
        if (count := program_columns(states, table)) > most:
            alone = f"the states of the cheapest plans alone need {count:,}; take fewer levels"
            raise RefusedError(too_large(most, *size, instead=alone) or alone)
        names = instance.problem.hierarchy.names
        labels = instance.labels(*names, states=self._states(deadline))
        return PrunedTable.of(table, states, cutoff, labels)

    def apply(self, deadline: Deadline = NEVER) -> tuple[CostTable, RowNames]:
        instance, table = self.instance, self.instance.states(deadline)
        labels = instance.labels(*instance.problem.hierarchy.names, states=table.states)
        return table.dense(deadline), labels

    def assigned(self, rows: Rows) -> Assignment:
        return tuple(map(self._states().index, zip(*rows, strict=True)))

    def invert(self, assignment: Sequence[int]) -> list[tuple[int, ...]]:
        states = self._states()
        return list(zip(*(states[column] for column in assignment), strict=True))

    def _states(self, deadline: Deadline = NEVER) -> Sequence[tuple[int, ...]]:
        return states_of(self.instance.workload, self.instance.problem.levels, deadline)


REDUCTIONS: tuple[type[TableReduction], ...] = (ByThresholds, ByStates)
"""Smallest tables first: the first reduction that accepts a problem is used."""


def reduction_of(instance: Instance) -> TableReduction:
    """Return the reduction of a problem over all levels to the smallest table."""
    return next(reduced for kind in REDUCTIONS if (reduced := kind.accepts(instance)) is not None)
