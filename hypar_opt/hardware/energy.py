"""What each step of the work costs in energy."""

from __future__ import annotations

from fractions import Fraction

from hypar_opt.documents import Document
from hypar_opt.hardware.quantities import Energy as Joules


class Energy(Document):
    """Joules of each multiply-accumulate and of each 32-bit word that moves.

    Source: the HyPar paper, section 6.1, which takes 0.9 pJ an addition, 3.7 pJ a
    multiplication and 640 pJ a DRAM access; that these make up ``mac`` and ``remote`` as its
    array files say is assumed.
    """

    mac: Joules
    """A multiply-accumulate."""
    sram: Joules = Fraction()
    """What a multiply-accumulate reads and writes of the buffer."""
    dram: Joules
    """A word of the accelerator's own DRAM, read or written."""
    remote: Joules
    """A word moved between accelerators, all its memory accesses together."""
    hop: Joules = Fraction()
    """A word over one link."""
