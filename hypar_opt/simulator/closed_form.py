"""The time of a step added up, for many plans at once: no events, nothing overlaps.

Where all accelerators keep step, as on an H tree or a torus, every exchange starts at all of
them together, so a step is the sum of its computes and exchanges: what `TimeCost` charges,
here in floating point and without its rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.product import canonical_states, expanded, in_mixed_radix
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.workload.tensors import Workload

Seconds = NDArray[np.float64]

MOST_PLANS = 2**27
"""Plans whose seconds are returned at once: 1 GiB."""

_PARTS = 10**30
_BLOCK = 2**15
_ENTRIES = 2**16


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """What each state of a layer, and each pair of states of a boundary, adds to a step.

    A state is what a layer takes at all levels: a number whose digits, H1's first, are its
    choices' columns, so that 0b0011 is data, data, model, model.

    Parameters
    ----------
    node : (layers, states)
        Seconds, or whatever the cost counts.
    edge : (layers - 1, states, states)
        The earlier layer's state first.
    """

    node: Seconds
    edge: Seconds

    @classmethod
    def of(cls, cost: CostModel, workload: Workload, levels: int) -> ClosedForm:
        """Add up a cost's levels: in seconds, if it is one of time, else in its unit.

        Raises
        ------
        RefusedError
            If the layers are no chain, or there are more pairs of states than memory allows.
        """
        parts = cost.resolution
        if isinstance(cost, TimeCost):  # finer than any table, so that nothing is rounded
            parts = _PARTS
            cost = cost.in_parts(parts, workload)
        table = expanded(cost, workload, levels)
        if not table.is_chain:
            raise RefusedError("the closed form takes chains of layers only")
        order = in_mixed_radix(canonical_states(levels, cost.choices), cost.choices)
        node, edge = np.empty(table.node.shape), np.empty(table.edge.shape)
        node[:, order] = table.node / parts
        edge[:, order[:, None], order] = table.edge / parts
        return cls(node, edge)

    def of_plans(self, states: NDArray[np.unsignedinteger]) -> Seconds:
        """Return the seconds of each plan.

        Parameters
        ----------
        states : (layers, plans)
            Each layer's state under each plan.
        """
        layers, plans = states.shape
        if states.size and states.max() >= self.node.shape[1]:
            raise ValueError(f"a state should be below {self.node.shape[1]}, got {states.max()}")
        if layers != len(self.node):
            raise ValueError(f"should have a row for each of {len(self.node)} layers, got {layers}")
        total = np.zeros(plans)
        for start in range(0, plans, _BLOCK):
            self._score(states[:, start : start + _BLOCK], total[start : start + _BLOCK])
        return total

    def _score(self, states: NDArray[np.unsignedinteger], out: Seconds) -> None:
        """Add up the runs of layers for as many plans as a processor's cache holds."""
        span, tables = self._tables
        size, layers = self.node.shape[1], len(states)
        short = np.min_scalar_type(size ** (span + 1) - 1)
        code, index = np.empty(len(out), short), np.empty(len(out), np.intp)
        found = np.empty(len(out))
        states = states.astype(short)
        for first, table in zip(range(0, max(layers - 1, 1), span), tables, strict=True):
            code[:] = states[first]
            for layer in range(first + 1, min(first + span + 1, layers)):
                code *= short.type(size)
                code += states[layer]
            index[:] = code
            out += table.take(index, out=found, mode="wrap")  # "raise" would copy

    def of_all(self, states: Sequence[Sequence[int] | NDArray[np.intp]] | None = None) -> Seconds:
        """Return the seconds of every combination of the layers' states, one axis a layer.

        Parameters
        ----------
        states
            Those that each layer may have; None for all.

        Raises
        ------
        RefusedError
            If there are more combinations than memory allows.
        """
        layers = range(len(self.node))
        if states is None:
            states = [range(self.node.shape[1])] * len(layers)
        picked = [np.asarray(each, np.intp) for each in states]
        shape = tuple(map(len, picked))
        if prod(shape) > MOST_PLANS:
            raise RefusedError(f"more than {MOST_PLANS} plans at once; leave fewer choices free")
        nodes = [self.node[layer, each] for layer, each in enumerate(picked)]
        steps = [
            self.edge[layer - 1][np.ix_(*picked[layer - 1 : layer + 1])] + nodes[layer]
            for layer in layers[1:]
        ]
        # Long rows are added fastest: all after the middle layer, for each of its states.
        middle = (len(layers) - 1) // 2
        before = nodes[0][None]
        for layer in layers[1 : middle + 1]:
            before = (before[:, :, None] + steps[layer - 1]).reshape(-1, shape[layer])
        after = np.zeros((shape[-1], 1))
        for layer in layers[:middle:-1]:
            after = (steps[layer - 1][:, :, None] + after).reshape(shape[layer - 1], -1)
        seconds: Seconds = (before[:, :, None] + after).reshape(shape)
        return seconds

    @cached_property
    def _tables(self) -> tuple[int, list[Seconds]]:
        """Boundaries a run, and for each run of layers what their states add together.

        The last layer of a run is the first of the next; the last run may be shorter. One look
        into a run's table takes the place of one for each layer and boundary.
        """
        layers, states = self.node.shape
        span = 2 if states**3 <= _ENTRIES else 1
        tables = []
        table = self.node[0]
        for layer in range(1, layers):
            table = table[..., None] + self.edge[layer - 1] + self.node[layer]
            if layer % span == 0 and layer < layers - 1:
                tables.append(table.reshape(-1))
                table = np.zeros(states)
        return span, [*tables, table.reshape(-1)]
