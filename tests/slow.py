"""Cases for ``make slow``: more of what ``make test`` has a part of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def slow_after(kept: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parameter; all but the first are left to ``make slow``."""
    return [
        case
        if number < kept
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def examples(count: int) -> settings:
    """Return the settings of a test that draws so many examples; a third in ``make test``."""
    return settings(max_examples=count if "HYPAR_SLOW" in os.environ else -(-count // 3))
