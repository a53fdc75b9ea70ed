"""A step's time in closed form, for many plans at once: without events or overlap.

Where all accelerators run in lockstep, as on an H tree or a torus, every exchange starts on all
of them together, so a step takes the sum of its computations and exchanges: what `TimeCost`
charges, here in floating point and without its rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.state_tables import canonical_states, expanded, in_mixed_radix
from hypar_opt.costs.table import chain_ends
from hypar_opt.costs.time import TimeCost
from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.workload.tensors import Workload

Seconds = NDArray[np.float64]

MAX_PLANS = 2**27
"""Plans whose seconds are returned at once: 1 GiB."""

_RESOLUTION = 10**30
"""Units per second: finer than any cost table's, so that no charge is rounded."""
_BLOCK = 2**15
"""Plans per block: their sums, and the codes of their states, fit in a processor's cache."""
_MAX_ENTRIES = 2**16
"""Entries of a table over three layers' states, which should fit in the cache too."""


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
        If there are more pairs of states than memory allows.
    """
    resolution = cost.resolution
    if isinstance(cost, TimeCost):
        resolution = _RESOLUTION
        cost = cost.in_parts(resolution, workload)
    table = expanded(cost, workload, levels)
    # The table has its states in the search's order; here a state's number is its index.
    choices = len(workload.choices)
    order = in_mixed_radix(canonical_states(levels, choices), choices)
    node, edge = np.empty(table.node.shape), np.empty(table.edge.shape)
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
        if states.size and states.max() >= self.node.shape[1]:
            raise ValueError(f"a state should be below {self.node.shape[1]}, got {states.max()}")
        if layers != len(self.node):
            raise ValueError(f"should have a row for each of {len(self.node)} layers, got {layers}")
        total = np.zeros(plans)
        # A block at a time, so that the intermediate arrays stay in the processor's cache.
        for start in range(0, plans, _BLOCK):
            self._add_up(states[:, start : start + _BLOCK], total[start : start + _BLOCK])
        return total

    def _add_up(self, states: NDArray[np.unsignedinteger], out: Seconds) -> None:
        """Add the seconds of all runs of layers to ``out``, for one block of plans."""
        span, tables = self._tables
        size, layers = self.node.shape[1], len(states)
        code_type = np.min_scalar_type(size ** (span + 1) - 1)  # the smaller, the faster
        code, index = np.empty(len(out), code_type), np.empty(len(out), np.intp)
        seconds = np.empty(len(out))
        states = states.astype(code_type)
        for first, table in zip(range(0, max(layers - 1, 1), span), tables, strict=True):
            code[:] = states[first]
            for layer in range(first + 1, min(first + span + 1, layers)):
                # In place: a new array for every layer would cost more than the arithmetic.
                code *= code_type.type(size)
                code += states[layer]
            index[:] = code
            # States were checked to be in range, and mode="raise" would copy.
            out += table.take(index, out=seconds, mode="wrap")

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
        # NumPy adds long rows fastest: in the last sum a row has all states after the middle layer.
        middle = (len(layers) - 1) // 2
        seconds_up_to_middle = nodes[0][None]
        for layer in layers[1 : middle + 1]:
            seconds_up_to_middle = (seconds_up_to_middle[:, :, None] + steps[layer - 1]).reshape(
                -1, shape[layer]
            )
        seconds_after_middle = np.zeros((shape[-1], 1))
        for layer in layers[:middle:-1]:
            seconds_after_middle = (steps[layer - 1][:, :, None] + seconds_after_middle).reshape(
                shape[layer - 1], -1
            )
        seconds: Seconds = (seconds_up_to_middle[:, :, None] + seconds_after_middle).reshape(shape)
        return seconds

    @cached_property
    def _tables(self) -> tuple[int, list[Seconds]]:
        """The number of boundaries in a run of layers, and a table of seconds for every run.

        A table is indexed by the states of all layers of its run, so that one look-up replaces
        those of its layers and boundaries. The last layer of a run is the first of the next; the
        last run may be shorter.
        """
        layers, states = self.node.shape
        # The longer a run, the fewer look-ups per plan, as long as its table fits in the cache.
        span = 2 if states**3 <= _MAX_ENTRIES else 1
        tables = []
        table = self.node[0]
        for layer in range(1, layers):
            table = table[..., None] + self.edge[layer - 1] + self.node[layer]
            if layer % span == 0 and layer < layers - 1:
                tables.append(table.reshape(-1))
                # This layer's own seconds are in the table before, so the next starts at zero.
                table = np.zeros(states)
        return span, [*tables, table.reshape(-1)]
