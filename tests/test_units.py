"""Amounts have the SI prefix that suits each."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.units import format_bytes, format_cost, format_percent, format_rate, format_si

SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
SIZES |= {"m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (0.5, "0.5 B"),
        (999, "999 B"),
        (12_300, "12.3 kB"),
        (20_308_000, "20.31 MB"),
        (1_408_000_000, "1.408 GB"),
        (1.169e18, "1.169 EB"),
        (1.5e24, "1.500e+06 EB"),
    ],
)
def test_bytes_are_in_the_largest_unit_below_them(count: float, text: str) -> None:
    assert format_bytes(count) == text
    assert format_cost(count, "bytes") == text


@pytest.mark.parametrize(
    ("share", "decimals", "text"),
    [
        (0.0026, 2, "0.26%"),
        (5e-5, 2, "0.01%"),
        (4.9e-5, 2, "less than 0.01%"),
        (0.0, 2, "0%"),
        (0.004, 0, "less than 1%"),
        (1.5, 0, "150%"),
    ],
)
def test_a_share_that_is_not_0_is_not_shown_as_0(share: float, decimals: int, text: str) -> None:
    assert format_percent(share, decimals) == text


def test_a_bandwidth_may_be_a_fraction() -> None:
    assert format_rate(Fraction(25_600_000_000, 8)) == "3.2 GB/s"


def test_seconds_have_no_kiloseconds() -> None:
    assert format_si(4970.0, "s") == "4,970 s"
    assert format_si(4970.0, "J") == "4.97 kJ"


@given(st.integers(1, 10**21))
def test_four_digits_say_the_amount(count: int) -> None:
    number, unit = format_bytes(count).split()
    value = float(number.replace(",", "")) * SIZES[unit.removesuffix("B")]
    assert value == pytest.approx(count, rel=5.1e-4)
    assert len(format_bytes(count)) <= 12


@given(st.floats(1e-12, 1e20))
def test_four_digits_say_the_joules(joules: float) -> None:
    number, unit = format_si(joules, "J").split()
    value = float(number.replace(",", "")) * SIZES[unit.removesuffix("J")]
    assert value == pytest.approx(joules, rel=5.1e-4)
