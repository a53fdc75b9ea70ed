"""All-to-alls over several levels: which levels of a conversion are joined.

The levels above divide what is left to cross a level, and those below multiply the messages.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.sharding.conversions import even_axes, exchanges, reorders
from hypar_opt.step.readings import READINGS
from hypar_opt.step.states import ByLevel, copies_of, levels_of
from hypar_opt.workload.layouts import FIRST_SPLIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Copies, Indices, States
    from hypar_opt.workload.tensors import Workload

    Flags = NDArray[np.bool_]


class Exchanged(NamedTuple):
    """Where a boundary's tensor is exchanged between two axes, by choices of its ends.

    Parameters
    ----------
    joined : (boundaries, choices, choices)
        Whether the exchange may join those of other levels.
    uneven : (axes, boundaries, choices, choices)
        Whether it is one of an axis that all levels together divide unevenly.
    """

    joined: Flags
    uneven: Flags


@lru_cache(maxsize=16)
def exchanged(workload: Workload, accelerators: int) -> Exchanged:
    """Return where tensors are exchanged between two axes."""
    layouts, (sources, targets) = workload.layouts, workload.ends.T
    names = layouts.names
    pairs = [[exchanges(own, to) and not reorders(own, to) for to in names] for own in names]
    written = layouts.output[:, sources].T[:, :, None]
    read = layouts.inputs[workload.operand, :, targets][:, None, :]
    moves = ~workload.is_weight_boundary[:, None, None]
    joined = np.array(pairs)[written, read] & moves
    even = [even_axes(extent, accelerators) for extent in workload.extents]
    uneven = []
    for number, axis in enumerate(names):
        if number >= FIRST_SPLIT:
            divided = np.array([axis not in own for own in even], bool)[:, None, None]
            uneven.append(joined & divided & ((written == number) | (read == number)))
    return Exchanged(joined, np.array(uneven))


class JoinedLevels(NamedTuple):
    """A block of levels, and where a joined all-to-all crosses them.

    Parameters
    ----------
    here : (levels, ...)
        Whether it crosses each.
    parts
        The product of the parts that it crosses: above, at and below each level.
    all_parts : (1, ...)
        That of all levels of all blocks.
    """

    here: Flags
    parts: Copies
    all_parts: Integers

    @property
    def above(self) -> Integers:
        """The parts of the joined levels above, which divide what crosses a level; else 1."""
        return np.where(self.here, self.parts.above, 1)

    @property
    def messages(self) -> Integers:
        """The messages to each other part of a level: to each part of the joined levels below."""
        return np.where(self.here, self.all_parts // self.parts.through, 1)


def joined_over(
    workload: Workload,
    boundaries: Indices,
    sources: States,
    targets: States,
    hierarchy: Hierarchy,
) -> list[JoinedLevels]:
    """Return where joined all-to-alls cross the blocks of levels of the states of both ends.

    All levels together decide which axes are uneven, also for states of fewer.

    Source: `hypar_opt.sharding.conversions`.
    """
    flags = exchanged(workload, hierarchy.accelerators)
    both = list(zip(sources, targets, strict=True))
    here = [flags.joined[boundaries, source, target] for source, target in both]
    count = np.zeros((), np.intp)
    for axis in flags.uneven:
        if axis[boundaries].any():
            of_axis = np.zeros((), bool)
            for source, target in both:
                of_axis = of_axis | axis[boundaries, source, target].any(axis=0)
            count = count + of_axis
    if count.any():
        here = [own & (count < 2) for own in here]
    parts = copies_of(here, hierarchy.sizes)
    return [
        JoinedLevels(own, block, parts[-1].below) for own, block in zip(here, parts, strict=True)
    ]


def messages_of(
    workload: Workload,
    reading: str,
    boundaries: Indices,
    sources: States,
    targets: States,
    hierarchy: Hierarchy,
) -> Sequence[Integers | int]:
    """Return how many messages a boundary's exchange sends to each other part of each level."""
    if not READINGS[reading].joins_levels:
        return [1] * levels_of(targets)
    joined = joined_over(workload, boundaries, sources, targets, hierarchy)
    return ByLevel(targets, lambda block: joined[block].messages)
