"""Pricing every plan of a subspace in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.energy import EnergyCost
from hypar_opt.costs.table import chain_ends
from hypar_opt.costs.time import TimeCost
from hypar_opt.simulator.closed_form import ClosedForm, charges_of_states
from hypar_opt.studies.exploration.graph_pricing import GraphCharges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.base import CostModel
    from hypar_opt.instance.instance import Instance
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
    """Return the cost of every combination of states, with one axis per layer."""
    charges = _charges_of(instance, allowed)
    values = _price_all(charges, states, axes)
    unit, parts = _unit_of(instance.cost)
    # In place: there may be 2^27 of them.
    values /= parts
    return PricedStates(values, _data_parallel_cost(charges, len(states)) / parts, unit)


def _unit_of(cost: CostModel) -> tuple[str, int]:
    """Return the unit of an exploration's values, and its size in units of the closed form."""
    if isinstance(cost, TimeCost):  # the closed form of time is in seconds already
        return "seconds", 1
    if isinstance(cost, EnergyCost):
        return "joules", cost.per_unit
    return cost.unit, 1


def _charges_of(instance: Instance, allowed: NDArray[np.bool_] | None) -> ClosedForm | GraphCharges:
    """Return the charges of all states; for a chain, in the form that adds up fastest."""
    cost, workload, levels = instance.cost, instance.workload, instance.problem.levels
    node, edge, ends = charges_of_states(cost, workload, levels)
    if np.array_equal(ends, chain_ends(len(node))):
        return ClosedForm(node, edge)
    if allowed is None:
        allowed = np.ones(node.shape, bool)
    shared = [np.flatnonzero(row) for row in allowed[: workload.shared]]
    return GraphCharges(node, edge, ends, shared)


def _price_all(
    charges: ClosedForm | GraphCharges, states: Sequence[NDArray[np.intp]], axes: Sequence[int]
) -> Values:
    """Return the cost of every combination of states; a layer without an axis has one state.

    Sums of bytes are exact, since float64 holds them; those of time and energy are rounded.
    """
    if isinstance(charges, GraphCharges):
        return charges.of_all(states, axes)
    return _price_chain(charges, states, axes)


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
        # A chain: a layer has at most an edge before it and one after it.
        if layer == 0:
            nodes[0] = charge + edges.pop(0)[state] + nodes[0]
        elif layer == len(nodes):
            nodes[-1] = nodes[-1] + edges.pop()[:, state] + charge
        else:
            after = edges.pop(layer)[state]
            edges[layer - 1] = edges[layer - 1][:, state, None] + charge + after
    edge = np.array(edges).reshape(len(edges), *closed.edge.shape[1:])
    return ClosedForm(np.array(nodes), edge).of_all([states[layer] for layer in axes])


def _data_parallel_cost(charges: ClosedForm | GraphCharges, layers: int) -> float:
    """Return the cost of state 0 of every layer."""
    return float(_price_all(charges, [np.zeros(1, np.intp)] * layers, [0]).item())
