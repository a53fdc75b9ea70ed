"""The rows of a reproduction, as the paper's pictures use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


# report and paper are siblings in the architecture and do not import each other.
class DrawnRow(Protocol):
    """The attributes of a `hypar_opt.paper.PaperRow` that pictures draw."""

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
    """Return the rows of one reading, `READING` or else the first, and those of any reading."""
    readings = dict.fromkeys(row.reading for row in rows)
    chosen = READING if READING in readings else next(iter(readings), "any")
    return [row for row in rows if row.reading in (chosen, "any")]
