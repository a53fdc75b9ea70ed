"""Quantities in files: text with a unit, converted to base units once and exactly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal, DecimalException, DivisionByZero, Inexact, InvalidOperation
from fractions import Fraction
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from hypar_opt.documents.document import rule

MAX_DIGITS = 50
"""Upper bound on a quantity's digits in its base unit, as decimals are written and read again."""

SMALLEST, LARGEST = Fraction(1, 10**30), Fraction(10**30)
"""Bounds of a quantity that is not zero, in its base unit; `Quantity.smallest` overrides one."""

# Powers of ten. Both code points of the micro sign are in use: U+00B5 and U+03BC.
_SMALL = {"": 0, "m": 3, "u": 6, "µ": 6, "μ": 6, "n": 9, "p": 12, "f": 15}
_LARGE = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
# Powers of two (IEC prefixes).
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?) ?([^0-9\s.]\S*)", re.ASCII)
_MAX_CHARACTERS = 200
# Traps make Decimal raise where it would round.
_EXACT = Context(prec=MAX_DIGITS, traps=[Inexact, InvalidOperation, DivisionByZero])


def _parts(unit: str) -> dict[str, Fraction]:
    return {prefix + unit: Fraction(1, 10**power) for prefix, power in _SMALL.items()}


def _multiples(unit: str, in_base_units: Fraction = Fraction(1)) -> dict[str, Fraction]:
    return {prefix + unit: 10**power * in_base_units for prefix, power in _LARGE.items()}


def _binary(unit: str, in_base_units: Fraction = Fraction(1)) -> dict[str, Fraction]:
    return {prefix + unit: 2**power * in_base_units for prefix, power in _BINARY.items()}


@dataclass(frozen=True, eq=False)
class Quantity:
    """A pydantic annotation: text with one of ``units`` in a file, a `Fraction` in Python.

    Written back, it is the exact decimal in ``base``, whatever the file said.

    Parameters
    ----------
    kind, example
        The quantity's name, and an example of its notation, for messages.
    base
        The base unit, in which it is written back.
    units
        The units that a file may use, by name, in base units.
    zero_allowed
        Whether it may be zero.
    smallest
        The lower bound of a quantity that is not zero, in base units.
    """

    kind: str
    example: str
    base: str
    units: Mapping[str, Fraction]
    zero_allowed: bool = False
    smallest: Fraction = SMALLEST

    def parse(self, value: object) -> Fraction:
        """Return the value in base units.

        Raises
        ------
        ValueError
            If it is not such a quantity, is out of range, or too long; in one line.
        """
        match = None
        # Not even parsed if very long: the conversion of a long number is slow.
        if isinstance(value, str) and len(value) <= _MAX_CHARACTERS:
            match = _QUANTITY.fullmatch(value.strip())
        if match is None or match[2] not in self.units:
            # A message is one line, however long the value.
            excerpt = repr(value)
            excerpt = excerpt if len(excerpt) <= 40 else excerpt[:37] + "..."
            raise rule(f"should be {self.kind}, as in {self.example}, got {excerpt}")
        # Through Decimal, since a float would round the file's number.
        amount = Fraction(Decimal(match[1])) * self.units[match[2]]
        if not amount and not self.zero_allowed:
            raise rule(f"should be {self.kind} above zero, got {value!r}")
        if amount and not self.smallest <= amount <= LARGEST:
            problem = f"should be from {float(self.smallest):g} to 1e30 {self.base}"
            raise rule(f"{problem}, got {value!r}")
        try:
            # An array is written into plan files: what cannot be written exactly is refused now.
            self.text(amount)
        except DecimalException:
            problem = f"should have at most {MAX_DIGITS} digits in {self.base}"
            raise rule(f"{problem}, got {value!r}") from None
        return amount

    def text(self, amount: Fraction) -> str:
        """Return the exact text, which `parse` turns into the same fraction.

        Raises
        ------
        decimal.DecimalException
            If it has more than `MAX_DIGITS` digits.
        """
        exact = _EXACT.divide(Decimal(amount.numerator), Decimal(amount.denominator))
        return f"{exact.normalize(_EXACT):g} {self.base}"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(
            self.text, return_schema=core_schema.str_schema()
        )
        return core_schema.no_info_plain_validator_function(self.parse, serialization=written)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "description": f"{self.kind}, as in {self.example}"}


_BITS_AND_BYTES = {
    unit + per: size
    # "Gbps" and "GBps" are how links are sold: the letter says bits or bytes there, too.
    for per in ("/s", "ps")
    # Links are sold in bits, memories in bytes; the base unit is the byte.
    for in_base_units, letter in ((Fraction(1), "B"), (Fraction(1, 8), "b"))
    for unit, size in (_multiples(letter, in_base_units) | _binary(letter, in_base_units)).items()
}
_OPERATIONS = {
    unit: size
    for name in ("op/s", "OP/s", "OPS", "FLOP/s", "FLOPS")
    for unit, size in _multiples(name).items()
}

Bandwidth = Annotated[
    Fraction,
    Quantity("a bandwidth", '"25.6 Gb/s" (bits) or "300 GB/s" (bytes)', "B/s", _BITS_AND_BYTES),
]
"""Bytes per second."""

OperationRate = Annotated[
    Fraction, Quantity("a rate of operations", '"84 GOPS" or "312 TFLOPS"', "op/s", _OPERATIONS)
]
"""Operations per second; a multiply-accumulate is two."""

Time = Annotated[
    Fraction, Quantity("a time", '"5 us" or "0 s"', "s", _parts("s"), zero_allowed=True)
]
"""Seconds."""

EnergyQuantity = Annotated[
    Fraction, Quantity("an energy", '"640 pJ" or "0 J"', "J", _parts("J"), zero_allowed=True)
]
"""Joules."""

_SIZE = Quantity(
    *("a size", '"8 GB" or "108 KiB"', "B", _multiples("B") | _binary("B")),
    smallest=Fraction(1),
)

Bytes = Annotated[Fraction, _SIZE]
"""Bytes."""

OptionalBytes = Annotated[
    Annotated[Fraction, replace(_SIZE, zero_allowed=True)] | None,
    AfterValidator(lambda bytes_: bytes_ or None),
]
"""Bytes; ``0 B`` is None, as a missing key is."""
