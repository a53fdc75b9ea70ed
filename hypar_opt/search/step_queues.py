"""The queue of a training step: what each visit of a layer releases, from below.

A step visits its layers forward and then backward. Each visit of a layer may release exchanges of
weights and gradients into the queue, which runs one after the other. So a micro-batch takes no less
than its program up to a visit, and all that the queue is given from there on. Where weights are
prefetched the program waits for each unit's gather, which runs behind what units gathered and
scattered before it.

Source: `hypar_opt.simulator.schedule` has what is released where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Visits(NamedTuple):
    """The layers that a whole step visits, in their order, and their places in a shortened one.

    Parameters
    ----------
    layers : (layers,)
        The place of each layer among those of the shortened step.
    blocks : (layers,)
        The number of its block, from 0; -1 outside of all.
    places, units : (nodes,)
        Of each node of the shortened step: the place of the layer at whose visit its gradient is
        complete, and the number of its block, from 1, or 0.
    bucket_ends : (layers,)
        The layer with which the bucket of each layer's gradient is complete; -1 without one.
    overlap
        What runs beside the program: of `hypar_opt.simulator.streams.OVERLAPS`. With ``prefetch`` a
        block's weights are gathered, and its gradients scattered, together.
    """

    layers: NDArray[np.intp]
    blocks: NDArray[np.intp]
    places: NDArray[np.intp]
    units: NDArray[np.intp]
    bucket_ends: NDArray[np.intp]
    overlap: str


class QueueExchanges(NamedTuple):
    """Exchanges of a queue, of nodes or layers in some meshes.

    Parameters
    ----------
    tensor
        ``gradient`` or ``weights``.
    each
        Whether every micro-batch has them; else the last one.
    seconds, latencies : (nodes, meshes)
        Of one exchange of each, which takes the sum of both.
    """

    tensor: str
    each: bool
    seconds: NDArray[np.float64]
    latencies: NDArray[np.float64]

    def among(self, nodes: NDArray[np.bool_]) -> Self:
        """Return the exchanges of some nodes, ``(nodes, meshes)``."""
        return self._replace(seconds=self.seconds * nodes, latencies=self.latencies * nodes)

    def at(self, places: NDArray[np.intp], layers: NDArray[np.intp]) -> Self:
        """Return the exchanges of layers, whose numbers are given, at which nodes have places."""
        seconds, latencies = np.zeros((2, 1 + layers.max(), self.seconds.shape[1]))
        np.add.at(seconds, places, self.seconds)
        _put_least(latencies, places, self.latencies)
        return self._replace(seconds=seconds[layers], latencies=latencies[layers])

    def together(self, groups: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the seconds of exchanges that are one in each group: ``(groups, meshes)``.

        Parameters
        ----------
        groups : (nodes,)
            The number of each node's, or -1.
        """
        seconds, latencies = np.zeros((2, 1 + groups.max(), self.seconds.shape[1]))
        inside = groups >= 0
        np.add.at(seconds, groups[inside], self.seconds[inside])
        _put_least(latencies, groups[inside], self.latencies[inside])
        joined_seconds: NDArray[np.float64] = seconds + latencies
        return joined_seconds


def _put_least(
    least: NDArray[np.float64], groups: NDArray[np.intp], latencies: NDArray[np.float64]
) -> None:
    """Put the least latency of each group's exchanges, ``(groups, meshes)``, where it has any."""
    least[:] = np.inf
    np.minimum.at(least, groups, np.where(latencies > 0, latencies, np.inf))
    least[np.isinf(least)] = 0


