"""One accelerator: its rate of multiply-accumulates, and its memory."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, model_validator

from hypar_opt.documents.document import Document, Name, Size, rule
from hypar_opt.hardware.quantities import Bandwidth, Bytes, OperationRate
from hypar_opt.hardware.row_stationary import row_stationary

# Vendors count a multiplication and an addition as two operations.
OPERATIONS_PER_MAC = 2


def without_buffer(accelerator: Any) -> Any:
    """Return the table of an accelerator without ``buffer``."""
    if not isinstance(accelerator, dict) or "buffer" not in accelerator:
        return accelerator
    return {key: value for key, value in accelerator.items() if key != "buffer"}


class PeArray(Document):
    """The processing elements of one unit, on which layers are mapped row-stationary."""

    rows: Size
    columns: Size


class Accelerator(Document):
    """An accelerator of identical processing units and its own DRAM.

    The utilisation of its peak is given, or follows from each layer's mapping on the units.
    """

    units: Size
    operations: OperationRate
    """Peak of one unit; a multiply-accumulate is two."""
    utilisation: Annotated[float, Strict(), Field(ge=1e-9, le=1)] | None = None
    """The fraction of the peak that every layer achieves."""
    pe_array: PeArray | None = None
    """Instead of ``utilisation``, which then follows from the mapping."""
    mac_count: Literal["output", "input"] = "output"
    """Whether a layer's multiply-accumulates are counted over its output, or, as the HyPar
    paper does, over its input, which ignores stride and padding.
    """
    vaults: Size = 1
    """Partitions of the DRAM, each with its own processing units."""
    dram_bandwidth: Bandwidth
    dram_capacity: Bytes

    @model_validator(mode="before")
    @classmethod
    def _without_buffer(cls, data: Any) -> Any:
        """Leave out ``buffer``, which older files have and nothing ever depended on.

        Source: docs/decisions/0014-arrays-at-hand.md.
        """
        return without_buffer(data)

    @model_validator(mode="after")
    def _one_utilisation(self) -> Self:
        # Equal where both are missing, and where both are given.
        if (self.utilisation is None) == (self.pe_array is None):
            given = "neither" if self.utilisation is None else "both"
            raise rule(f"should have one of utilisation and pe_array, got {given}")
        return self

    def utilisation_of(self, kernel_rows: int, output_rows: int) -> Fraction:
        """Return the fraction of the peak that a layer achieves.

        Parameters
        ----------
        kernel_rows, output_rows
            A convolution's; 1 and 1 for a fully-connected layer.
        """
        if self.pe_array is not None:
            rows, columns = self.pe_array.rows, self.pe_array.columns
            return row_stationary(rows, columns, kernel_rows, output_rows).utilisation
        # Through text, so that 0.8 in the file is 4/5 and not the nearest double.
        return Fraction(str(self.utilisation))

    def macs_per_second(self, kernel_rows: int, output_rows: int) -> Fraction:
        """Return the multiply-accumulates per second of all units together in a layer."""
        peak = self.units * self.operations / OPERATIONS_PER_MAC
        return peak * self.utilisation_of(kernel_rows, output_rows)


class AcceleratorGroup(Accelerator):
    """Equal accelerators of an array that has others beside them."""

    name: Name
    count: Size
    """How many there are, numbered one after the other, those of the first group from 0."""
