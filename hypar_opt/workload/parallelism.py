"""The alphabet of every plan."""

from __future__ import annotations

from enum import StrEnum


class Parallelism(StrEnum):
    """How one layer is run between the two halves of a group of accelerators.

    The order is the canonical one: where two choices cost the same, the earlier is
    taken. A member's position in the enumeration is its column in a cost table.

    Source: section 3.1; for `OUTPUT`, Song et al., "AccPar", HPCA 2020, Type III.
    """

    DATA = "data"
    """The batch is halved, the kernel kept whole."""

    MODEL = "model"
    """The kernel is halved by input channel, and the layer's input with it."""

    OUTPUT = "output"
    """The kernel is halved by output channel, and the layer's output with it."""


PAPERS_CHOICES = (Parallelism.DATA, Parallelism.MODEL)

DATA, MODEL, OUTPUT = range(3)
"""The columns of a cost table."""
