"""What the paper's pictures need of a reproduction's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


# report and paper are siblings among the layers, and do not import each other.
class DrawnRow(Protocol):
    """What is drawn of a `hypar_opt.paper.PaperRow`: pictures do not import the paper."""

    @property
    def label(self) -> str: ...
    @property
    def reading(self) -> str: ...
    @property
    def ours(self) -> float | str: ...
    @property
    def printed(self) -> float | str: ...


PaperRows = Sequence[DrawnRow]

READING = "figures"
"""The reading that the paper's figures follow."""


def rows_of_one_reading(rows: PaperRows) -> PaperRows:
    """Return the rows of the figures' reading, or of the first, and those of any."""
    readings = dict.fromkeys(row.reading for row in rows)
    chosen = READING if READING in readings else next(iter(readings), "any")
    return [row for row in rows if row.reading in (chosen, "any")]
