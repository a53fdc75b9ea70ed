"""The layout of a tensor over the parts of a level."""

from __future__ import annotations

from hypar_opt.workload.operators.axes import (
    BY_BATCH,
    BY_CHANNEL,
    BY_COLUMN,
    BY_EXPERT,
    BY_ROW,
    BY_SHUFFLED_CHANNEL,
    BY_TOKEN,
)
from hypar_opt.workload.operators.axes import PARTIAL as PARTIAL
from hypar_opt.workload.operators.axes import WHOLE as WHOLE
from hypar_opt.workload.parallelism import PART_WORDS

Layout = str
"""How a tensor is distributed over the parts of a level: the axis of it that is split, `WHOLE` if
every part has a replica, or `PARTIAL` if every part has an addend of every element.

Source: docs/decisions/0003-readings.md."""

BATCH, CHANNEL, SHUFFLED, TOKEN = BY_BATCH, BY_CHANNEL, BY_SHUFFLED_CHANNEL, BY_TOKEN
ROW, COLUMN, EXPERT = BY_ROW, BY_COLUMN, BY_EXPERT

_DUALS = {WHOLE: PARTIAL, PARTIAL: WHOLE}


def is_split(layout: Layout) -> bool:
    """Return whether the tensor is split, with a shard in each part."""
    return layout not in _DUALS


def dual_layout(layout: Layout) -> Layout:
    """Return the layout of an error, given that of its tensor: an axis is its own dual."""
    return _DUALS.get(layout, layout)


def side_of(layout: Layout) -> int | None:
    """Return the part of H1 that has all of a tensor in a layout; None if each part has some."""
    return PART_WORDS.get(layout)
