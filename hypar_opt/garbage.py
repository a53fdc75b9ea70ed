"""How often Python looks for cycles of objects that nothing reaches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_AFTER = 200_000
"""Objects made until it does so: what we import and compute stays, or is in no cycle."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cycles after `COLLECT_AFTER` objects, unless it is done less often or never.

    Of large networks it takes a third of the time else.
    """
    before, *others = gc.get_threshold()
    if not 0 < before < COLLECT_AFTER:
        yield
        return
    gc.set_threshold(COLLECT_AFTER, *others)
    try:
        yield
    finally:
        gc.set_threshold(before, *others)
