"""The layouts in which a plan stores what its layers write, in a plan file's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum


class StoredLayout(StrEnum):
    """How a tensor is stored in the two halves of a group of accelerators."""

    BATCH = "batch"
    """Each half has half of the images."""
    CHANNEL = "channel"
    """Each half has half of the channels or features."""
    WHOLE = "whole"
    """Both halves have a replica."""


StoredLayouts = Mapping[str, Sequence[StoredLayout]]
"""By the layer that writes the tensor: its layout at each level, H1 first."""
