"""The shares of groups of unequal accelerators, as a problem states them."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Annotated, cast

from pydantic import BeforeValidator

from hypar_opt.documents.document import rule
from hypar_opt.documents.parsing import shown

if TYPE_CHECKING:
    from collections.abc import Sequence


def _share(value: object) -> object:
    if isinstance(value, list | tuple):
        shares = tuple(map(_share, value))
        if len(shares) < 2 or round(sum(cast(tuple[float, ...], shares)), 4) != 1:
            raise rule(f"should add up to 1 over all groups, got {', '.join(map(str, value))}")
        return shares if len(shares) > 2 else shares[0]
    if not isinstance(value, float):
        raise rule(f"should be a number, or one of each group, got {shown(value)}")
    if round(value, 4) != value or not 0 < value < 1:
        raise rule(f"should be between 0 and 1, in steps of 0.0001, got {value}")
    return value


SHARES = 10_000
"""A group's share is a whole number of these parts of a tensor."""


def shares_of_parts(shares: Sequence[int], parts: Sequence[int]) -> tuple[int, ...]:
    """Return the share of each part of H1, in whole numbers.

    Parameters
    ----------
    shares
        The share of each group.
    parts
        The number of parts in each group.
    """
    multiple = lcm(*parts)
    pairs = zip(shares, parts, strict=True)
    return tuple(share * multiple // count for share, count in pairs for _ in range(count))


Share = Annotated[float | tuple[float, ...], BeforeValidator(_share)]
