"""Max-min fair rates of flows that share channels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RELATIVE_TOLERANCE = 1e-12
"""Two fair rates, or two instants, that differ by less differ by rounding alone."""


def max_min_rates(
    capacities: NDArray[np.float64],
    channel: NDArray[np.intp],
    share: NDArray[np.float64],
    lengths: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Return the max-min fair rate of every flow, in bytes per second.

    Progressive filling: all rates rise together until a channel is saturated, whose flows keep
    their rate while the others rise further. A round saturates at once all channels that are
    bottlenecks: those whose fair rate is the lowest along every flow that crosses them. A chain
    of n bottlenecks, each depending on the one before, needs n rounds.

    Parameters
    ----------
    capacities : (channels,) float64, bytes per second
    channel, share : (entries,)
        The channels of every flow, one flow's after another's, and the fraction of a byte that
        crosses each.
    lengths : (flows,) integers
        How many channels every flow crosses, at least one.

    Returns
    -------
    (flows,) float64, bytes per second

    Source: D. Bertsekas and R. Gallager, Data Networks, 2nd edition (1992), section 6.5.2.
    """
    first_entry = np.cumsum(lengths) - lengths
    flow = np.repeat(np.arange(len(lengths)), lengths)
    capacity_left = capacities.copy()
    rates = np.zeros(len(lengths))
    rising = np.ones(len(lengths), bool)
    # The channel of the lowest fair rate is saturated in every round, so this terminates.
    while True:
        # The load of a channel's rising flows at one byte per second each.
        demand = np.bincount(channel, share * rising[flow], len(capacity_left))
        fair = np.full(len(capacity_left), np.inf)
        np.divide(capacity_left, demand, out=fair, where=demand > 0)
        # A flow rises until the first channel on its route is saturated.
        bottleneck_rate = np.minimum.reduceat(fair[channel], first_entry)
        # A channel is saturated in this round unless one of its flows stops earlier elsewhere.
        waits = rising[flow] & (bottleneck_rate[flow] < fair[channel] * (1 - RELATIVE_TOLERANCE))
        is_saturated = np.bincount(channel, waits, len(capacity_left)) == 0
        settled = rising & np.logical_or.reduceat(is_saturated[channel], first_entry)
        rates[settled] = bottleneck_rate[settled]
        rising &= ~settled
        if not rising.any():
            return rates
        # Settled flows keep their rate; the others share the capacity left.
        entries = settled[flow]
        capacity_left -= _used(
            len(capacity_left), channel[entries], share[entries], rates[flow[entries]]
        )


def _used(
    channels: int,
    channel: NDArray[np.intp],
    share: NDArray[np.float64],
    rate: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the bytes per second of every channel that flows take up.

    Shares of equal rates are added before they are multiplied, and the products in the order of
    the rates. Sums of halves and quarters are exact, so that flows of one rate take the same
    however many they are, and in whatever order.
    """
    order = np.lexsort((rate, channel))
    channel, share, rate = channel[order], share[order], rate[order]
    first = np.ones(len(channel), bool)
    first[1:] = (channel[1:] != channel[:-1]) | (rate[1:] != rate[:-1])
    group = np.flatnonzero(first)
    taken = np.add.reduceat(share, group) * rate[group]
    return np.bincount(channel[group], taken, channels).astype(np.float64)
