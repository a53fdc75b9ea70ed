"""Exact amounts in arrays: int64, or Python's integers where a sum may exceed it."""

from __future__ import annotations

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
    numerator: Integers | int,
    denominator: Integers | int = 1,
    rounding: Literal["half up", "up", "down"] = "half up",
) -> Integers:
    """Return ``amounts * numerator / denominator``, computed exactly and rounded to integers.

    Parameters
    ----------
    amounts
        From 0.
    numerator, denominator
        Of one ratio for all, or of one for each amount.

    Returns
    -------
    Integers
        int64 if it holds all that is computed.
    """
    most, over, under = (int(np.max(own, initial=0)) for own in (amounts, numerator, denominator))
    factor = 2 if rounding == "half up" else 1
    dtype = exact_dtype(factor * (max(most, 1) * max(over, 1) + under))
    if dtype != amounts.dtype == np.int64 and most > under:
        # Whole multiples apart, so that no product is much larger than the result.
        whole = amounts // denominator
        rest = scale(amounts - whole * denominator, numerator, denominator, rounding)
        dtype = exact_dtype((most // int(np.min(denominator, initial=under)) + 1) * over + 1)
        return np.asarray(whole.astype(dtype) * numerator + rest)
    exact, of = (np.asarray(own, dtype) for own in (amounts, denominator))
    more = {"half up": of, "up": of - 1, "down": 0}[rounding]
    return np.asarray((factor * exact * numerator + more) // (factor * of))
