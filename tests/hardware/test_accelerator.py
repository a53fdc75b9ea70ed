"""How fast an accelerator multiplies, and how a layer fills its processing elements."""

from __future__ import annotations

from fractions import Fraction
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.hardware.accelerator import Accelerator
from hypar_opt.hardware.row_stationary import row_stationary

HMC: dict[str, Any] = {
    "units": 16,
    "operations": "84 GOPS",
    "utilisation": 0.8,
    "dram_bandwidth": "320 GB/s",
    "dram_capacity": "8 GB",
}


@pytest.mark.parametrize(
    ("layer", "kernel_rows", "output_rows", "active"),
    [("conv1", 11, 55, 154), ("conv2", 5, 27, 135), *((f"conv{n}", 3, 13, 156) for n in (3, 4, 5))],
)
def test_alexnet_fills_eyeriss_as_published(
    layer: str, kernel_rows: int, output_rows: int, active: int
) -> None:
    """Chen et al., JSSC 2017, Table V: active processing elements, of 12 x 14."""
    assert row_stationary(12, 14, kernel_rows, output_rows).active == active


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 14), st.integers(1, 20))
def test_utilisation_is_that_of_strips_laid_out_one_by_one(
    rows: int, columns: int, kernel_rows: int, output_rows: int
) -> None:
    """A full period of passes, each filled with the strips of one set after the other."""
    strips = [columns] * (output_rows // columns)
    strips += [output_rows % columns] * (output_rows % columns > 0)
    beside = columns // output_rows if output_rows <= columns else 1
    most, work, passes = 0, Fraction(), Fraction()
    for start in range(0, kernel_rows, rows):
        height = min(rows, kernel_rows - start)
        slots = rows // height * beside
        queue = (strips[place % len(strips)] for place in count())
        filled = [height * sum(islice(queue, slots)) for _ in strips]
        most = max(most, *filled)
        # In as many passes as a set has strips there are as many sets as a pass has slots.
        work += Fraction(sum(filled), slots)
        passes += Fraction(len(filled), slots)
    mapping = row_stationary(rows, columns, kernel_rows, output_rows)
    assert mapping.active == most
    assert mapping.utilisation == work / (passes * rows * columns)
    assert mapping.active <= rows * columns


def test_a_pe_array_stands_in_place_of_a_utilisation() -> None:
    data = {**HMC, "pe_array": {"rows": 12, "columns": 14}}
    del data["utilisation"]
    cube = validate(Accelerator, data)
    assert cube.utilisation_of(3, 13) == Fraction(156, 168)
    assert cube.macs_per_second(3, 13) == 8 * 84 * 10**9 * Fraction(156, 168)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"utilisation": None}, "should have one of utilisation, pe_array and gemm, got none"),
        (
            {"pe_array": {"rows": 12, "columns": 14}},
            "should have one of utilisation, pe_array and gemm, got utilisation and pe_array",
        ),
        ({"pe_array": {"rows": 0, "columns": 14}}, "pe_array, rows: should be greater than"),
        ({"utilisation": 0}, "utilisation: should be greater than or equal to 0.000000001"),
        ({"utilisation": 1.1}, "utilisation: should be less than or equal to 1, got 1.1"),
        ({"utilisation": True}, "utilisation: should be a number, got true"),
        ({"units": 0}, "units: should be greater than or equal to 1, got 0"),
        ({"vaults": 2.0}, "vaults: should be a whole number, got 2.0"),
        ({"mac_count": "all"}, "mac_count: should be 'output' or 'input', got \"all\""),
        ({"dram_bandwidth": "0 B/s"}, "dram_bandwidth: should be a bandwidth above zero"),
        ({"frequency": "1 GHz"}, "unknown key 'frequency': known: units, operations"),
    ],
)
def test_what_is_no_accelerator_is_refused_in_a_line(change: dict[str, Any], problem: str) -> None:
    data = {key: value for key, value in {**HMC, **change}.items() if value is not None}
    with pytest.raises(InputError) as raised:
        validate(Accelerator, data)
    assert str(raised.value).startswith(problem)
    assert "\n" not in str(raised.value)
