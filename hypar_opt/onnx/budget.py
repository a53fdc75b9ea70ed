"""Limits on the memory and time that computing constants may take."""

from __future__ import annotations

MAX_ELEMENTS = 2**22
"""Larger constants are not computed: this is a mask of 2,048 by 2,048 tokens."""

MAX_BYTES = 2**28
"""All computed constants together take at most this many bytes."""

MAX_ELEMENT_BYTES = 8
"""Numbers of more bytes are not computed with."""


class Budget:
    """Bytes left for constants; work that takes time counts as bytes too."""

    def __init__(self, left: int = MAX_BYTES) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Take ``count`` bytes, and return whether they were left."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes that were not needed after all."""
        self._left += count
