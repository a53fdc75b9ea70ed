"""The links of an array, and the one link to which an exchange reduces them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Link:
    """One link between two nodes, each an accelerator or a switch.

    Parameters
    ----------
    bytes_per_second
        Of every direction if ``full_duplex``, else of both together.
    latency
        Seconds for a message to cross it.
    """

    source: Hashable
    target: Hashable
    bytes_per_second: Fraction
    latency: Fraction
    full_duplex: bool

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"


@dataclass(frozen=True)
class BisectionLink:
    """One link equivalent to all of them, for an exchange of equally many bytes per accelerator.

    Parameters
    ----------
    seconds_per_byte
        Of the exchange's bytes, those of all accelerators together.
    latency
        Seconds of the slowest message.
    hops
        Links that a byte crosses, on average.
    """

    seconds_per_byte: Fraction
    latency: Fraction
    hops: Fraction
