"""What constants may take together, in memory and time, before they are refused or not computed."""

from __future__ import annotations

MAX_ELEMENTS = 2**22
"""The most elements of a constant that is computed: a mask of 2,048 by 2,048 tokens."""

MAX_BYTES = 2**28
"""The most bytes of all constants that are computed."""

MAX_ELEMENT_BYTES = 8
"""The most bytes of an element: numbers that take more are not computed with."""


class Budget:
    """Bytes that are left for constants; work that takes time counts as bytes too."""

    def __init__(self, left: int = MAX_BYTES) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Whether ``count`` bytes are left; they are then taken."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes that were not needed after all."""
        self._left += count
