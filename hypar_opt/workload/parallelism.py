"""The choices of a plan: data, model and output parallelism."""

from __future__ import annotations

from enum import StrEnum


class Parallelism(StrEnum):
    """How one layer is run between the two halves of a group of accelerators.

    The order is the canonical one: ties go to the earlier choice. A member's position in the
    enumeration is its column in a cost table.

    A kind of layer may have other words for its choices: if one has ``channel``,
    ``Parallelism("channel")`` is a valid value, although not one of the members below.

    Source: section 3.1; for `OUTPUT`, Song et al., "AccPar", HPCA 2020, Type III.
    """

    DATA = "data"
    """The batch is halved, the kernel replicated."""

    MODEL = "model"
    """The kernel is halved by input channel, and the layer's input with it."""

    OUTPUT = "output"
    """The kernel is halved by output channel, and the layer's output with it."""

    @classmethod
    def _missing_(cls, value: object) -> Parallelism | None:
        from hypar_opt.workload.operators.words import choice_of

        if not isinstance(value, str) or choice_of(value) is None:
            return None
        # Enum has no public way to add a member later: this sets what EnumType sets itself.
        word = str.__new__(cls, value)
        word._name_, word._value_ = value.upper(), value
        # Made once, so that "is" compares as it does for the members.
        cls._value2member_map_[value] = word
        return word


PAPERS_CHOICES = (Parallelism.DATA, Parallelism.MODEL)

DATA, MODEL, OUTPUT = range(3)
"""The columns of a cost table."""
