"""Quantities with units: exact, and written back as they were meant."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from hypar_opt.documents.document import Document, validate
from hypar_opt.errors import InputError
from hypar_opt.hardware import quantities
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import load
from hypar_opt.hardware.quantities import Quantity

KINDS = {
    name: getattr(quantities, name)
    for name in ("Bandwidth", "OperationRate", "Time", "EnergyQuantity", "Bytes")
}


def quantity(kind: Any) -> Quantity:
    found = get_args(kind)[1]
    assert isinstance(found, Quantity)
    return found


@pytest.mark.parametrize(
    ("kind", "text", "amount"),
    [
        ("Bandwidth", "25.6 Gb/s", Fraction(3_200_000_000)),
        ("Bandwidth", "1600 Mb/s", Fraction(200_000_000)),
        ("Bandwidth", "300 GB/s", Fraction(300 * 10**9)),
        ("Bandwidth", "300GB/s", Fraction(300 * 10**9)),
        ("Bandwidth", " 3.35 TB/s ", Fraction(3350 * 10**9)),
        ("Bandwidth", "1 GiB/s", Fraction(2**30)),
        ("Bandwidth", "1 Kib/s", Fraction(128)),
        ("Bandwidth", "1 b/s", Fraction(1, 8)),
        ("Bandwidth", "1e3 kB/s", Fraction(10**6)),
        ("Bandwidth", "400 Gbps", Fraction(50 * 10**9)),
        ("Bandwidth", "50 GBps", Fraction(50 * 10**9)),
        ("Bandwidth", "1 KiBps", Fraction(1024)),
        ("OperationRate", "84 GOPS", Fraction(84 * 10**9)),
        ("OperationRate", "312 TFLOPS", Fraction(312 * 10**12)),
        ("OperationRate", "1 PFLOP/s", Fraction(10**15)),
        ("OperationRate", "1e12 op/s", Fraction(10**12)),
        ("Time", "5 us", Fraction(5, 10**6)),
        ("Time", "5 µs", Fraction(5, 10**6)),
        ("Time", "5 μs", Fraction(5, 10**6)),
        ("Time", "1.5 ms", Fraction(15, 10**4)),
        ("Time", "0 s", Fraction()),
        ("Time", "7 fs", Fraction(7, 10**15)),
        ("EnergyQuantity", "640 pJ", Fraction(640, 10**12)),
        ("EnergyQuantity", "4.6 pJ", Fraction(46, 10**13)),
        ("EnergyQuantity", "0 pJ", Fraction()),
        ("EnergyQuantity", "2.5E-3 mJ", Fraction(25, 10**7)),
        ("Bytes", "8 GB", Fraction(8 * 10**9)),
        ("Bytes", "108 KiB", Fraction(108 * 1024)),
        ("Bytes", "64 B", Fraction(64)),
    ],
)
def test_a_quantity_is_converted_exactly(kind: str, text: str, amount: Fraction) -> None:
    assert TypeAdapter(KINDS[kind]).validate_python(text) == amount


@given(
    name=st.sampled_from(sorted(KINDS)),
    data=st.data(),
    digits=st.integers(1, 10**30),
    point=st.integers(0, 12),
    exponent=st.integers(-6, 6),
)
def test_what_is_written_back_is_read_as_the_same(
    name: str, data: st.DataObject, digits: int, point: int, exponent: int
) -> None:
    kind = quantity(KINDS[name])
    unit = data.draw(st.sampled_from(sorted(kind.units)))
    whole, part = divmod(digits, 10**point)
    text = f"{whole}.{part:0{point}d}e{exponent} {unit}" if point else f"{whole}e{exponent} {unit}"
    exact = Fraction(digits, 10**point) * Fraction(10) ** exponent * kind.units[unit]
    if not kind.smallest <= exact <= quantities.LARGEST:
        return
    amount = kind.parse(text)
    assert amount == exact
    written = TypeAdapter(KINDS[name]).dump_python(amount, mode="json")
    assert kind.parse(written) == amount
    assert written.endswith(f" {kind.base}")


class Sample(Document):
    bandwidth: quantities.Bandwidth = Fraction(1)
    operations: quantities.OperationRate = Fraction(1)
    latency: quantities.Time = Fraction()
    energy: quantities.EnergyQuantity = Fraction()
    size: quantities.Bytes = Fraction(1)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (
            "bandwidth",
            "25.6 Gq/s",
            'should be a bandwidth, as in "25.6 Gb/s" (bits) or "300 GB/s" (bytes),'
            " got '25.6 Gq/s'",
        ),
        ("bandwidth", 25.6, "should be a bandwidth, as in"),
        ("bandwidth", "25.6", "should be a bandwidth, as in"),
        ("bandwidth", "25.6 Gb", "should be a bandwidth, as in"),
        ("bandwidth", "25,6 Gb/s", "should be a bandwidth, as in"),
        ("bandwidth", "-1 Gb/s", "should be a bandwidth, as in"),
        ("bandwidth", "1 KB/s", "should be a bandwidth, as in"),
        ("bandwidth", "١ GB/s", "should be a bandwidth, as in"),
        ("bandwidth", "1\n GB/s", "should be a bandwidth, as in"),
        ("bandwidth", "0 GB/s", "should be a bandwidth above zero, got '0 GB/s'"),
        ("bandwidth", "nan GB/s", "should be a bandwidth, as in"),
        ("bandwidth", "1e999 GB/s", "should be from 1e-30 to 1e30 B/s, got '1e999 GB/s'"),
        ("bandwidth", "1e9999999 GB/s", "should be a bandwidth, as in"),
        ("bandwidth", "1" * 400 + " GB/s", "should be a bandwidth, as in"),
        ("operations", "84 G", 'should be a rate of operations, as in "84 GOPS" or "312 TFLOPS"'),
        ("operations", "0 OPS", "should be a rate of operations above zero, got '0 OPS'"),
        ("latency", 0, 'should be a time, as in "5 us" or "0 s", got 0'),
        ("latency", "5 min", 'should be a time, as in "5 us" or "0 s", got \'5 min\''),
        ("latency", "1e-40 s", "should be from 1e-30 to 1e30 s, got '1e-40 s'"),
        ("latency", "1." + "1" * 60 + " s", "should have at most 50 digits in s, got"),
        ("energy", "640", 'should be an energy, as in "640 pJ" or "0 J", got \'640\''),
        ("size", "8 gb", 'should be a size, as in "8 GB" or "108 KiB", got \'8 gb\''),
        ("size", True, 'should be a size, as in "8 GB" or "108 KiB", got True'),
        ("size", "0 B", "should be a size above zero, got '0 B'"),
    ],
)
def test_what_is_no_quantity_is_refused_in_a_line(key: str, value: object, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        validate(Sample, {key: value}, file="a.toml")
    assert str(raised.value).startswith(f"a.toml: {key}: {problem}")
    assert "\n" not in str(raised.value)


def test_a_schema_says_that_it_is_text() -> None:
    size = Sample.model_json_schema()["properties"]["size"]
    assert size["type"] == "string"
    assert '"108 KiB"' in size["description"]


@pytest.mark.parametrize("key", ["bucket", "accelerator.reserve", "accelerator.update"])
def test_no_bytes_are_the_same_as_a_missing_key(key: str) -> None:
    described = load("v100-16").description()
    table, name = (described, key) if "." not in key else (described["accelerator"], key[12:])
    table.pop(name, None)
    missing = validate(Array, described).description()
    table[name] = "0 B"
    assert validate(Array, described).description() == missing
