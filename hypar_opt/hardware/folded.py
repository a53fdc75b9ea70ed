"""Arrays too large to list: one link represents all equally loaded ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.hardware.links import Link
from hypar_opt.hardware.patterns import MessagePattern
from hypar_opt.hardware.traffic import Traffic, check_crossed, directions
from hypar_opt.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hypar_opt.hardware.traffic import Block, Paths

MAX_LISTED = 2**16
"""Accelerators whose links are listed and whose messages may be simulated one by one. A graph of
four times as many needs a gigabyte."""

_REPRESENTATIVES: Block = (1,)
"""A placeholder for the accelerators whose messages represent all others'."""


class FoldedInterconnect(Interconnect):
    """The links of a symmetric array, with one representative of links that are loaded equally.

    A link's ``count`` is the number that it represents. Loads, rates and times are those of the
    whole array, as long as all accelerators run in lockstep; whatever needs individual links or
    accelerators is refused.

    Parameters
    ----------
    links
        One of each kind.
    sizes
        The parts of every digit of accelerators' numbers, the most significant first.
    """

    def __init__(self, links: Iterable[Link], sizes: Iterable[int]) -> None:
        hierarchy = Hierarchy(tuple(sizes))
        self.accelerators = hierarchy.accelerators
        self._join(hierarchy, links)

    @property
    def graph(self) -> NoReturn:  # type: ignore[override]
        """Refused: no graph is made of the array.

        Raises
        ------
        RefusedError
            Always.
        """
        raise RefusedError(
            f"the links of {self.accelerators:,} accelerators are not listed one by one, but of at"
            f" most {MAX_LISTED:,}; use fewer accelerators"
        )

    @property
    def paths(self) -> Paths:
        """Refused, as `graph`."""
        return self.graph

    def block(self, digits: Iterable[int]) -> Block:
        """Return a placeholder for the accelerators whose messages represent all others'."""
        del digits
        return _REPRESENTATIVES

    def traffic(self, pattern: MessagePattern, block: Block = ()) -> Traffic:
        """Return the routes of messages that represent a pattern's.

        Raises
        ------
        RefusedError
            If all messages are wanted.
        """
        return self._represented(pattern) if block else self.graph

    @abstractmethod
    def _represented(self, pattern: MessagePattern) -> Traffic:
        """Return the routes of messages, each of which represents equally many of a pattern's."""


class FoldedTree(FoldedInterconnect):
    """A tree in which all nodes of a depth have equally many children, on equal links.

    Parameters
    ----------
    branches
        From the accelerators up, by size of subtrees: the link from the first subtree to its
        parent.
    """

    def __init__(self, branches: Sequence[tuple[Link, int]], sizes: Sequence[int]) -> None:
        count = Hierarchy(tuple(sizes)).accelerators
        links = [replace(link, count=count // below) for link, below in branches]
        super().__init__(links, sizes)
        self._below = np.array([below for _, below in branches])
        self._up, self._down = directions(links)

    @property
    def hops_upper_bound(self) -> int:
        return 2 * len(self.links)

    def loads(self, pattern: MessagePattern) -> tuple[Traffic, NDArray[Any]]:
        traffic = self.traffic(pattern, _REPRESENTATIVES)
        # Equally many messages leave all subtrees of a size: a pattern adds to a number regardless
        # of its higher digits.
        below = self._below[np.array(self.channel_link)]
        crossing = traffic.loads(len(self.channel_link))
        return traffic, crossing * below // len(traffic.hops)

    def _represented(self, pattern: MessagePattern) -> Traffic:
        # Digits that the pattern does not change do not affect a route's links.
        senders = self.group(pattern.digits)
        receivers = self.receivers(pattern, senders)
        # The number of lowest links that each message crosses.
        climbs = sum((senders // n != receivers // n).astype(np.intp) for n in self._below)
        check_crossed(2 * int(climbs.sum()))
        messages = np.repeat(np.arange(len(senders), dtype=np.int32), climbs)
        links = np.arange(len(messages)) - np.repeat(np.cumsum(climbs) - climbs, climbs)
        climbed, latency = np.unique(climbs, return_inverse=True)
        return Traffic(
            np.concatenate([messages, messages]),
            np.concatenate([self._up[links], self._down[links]]),
            weight=np.broadcast_to(np.int64(1), 2 * len(links)),
            unit=1,
            hops=2 * climbed[latency],
            latency=latency,
            latencies=tuple(
                2 * sum((link.latency for link in self.links[:n]), Fraction())
                for n in climbed.tolist()
            ),
        )


class FoldedGrid(FoldedInterconnect):
    """A torus or mesh of equal links, represented by one line of each dimension.

    An exchange is along one dimension, and loads all of its lines equally.

    Parameters
    ----------
    lines
        A line of each dimension, with its digits.
    """

    def __init__(self, lines: Sequence[Interconnect]) -> None:
        sizes = [size for line in lines for size in line.hierarchy.sizes]
        hierarchy = Hierarchy(tuple(sizes))
        links: list[Link] = []
        # The dimension of every digit, and of each its lowest digit and its first channel.
        self._of_digit: dict[int, tuple[Interconnect, int, int]] = {}
        channels, digit = 0, hierarchy.levels
        for line in lines:
            digit -= line.levels
            digits = range(digit, digit + line.levels)
            self._of_digit |= dict.fromkeys(digits, (line, digit, channels))
            channels += len(line.channel_link)
            stride = hierarchy.stride(hierarchy.levels - 1 - digit)
            many = hierarchy.accelerators // line.accelerators
            for link in line.links:
                source, target = (cast(int, end) * stride for end in (link.source, link.target))
                links.append(replace(link, source=source, target=target, count=many))
        super().__init__(links, sizes)
        self._diameter = sum(line.accelerators - 1 for line in lines)

    @property
    def hops_upper_bound(self) -> int:
        return self._diameter

    def loads(self, pattern: MessagePattern) -> tuple[Traffic, NDArray[Any]]:
        traffic = self.traffic(pattern, _REPRESENTATIVES)
        return traffic, traffic.loads(len(self.channel_link))

    def _represented(self, pattern: MessagePattern) -> Traffic:
        (line, lowest, first), *rest = {self._of_digit[digit] for digit in pattern.digits}
        if rest:
            raise RefusedError(
                f"one ring through several dimensions of {self.accelerators:,} accelerators is not"
                f" supported, but of at most {MAX_LISTED:,}; use the collective 'ring'"
            )
        along = pattern._replace(digits=tuple(digit - lowest for digit in pattern.digits))
        traffic = line.traffic(along)
        return replace(traffic, channel=traffic.channel + first)
