"""Charges of an array in whole numbers of a small unit, so that tables stay exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.errors import ARRAY, HyparError, argument

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.interconnect import BisectionLink, Interconnect
    from hypar_opt.plan.problem import Problem


@dataclass(frozen=True)
class Rings:
    """The rings around which an array reduces, under a placement.

    A ring joins all the levels at which a layer makes one choice.
    """

    interconnect: Interconnect
    placement: tuple[int, ...]

    @classmethod
    def of(cls, array: Array, placement: tuple[int, ...]) -> Rings | None:
        """Return an array's rings; None where it reduces between pairs."""
        return cls(array.interconnect, placement) if array.collective == "ring" else None

    def joined(self, state: Sequence[int]) -> Iterator[tuple[int, list[int], BisectionLink]]:
        """Yield each choice of a state, the levels that its ring joins, and what that has.

        Levels are numbered from 0.
        """
        for choice in sorted(set(state)):
            levels = [level for level, taken in enumerate(state) if taken == choice]
            yield choice, levels, self.interconnect.ring(self.placement[level] for level in levels)


PREFIXES = {10**15: "femto", 10**12: "pico", 10**9: "nano", 10**6: "micro", 10**3: "milli", 1: ""}


def finest(worst: Fraction) -> int:
    """Return how many of the finest unit whose sums fit int64 make a second or a joule.

    Parameters
    ----------
    worst
        No plan comes to more, in seconds or joules.
    """
    return next((parts for parts in PREFIXES if 4 * worst * parts < 2**63), 1)


def rounded(
    amounts: Integers, each: Fraction, once: Fraction = Fraction(), times: Integers | int = 1
) -> Integers:
    """Return ``amounts * each``, plus ``times * once`` where there is any, rounded half up.

    Parameters
    ----------
    times
        As ``amounts``, or one number for all of them.
    """
    bottom = each.denominator * once.denominator
    top, more = (each * bottom).numerator, (once * bottom).numerator
    exact = amounts.astype(object) * top + (amounts > 0).astype(object) * more * times
    whole: Integers = (2 * exact + bottom) // (2 * bottom)
    return whole


def array_of(problem: Problem) -> tuple[Array, tuple[int, ...]]:
    """Return the array that a problem is asked for, and the bit that each level splits.

    Raises
    ------
    HyparError
        If there is none, or the problem asks for what an array decides.
    """
    cost = argument("cost", problem.cost)
    if problem.array is None or problem.placement is None:
        raise HyparError(f"{cost} needs an array: {ARRAY}")
    if problem.level_weights:
        raise HyparError(
            f"{argument('level_weights')} goes with {argument('cost', 'bytes')}; with {cost} the"
            " array says what a level costs"
        )
    if not problem.levels:
        raise HyparError(f"{cost} needs an array of two accelerators or more")
    return problem.array.description, problem.placement
