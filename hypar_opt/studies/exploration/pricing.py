"""Pricing every plan of a subspace in closed form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import chain_ends
from hypar_opt.instance.instance import Instance
from hypar_opt.simulator.closed_form import ClosedForm, charges_of_states
from hypar_opt.studies.exploration.values import Values


class PricedStates(NamedTuple):
    """The costs of all combinations of layers' states, and of Data Parallelism, in a unit."""

    values: Values
    data_parallel_cost: float
    unit: str


def values_of(
    instance: Instance,
    allowed: NDArray[np.bool_] | None,
    states: Sequence[NDArray[np.intp]],
    axes: Sequence[int],
) -> PricedStates:
    """Return the cost of every combination of states, with one axis per layer.

    A layer without an axis has one state. Sums of bytes are exact, since float64 holds them; those
    of time and energy are rounded.
    """
    price_all = _pricing_of(instance, allowed)
    values = price_all(states, axes)
    unit, parts, physical = instance.cost.unit, 1, instance.cost.physical
    if physical is not None:
        # The closed form of time is in seconds already.
        unit, parts = physical.BASE, 1 if physical.time else physical.per_unit
    # In place: there may be 2^27 of them.
    values /= parts
    # State 0 of every layer.
    data = price_all([np.zeros(1, np.intp)] * len(states), [0]).item()
    return PricedStates(values, data / parts, unit)


def _pricing_of(
    instance: Instance, allowed: NDArray[np.bool_] | None
) -> Callable[[Sequence[NDArray[np.intp]], Sequence[int]], Values]:
    """Return the function that prices all combinations of states, of a chain or a graph."""
    cost, workload, levels = instance.cost, instance.workload, instance.problem.levels
    node, edge, ends = charges_of_states(cost, workload, levels)
    if np.array_equal(ends, chain_ends(len(node))):
        return partial(_price_chain, ClosedForm(node, edge))
    if allowed is None:
        allowed = np.ones(node.shape, bool)
    shared = [np.flatnonzero(row) for row in allowed[: workload.shared]]
    return GraphCharges(node, edge, ends, shared).of_all


def _price_chain(
    closed: ClosedForm, states: Sequence[NDArray[np.intp]], axes: Sequence[int]
) -> Values:
    """Return the cost of every combination of states of a chain's layers.

    Each layer without an axis is added to its neighbours first: numpy has 32 axes, and a network
    may have more layers.
    """
    nodes, edges = list(closed.node), list(closed.edge)
    # From the last layer, so that removing one does not renumber those before it.
    for layer in reversed(range(len(states))):
        if layer in axes:
            continue
        state = states[layer].item()
        charge = nodes.pop(layer)[state]
        # On a chain a layer has at most one edge on either side.
        if layer == 0:
            nodes[0] = charge + edges.pop(0)[state] + nodes[0]
        elif layer == len(nodes):
            nodes[-1] = nodes[-1] + edges.pop()[:, state] + charge
        else:
            after = edges.pop(layer)[state]
            edges[layer - 1] = edges[layer - 1][:, state, None] + charge + after
    edge = np.array(edges).reshape(len(edges), *closed.edge.shape[1:])
    return ClosedForm(np.array(nodes), edge).of_all([states[layer] for layer in axes])


States = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class GraphCharges:
    """The charges of states of nodes, and of pairs of states of edges.

    Parameters
    ----------
    node : (nodes, states)
    edge : (edges, states, states)
    ends : (edges, 2)
    shared
        The states that each shared node may have; these nodes come first.
    """

    node: Values
    edge: Values
    ends: NDArray[np.intp]
    shared: Sequence[States]

    def of_all(self, states: Sequence[States], axes: Sequence[int]) -> Values:
        """Return the cost of every combination of states, with an axis for each of ``axes``."""
        # Charges, by the layers with an axis on which they depend.
        terms: dict[tuple[int, ...], Values] = {(): np.zeros(())}

        def charge(layers: Sequence[int], amount: Values) -> None:
            with_axis = tuple(layer for layer in layers if layer in axes)
            flat = amount.reshape([len(states[layer]) for layer in with_axis])
            terms[with_axis] = terms[with_axis] + flat if with_axis in terms else flat

        for layer, layer_states in enumerate(states):
            charge((layer,), self.node[len(self.shared) + layer, layer_states])
        for ends, edge in zip((self.ends - len(self.shared)).tolist(), self.edge, strict=True):
            if min(ends) >= 0:
                charge(ends, edge[np.ix_(*(states[layer] for layer in ends))])
        for node in range(len(self.shared)):
            charge(*self._minimized(node, states))
        return _sum_of_terms(terms, [len(states[layer]) for layer in axes], axes)

    @cached_property
    def _edges_of_shared(self) -> list[list[int]]:
        """The numbers of the edges of each shared node."""
        edges: list[list[int]] = [[] for _ in self.shared]
        for number, ends in enumerate(self.ends.tolist()):
            for node in ends:
                if node < len(self.shared):
                    edges[node].append(number)
        return edges

    def _minimized(self, node: int, states: Sequence[States]) -> tuple[tuple[int, ...], Values]:
        """Return the minimum charge of a shared node, for all states of its layers."""
        by_layer: dict[int, list[Values]] = defaultdict(list)
        for number in self._edges_of_shared[node]:
            (source, target), edge = self.ends[number].tolist(), self.edge[number]
            layer = max(source, target) - len(self.shared)
            by_layer[layer].append(edge if source == node else edge.T)
        layers = tuple(sorted(by_layer))
        shape = tuple(len(states[layer]) for layer in layers)
        minima = np.full(shape, np.inf)
        for state in self.shared[node].tolist():
            total = np.full(shape, self.node[node, state])
            for axis, layer in enumerate(layers):
                charge = reduce(add, (edge[state, states[layer]] for edge in by_layer[layer]))
                total += charge.reshape(
                    [-1 if axis == other else 1 for other in range(len(layers))]
                )
            np.minimum(minima, total, out=minima)
        return layers, minima


def _sum_of_terms(
    terms: dict[tuple[int, ...], Values], sizes: Sequence[int], axes: Sequence[int]
) -> Values:
    """Return the sum over all axes of terms that each depend on some of them."""
    total = terms[()]
    # From the last axis: each term is added at its first axis, while the sum is still small.
    for axis in range(len(axes) - 1, -1, -1):
        total = np.repeat(total[None], sizes[axis], axis=0)
        for layers, term in terms.items():
            if layers and layers[0] == axes[axis]:
                later = zip(axes[axis:], sizes[axis:], strict=True)
                total += term.reshape([size if layer in layers else 1 for layer, size in later])
    return total
