"""A step's time in closed form, for many plans at once: without events or overlap.

Where all accelerators run in lockstep, as on an H tree or a torus, every exchange starts on all
of them together, so a step takes the sum of its computations and exchanges: what `TimeCost`
charges, here in floating point and without its rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.base import check_additive
from hypar_opt.costs.state_charges import state_indices
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.table import chain_ends
from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.workload.tensors import Workload

Seconds = NDArray[np.float64]

MAX_PLANS = 2**27
"""Plans whose seconds are returned at once: 1 GiB."""

_RESOLUTION = 10**30
"""Units per second: finer than any cost table's, so that no charge is rounded."""
_BLOCK = 2**13
"""Plans per block: their sums, and the codes of their states, fit in a processor's cache."""


def charges_of_states(
    cost: CostModel, workload: Workload, levels: int
) -> tuple[Seconds, Seconds, NDArray[np.intp]]:
    """Return a cost summed over its levels: in seconds if it is a cost of time, else in its unit.

    Returns
    -------
    tuple
        Charges of nodes ``(nodes, states)`` and of boundaries ``(boundaries, states, states)``,
        both ordered by the states' numbers; and the boundaries' ends.

    Raises
    ------
    RefusedError
        If there are more pairs of states than memory allows, or a plan's cost is no sum of charges.
    """
    check_additive(cost)
    resolution = cost.resolution
    if cost.time is not None:
        resolution = _RESOLUTION
        cost = cost.time.in_units(resolution, workload)
    states = StateTable.of(cost, workload, levels)
    table = states.dense()
    # The table has its states in the search's order; here a state's number is its index.
    choices = len(workload.choices)
    order = state_indices(states.states, [choices] * levels)
    # Infinite where no node may have a state.
    node = np.full((len(table.node), choices**levels), np.inf)
    edge = np.full((len(table.edge), choices**levels, choices**levels), np.inf)
    node[:, order] = table.node / resolution
    edge[:, order[:, None], order] = table.edge / resolution
    return node, edge, table.ends


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """The time that each layer's state, and each boundary's pair of states, adds to a step.

    A state is the choices of a layer at all levels: a number whose digits are the choices'
    columns, H1's first, so that 0b0011 is data, data, model, model.

    Parameters
    ----------
    node : (layers, states)
        Seconds, or the cost's own unit.
    edge : (layers - 1, states, states)
        The earlier layer's state first.
    """

    node: Seconds
    edge: Seconds

    @classmethod
    def of(cls, cost: CostModel, workload: Workload, levels: int) -> ClosedForm:
        """Sum a cost over its levels: in seconds if it is a cost of time, else in its unit.

        Raises
        ------
        RefusedError
            If the layers are not a chain, or there are more pairs of states than memory allows.
        """
        node, edge, ends = charges_of_states(cost, workload, levels)
        if not np.array_equal(ends, chain_ends(len(node))):
            raise RefusedError("the closed form covers chains of layers only")
        return cls(node, edge)

    def of_plans(self, states: NDArray[np.unsignedinteger]) -> Seconds:
        """Return the seconds of every plan, ``(plans,)`` float64.

        Parameters
        ----------
        states : (layers, plans)
            The state of every layer in every plan.

        Raises
        ------
        ValueError
            If there are not as many rows as layers, or a state is out of range.
        """
        layers, plans = states.shape
        size = self.node.shape[1]
        if states.size and states.max() >= size:
            raise ValueError(f"a state should be below {size}, got {states.max()}")
        if layers != len(self.node):
            raise ValueError(f"should have a row for each of {len(self.node)} layers, got {layers}")
        # What a layer adds after the one before it, by both states as one number.
        steps = (self.edge + self.node[1:, None]).reshape(layers - 1, size**2)
        total = np.zeros(plans)
        # A block at a time, so that the intermediate arrays stay in the processor's cache.
        for start in range(0, plans, _BLOCK):
            codes = states[:, start : start + _BLOCK].astype(np.intp)
            out = total[start : start + _BLOCK]
            out += self.node[0].take(codes[0])
            for layer, step in enumerate(steps):
                out += step.take(codes[layer] * size + codes[layer + 1])
        return total

    def of_all(self, states: Sequence[Sequence[int] | NDArray[np.intp]] | None = None) -> Seconds:
        """Return the seconds of every combination of the layers' states, an axis per layer.

        Parameters
        ----------
        states
            For every layer, the states to combine; None for all.

        Raises
        ------
        RefusedError
            If there are more combinations than memory allows.
        """
        layers = range(len(self.node))
        if states is None:
            states = [range(self.node.shape[1])] * len(layers)
        allowed = [np.asarray(layer_states, np.intp) for layer_states in states]
        shape = tuple(map(len, allowed))
        if prod(shape) > MAX_PLANS:
            raise RefusedError(f"more than {MAX_PLANS} plans at once; vary fewer choices")
        nodes = [self.node[layer, layer_states] for layer, layer_states in enumerate(allowed)]
        # What a layer adds after the one before it: its boundary and its own seconds.
        steps = [
            self.edge[layer - 1][np.ix_(*allowed[layer - 1 : layer + 1])] + nodes[layer]
            for layer in layers[1:]
        ]
        # From the last layer, so that rows are long, which numpy adds fastest.
        seconds = np.zeros((shape[-1], 1))
        for layer in layers[:0:-1]:
            seconds = steps[layer - 1][:, :, None] + seconds
            seconds = seconds.reshape(shape[layer - 1], -1)
        total: Seconds = (nodes[0][:, None] + seconds).reshape(shape)
        return total