class Queue(NamedTuple):
    """Seconds of a micro-batch's queue, one exchange after the other.

    Visits are the start of the forward pass, its layers, the start of the backward pass, its
    layers, and the end.

    Parameters
    ----------
    awaited
        What the program waits for before it begins.
    released : (visits,)
        What each visit releases, but for units.
    units : (3, units)
        The visits at which units begin their forward pass; begin their backward pass; and end it.
    of_units : (3, units)
        What is gathered for either pass of them, and scattered at the end.
    update
        What follows all gradients.
    overlap
        As of `Visits`.
    """

    awaited: float
    released: NDArray[np.float64]
    units: NDArray[np.intp]
    of_units: NDArray[np.float64]
    update: float
    overlap: str

    def lower_bound(self, begun: NDArray[np.float64]) -> float:
        """Return the least seconds of a micro-batch.

        Parameters
        ----------
        begun : (visits,)
            The seconds of the program before each visit, and before its end.
        """
        of_units = self._released_of_units()
        released = self.released.copy()
        for visit, seconds, _ in of_units:
            released[visit] += seconds
        remaining = released[::-1].cumsum()[::-1]
        if self.overlap == "none":
            return float(begun[-1] + remaining[0]) + self.update
        if self.overlap != "prefetch":  # updates wait for no other gradients
            return float(max((begun + remaining).max(), begun[-1] + self.update))
        return float((begun + self._waited(begun, of_units) + remaining).max()) + self.update

    def _released_of_units(self) -> list[tuple[int, float, bool]]:
        """Return what visits release of units, in order, and whether that is a gather.

        Of those that have one the first is gathered as a pass begins, and the next as each does.
        """
        released = []
        firsts = 0, len(self.released) // 2
        for first, visits, gathers in zip(firsts, self.units, self.of_units, strict=False):
            some = gathers > 0
            begin = [first, *visits[some].tolist()]
            released += [*zip(begin, [*gathers[some].tolist(), 0.0], repeat(True))]
        released += zip(self.units[2].tolist(), self.of_units[2].tolist(), repeat(False))
        return sorted(released, key=itemgetter(0))

    def _waited(
        self, begun: NDArray[np.float64], of_units: Sequence[tuple[int, float, bool]]
    ) -> NDArray[np.float64]:
        """Return how long the program has waited for weights before each visit: ``(visits,)``.

        Buckets are left out: before which gathers they are released is not known.
        """
        waited = np.zeros(len(begun))
        waited[1] = total = gathered = queue = self.awaited
        for visit, seconds, is_gather in of_units:
            now = float(begun[visit]) + total
            if is_gather:
                wait = max(gathered - now, 0.0)
                waited[visit] += wait
                total, now = total + wait, now + wait
                gathered = max(queue, now) + seconds
            queue = max(queue, now) + seconds
        return waited.cumsum()


def queues_of(
    exchanges: Iterable[QueueExchanges],
    updates: NDArray[np.float64],
    visits: Visits,
) -> list[tuple[Queue, Queue]]:
    """Return the queues of the last micro-batch and of one before it, of each mesh.

    What may be released at one visit or at a later one is so at the first, and what may be one
    exchange has one latency.

    Parameters
    ----------
    exchanges
        Of the shortened step.
    updates : (meshes,)
        The seconds in which all weights are updated.
    """
    layers, blocks, places, of_nodes, bucket_ends, overlap = visits
    prefetches, count = overlap == "prefetch", len(layers)
    (inside,) = np.nonzero(blocks >= 0)
    firsts = inside[np.unique(blocks[inside], return_index=True)[1]]  # of each block
    lasts = np.append(firsts[1:], inside[-1] + 1) - 1
    numbers = of_nodes[len(of_nodes) - 1 - layers.max() :][layers[firsts]]
    units = np.array([1 + firsts, 2 * count + 1 - lasts[::-1], 2 * count + 1 - firsts[::-1]])
    released = np.zeros((2, 2 * count + 3, len(updates)))
    backward = released[:, count + 2 : -1][:, ::-1]
    awaited, of_units = np.zeros((2, len(updates))), np.zeros((2, *units.shape, len(updates)))
    scattered = np.zeros((len(of_nodes), 1), bool)
    for exchange in sorted(exchanges, key=lambda own: not own.each):
        of = slice(None) if exchange.each else slice(1)
        if exchange.tensor == "weights":
            if not (exchange.each or prefetches):  # it may be the end of the gradients' exchange
                exchange = exchange._replace(latencies=0 * exchange.latencies)
            by_unit = exchange.together(of_nodes)
            released[of, 0] += by_unit[0]
            awaited[of] += by_unit[0]
            of_units[of, 0] += by_unit[numbers]
            if exchange.each:
                of_units[of, 1] += by_unit[numbers[::-1]]
            continue
        if exchange.each and prefetches:
            scattered = exchange.seconds > 0
        by_unit = exchange.among(scattered).together(of_nodes)
        of_units[of, 2] += by_unit[numbers[::-1]]
        released[of, -1] += by_unit[0]
        rest = exchange.among(~scattered)
        if scattered.any():  # buckets are complete without these, and so earlier
            rest = rest._replace(latencies=0 * rest.latencies)
            backward[of] += rest.together(places)[layers]
        else:
            complete = rest.at(places, layers).together(bucket_ends)
            backward[of, : len(complete)] += complete
    last, before = (
        [
            Queue(first, rest, units, seconds, update, overlap)
            for first, rest, seconds, update in zip(
                awaited[number].tolist(),
                released[number].T,
                np.moveaxis(of_units[number], -1, 0),
                update.tolist(),
                strict=True,
            )
        ]
        for number, update in enumerate((updates, 0 * updates))
    )
    return [*zip(last, before, strict=True)]
