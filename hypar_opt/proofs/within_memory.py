"""The price of a byte at which tables of all training modes give the best bound."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.proofs.graphs import Groups, interchangeable_levels, optimum

if TYPE_CHECKING:
    from hypar_opt.proofs.check.priced_tables import PricedTables

_STEPS = 24
"""The most prices that are tried."""

_FINEST = 2**20
"""The parts of a charge that a price of a byte may be stated in, so that it is short."""


class _Line(NamedTuple):
    """A bound by price, which an assignment's charges and bytes give: linear in the price."""

    charges: Fraction
    bytes: int


def best_price(tables: PricedTables) -> tuple[Fraction, int]:
    """Return the price of a byte at which the bound on plans that fit is greatest, or nearly so.

    Beside it is the least of the table at that price.

    The bound is concave in the price: where the lines of an assignment that holds too much and of
    one that does not cross, the next is looked for. Any price gives a valid bound.

    Raises
    ------
    RefusedError
        If a table needs more than memory allows.
    """
    groups = interchangeable_levels(tables.at(Fraction()))
    best = low = _line(tables, Fraction(), groups)
    price, high = Fraction(), None
    if low.bytes <= tables.capacity or not low.charges:
        return price, int(low.charges)
    best_at, following = price, low.charges / low.bytes
    for _ in range(_STEPS):
        price = following.limit_denominator(_FINEST)
        line = _line(tables, price, groups)
        if _bound(line, price, tables) >= _bound(best, best_at, tables):
            best, best_at = line, price
        if line in (low, high):
            break
        if line.bytes > tables.capacity:
            low = line
        else:
            high = line
        if high is None:
            following = 8 * price
        else:
            following = (high.charges - low.charges) / (low.bytes - high.bytes)
    return best_at, int(best.charges + best_at * best.bytes)


def _line(tables: PricedTables, price: Fraction, groups: Groups) -> _Line:
    total, assignment = optimum(tables.at(price), groups)
    size = tables.bytes_of(assignment, price)
    return _Line(total - price * size, size)


def _bound(line: _Line, price: Fraction, tables: PricedTables) -> Fraction:
    return line.charges + price * (line.bytes - tables.capacity)
