"""The alphabet of every plan."""

from __future__ import annotations

from enum import StrEnum


class Parallelism(StrEnum):
    """How one layer is run between the two halves of a group of accelerators.

    The order is the canonical one: where two choices cost the same, the earlier is
    taken. A member's position in the enumeration is its column in a cost table.

    A kind of layer may call its choices otherwise: ``Parallelism("channel")`` is a value too
    where one does, though none of the members below.

    Source: section 3.1; for `OUTPUT`, Song et al., "AccPar", HPCA 2020, Type III.
    """

    DATA = "data"
    """The batch is halved, the kernel kept whole."""

    MODEL = "model"
    """The kernel is halved by input channel, and the layer's input with it."""

    OUTPUT = "output"
    """The kernel is halved by output channel, and the layer's output with it."""

    @classmethod
    def _missing_(cls, value: object) -> Parallelism | None:
        from hypar_opt.workload.operators.words import choice_of

        if not isinstance(value, str) or choice_of(value) is None:
            return None
        word = str.__new__(cls, value)
        word._name_, word._value_ = value.upper(), value
        # Made once, so that "is" compares as it does for the members.
        cls._value2member_map_[value] = word
        return word


PAPERS_CHOICES = (Parallelism.DATA, Parallelism.MODEL)

DATA, MODEL, OUTPUT = range(3)
"""The columns of a cost table."""
