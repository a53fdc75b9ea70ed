"""Time in tests: a clock that the test holds and events to wait for, never the machine's speed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from hypar_opt import deadline


def tick_when_read(patch: pytest.MonkeyPatch) -> None:
    """Have the clock of all deadlines go on by a second each time that it is read."""
    ticks = itertools.count()
    patch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))


def until(happened: Callable[[], object]) -> None:
    """Wait for an event, however long it takes; pytest says where a run hangs."""
    while not happened():
        time.sleep(0.02)
