"""Proofs of a lower bound on a table whose graph is no chain.

A maximum flow proves the bound of two choices a layer, where every pair is submodular. Written
in 0-1 variables, 1 for the second choice, such a table costs ``constant + sum(d x) +
sum(q x (1 - y))``, q >= 0: a flow network with an arc of capacity q from the earlier layer of
every pair to the later one, of capacity -d from the source to a layer where d < 0, and of
capacity d from a layer to the sink where d > 0. Its cuts cost what the assignments cost, but
for a constant, and no cut is less than a flow. The check adds and compares integers.

The messages of an elimination prove the bound of any choices: what is charged in the bucket of
a layer, less its message, is a reduced cost, and none may be negative. Then no assignment costs
less than the messages of layers without neighbours left, in total.

Source: Ford and Fulkerson, "Maximal flow through a network", 1956; Picard and Ratliff, "Minimum
cuts and related problems", Networks 5, 1975; Dechter, "Bucket elimination", 1999.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field, Strict

from hypar_opt.costs.table import CostTable
from hypar_opt.deadline import NEVER
from hypar_opt.documents.document import Document
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.integers import Integers, exact_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Whole = Annotated[int, Strict()]
Pair = tuple[int, int]


class FlowProof(Document):
    """A maximum flow of a table of two choices, in the table's integers.

    Parameters
    ----------
    layer_flows
        Of every layer: from the source into it, or, negative, from it to the sink.
    pair_flows
        Of every pair of layers with an edge, in ascending order: from the earlier one to the
        later one.
    """

    form: ClassVar[str] = "flow"

    layer_flows: tuple[Whole, ...]
    pair_flows: tuple[Whole, ...]


class EliminationProof(Document):
    """The messages of an elimination.

    Parameters
    ----------
    order
        The layers, by position, in the order of their elimination.
    messages
        In that order, each over the allowed choices of the layers that the eliminated one is
        joined to then; among these layers the choice of the last to be eliminated varies
        fastest.
    """

    form: ClassVar[str] = "messages"

    order: tuple[Annotated[int, Strict(), Field(ge=0)], ...]
    messages: tuple[tuple[Whole, ...], ...]


def prove(table: CostTable) -> FlowProof | EliminationProof:
    """Return a proof of a table's optimum: a flow where there is one, else messages.

    A capacity is left out: what is proved is the least cost of all assignments, whether they
    fit it or not.

    Raises
    ------
    RefusedError
        If it needs larger tables than memory allows.
    """
    from hypar_opt.solvers.elimination.solve import eliminated
    from hypar_opt.solvers.minimum_cut import MinimumCut

    table = table.unlimited
    if table.choices == 2 and MinimumCut().accepts(table) is None:
        return _maximum_flow(table)
    buckets = eliminated(table, NEVER)
    order = buckets.order.layers
    messages = [np.ravel(buckets.messages[layer].at(0)).tolist() for layer in order]
    return EliminationProof(order=order, messages=tuple(map(tuple, messages)))


def too_large(choices: Sequence[int], ends: NDArray[np.intp]) -> str | None:
    """Return why messages of a table of such a size would not fit the memory, if they do not.

    Parameters
    ----------
    choices
        Of each layer, the number that it may take.
    ends : (edges, 2)
    """
    from hypar_opt.solvers.elimination.solve import order_of_size

    sources, targets = ends.T
    chain = (targets == sources + 1).all() and (np.diff(sources) > 0).all()
    # Of two choices a flow may be the proof, and of a chain potentials are.
    if chain or max(choices) <= 2:
        return None
    try:
        order_of_size(tuple(choices), ends)
    except RefusedError as error:
        # Programs find an optimum, but no proof that additions check.
        return error.message.removesuffix(", try ilp or cpsat")
    return None


def _maximum_flow(table: CostTable) -> FlowProof:
    from hypar_opt.solvers.minimum_cut import networks_of
    from hypar_opt.solvers.pseudo_boolean import PseudoBoolean

    networks = networks_of(PseudoBoolean.of(table))
    (found,) = networks.maximum_flows(NEVER)
    flows = [networks.unit * flow for flow in found.flows(np.arange(len(networks.tail))).tolist()]
    layers = table.layers
    return FlowProof(
        layer_flows=tuple(
            into - out for into, out in zip(flows[:layers], flows[layers : 2 * layers], strict=True)
        ),
        pair_flows=tuple(flows[2 * layers :]),
    )


def bound_of(table: CostTable, proof: FlowProof | EliminationProof, where: str) -> int:
    """Return the lower bound that a proof gives for all allowed assignments of a table.

    Parameters
    ----------
    where
        The proof's place in the certificate, for messages.

    Raises
    ------
    CheckFailedError
        Naming what does not hold.
    """
    if not allowed_choices(table).any(axis=1).all():
        raise CheckFailedError(f"{where}: a layer is allowed no choice")
    if isinstance(proof, FlowProof):
        return _flow_bound(table, proof, where)
    return _elimination_bound(table, proof, where)


def allowed_choices(table: CostTable) -> NDArray[np.bool_]:
    """Return which choices each layer may make: ``(layers, choices)``."""
    return np.ones(table.node.shape, bool) if table.allowed is None else table.allowed


@dataclass(frozen=True)
class _Network:
    """A table as a flow network: see the module."""

    constant: int
    charges: list[int]
    capacities: dict[Pair, int]

    @classmethod
    def of(cls, table: CostTable) -> _Network:
        first, second = table.node.T.tolist()
        constant = sum(first)
        charges = [b - a for a, b in zip(first, second, strict=True)]
        # Of both layers at their second choice, as what it saves.
        saves: dict[Pair, int] = {}
        for (u, v), ((dd, dm), (md, mm)) in zip(
            table.ends.tolist(), table.edge.tolist(), strict=True
        ):
            constant += dd
            charges[u] += md - dd
            charges[v] += dm - dd
            pair = (min(u, v), max(u, v))
            saves[pair] = saves.get(pair, 0) + dm + md - dd - mm
        network = cls(constant, charges, saves)._fixed(allowed_choices(table).tolist())
        # A pair is charged where the earlier layer alone has its second choice.
        for (u, _), saved in network.capacities.items():
            network.charges[u] -= saved
        return network

    def _fixed(self, allowed: list[list[bool]]) -> _Network:
        """Return the network in which layers of a single allowed choice are part of the rest."""
        constant, charges, capacities = self.constant, list(self.charges), dict(self.capacities)
        fixed = [None if all(row) else row.index(True) for row in allowed]
        for (u, v), saved in self.capacities.items():
            at_u, at_v = fixed[u], fixed[v]
            if at_u is None and at_v is None:
                continue
            capacities[u, v] = 0
            if at_u is not None and at_v is not None:
                constant -= saved * at_u * at_v
            elif at_u is not None:
                charges[v] -= saved * at_u
            elif at_v is not None:
                charges[u] -= saved * at_v
        for layer, choice in enumerate(fixed):
            if choice is not None:
                constant += charges[layer] * choice
                charges[layer] = 0
        return _Network(constant, charges, capacities)


def _flow_bound(table: CostTable, proof: FlowProof, where: str) -> int:
    if table.choices != 2:
        raise CheckFailedError(f"{where}: a flow, and layers have {table.choices} choices")
    network = _Network.of(table)
    pairs = sorted(network.capacities)
    for key, flows, count in (
        ("layer_flows", proof.layer_flows, table.layers),
        ("pair_flows", proof.pair_flows, len(pairs)),
    ):
        if len(flows) != count:
            raise CheckFailedError(f"{where}, {key}: should be {count} flows, got {len(flows)}")
    # What is left in every layer: nothing, in a flow.
    left = list(proof.layer_flows)
    for (u, v), flow in zip(pairs, proof.pair_flows, strict=True):
        if not 0 <= flow <= network.capacities[u, v]:
            raise CheckFailedError(
                f"{where}, pair_flows: from layer {u} to layer {v} it should be 0 to"
                f" {network.capacities[u, v]}, got {flow}"
            )
        left[u] -= flow
        left[v] += flow
    bound = network.constant
    for layer, (flow, charge) in enumerate(zip(proof.layer_flows, network.charges, strict=True)):
        if not -max(charge, 0) <= flow <= max(-charge, 0):
            raise CheckFailedError(
                f"{where}, layer_flows: of layer {layer} it should be {-max(charge, 0)} to"
                f" {max(-charge, 0)}, got {flow}"
            )
        if left[layer]:
            raise CheckFailedError(
                f"{where}: {left[layer]} more flow into layer {layer} than out of it"
            )
        bound += min(charge, 0) + max(flow, 0)
    return bound


@dataclass(frozen=True, eq=False)
class _Part:
    """A charge over the choices of some layers, in the order of elimination."""

    layers: tuple[int, ...]
    charge: Integers


def _elimination_bound(table: CostTable, proof: EliminationProof, where: str) -> int:
    if sorted(proof.order) != list(range(table.layers)):
        raise CheckFailedError(f"{where}, order: should be every layer once")
    if len(proof.messages) != table.layers:
        raise CheckFailedError(
            f"{where}, messages: should be {table.layers}, got {len(proof.messages)}"
        )
    # A file may hold any integers: int64 only where no sum of them can overflow it.
    highest = max(abs(entry) for message in proof.messages for entry in (0, *message))
    dtype = exact_dtype(table.largest + (table.layers + 1) * highest)
    columns = [np.flatnonzero(row) for row in allowed_choices(table)]
    position = {layer: n for n, layer in enumerate(proof.order)}
    neighbours: list[set[int]] = [set() for _ in columns]
    buckets = [
        [_Part((layer,), table.node[layer, choices].astype(dtype))]
        for layer, choices in enumerate(columns)
    ]
    for (u, v), edge in zip(table.ends.tolist(), table.edge, strict=True):
        neighbours[u].add(v)
        neighbours[v].add(u)
        charge = edge[np.ix_(columns[u], columns[v])].astype(dtype)
        first, second = sorted((u, v), key=position.__getitem__)
        buckets[first].append(_Part((first, second), charge if first == u else charge.T))
    bound = 0
    for layer, entries in zip(proof.order, proof.messages, strict=True):
        scope = tuple(sorted(neighbours[layer], key=position.__getitem__))
        for other in scope:
            neighbours[other] = (neighbours[other] | set(scope)) - {other, layer}
        shape = tuple(len(columns[n]) for n in scope)
        if len(entries) != prod(shape):
            raise CheckFailedError(
                f"{where}, messages: of layer {layer} there should be {prod(shape)} entries, got"
                f" {len(entries)}"
            )
        message: Integers = np.array(entries, dtype).reshape(shape)
        reduced: Integers = np.zeros((len(columns[layer]), *shape), dtype) - message
        for part in buckets[layer]:
            sizes = [len(columns[n]) if n in part.layers else 1 for n in (layer, *scope)]
            reduced += part.charge.reshape(sizes)
        if reduced.min() < 0:
            raise CheckFailedError(f"{where}: a reduced cost of layer {layer} is negative")
        if scope:
            buckets[scope[0]].append(_Part(scope, message))
        else:
            bound += int(message)
    return bound
