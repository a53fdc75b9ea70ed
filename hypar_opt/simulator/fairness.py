"""Max-min fair rates of flows that share channels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

RELATIVE_TOLERANCE = 1e-12
"""Two fair rates, or two instants, that differ by less differ by rounding alone."""


def max_min_rates(
    capacities: NDArray[np.float64],
    channels: list[NDArray[np.intp]],
    shares: list[NDArray[np.float64]],
    flows: NDArray[Any],
) -> NDArray[np.float64]:
    """Return the max-min fair rate of each route's flows, bytes a second.

    Progressive filling: all rates rise together until a channel is saturated, whose flows keep
    their rate while the others rise further. A round saturates at once all channels that are
    bottlenecks: those whose fair rate is the lowest along every flow that crosses them. A chain
    of n bottlenecks, each depending on the one before, needs n rounds.

    Parameters
    ----------
    capacities : (channels,) float64, bytes a second
    channels, shares
        Of every route, its channels, and the fraction of a byte that crosses each.
    flows : (routes,) integers
        The number of flows on every route, at least one.

    Returns
    -------
    (routes,) float64, bytes a second

    Source: D. Bertsekas and R. Gallager, Data Networks, 2nd edition (1992), section 6.5.2.
    """
    # The routes' channels concatenated (CSR), so that every step below is one NumPy call.
    channel = np.concatenate(channels)
    lengths = np.array([len(route) for route in channels])
    first_entry = np.cumsum(lengths) - lengths
    route = np.repeat(np.arange(len(lengths)), lengths)
    load = np.concatenate(shares) * flows[route]
    capacity_left = capacities.copy()
    rates = np.zeros(len(lengths))
    rising = np.ones(len(lengths), bool)
    # The channel of the lowest fair rate is saturated in every round, so this terminates.
    while rising.any():
        # The load of a channel's rising flows at one byte a second each.
        demand = np.bincount(channel, load * rising[route], len(capacity_left))
        fair = np.full(len(capacity_left), np.inf)
        np.divide(capacity_left, demand, out=fair, where=demand > 0)
        # A flow rises until the first channel on its route is saturated.
        bottleneck_rate = np.minimum.reduceat(fair[channel], first_entry)
        # A channel is saturated in this round unless one of its flows stops earlier elsewhere.
        waits = rising[route] & (bottleneck_rate[route] < fair[channel] * (1 - RELATIVE_TOLERANCE))
        is_saturated = np.bincount(channel, waits, len(capacity_left)) == 0
        settled = rising & np.logical_or.reduceat(is_saturated[channel], first_entry)
        rates[settled] = bottleneck_rate[settled]
        # Settled flows keep their rate; the others share the capacity left.
        capacity_left -= np.bincount(
            channel, load * np.where(settled, bottleneck_rate, 0.0)[route], len(capacity_left)
        )
        rising &= ~settled
    return rates
