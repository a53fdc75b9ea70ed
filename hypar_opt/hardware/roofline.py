"""What bounds an array's accelerators: their peak, their DRAM, and the links of each level.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
multicore architectures", Communications of the ACM 52(4), 2009; with a roof for each level, whose
bytes are those that an accelerator exchanges there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.links import Link

DRAM = "DRAM"


@dataclass(frozen=True)
class Roof:
    """A bandwidth that bounds what an accelerator computes.

    Parameters
    ----------
    name
        ``DRAM``, or the levels whose exchanges have this bandwidth, as ``H1–H3``.
    bytes_per_second
        Of an accelerator, while all exchange.
    link
        The link of the levels that is full then; None of DRAM.
    levels
        Their numbers, from 0 for H1.
    """

    name: str
    bytes_per_second: float
    link: Link | None = None
    levels: tuple[int, ...] = ()


@dataclass(frozen=True)
class Roofline:
    """The roofs of an accelerator of an array; of unequal ones, those of the first group.

    Parameters
    ----------
    operations_per_second
        The peak, times the share of it that layers, or large products, achieve.
    roofs
        DRAM, then the levels from H1 down, those of equal bandwidth together.
    """

    operations_per_second: float
    roofs: tuple[Roof, ...]

    def ridge(self, roof: Roof) -> float:
        """Return the operations per byte from which a roof no longer bounds what is computed."""
        return self.operations_per_second / roof.bytes_per_second

    @property
    def bottleneck(self) -> Roof | None:
        """The levels of the least bandwidth, with their full link; None of one accelerator."""
        levels = [roof for roof in self.roofs if roof.link is not None]
        return min(levels, key=lambda roof: roof.bytes_per_second, default=None)


def roofline(array: Array, placement: Sequence[int] | None = None) -> Roofline:
    """Return the roofs of an array, in a placement of levels; by default in its own."""
    accelerator = (array.groups or [array.accelerator])[0]
    share = float(accelerator.utilisation or accelerator.gemm or 1)
    count = array.interconnect.accelerators
    rates = [
        (float(1 / array.interconnect.bisection(digit).seconds_per_byte) / count, level, digit)
        for level, digit in enumerate(placement or array.placement, 1)
    ]
    roofs = [Roof(DRAM, float(accelerator.dram_bandwidth))]
    for rate, group in groupby(rates, key=lambda level: level[0]):
        levels = list(group)
        first, last = levels[0][1], levels[-1][1]
        name = f"H{first}" if first == last else f"H{first}–H{last}"
        link = _full_link(array, levels[0][2])
        roofs.append(Roof(name, rate, link, tuple(range(first - 1, last))))
    return Roofline(share * float(accelerator.units * accelerator.operations), tuple(roofs))


def _full_link(array: Array, digit: int) -> Link:
    """Return the first of the links that are full while a level's parts exchange."""
    interconnect = array.interconnect
    total = np.zeros(len(interconnect.channel_link))
    for lanes, times in interconnect.between(digit):
        for pattern, share in lanes:
            traffic, loads = interconnect.loads(pattern)
            total += times * float(share) / traffic.unit * loads.astype(float)
    fullest = int(np.argmax(total / interconnect.float_capacities))
    return interconnect.links[interconnect.channel_link[fullest]]
