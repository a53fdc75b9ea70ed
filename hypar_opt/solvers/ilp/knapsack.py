"""A table's capacities in a 0-1 program: knapsacks of small coefficients, and cover cuts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.solvers.feasibility import allowed_choices
from hypar_opt.solvers.ilp.zero_one import LayerChoice, ZeroOneProgram

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable
    from hypar_opt.integers import Integers

MAX_CAPACITY = 10**6
BASE = 10**5
"""A capacity above `MAX_CAPACITY` is written in digits of `BASE`, a constraint per digit.

CBC rounds: of feasible capacities of 10^8 it calls 3 in 100 infeasible.
"""


def with_capacity(program: ZeroOneProgram, table: CostTable, largest: int) -> ZeroOneProgram:
    """Return a table's program with constraints that keep its loads within their capacities.

    One constraint for a capacity up to the largest. Else one per digit, with an integer column
    that carries to the next, as in addition by hand: the same choices fit, and the relaxation
    is the same.
    """
    for number, (load, capacity) in enumerate(table.limits):
        # Last: a name that begins with a digit is none of an LP file.
        suffix = f"_{number}" * (number > 0)
        program = _with_limit(program, *_excess_loads(table, load, capacity), largest, suffix)
    return program


def _with_limit(
    program: ZeroOneProgram, weights: list[list[int]], capacity: int, largest: int, suffix: str
) -> ZeroOneProgram:
    """Return a program with the constraints of one capacity; names end with a suffix."""
    # Even the heaviest choices fit: no constraint, no rounding.
    if sum(map(max, weights)) <= capacity:
        return program
    carried: dict[str, int] = {}
    for digit in itertools.count():
        name = f"capacity_{digit}{suffix}"
        if capacity <= largest:
            return program.with_constraint(name, _terms(weights), "<=", capacity, carried)
        carry = f"carry_{digit}{suffix}"
        # sum(digits) + carry in - BASE * carry out <= this digit of the capacity.
        digits = [[weight % BASE for weight in row] for row in weights]
        carried[carry] = -BASE
        program = program.with_constraint(name, _terms(digits), "<=", capacity % BASE, carried)
        program = replace(program, costs={**program.costs, carry: 0})
        carried = {carry: 1}
        weights, capacity = [[w // BASE for w in row] for row in weights], capacity // BASE
    raise AssertionError


def violated_cover(
    table: CostTable, assignment: Sequence[int]
) -> tuple[dict[LayerChoice, int], int] | None:
    """Return a cover inequality that an assignment violates; None if it fits.

    The cover is the heaviest of the assignment's choices, as many as exceed the capacity. It
    is extended by all choices at least as heavy in the same layers, which makes it tighter.

    Source: Balas, "Facets of the knapsack polytope", Mathematical Programming 8, 1975.

    Returns
    -------
    weights, bound
        The sum of these choices' literals is at most ``bound``.
    """
    covers = (_cover(_excess_loads(table, *limit), assignment) for limit in table.limits)
    return next((cover for cover in covers if cover is not None), None)


def _cover(
    limit: tuple[list[list[int]], int], assignment: Sequence[int]
) -> tuple[dict[LayerChoice, int], int] | None:
    """Return the cover inequality of one capacity that an assignment violates, if it does."""
    weights, slack = limit
    load = [row[choice] for row, choice in zip(weights, assignment, strict=True)]
    cover: list[int] = []
    # Heaviest first: the smaller the cover, the more assignments the cut removes.
    for layer in sorted(range(len(load)), key=lambda layer: -load[layer]):
        if slack < 0:
            break
        slack -= load[layer]
        cover.append(layer)
    if slack >= 0:
        return None
    # The cut removes this assignment at least, so cutting comes to an end.
    heavy = {
        (layer, choice): 1
        for layer in cover
        for choice, weight in enumerate(weights[layer])
        if weight >= load[layer]
    }
    return heavy, len(cover) - 1


def _terms(weights: list[list[int]]) -> dict[LayerChoice, int]:
    """Return the weights by layer and choice."""
    return {
        (layer, choice): weight
        for layer, row in enumerate(weights)
        for choice, weight in enumerate(row)
    }


def _excess_loads(
    table: CostTable, of_choices: Integers, capacity: int
) -> tuple[list[list[int]], int]:
    """Return the loads in excess of their layer's lightest, and the capacity left for them.

    Both in the smallest integers that allow the same assignments. All choices that do not fit by
    themselves load the same, one unit more than the capacity left; forbidden ones load nothing,
    since their columns are fixed.

    Returns
    -------
    weights : layers x choices
    capacity
    """
    weights: list[list[int]] = []
    for loads, allowed_row in zip(
        of_choices.tolist(), allowed_choices(table).tolist(), strict=True
    ):
        lightest = min(
            load for load, is_allowed in zip(loads, allowed_row, strict=True) if is_allowed
        )
        weights.append(
            [
                load - lightest if is_allowed else 0
                for load, is_allowed in zip(loads, allowed_row, strict=True)
            ]
        )
        capacity -= lightest
    # Sums of loads are multiples of their common divisor, so the capacity may be rounded down.
    unit = math.gcd(*(w for row in weights for w in row if w <= capacity)) or capacity + 1
    weights = [[(w if w <= capacity else capacity + unit) // unit for w in row] for row in weights]
    return weights, capacity // unit
