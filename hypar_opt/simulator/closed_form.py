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
    from hypar_opt.shapes import Shapes

Seconds = NDArray[np.float64]

MOST_PLANS = 2**27
"""Plans whose seconds are returned at once: 1 GiB."""

_PARTS = 10**30
_BLOCK = 2**15
_ENTRIES = 2**12


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
    def of(cls, cost: CostModel, shapes: Shapes, levels: int) -> ClosedForm:
        """Add up a cost's levels: in seconds, if it is one of time, else in its unit.

        Raises
        ------
        RefusedError
            If the layers are no chain, or there are more pairs of states than memory allows.
        """
        parts = cost.per_unit
        if isinstance(cost, TimeCost):  # finer than any table, so that nothing is rounded
            parts = _PARTS
            cost = cost.in_parts(parts, shapes)
        table = expanded(cost, shapes, levels)
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
        largest = max(table.size for _, _, table in self._runs)
        short = np.uint16 if largest <= 2**16 else np.intp
        index, found = np.empty(_BLOCK, np.intp), np.empty(_BLOCK)
        for start in range(0, plans, _BLOCK):
            part = states[:, start : start + _BLOCK].astype(short)
            out = total[start : start + _BLOCK]
            here, more = index[: len(out)], found[: len(out)]
            for first, last, table in self._runs:
                code = part[first]
                for layer in range(first + 1, last + 1):
                    code = code * short(self.node.shape[1])
                    code += part[layer]
                here[:] = code
                out += table.take(here, out=more, mode="wrap")  # "raise" would copy
        return total

    def of_all(self, states: Sequence[Sequence[int]] | None = None) -> Seconds:
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
    def _runs(self) -> tuple[tuple[int, int, Seconds], ...]:
        """Runs of layers, the last of one being the first of the next, and what they add.

        One look into a run's table takes the place of a look at each layer and boundary.
        """
        runs = []
        layers, states = self.node.shape
        first, table = 0, self.node[0]
        for layer in range(1, layers):
            if table.size * states > _ENTRIES and layer - first > 1:
                runs.append((first, layer - 1, table.reshape(-1)))
                first, table = layer - 1, np.zeros(states)
            table = table[..., None] + self.edge[layer - 1] + self.node[layer]
        return (*runs, (first, layers - 1, table.reshape(-1)))
