"""The cost of a plan, as its file states it."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import Field, Strict

from hypar_opt.documents.document import Document
from hypar_opt.errors import HyparError
from hypar_opt.units import format_cost, format_ratio

Ratio = Annotated[float, Strict(), Field(ge=0)]
Amount = Annotated[int, Strict(), Field(ge=0)] | Annotated[float, Strict(), Field(ge=0)]
"""Exact: an integer, or a float where elements of one or two bytes make fractional bytes."""


def json_number(exact: Fraction) -> int | float:
    """Return a cost as the JSON number that is exactly equal to it.

    Raises
    ------
    HyparError
        If the total has fractional bytes that no float holds exactly.
    """
    if exact.denominator == 1:
        return exact.numerator
    # A reader prices the plan again and compares exactly, so a rounded total would be rejected.
    if Fraction(float(exact)) != exact:
        raise HyparError(
            "element bytes: the total has fractional bytes with more digits than a plan"
            " file holds exactly; take 4, or fewer levels"
        )
    return float(exact)


class Baselines(Document):
    """The totals of Data and of Model Parallelism under the plan's reading."""

    data: Amount
    model: Amount


class Ratios(Document):
    """A baseline's total over the plan's; null where the plan's is 0."""

    data: Ratio | None
    model: Ratio | None


class StageCost(Document):
    """What a pipeline stage takes in a step, by itself."""

    part: str
    """The part of H1."""
    seconds: Ratio
    """Of all its micro-batches, its messages among them, its reductions and its update; without
    sums of gradients of weights that other stages share."""
    bubble: Ratio
    """The part of the plan's time in which it waits for others."""


class Cost(Document):
    """The cost of a plan, which `hypar_opt.instance.pricing.price` derives from its choices."""

    kind: str = "bytes"
    reading: str
    unit: str
    """``bytes``, ``weighted bytes``; ``femtoseconds``, ``femtojoules`` or, where sums would not fit
    64 bits, coarser; or another cost's own."""
    total: Amount
    per_level: tuple[Amount, ...]
    """H1 first, all groups of a level together; sums to ``total``."""
    communication: tuple[Amount, ...] | None = None
    """The part of ``per_level`` for exchanges, where compute and local memory are charged too."""
    executed_bytes: Amount | None
    """Bytes that running the plan moves, independent of its reading; null with output parallelism
    in files of version 1, until these are read."""
    data_parallel_bytes: Amount
    """Bytes that running Data Parallelism moves."""
    baselines: Baselines
    ratios: Ratios
    stages: tuple[StageCost, ...] | None = None
    """Those of a plan in stages, whose levels below H1 have what the longest of them takes."""

    def __repr__(self) -> str:
        ratio = format_ratio(self.ratios.data)
        total = format_cost(self.total, self.unit)
        return f"<Cost {total} by the reading {self.reading}, Data Parallelism {ratio} times that>"
