"""How often Python's garbage collector looks for unreachable cycles of objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_AFTER = 200_000
"""New objects between collections: what we import and compute stays alive, or is in no cycle."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect after `COLLECT_AFTER` new objects, unless the caller collects less often or never.

    With large networks, collections would otherwise take a third of the time.
    """
    young, *older = gc.get_threshold()
    if not 0 < young < COLLECT_AFTER:
        yield
        return
    gc.set_threshold(COLLECT_AFTER, *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
