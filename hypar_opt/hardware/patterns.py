"""Patterns of messages: which accelerator each accelerator sends to, all at once."""

from __future__ import annotations

from typing import NamedTuple


class DigitPlace(NamedTuple):
    """The place of a digit in accelerators' numbers: it is ``number // stride % parts``."""

    stride: int
    parts: int


class MessagePattern(NamedTuple):
    """A message of every accelerator to another of its group.

    Parameters
    ----------
    digits
        The digits in which the numbers of a group's accelerators differ, in ascending order; from
        0, the least significant. Where levels are halves, these are bits.
    shift
        How far on in the group, by number, the receiver is; the first follows the last.
    """

    digits: tuple[int, ...]
    shift: int = 1
