"""Exact amounts in arrays: int64, or Python's integers where a sum may exceed it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[Any]
"""int64, or Python integers in an array of dtype object."""


def exact_dtype(largest: int) -> type[np.int64 | np.object_]:
    """Return int64 if it holds the largest sum that can occur, else object (Python integers)."""
    return np.int64 if largest < 2**63 else np.object_
