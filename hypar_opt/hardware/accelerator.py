"""One accelerator: how fast it multiplies, and what memory it has."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, Strict, model_validator

from hypar_opt.documents import Document, Size, rule
from hypar_opt.hardware.quantities import Bandwidth, Bytes, OperationRate
from hypar_opt.hardware.row_stationary import row_stationary

OPERATIONS_OF_A_MAC = 2


class PeArray(Document):
    """The processing elements of one unit, filled row-stationary."""

    rows: Size
    columns: Size


class Accelerator(Document):
    """An accelerator of alike processing units beside its own DRAM.

    How much of its peak is used is given, or follows from how each layer fills its units.
    """

    units: Size
    operations: OperationRate
    """Peak of one unit; a multiply-accumulate is two."""
    utilisation: Annotated[float, Strict(), Field(ge=1e-9, le=1)] | None = None
    """The part of the peak that every layer gets."""
    pe_array: PeArray | None = None
    """In place of ``utilisation``."""
    mac_count: Literal["output", "input"] = "output"
    """Whether a layer's multiply-accumulates are counted over its output, or, as the HyPar
    paper does, over its input, which ignores stride and padding.
    """
    vaults: Size = 1
    """Parts of the DRAM, each with processing units of its own."""
    buffer: Bytes | None = None
    """SRAM of one unit."""
    dram_bandwidth: Bandwidth
    dram_capacity: Bytes

    @model_validator(mode="after")
    def _one_utilisation(self) -> Self:
        if (self.utilisation is None) == (self.pe_array is None):
            found = "neither" if self.utilisation is None else "both"
            raise rule(f"should have one of utilisation and pe_array, got {found}")
        return self

    def utilisation_of(self, kernel_rows: int, output_rows: int) -> Fraction:
        """Return the part of the peak that a layer gets; fully-connected: 1 and 1."""
        if self.pe_array is not None:
            array = self.pe_array
            return row_stationary(array.rows, array.columns, kernel_rows, output_rows).utilisation
        return Fraction(str(self.utilisation))  # 0.8 in the file is 4/5

    def macs_per_second(self, kernel_rows: int, output_rows: int) -> Fraction:
        """Return the multiply-accumulates a second of the whole accelerator in a layer."""
        peak = self.units * self.operations / OPERATIONS_OF_A_MAC
        return peak * self.utilisation_of(kernel_rows, output_rows)
