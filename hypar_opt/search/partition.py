"""What a search is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.search.pricing import price_levels
from hypar_opt.solvers.base import SolverOptions, Status

if TYPE_CHECKING:
    from hypar_opt.search.instance import Instance
    from hypar_opt.solvers.base import Solver

Progress = Callable[[int, int], None]
"""Called with how many tables, plans or cases are done, and of how many."""

Assignments = tuple[tuple[int, ...], ...]


def silent(done: int, of: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Search:
    """What a search is given.

    Parameters
    ----------
    start
        A plan to start from, levels x layers, for solvers that take one.
    progress
        Called with the number of tables solved, and of tables.
    deadline
        When to end; the time limit among the options counts from the call, and this from none.
    """

    instance: Instance
    solver: Solver
    options: SolverOptions = field(default_factory=SolverOptions)
    start: Assignments | None = None
    progress: Progress = silent
    deadline: Deadline = NEVER

    @property
    def levels(self) -> int:
        return self.instance.problem.levels

    def total(self, plan: Assignments) -> Fraction:
        """Return what a plan costs, in the cost's unit."""
        instance = self.instance
        return sum(price_levels(instance.workload, instance.cost, plan), Fraction())


@dataclass(frozen=True)
class Partition:
    """An assignment for every level, H1 first, and what is known of it.

    Parameters
    ----------
    assignments : levels x layers
        Columns of the level tables.
    status
        Optimal where every table was solved to optimality.
    scope
        ``level``: each level's table, given those above it; ``joint``: all plans.
    bound
        The tables' bounds added up, in the cost's unit, where all have one. With scope
        ``joint`` no plan costs less.
    stopped_by
        What ended a table's search before a proof.
    found_by
        Whose plan it is, if a limit came and the search's own was no better: a baseline's, as
        ``Data Parallelism``; level by level perhaps only ``Data Parallelism from H3``.
    statistics
        Of each model built, in order.
    versions
        Of what was used.
    """

    assignments: Assignments
    status: Status
    scope: str
    bound: Fraction | None
    stopped_by: str | None = None
    found_by: str | None = None
    statistics: tuple[Mapping[str, float], ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
