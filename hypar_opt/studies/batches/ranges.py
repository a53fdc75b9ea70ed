"""Ranges of batches with one optimal plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from hypar_opt.plan.costs import json_number
from hypar_opt.studies.batches.optima import Line


class Amounts(NamedTuple):
    """The bytes of a plan and of Data Parallelism, for batches a period apart."""

    start: int
    period: int
    total: Line
    data_parallel: Line


@dataclass(frozen=True)
class BatchRange:
    """Batches with the same optimal plan.

    Parameters
    ----------
    first, last, every
        The batches ``first``, ``first + every``, ..., ``last``.
    parallelism : (levels, layers)
        The plan's choices, as in `hypar_opt.plan.plan.Plan`.
    amounts
        The amounts by remainder of the batch, from ``first`` on: one per batch of a period, or
        fewer.
    """

    first: int
    last: int
    every: int
    parallelism: tuple[tuple[str, ...], ...]
    amounts: tuple[Amounts, ...]

    def bytes_at(self, batch: int) -> int | float:
        """Return the bytes that the plan moves in a step of a batch."""
        piece = self._at(batch)
        return json_number(piece.total.at((batch - piece.start) // piece.period))

    def data_parallel_bytes_at(self, batch: int) -> int | float:
        """Return the bytes that Data Parallelism moves."""
        piece = self._at(batch)
        return json_number(piece.data_parallel.at((batch - piece.start) // piece.period))

    def _at(self, batch: int) -> Amounts:
        return self.amounts[(batch - self.first) // self.every % len(self.amounts)]

    def __repr__(self) -> str:
        return f"<BatchRange {self.first:,} to {self.last:,}>"


def together(lines: Sequence[Sequence[BatchRange]], lo: int, hi: int) -> list[BatchRange]:
    """Return the ranges of all batches from those by remainder, joined where plans agree."""
    period = len(lines)
    cuts = sorted({lo, hi + 1, *(piece.first for line in lines for piece in line[1:])})
    joined: list[BatchRange] = []
    at = [0] * period
    for first, stop in pairwise(cuts):
        # The plan of each remainder is the same up to the next cut.
        batches = range(first, min(stop, first + period))
        pieces = []
        for batch in batches:
            number = (batch - lo) % period
            while lines[number][at[number]].last < batch:
                at[number] += 1
            pieces.append(lines[number][at[number]])
        step = 1 if len({piece.parallelism for piece in pieces}) == 1 else period
        if step == 1:
            amounts = tuple(piece.amounts[0] for piece in pieces)
            ranges = [BatchRange(first, stop - 1, 1, pieces[0].parallelism, amounts)]
        else:
            ranges = [
                BatchRange(batch, batch + (stop - 1 - batch) // period * period, period, *rest)
                for batch, piece in zip(batches, pieces, strict=True)
                for rest in [(piece.parallelism, piece.amounts)]
            ]
        joined += ranges
    return _merged(joined, period)


def _merged(pieces: Sequence[BatchRange], period: int) -> list[BatchRange]:
    """Return ranges, neighbours with the same plan merged."""
    merged: list[BatchRange] = []
    for piece in pieces:
        current = replace(piece, every=1) if piece.first == piece.last else piece
        both = _joined(merged[-1], current, period) if merged else None
        if both is None:
            merged.append(current)
        else:
            merged[-1] = both
    return merged


def _joined(before: BatchRange, after: BatchRange, period: int) -> BatchRange | None:
    """Return two ranges joined; None if a batch lies between them, or their plans differ."""
    follows = before.every == after.every == 1 and before.last + 1 == after.first
    if not follows or before.parallelism != after.parallelism:
        return None
    amounts = list(before.amounts)
    for batch, amount in enumerate(after.amounts, after.first):
        number = (batch - before.first) % period
        if number == len(amounts):
            amounts.append(amount)
        # The same choices may come with other layouts of shared tensors.
        elif amounts[number] != amount:
            return None
    return replace(before, last=after.last, amounts=tuple(amounts))
