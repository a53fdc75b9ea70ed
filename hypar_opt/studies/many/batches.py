"""The problems of many batches in one reading, solved together where they have thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hypar_opt.hierarchy import Hierarchy
from hypar_opt.plan.arguments import problem_of
from hypar_opt.planning.search import solve_problem
from hypar_opt.studies.many.affine import AffineTable, bits_type
from hypar_opt.studies.many.problem_tables import affine_tables

if TYPE_CHECKING:
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.studies.many.kernels import Bits, Int64
    from hypar_opt.workload.network import Network

SearchName = Literal["levelwise", "joint"]

AMOUNTS = (
    *("totals", "data_parallel", "model_parallel"),
    *("executed_bytes", "data_parallel_bytes"),
)
"""The names of the arrays of bytes in `ManyPlans`."""


@dataclass(frozen=True, eq=False)
class Batches:
    """The problems of many batches in one reading, for elements of 4 bytes.

    Parameters
    ----------
    deepest
        The hierarchy with the most levels; the others are its leading levels.
    """

    network: Network
    reading: str
    search: SearchName
    batches: Int64
    deepest: Hierarchy

    def at(self, levels: int) -> tuple[Integers, Bits]:
        """Return `AMOUNTS`, ``(5, batches)``, and bits, ``(batches, layers)``."""
        moved: Integers = np.zeros((len(AMOUNTS), len(self.batches)), np.int64)
        bits = np.zeros((len(self.batches), len(self.network.layers)), bits_type(levels))
        fit = self._fit(levels)
        data, model = range(2)  # the columns of the paper's choices
        for remainder, (searched, executed) in enumerate(self._tables):
            numbers = np.flatnonzero(fit & (self._remainders == remainder))
            if not len(numbers):
                continue
            batches = self.batches[numbers]
            totals, bits[numbers] = self._solved(searched, numbers, levels)
            baselines = [searched.uniform(batches, levels, choice) for choice in (data, model)]
            run = totals if executed is searched else executed.price(batches, bits[numbers], levels)
            run_data = executed.uniform(batches, levels, data)
            moved[:, numbers] = [totals, *baselines, run, run_data]
        if not fit.all():
            moved = moved.astype(object)
        for number in np.flatnonzero(~fit).tolist():
            moved[:, number], bits[number] = self._one(int(self.batches[number]), levels)
        return moved, bits

    @cached_property
    def _tables(self) -> list[tuple[AffineTable, AffineTable]]:
        """The tables of the reading and of a run, by the remainder of the batch less one."""
        problem = self._problem(self.deepest)
        executed = affine_tables(self.network, problem.model_copy(update={"reading": "executed"}))
        searched = executed
        if self.reading != "executed":
            searched = affine_tables(self.network, problem)
        if (
            not searched
            or not executed
            or not all(table.is_batched for table in (*searched, *executed))
        ):
            return []
        period = math.lcm(len(searched), len(executed))
        return [(searched[n % len(searched)], executed[n % len(executed)]) for n in range(period)]

    @cached_property
    def _remainders(self) -> Int64:
        return (self.batches - 1) % max(1, len(self._tables))

    def _fit(self, levels: int) -> NDArray[np.bool_]:
        """Return which batches can be solved together."""
        limits = (table.largest_batch(levels) for tables in self._tables for table in tables)
        fit: NDArray[np.bool_] = self.batches <= min(limits, default=0)
        return fit

    def _solved(
        self, table: AffineTable, numbers: NDArray[np.intp], levels: int
    ) -> tuple[Int64, Bits]:
        """Return the totals and the layers' bits of batches that are solved together."""
        if self.search == "joint":
            totals, bits = table.joint(self.batches[numbers], levels)
        elif self._fit(self.deepest.levels).all():
            # The first levels of a plan are the plan of fewer levels.
            by_level, deepest = self._levelwise
            totals, bits = by_level[levels, numbers], deepest[numbers] & (2**levels - 1)
        else:
            by_level, bits = table.levelwise(self.batches[numbers], levels)
            totals = by_level[levels]
        return totals, bits[:, table.shared :]

    @cached_property
    def _levelwise(self) -> tuple[Int64, Bits]:
        """The totals of the first 0, 1, ... levels and the bits of all, level by level."""
        levels = self.deepest.levels
        totals = np.zeros((levels + 1, len(self.batches)), np.int64)
        bits = np.zeros((len(self.batches), self._tables[0][0].layers), bits_type(levels))
        for remainder, (searched, _) in enumerate(self._tables):
            numbers = np.flatnonzero(self._remainders == remainder)
            totals[:, numbers], bits[numbers] = searched.levelwise(self.batches[numbers], levels)
        return totals, bits

    def _one(self, batch: int, levels: int) -> tuple[list[Any], list[int]]:
        """Return the amounts and the bits of one problem, solved separately."""
        problem = self._problem(Hierarchy(self.deepest.sizes[:levels]))
        problem = problem.model_copy(update={"batch": batch})
        plan = solve_problem(self.network, problem, search=self.search)
        cost, states = plan.cost, zip(*plan.assignments(), strict=True)
        bits = [sum(choice << level for level, choice in enumerate(state)) for state in states]
        baselines = cost.baselines.data, cost.baselines.model
        moved = [cost.total, *baselines, cost.executed_bytes, cost.data_parallel_bytes]
        return moved, bits or [0] * len(plan.layers)

    def _problem(self, hierarchy: Hierarchy) -> Problem:
        return problem_of(
            self.network,
            hierarchy=hierarchy.sizes,
            whole_levels=True,
            element_bytes=4,
            reading=self.reading,
        )


def is_batched(network: Network, reading: str, hierarchy: Hierarchy) -> bool:
    """Return whether batches of a network are solved together, if their sums fit."""
    return bool(Batches(network, reading, "joint", np.array([], np.int64), hierarchy)._tables)
