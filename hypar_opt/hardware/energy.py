"""The energy of an array's elementary operations."""

from __future__ import annotations

from fractions import Fraction

from hypar_opt.documents.document import Document
from hypar_opt.hardware.quantities import EnergyQuantity


class EnergyConstants(Document):
    """Joules of a multiply-accumulate, and of a 32-bit word that is moved.

    Source: the HyPar paper, section 6.1, which charges 0.9 pJ an addition, 3.7 pJ a
    multiplication and 640 pJ a DRAM access. That ``mac`` is one of each of the first two, and
    ``remote`` three DRAM accesses, as the paper's array files have it, is assumed.
    """

    mac: EnergyQuantity
    """A multiply-accumulate."""
    sram: EnergyQuantity = Fraction()
    """The buffer accesses of a multiply-accumulate."""
    dram: EnergyQuantity
    """A word of the accelerator's own DRAM, read or written."""
    remote: EnergyQuantity
    """A word moved between accelerators, all its memory accesses together."""
    hop: EnergyQuantity = Fraction()
    """A word over one link."""
