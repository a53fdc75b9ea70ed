"""Ratios of amounts are exact, and rounded once, however large amounts and ratios are."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.integers import Integers, exact_dtype, scale

LARGE = st.one_of(
    st.integers(0, 9), st.integers(2**31 - 9, 2**31 + 9), st.integers(2**63 - 9, 2**63 + 9)
)
NUMERATORS = LARGE | st.integers(0, 2**70)
AMOUNTS = NUMERATORS | NUMERATORS.map(int.__neg__)
DENOMINATORS = NUMERATORS.filter(bool)
ROUNDED = {
    "half up": lambda exact: math.floor(exact + Fraction(1, 2)),
    "up": math.ceil,
    "down": math.floor,
}


def integers(values: list[int]) -> Integers:
    return np.array(values, exact_dtype(max(map(abs, values))))


@pytest.mark.parametrize("rounding", ROUNDED)
@given(st.lists(AMOUNTS, min_size=1, max_size=4), NUMERATORS, DENOMINATORS)
def test_amounts_are_scaled_as_fractions_are(
    rounding: Any, amounts: list[int], over: int, under: int
) -> None:
    scaled = scale(integers(amounts), Fraction(over, under), rounding)
    exact = (Fraction(own * over, under) for own in amounts)
    assert scaled.tolist() == [ROUNDED[rounding](own) for own in exact]


@pytest.mark.parametrize("rounding", ROUNDED)
@given(st.lists(st.tuples(AMOUNTS, NUMERATORS, DENOMINATORS), min_size=1, max_size=4))
def test_each_amount_may_have_a_ratio_of_its_own(
    rounding: Any, rows: list[tuple[int, int, int]]
) -> None:
    amounts, overs, unders = map(integers, map(list, zip(*rows, strict=True)))
    exact = (Fraction(own * over, under) for own, over, under in rows)
    assert scale(amounts, (overs, unders), rounding).tolist() == [
        ROUNDED[rounding](own) for own in exact
    ]


def test_what_fits_stays_in_64_bits() -> None:
    """Also where the product of an amount and a numerator does not."""
    assert scale(np.array([2**62]), Fraction(10**6 + 1, 10**6)).dtype == np.int64
    assert scale(np.array([2**62]), Fraction(4)).dtype == np.object_
    assert scale(np.zeros(0, np.int64), Fraction(3, 7)).tolist() == []
