"""Cases for ``make slow``: more of what ``make test`` has a part of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import settings

ALL = False
"""Whether tests marked ``slow`` run, as ``conftest.py`` finds; else they are not even made."""


def slow_after(kept: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parameter; all but the first are left to ``make slow``."""
    every = list(cases)
    slow = [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in every[kept:]
    ]
    return [*every[:kept], *(slow if ALL else [])]


def slow_off_diagonal(*parameters: Sequence[Any]) -> list[Any]:
    """Return the combinations of the values of parameters.

    ``make test`` has as many as the longest has values: each value of each is in one or more.
    """
    most = max(map(len, parameters))
    diagonal = [tuple(n % len(values) for values in parameters) for n in range(most)]
    others = product(*(range(len(values)) for values in parameters))
    places = dict.fromkeys([*diagonal, *others])
    cases = [
        tuple(values[n] for values, n in zip(parameters, place, strict=True)) for place in places
    ]
    return slow_after(most, cases)


def fewer(count: int) -> int:
    """Return a number of random cases; a quarter of it in ``make test``."""
    return count if ALL else -(-count // 4)


def examples(count: int) -> settings:
    """Return the settings of a test that draws so many examples; a quarter in ``make test``."""
    return settings(max_examples=fewer(count))
