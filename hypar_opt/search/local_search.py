"""Local search: all nodes' choices at two levels change together, at other levels none."""

from __future__ import annotations

from itertools import combinations, cycle
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hypar_opt.errors import NoAnswerError, RefusedError
from hypar_opt.solvers.elimination.classes import optimum_of_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.deadline import Deadline
    from hypar_opt.solvers.elimination.columns import Columns

Plan = TypeVar("Plan")
Change = TypeVar("Change")


def improved(table: ClassTable, start: Sequence[int], deadline: Deadline) -> tuple[int, ...]:
    """Return an assignment that no change at two levels improves, starting from another one.

    If the deadline passes, the best one so far is returned; if two levels together take more memory
    than is allowed, levels change one at a time.
    """
    best = tuple(start)
    for together in (2, 1):
        try:
            for better in _improvements(table, best, together, deadline):
                best = better
        except RefusedError:
            continue
        except NoAnswerError:
            pass
        break
    return best


def _improvements(
    table: ClassTable, start: tuple[int, ...], together: int, deadline: Deadline
) -> Iterator[tuple[int, ...]]:
    """Yield ever cheaper assignments, until no change at ``together`` levels improves the last.

    Raises
    ------
    RefusedError, NoAnswerError
        As `optimum_of_columns`.
    """
    sets = free_levels(len(table.states), together)
    groups = [_equal_columns(np.delete(table.states, free, axis=0)) for free in sets]

    def best_neighbour(
        assignment: tuple[int, ...], numbers: NDArray[np.intp]
    ) -> tuple[int, tuple[int, ...]]:
        deadline.check()
        return optimum_of_columns(table, _free_columns(table, assignment, numbers), deadline)

    yield from descent(start, table.price(start), groups, best_neighbour)


def free_levels(levels: int, together: int) -> list[tuple[int, ...]]:
    """Return the sets of levels at which a plan may be changed at once."""
    return list(combinations(range(levels), min(together, levels)))


def descent(
    start: Plan,
    cost: float,
    changes: Sequence[Change],
    best: Callable[[Plan, Change], tuple[float, Plan]],
) -> Iterator[Plan]:
    """Yield ever cheaper plans, until none of some changes improves the last.

    Parameters
    ----------
    cost
        The cost of the first plan.
    best
        Returns the cheapest plan after one of the changes, and its cost.
    """
    plan, since = start, 0
    for change in cycle(changes):
        price, neighbour = best(plan, change)
        since += 1
        if price < cost:
            plan, cost, since = neighbour, price, 1
            yield plan
        if since >= len(changes):
            return


def _equal_columns(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return a number for each column, the same for equal columns."""
    return np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1)


def _free_columns(
    table: ClassTable, assignment: Sequence[int], numbers: NDArray[np.intp]
) -> Columns:
    """Return each node's allowed states with the same number as its current state."""
    cache: dict[tuple[int, int], NDArray[np.intp]] = {}
    columns = []
    for kind, number in zip(table.node_kinds.tolist(), numbers[list(assignment)], strict=True):
        if (kind, number) not in cache:
            cache[kind, number] = np.flatnonzero(table.allowed[kind] & (numbers == number))
        columns.append(cache[kind, number])
    return columns
