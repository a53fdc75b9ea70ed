"""Physical charges in integers of a small unit, so that cost tables stay exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import ARRAY, HyparError, argument
from hypar_opt.integers import exact_dtype, scale
from hypar_opt.units import PREFIXES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.hardware.patterns import MessageRound
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem


@dataclass(frozen=True)
class Pairs:
    """Exchanges between parts, one level after the other, under a placement.

    Parameters
    ----------
    placement
        The digit of an accelerator's number that each level splits, H1 first.
    """

    interconnect: Interconnect
    placement: tuple[int, ...]

    def stages(self, levels: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the levels, numbered from 0, of each stage of a reduction, in their order.

        A reduction has reduced over all levels of a stage before it goes on to the next one.
        """
        return [(level,) for level in levels]

    def rounds(self, stage: Sequence[int], times: int = 1) -> tuple[MessageRound, ...]:
        """Return the rounds of a stage; `times` is 2 to reduce-scatter and gather.

        Two accelerators then send each other all that they have, in place of a half to be reduced
        and a half to be gathered.
        """
        (level,) = stage
        once = self.interconnect.between(self.placement[level])
        return once if len(once) == 1 else self.interconnect.between(self.placement[level], times)


@dataclass(frozen=True)
class Rings(Pairs):
    """The rings of an array's all-reduces, under a placement.

    Parameters
    ----------
    dimensions
        The number of the hardware's dimension that each level splits.
    collective
        The all-reduce algorithm, one of rings.
    grid
        Whether the array is a torus or mesh.
    among
        The accelerators of a group, whose links are those of its rings below H1; None for all.

    Source: docs/decisions/0007-arrays-and-time.md.
    """

    dimensions: tuple[int, ...]
    collective: str
    grid: bool
    among: range | None = None

    @classmethod
    def of(
        cls, array: Array, placement: tuple[int, ...], collective: str | None = None
    ) -> Rings | None:
        """Return an array's rings; None if it reduces between pairs.

        Parameters
        ----------
        collective
            The all-reduce algorithm; None for the array's own.
        """
        collective = collective or array.collective
        if collective == "pairwise":
            return None
        grid = array.topology.grid() is not None
        return cls(array.interconnect, placement, array.dimensions_of(placement), collective, grid)

    def stages(self, levels: Sequence[int]) -> list[tuple[int, ...]]:
        if self.collective != "hierarchical":
            return [tuple(levels)] if levels else []
        return [tuple(stage) for _, stage in groupby(levels, self.dimensions.__getitem__)]

    def rounds(self, stage: Sequence[int], times: int = 1) -> tuple[MessageRound, ...]:
        at_once = self.collective == "ring" and self.grid
        rings: dict[int, list[int]] = {}
        for level in stage:
            ring = self.dimensions[level] if at_once else 0
            rings.setdefault(ring, []).append(self.placement[level])
        return self.interconnect.around(rings.values(), times, at_once=at_once)

    def crossing(self, stage: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the part of a stage's bytes that crosses each of its levels."""
        digits = [self.placement[level] for level in stage]
        return self.interconnect.crossing(self.rounds(stage), digits)

    def link(self, stage: Sequence[int]) -> BisectionLink:
        """Return the link of a stage's rounds; its latency is that of all rounds together."""
        return self.interconnect.link(self.rounds(stage), self._among(stage))

    def _among(self, stage: Sequence[int]) -> range | None:
        return self.among if min(stage) else None

    def runs(self, levels: int) -> list[tuple[int, ...]]:
        """Return runs of levels: a stage of any reduction lies within one of them."""
        return self.stages(range(levels))


class UncontendedRings(Rings):
    """Rings over the links of some accelerators at all levels, as if the others sent nothing."""

    def _among(self, stage: Sequence[int]) -> range | None:
        del stage
        return self.among


def finest(upper_bound: Fraction) -> int:
    """Return the charges in a second or joule, in the finest unit whose sums fit int64.

    Parameters
    ----------
    upper_bound
        An upper bound on the cost of any plan, in seconds or joules.
    """
    # PREFIXES run from femto, the finest, to the whole unit. Four times the bound has to fit
    # (docs/decisions/0007-arrays-and-time.md).
    return next((parts for parts in PREFIXES if 4 * upper_bound * parts < 2**63), 1)


def rounded(
    amounts: Integers, rate: Fraction, latency: Fraction = Fraction(), messages: Integers | int = 1
) -> Integers:
    """Return ``amounts * rate + messages * latency`` as integers, rounded half up.

    An amount of 0 is no exchange, and has no latency.

    Parameters
    ----------
    amounts
        Bytes, elements or operations.
    rate, latency
        Charges of one unit of the amounts, and of a message.
    messages
        In the shape of ``amounts``, or one number for all.
    """
    largest = int(amounts.max(initial=0))
    if not largest:
        return np.zeros(amounts.shape, np.int64)
    denominator = math.lcm(rate.denominator, latency.denominator)
    per_amount = rate.numerator * (denominator // rate.denominator)
    per_message = latency.numerator * (denominator // latency.denominator)
    # Python's integers where a numerator may exceed int64.
    most_messages = messages if isinstance(messages, int) else int(messages.max(initial=0))
    numerator = largest * per_amount + most_messages * per_message
    # The factors too: a product with 0 may be small although they are not.
    factors = largest, per_amount, per_message, denominator
    dtype = exact_dtype(2 * max(numerator, *factors) + denominator)
    shape = amounts.shape
    if dtype is np.object_ and amounts.dtype != dtype and isinstance(messages, int):
        # They are slow, and few amounts are distinct.
        amounts, places = np.unique(amounts, return_inverse=True)
        rest = rounded(amounts.astype(dtype), rate, latency, messages)
        return rest[places].reshape(shape)
    exact: Integers = amounts.astype(dtype) * per_amount
    if per_message:
        if not isinstance(messages, int):
            messages = messages.astype(dtype)
        exact = exact + (amounts > 0).astype(dtype) * (per_message * messages)
    return scale(exact, Fraction(1, denominator))


def array_of(problem: Problem) -> tuple[Array, tuple[int, ...]]:
    """Return a problem's array, and the digit of an accelerator's number that each level splits.

    Raises
    ------
    HyparError
        If there is none, or the problem has level weights or no level.
    """
    cost = argument("cost", problem.cost)
    if problem.array is None or problem.placement is None:
        levels = f" of the levels {','.join(map(str, problem.parts))}" if problem.parts else ""
        raise HyparError(f"{cost} needs an array{levels}: {ARRAY}")
    if problem.level_weights:
        raise HyparError(
            f"{argument('level_weights')} goes with {argument('cost', 'bytes')}; with {cost} the"
            " array says what a level costs"
        )
    if not problem.levels:
        raise HyparError(f"{cost} needs an array of two accelerators or more")
    return problem.array.description, problem.placement
