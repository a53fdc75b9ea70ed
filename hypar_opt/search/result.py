"""The input and the result of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.pricing import total_cost
from hypar_opt.plan.plan import columns_of
from hypar_opt.solvers.base import SolverOptions, Status

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Tensors
    from hypar_opt.instance.instance import Instance
    from hypar_opt.instance.pricing import Charged
    from hypar_opt.plan.plan import Plan
    from hypar_opt.solvers.base import Solver

Progress = Callable[[int, int], None]
"""A callback with the number of finished tables, plans or cases, and the total."""

Assignments = tuple[tuple[int, ...], ...]

Rows = list[tuple[int, ...]]
"""The choices of all nodes, ``(levels, nodes)``, H1 first."""


Item = TypeVar("Item")

_UNITS = 1000
"""Units of progress of each part of a whole."""


def silent(done: int, of: int) -> None:
    """Report no progress."""


def part_of(progress: Progress, number: int, parts: int) -> Progress:
    """Return the progress of one of several parts, from 0; it never goes back.

    A part may restart, such as a search that is repeated within a memory.
    """
    reached = 0

    def report(done: int, of: int) -> None:
        nonlocal reached
        reached = max(reached, _UNITS * done // max(of, 1))
        progress(_UNITS * number + reached, _UNITS * parts)

    return report


def parts_of(progress: Progress, items: Sequence[Item]) -> Iterator[tuple[Item, Progress]]:
    """Yield items to process one after the other, each with its part of the progress."""
    for number, item in enumerate(items):
        report = part_of(progress, number, len(items))
        report(0, 1)
        yield item, report
    progress(len(items), len(items))


@dataclass(frozen=True)
class SearchRequest:
    """The input of a search.

    Parameters
    ----------
    start : (levels, layers)
        A plan to start from, for solvers that support a warm start.
    progress
        Called with the number of solved tables, and of all.
    deadline
        The end of the search; the time limit among the options is a duration.
    incumbent : (levels, layers)
        A plan to return if a limit comes before a better one.
    uses_fallback
        Whether a level-by-level search provides a plan if a limit ends the search of all levels.
    """

    instance: Instance
    solver: Solver
    options: SolverOptions = field(default_factory=SolverOptions)
    start: Assignments | None = None
    progress: Progress = silent
    deadline: Deadline = NEVER
    incumbent: Assignments | None = None
    uses_fallback: bool = True

    @property
    def without_progress(self) -> SearchRequest:
        """One of several searches of a problem."""
        return replace(self, progress=silent, start=None)

    @property
    def levels(self) -> int:
        return self.instance.problem.levels

    def total(self, plan: Assignments, tensors: Tensors | None = None) -> Fraction:
        """Return the charges of a plan, ``(levels, layers)``, in tables, in the cost's unit."""
        return total_cost(self.instance, plan, tensors, charged=True)

    def layers_of(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Return the choices of layers, from those of all nodes."""
        return tuple(nodes[self.instance.workload.shared :])

    def tensors_of(self, rows: Assignments) -> Tensors | None:
        """Return the choices of shared tensors, from those of all nodes, ``(levels, nodes)``.

        None if they follow, level by level, from those of the layers.
        """
        workload = self.instance.workload
        if not workload.has_replicas:
            return None
        return tuple({node: row[node] for node in workload.tensor_writers} for row in rows)

    def chosen_tensors(self, rows: Sequence[Sequence[int]]) -> Tensors | None:
        """Return the choices of shared tensors among those of all nodes; None if there are none."""
        writers = self.instance.workload.tensor_writers
        return tuple({node: row[node] for node in writers} for row in rows) if writers else None

    def start_of(self, level: int) -> tuple[int, ...] | None:
        """Return all nodes' choices at a level to start from; shared nodes take the first."""
        if self.start is None:
            return None
        return (0,) * self.instance.workload.shared + tuple(self.start[level])


@dataclass(frozen=True)
class SearchResult:
    """The result of a search: an assignment for every level, H1 first, and its proof status.

    Parameters
    ----------
    assignments : (levels, layers)
        Columns of the level tables.
    status
        Optimal if every table was solved to optimality.
    scope
        ``level``: each level's table, given those above it; ``joint``: all plans.
    bound
        The sum of the tables' bounds, in the cost's unit, if all have one. With scope
        ``joint`` it is a lower bound on all plans.
    stopped_by
        The limit that ended a table's search before a proof.
    found_by
        The origin of the plan, if a limit came and the search's own plan was no better: a baseline,
        as ``Data Parallelism``, or level by level perhaps ``Data Parallelism from H3``.
    statistics
        Statistics of each model that was built, in order.
    versions
        Of the solver's packages, by name.
    tensors
        The layouts of shared tensors, by level; None if they follow from the layers' choices.
    priced
        The layouts with which the plan is priced; None if the reading has no shared tensors.
    charged
        The cost of the plan with these; None if tables may charge less.
    """

    assignments: Assignments
    status: Status
    scope: str
    bound: Fraction | None
    stopped_by: str | None = None
    found_by: str | None = None
    statistics: tuple[Mapping[str, float], ...] = ()
    versions: Mapping[str, str] = FrozenDict()
    tensors: Tensors | None = None
    priced: Tensors | None = None
    charged: Charged | None = None


Search = Callable[[SearchRequest], SearchResult]
"""One of `hypar_opt.search.searches`, or a function that calls it several times."""


def rows_to_start_from(start: Plan, instance: Instance) -> Assignments:
    """Return a warm start's assignments, ``(levels, layers)``, if they fit the problem.

    Its choices may be a subset of the problem's.
    """
    problem = instance.problem
    fits = (
        start.network.digest == instance.network.digest()
        and start.levels == problem.levels
        and {*start.choices} <= {*problem.choices}
    )
    if not fits:
        raise RefusedError(
            "a warm start should be a plan of the same network and levels, and of the same choices"
            " or fewer"
        )
    return columns_of(start.parallelism, instance.network.words(problem.choices))
