"""Amounts of bytes with units."""

from __future__ import annotations

import re
from fractions import Fraction

from hypar_opt.documents.document import rule
from hypar_opt.documents.parsing import shown
from hypar_opt.errors import HyparError, argument

# kB, MB, GB are powers of 1000, as the paper's GB is 1e9 bytes; kiB, MiB, GiB of 1024. Memory is
# not measured in megabits, so case does not matter.
_UNITS = {"": 1, "b": 1} | {
    prefix + ending: base ** (power + 1)
    for ending, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
    for power, prefix in enumerate("kmgtp")
}


def parse_bytes(value: object) -> object:
    """Convert ``8GB`` (8e9) or ``8GiB`` (8 x 2^30) to bytes; what is no text stays as it is."""
    if not isinstance(value, str):
        return value
    quantity = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kmgtp]?i?b?)\s*", value, re.I | re.A)
    unit = quantity[2].lower() if quantity else ""
    if quantity is None or unit not in _UNITS:
        raise rule(f"should be bytes, as in 8GB or 512MiB, got {value!r}")
    # A fraction, not a float: 0.1GB has to be 100,000,000 bytes exactly.
    return int(Fraction(quantity[1]) * _UNITS[unit])


def stated_bytes(name: str, value: object, *, least: int = 1) -> int:
    """Return the bytes that an argument states, as `parse_bytes` reads them.

    Raises
    ------
    HyparError
        Naming the argument, and what would be right.
    """
    try:
        count = parse_bytes(value)
    except ValueError as error:
        raise HyparError(f"{argument(name)}: {error}") from None
    if type(count) is not int or count < least:
        raise HyparError(
            f"{argument(name)}: should be bytes, as in 8GB or 512MiB, got {shown(value)}"
        )
    return count
