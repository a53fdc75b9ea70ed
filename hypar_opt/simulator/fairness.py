"""Max-min fair rates of flows that share channels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

RELATIVE_TOLERANCE = 1e-12
"""Two fair rates, or two instants, that differ by less are equal but for rounding."""


def max_min_rates(
    capacities: NDArray[np.float64],
    channels: list[NDArray[np.intp]],
    shares: list[NDArray[np.float64]],
    flows: NDArray[Any],
) -> NDArray[np.float64]:
    """Return the max-min fair rate of each route's flows, bytes a second.

    Progressive filling: all rates rise together until a channel is full, whose flows keep
    their rate while the others rise on. A round fills all channels at once that no other can
    fill before: those whose fair rate is the lowest along every flow that crosses them. A chain
    of n bottlenecks, each waiting for the one before, takes n rounds.

    Parameters
    ----------
    capacities : (channels,) float64, bytes a second
    channels, shares
        Of each route, its channels and what of a byte crosses each.
    flows : (routes,) integers
        How many flows each route has, at least one.

    Source: D. Bertsekas and R. Gallager, Data Networks, 2nd edition (1992), section 6.5.2.
    """
    # The routes' channels in one row, so that each step below is one call for all routes.
    channel = np.concatenate(channels)
    lengths = np.array([len(route) for route in channels])
    first = np.cumsum(lengths) - lengths
    route = np.repeat(np.arange(len(lengths)), lengths)
    load = np.concatenate(shares) * flows[route]
    free = capacities.copy()
    rates = np.zeros(len(lengths))
    rising = np.ones(len(lengths), bool)
    while rising.any():
        # What all rising flows of a channel would take of it at one byte a second each.
        demand = np.bincount(channel, load * rising[route], len(free))
        fair = np.full(len(free), np.inf)
        np.divide(free, demand, out=fair, where=demand > 0)
        # A flow rises until the first channel on its route is full.
        lowest = np.minimum.reduceat(fair[channel], first)
        # A channel fills in this round unless one of its flows stops earlier elsewhere.
        waits = rising[route] & (lowest[route] < fair[channel] * (1 - RELATIVE_TOLERANCE))
        full = np.bincount(channel, waits, len(free)) == 0
        settled = rising & np.logical_or.reduceat(full[channel], first)
        rates[settled] = lowest[settled]
        # Settled flows keep their rate, which is taken off what the others share.
        free -= np.bincount(channel, load * np.where(settled, lowest, 0.0)[route], len(free))
        rising &= ~settled
    return rates
