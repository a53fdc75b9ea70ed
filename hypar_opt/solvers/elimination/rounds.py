"""Two choices: many layers are eliminated at once, in rounds, at all thresholds together.

In 0-1 variables a table is ``constant + sum(linear * x) + sum(quadratic * x * y)``. A variable x of
neighbours y and z is eliminated by replacing its terms with ``min(0, d + p y + q z)``, which is a
constant, a term in y, one in z, and one in y z: a function of the same form, with one variable
fewer. A round eliminates variables no two of which are neighbours, by a few operations on arrays
(`hypar_opt.solvers.elimination.schedule`).

Source: Hammer, Rosenberg and Rudeanu, 1963; Crama, Hansen and Jaumard, "The basic algorithm for
pseudo-Boolean programming revisited", Discrete Applied Mathematics 29, 1990.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers
    from hypar_opt.solvers.elimination.schedule import EliminationSchedule


_EXACT = 2**53
"""Sums of integers below it are exact in float64."""


@dataclass(frozen=True, eq=False)
class Eliminated:
    """The core that all rounds leave, and the preferences of the eliminated variables.

    Parameters
    ----------
    linear : (core variables, functions)
    quadratic : (core pairs, functions)
    constant : (functions,)
    prefers
        For every round, ``(4, count, functions)`` bool: whether 1 is cheaper where neither
        neighbour is 1, the first, the second, or both.
    tied
        As ``prefers``: whether both cost the same; empty unless recorded.
    """

    linear: Integers
    quadratic: Integers
    constant: Integers
    prefers: list[NDArray[np.bool_]]
    tied: list[NDArray[np.bool_]]


def eliminate(
    schedule: EliminationSchedule,
    constant: Sequence[int] | Integers,
    linear: Integers,
    quadratic: Integers,
    deadline: Deadline,
    *,
    ties: bool,
) -> Eliminated:
    """Eliminate a schedule's variables from several functions at once.

    Parameters
    ----------
    constant
        One per function.
    linear : (variables, functions)
        The dtype holds 32 times the sum of all coefficients.
    quadratic : (pairs, functions)
        Or ``(pairs, 1)`` where they are the same in all functions.
    ties
        Whether to record them.
    """
    functions = linear.shape[1]
    rows: Integers = np.empty((schedule.rows, functions), linear.dtype)
    stop = schedule.original_rows
    rows[: schedule.variables] = linear
    rows[schedule.variables] = 0
    rows[schedule.variables + 1 : stop - 1] = quadratic
    rows[stop - 1] = constant
    prefers, tied = [], []
    for step in schedule.rounds:
        deadline.check()
        start, end, stop = stop, stop + 3 * step.count, stop + 4 * step.count
        step.summed(rows, out=rows[start:end])
        charges = rows[start:stop].reshape(4, step.count, functions)
        neither, first, second, with_both = charges
        # From coefficients to the charge of 1, for each assignment of the two neighbours.
        first += neither
        np.add(first, second, out=with_both)
        second += neither
        prefers.append(charges < 0)
        if ties:
            tied.append(charges == 0)
        np.minimum(charges, 0, out=charges)
        # And back, to coefficients of the least charges: the constant's, y, z and y z.
        with_both -= first
        first -= neither
        second -= neither
        with_both -= second
    rest = schedule.rest.summed(rows)
    core = len(schedule.core)
    return Eliminated(rest[:core], rest[core:-1], rest[-1], prefers, tied)


def cheapest_few(
    schedule: EliminationSchedule, eliminated: Eliminated
) -> tuple[NDArray[np.bool_], bool]:
    """Return an optimum of every function over a small core, and whether any tied.

    Ties go to the first in the order of binary numbers, which has the fewest ones if the optima
    are a lattice. The optimum's cost is added to the constant.
    """
    values, counts = schedule.few
    terms = np.concatenate([eliminated.linear, eliminated.quadratic])
    if terms.dtype != object and np.abs(terms).max(initial=0) * len(terms) < _EXACT:
        terms = terms.astype(np.float64)  # equally exact, and products of floats are faster
    costs = counts @ terms
    best = costs.argmin(axis=0)
    lowest = costs.min(axis=0)
    eliminated.constant[...] += lowest.astype(eliminated.constant.dtype)
    tied = bool(eliminated.tied) and bool(((costs == lowest).sum(axis=0) > 1).any())
    return values[best].T.astype(bool), tied


def traced_back(
    schedule: EliminationSchedule, eliminated: Eliminated, core: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], bool]:
    """Return an optimum of every function, from one of the core, and whether a tie was decided.

    Ties go to 0. If no pair's coefficient is positive, that gives the optimum with the fewest
    ones, as the optima are a lattice.

    Parameters
    ----------
    core : (core variables, functions)

    Returns
    -------
    optimum : (variables, functions)
    tied
    """
    # In the order of elimination; the last row stands for a missing neighbour.
    values = np.zeros((schedule.variables + 1, core.shape[1]), bool)
    stop = schedule.variables - len(core)
    values[stop:-1] = core
    tied = False
    for n in range(len(schedule.rounds) - 1, -1, -1):
        step = schedule.rounds[n]
        first, second = values.take(step.neighbours, axis=0)
        start = stop - step.count
        values[start:stop] = _at(eliminated.prefers[n], first, second)
        if eliminated.tied:
            tied = tied or bool(_at(eliminated.tied[n], first, second).any())
        stop = start
    return values.take(schedule.position, axis=0), tied


def _at(
    by_neighbours: NDArray[np.bool_], first: NDArray[np.bool_], second: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    neither, only_first, only_second, both = by_neighbours
    without_second = np.where(first, only_first, neither)
    value: NDArray[np.bool_] = np.where(second, np.where(first, both, only_second), without_second)
    return value
