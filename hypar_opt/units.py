"""Formatting of amounts in SI units, with the prefix that suits each: bytes, seconds, joules."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

PREFIXES = {10**15: "femto", 10**12: "pico", 10**9: "nano", 10**6: "micro", 10**3: "milli", 1: ""}
"""Prefixes of the units in which costs are exact integers, by how many make a base unit."""

_PARTS = {prefix: parts for parts, prefix in PREFIXES.items()}
_MULTIPLES = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
_SUBMULTIPLES = (("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9))
_ALL_DIGITS = 17  # of a double


def format_bytes(count: float | Fraction, digits: int = 4) -> str:
    """Return a number of bytes to some digits, in the largest unit below it: ``20.31 MB``."""
    for prefix, size in _MULTIPLES:
        if count >= size:
            return f"{_to_digits(count / size, digits)} {prefix}B"
    return f"{float(count):,.{digits}g} B"


def format_nonzero_bytes(count: int) -> str:
    """Return a number of bytes, ``-`` for none."""
    return format_bytes(count) if count else "-"


def distinguishing_digits(counts: Sequence[int]) -> int:
    """Return the digits, four or more, by which neighbouring numbers of bytes are distinct."""

    def distinguish(digits: int) -> bool:
        return all(a != b for a, b in pairwise(format_bytes(count, digits) for count in counts))

    return next(filter(distinguish, range(4, _ALL_DIGITS)), _ALL_DIGITS)


def format_rate(bytes_per_second: float | Fraction) -> str:
    """Return a bandwidth to four digits, in the largest unit below it: ``25.6 GB/s``."""
    return f"{format_bytes(bytes_per_second)}/s"


def _to_digits(value: float | Fraction, digits: int = 4) -> str:
    # Beyond the largest unit four digits would be followed by zeros.
    return f"{float(value):,.{digits}g}" if value < 9999.5 else f"{float(value):.{digits - 1}e}"


def format_si(value: float, symbol: str) -> str:
    """Return an amount to four digits, with an SI prefix: ``4.97 ms``.

    The prefix for 1e-6 is ``u``, as a terminal may be limited to ASCII.
    """
    # Seconds have no kiloseconds.
    for prefix, size in _MULTIPLES if symbol != "s" else ():
        if abs(value) >= size:
            return f"{_to_digits(value / size)} {prefix}{symbol}"
    for prefix, size in _SUBMULTIPLES:
        if abs(value) >= size:
            return f"{value / size:,.4g} {prefix}{symbol}"
    return f"{value / 1e-12:.4g} p{symbol}" if value else f"0 {symbol}"


COUNT = "{:,}".format
SECONDS = partial(format_si, symbol="s")
JOULES = partial(format_si, symbol="J")


def format_cost(cost: float, unit: str) -> str:
    """Return a cost to four digits, from the exact unit of its table.

    Parameters
    ----------
    unit
        A plan's unit, such as ``bytes``, ``femtojoules`` or ``nanoseconds``. The unit of a
        plug-in's cost is shown as it is.
    """
    if "bytes" in unit:
        return format_bytes(cost)
    for name, symbol in (("seconds", "s"), ("joules", "J")):
        prefix = unit.removesuffix(name)
        if unit.endswith(name) and prefix in _PARTS:
            return format_si(cost / _PARTS[prefix], symbol)
    return f"{cost:,} {unit}"


def format_page_cost(cost: float, unit: str) -> str:
    """Return the size of a cost as a page shows it: bytes in the unit that suits each."""
    if "bytes" not in unit:
        return format_cost(abs(cost), unit)
    in_bytes = format_bytes(abs(cost))
    # Level weights make a sum of bytes that no link carries.
    return in_bytes if unit == "bytes" else f"{in_bytes}, weighted"


def format_ratio(ratio: float | None) -> str:
    """Return a ratio to three digits; ``-`` for none."""
    if ratio is None:
        return "-"
    # From 999.5 three digits would round to 1e+03.
    return f"{ratio:.3g}" if ratio < 999.5 else f"{ratio:,.0f}" if ratio < 1e6 else f"{ratio:.2e}"


def format_percent(share: float, decimals: int = 2) -> str:
    """Return a share that is not negative in percent; 0.00% would not say whether it is 0."""
    smallest = 10.0 ** -(decimals + 2)
    if share < smallest / 2:
        return f"less than {smallest:.{decimals}%}" if share else "0%"
    return f"{share:.{decimals}%}"


def format_tenths(share: float) -> str:
    """Return a share in percent, to tenths: ``8.1 %``."""
    return f"{100 * share:.1f} %"


def format_signed(share: float) -> str:
    """Return a difference in percent, to tenths, with its sign: ``+8.1 %``."""
    return f"{100 * share:+.1f} %"


def format_share(share: float) -> str:
    """Return a share that is not negative in percent, to one decimal."""
    return format_percent(share, decimals=1)


def format_label(value: float) -> str:
    """Return a number as a picture's label, to three digits with their zeros: ``4.90``."""
    if 1e-4 <= abs(value) < 999.5:
        return f"{value:#.3g}".rstrip(".")
    return f"{value:,.0f}" if 999.5 <= abs(value) < 1e6 else f"{value:.3g}"


def format_hundredths(value: float) -> str:
    """Return a number to two decimals, without zeros at its end: ``2``, ``1.67``."""
    return f"{round(value, 2):,g}"


def format_number(value: float) -> str:
    """Return a number to four digits; integers, and numbers with more digits, as integers."""
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 999.95 else f"{value:.4g}"


def format_dimensions(shape: Sequence[int]) -> str:
    """Return a tensor's shape: ``64x3x3``."""
    return "x".join(map(str, shape))


def axis_unit(upper_bound: float, symbol: str = "s") -> tuple[float, str]:
    """Return the unit of an axis that ends at ``upper_bound``: its size, and its name."""
    multiples = _MULTIPLES if symbol != "s" else ()
    for prefix, size in (*multiples, ("", 1.0), ("m", 1e-3), ("u", 1e-6)):
        if upper_bound >= size:
            return size, prefix + symbol
    return 1e-9, "n" + symbol


def axis_byte_unit(upper_bound: float) -> tuple[float, str]:
    """Return the unit of an axis of bytes that ends at ``upper_bound``."""
    for prefix, size in _MULTIPLES:
        if upper_bound >= size:
            return size, f"{prefix}B"
    return 1.0, "bytes"
