"""Exact amounts in arrays: int64, or Python's integers where a sum may exceed it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[Any]
"""int64, or Python integers in an array of dtype object."""


def exact_dtype(largest: int) -> type[np.int64 | np.object_]:
    """Return int64 if it holds the largest sum that can occur, else object (Python integers)."""
    return np.int64 if largest < 2**63 else np.object_


def scale(
    amounts: Integers,
    ratio: Fraction | tuple[Integers, Integers],
    rounding: Literal["half up", "up", "down"] = "half up",
) -> Integers:
    """Return ``amounts * ratio``, computed exactly and rounded to integers.

    Parameters
    ----------
    ratio
        Of all amounts; or the numerators and denominators of each one's.

    Returns
    -------
    Integers
        int64 if it holds all that is computed.
    """
    over, under = ratio.as_integer_ratio() if isinstance(ratio, Fraction) else ratio
    most, above, below = (
        max(int(np.max(own, initial=0)), -int(np.min(own, initial=0)))
        for own in (amounts, over, under)
    )
    factor = 2 if rounding == "half up" else 1
    dtype = exact_dtype(factor * (max(most, 1) * max(above, 1) + below))
    if dtype != amounts.dtype == np.int64 and most > below:
        # Whole multiples apart, so that no product is much larger than the result.
        whole = amounts // under
        rest = scale(amounts - whole * under, ratio, rounding)
        least = int(np.min(under, initial=below))
        dtype = exact_dtype((most // least + 2) * above + 1)
        return np.asarray(whole.astype(dtype) * over + rest)
    exact, of = (np.asarray(own, dtype) for own in (amounts, under))
    more = {"half up": of, "up": of - 1, "down": 0}[rounding]
    return np.asarray((factor * exact * over + more) // (factor * of))
