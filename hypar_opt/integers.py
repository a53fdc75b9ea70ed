"""Exact amounts in arrays: int64, or Python's integers where a sum may exceed it; divisors."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[Any]
"""int64, or Python integers in an array of dtype object."""


@lru_cache(maxsize=256)
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, in order."""
    low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return tuple(sorted({*low, *(number // n for n in low)}))


def exact_dtype(largest: int) -> type[np.int64 | np.object_]:
    """Return int64 if it holds the largest sum that can occur, else object (Python integers)."""
    return np.int64 if largest < 2**63 else np.object_


def scale(
    amounts: Integers,
    ratio: Fraction | tuple[Integers | int, Integers | int],
    rounding: Literal["half up", "up", "down"] = "half up",
) -> Integers:
    """Return ``amounts * ratio``, computed exactly and rounded to integers.

    Parameters
    ----------
    ratio
        One for all amounts, not negative; or numerators and denominators for each amount.

    Returns
    -------
    Integers
        int64 if it holds all intermediate results.
    """
    over, under = ratio.as_integer_ratio() if isinstance(ratio, Fraction) else ratio
    above, below = (n if isinstance(n, int) else int(n.max(initial=0)) for n in (over, under))
    largest = max(int(amounts.max(initial=1)), -int(amounts.min(initial=0)))
    dtype = exact_dtype(2 * (largest * max(above, 1) + below))
    if dtype != amounts.dtype == np.int64 and largest > below:
        # Whole multiples apart, so that no product is much larger than the result.
        whole = amounts // under
        rest = scale(amounts - whole * under, ratio, rounding)
        smallest = under if isinstance(under, int) else int(under.min(initial=below))
        dtype = exact_dtype((largest // smallest + 2) * above + 1)
        return np.asarray(whole.astype(dtype) * over + rest)
    exact: tuple[Any, ...] = tuple(
        operand if isinstance(operand, int) else operand.astype(dtype, copy=False)
        for operand in (amounts, over, under)
    )
    amounts, over, under = exact
    # Each in one expression, whose intermediate arrays numpy reuses.
    if rounding == "half up":
        return np.asarray((2 * (amounts * over) + under) // (2 * under))
    if rounding == "up":
        return np.asarray((amounts * over + under - 1) // under)
    return np.asarray(amounts * over // under)
