"""Proofs of a lower bound on a table whose graph is no chain.

A maximum flow proves the bound of two choices a layer, where every pair is submodular. Written in
0-1 variables, 1 for the second choice, such a table costs ``constant + sum(d x) + sum(q x (1 -
y))``, q >= 0: a flow network with an arc of capacity q from the earlier layer of every pair to the
later one, of capacity -d from the source to a layer where d < 0, and of capacity d from a layer to
the sink where d > 0. Its cuts cost what assignments cost, up to a constant, and no cut is smaller
than a flow. The check adds and compares integers.

The messages of an elimination prove bounds for any number of choices: the charges in the bucket of
a layer, minus its message, are reduced costs, none of which may be negative. Then no assignment
costs less than the sum of the messages of layers without remaining neighbours.

Over all levels a layer has hundreds of states, and messages join those of several layers. So they
are over cells of states: the charge of a layer, or of a pair of layers, for cells is the minimum
over their states, and no assignment costs less than its cells. Cells are classes of states in which
each choice occurs at equally many levels of each group, and single states of the classes whose
bounds are too low. The bound holds for any groups; it is tight if levels of a group are charged
alike.

Source: Ford and Fulkerson, "Maximal flow through a network", 1956; Picard and Ratliff, "Minimum
cuts and related problems", Networks 5, 1975; Dechter, "Bucket elimination", 1999;
docs/algorithms.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, reduce
from math import prod
from operator import add
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field, Strict

from hypar_opt.costs.table import CostTable
from hypar_opt.deadline import NEVER
from hypar_opt.documents.document import Document
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.solvers.subprocess_solver import call

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from hypar_opt.proofs.check.tables import ReferenceTable
    from hypar_opt.solvers.elimination.buckets import Buckets

Whole = Annotated[int, Strict()]
Number = Annotated[int, Strict(), Field(ge=0)]
Pair = tuple[int, int]
_FIRST_STEP = 2**12
"""The threshold first rises by this part of the bound, and then by twice as much each time."""

Groups = tuple[int, ...] | None
"""The group of each level; None if each level is its own, or columns are choices of one level."""


class FlowProof(Document):
    """A maximum flow of a table of two choices, in the table's integers.

    Parameters
    ----------
    layer_flows
        For each layer: from the source into it, or, negative, from it to the sink.
    pair_flows
        For each pair of layers with an edge, in ascending order: from the earlier one to the later
        one.
    """

    form: ClassVar[str] = "flow"

    layer_flows: tuple[Whole, ...]
    pair_flows: tuple[Whole, ...]


class EliminationProof(Document):
    """The messages of an elimination, over cells of layers' columns.

    Parameters
    ----------
    order
        The layers, by position, in the order of their elimination.
    messages
        Each over the cells of the current neighbours of the eliminated layer; the cell of the last
        neighbour to be eliminated varies fastest.
    numbers
        In that order, the number of each layer's message; by default each has its own.
    constants
        In that order, the constant added to a layer's message; by default 0.
    groups
        The group of each level; by default each column is a cell. With groups, columns are one cell
        if each choice occurs at equally many levels of each group.
    refined
        By layer, the classes whose states are single cells; by default none. Classes and cells are
        numbered in the order of their first states.
    """

    form: ClassVar[str] = "messages"

    order: tuple[Number, ...]
    messages: tuple[tuple[Whole, ...], ...]
    numbers: tuple[Number, ...] | None = None
    constants: tuple[Whole, ...] | None = None
    groups: tuple[Number, ...] | None = None
    refined: tuple[tuple[Number, ...], ...] | None = None


def prove(table: ReferenceTable, enough: int) -> FlowProof | EliminationProof:
    """Return a proof of a table's optimum: a flow where there is one, else messages.

    A capacity is ignored: the proof covers all assignments, whether they fit it or not.

    Parameters
    ----------
    enough
        A sufficient bound, which may be below the optimum.

    Raises
    ------
    RefusedError
        If it needs larger tables than memory allows.
    """
    if table.node.shape[1] == 2:
        from hypar_opt.solvers.minimum_cut import MinimumCut

        by_edge = replace(table.by_edge, limits=())
        if MinimumCut().accepts(by_edge) is None:
            return call(_maximum_flow, by_edge)
    cells, buckets = _tight(table, interchangeable_levels(table), enough)
    order = buckets.order.layers
    sent = [buckets.messages[layer] for layer in order]
    distinct = {id(message.entries): message.entries for message in sent}
    numbers = {key: number for number, key in enumerate(distinct)}
    return EliminationProof(
        order=order,
        messages=tuple(tuple(np.ravel(entries).tolist()) for entries in distinct.values()),
        numbers=tuple(numbers[id(message.entries)] for message in sent),
        constants=tuple(int(message.more[0]) for message in sent),
        groups=cells.groups,
        refined=tuple(map(tuple, cells.refined)) if any(cells.refined) else None,
    )


def optimum(table: ReferenceTable, groups: Groups) -> tuple[int, list[int]]:
    """Return the least cost of all assignments, and the canonical one of that cost.

    Parameters
    ----------
    groups
        As `interchangeable_levels`.

    Raises
    ------
    RefusedError
        As `prove`.
    """
    from hypar_opt.solvers.elimination.buckets import traced_back
    from hypar_opt.solvers.elimination.optima import canonical_optimum

    cells, buckets = _tight(table, groups, None)
    choices, tied = traced_back(buckets, 0)
    if tied:
        choices = canonical_optimum(buckets, cells.sizes, 0, NEVER)
    chosen = zip(cells.layers, choices, strict=True)
    return buckets.minimum(0), [int(layer.columns[layer.starts[cell]]) for layer, cell in chosen]


def _tight(table: ReferenceTable, groups: Groups, enough: int | None) -> tuple[Cells, Buckets]:
    """Return cells, and messages, with optima of single states, or of sufficient cost."""
    cells = Cells(table, groups)
    buckets = cells.eliminated()
    bound = buckets.minimum(0)
    threshold, step = bound - 1, bound // _FIRST_STEP + 1
    # No assignment up to the threshold has cells of several states.
    while groups is not None and threshold < bound and (enough is None or bound < enough):
        threshold, step = bound + step, 2 * step
        cells = cells.refined_cells_up_to(
            threshold if enough is None else min(threshold, enough - 1), buckets
        )
        buckets = cells.eliminated()
        bound = buckets.minimum(0)
    return cells, buckets


def interchangeable_levels(table: ReferenceTable) -> Groups:
    """Return groups of levels that may be swapped, in both ends of an edge, at equal charges.

    No proof rests on them.
    """
    if table.states is None:
        return None
    states = table.states.T.tolist()
    numbers = {tuple(state): number for number, state in enumerate(states)}
    examples = dict(zip(table.kinds.tolist(), table.ends.tolist(), strict=True))

    def swap(level: int, partner: int) -> bool:
        levels = [*range(len(states[0]))]
        levels[level], levels[partner] = partner, level
        swapped = np.array([numbers.get(tuple(s[n] for n in levels), -1) for s in states])
        columns = [row[np.isin(swapped[row], row)] for row in table.columns]
        for kind, ends in examples.items():
            rows = [columns[end] for end in ends]
            charges, after = table.charges[kind], [swapped[row] for row in rows]
            if (charges[np.ix_(*rows)] != charges[np.ix_(*after)]).any():
                return False
        return True

    groups: list[int] = []
    for level in range(len(states[0])):
        firsts = map(groups.index, range(len({*groups})))
        groups.append(next((groups[n] for n in firsts if swap(n, level)), len({*groups})))
    return tuple(groups) if len({*groups}) < len(groups) else None


def _numbered(labels: Integers) -> NDArray[np.intp]:
    """Return the number of each label, the last axis, in the order in which they first occur."""
    _, first, which = np.unique(labels, axis=-1, return_index=True, return_inverse=True)
    numbers: NDArray[np.intp] = first.argsort().argsort()[which.reshape(-1)]
    return numbers


class LayerCells(NamedTuple):
    """The cells of a layer's columns.

    Parameters
    ----------
    columns
        The allowed columns, cell by cell.
    starts
        Where each cell begins among them.
    names
        By cell, the number of its class; states of refined classes have larger numbers.
    """

    columns: NDArray[np.intp]
    starts: NDArray[np.intp]
    names: NDArray[np.intp]

    def minima(self, charges: Integers, axis: int = 0) -> Integers:
        """Return the least charges of each cell's columns."""
        minima: Integers = np.minimum.reduceat(charges.take(self.columns, axis), self.starts, axis)
        return minima


class Cells:
    """A table whose layers choose among cells of columns, at their least charges.

    Parameters
    ----------
    groups, refined
        As in `EliminationProof`.
    """

    def __init__(
        self,
        table: ReferenceTable,
        groups: Groups,
        refined: Sequence[tuple[int, ...]] | None = None,
    ) -> None:
        self.table, self.groups = table, groups
        self.refined = refined or [()] * len(table.node)
        classes = np.arange(table.node.shape[1])
        if groups and table.states is not None:
            counts = [
                (table.states[np.equal(groups, group)] == choice).sum(axis=0)
                for group in sorted({*groups})
                for choice in range(table.states.max() + 1)
            ]
            classes = _numbered(np.array(counts))

        @cache
        def layer(columns: bytes, single: tuple[int, ...]) -> LayerCells:
            row = np.frombuffer(columns, np.intp)
            is_single = np.isin(classes[row], single)
            names = np.where(is_single, classes.max() + 1 + row, classes[row])
            cells = _numbered(names)
            order = cells.argsort(kind="stable")
            starts = np.searchsorted(cells[order], np.arange(1 + cells.max()))
            return LayerCells(row[order], starts, names[order[starts]])

        @cache
        def edge(kind: int, source: int, target: int) -> Integers:
            rows = self.layers[source].minima(table.charges[kind])
            return self.layers[target].minima(rows, 1)

        columns = [row.tobytes() for row in table.columns]
        self.layers = [*map(layer, columns, self.refined)]
        first = {id(cells): n for n, cells in reversed([*enumerate(self.layers)])}
        self.node = [cells.minima(row) for cells, row in zip(self.layers, table.node, strict=True)]
        self.edge = [
            edge(kind, *(first[id(self.layers[end])] for end in ends))
            for kind, ends in zip(table.kinds.tolist(), table.ends.tolist(), strict=True)
        ]

    @property
    def sizes(self) -> list[int]:
        return [len(layer.names) for layer in self.layers]

    def eliminated(self) -> Buckets:
        """Return all messages of an elimination.

        Raises
        ------
        RefusedError
            If it needs larger tables than memory allows.
        """
        from hypar_opt.solvers.elimination.buckets import PairwiseCharges, eliminate
        from hypar_opt.solvers.elimination.graph import graph_of
        from hypar_opt.solvers.elimination.solve import of_pairs, order_of_graph

        graph = graph_of(len(self.layers), self.table.ends)
        kinds: list[tuple[Hashable, ...]] = [()] * len(graph.pairs)
        for pair, edge, (u, v) in zip(graph.pair_of, self.edge, self.table.ends, strict=True):
            kinds[pair] += id(edge), bool(u < v)
        charge = of_pairs(graph, self.edge.__getitem__)
        nodes = [row[None] for row in self.node]
        charges = PairwiseCharges(nodes, graph.pairs, charge, pair_kinds=kinds)
        try:
            return eliminate(charges, order_of_graph(charges.sizes, graph), NEVER)
        except RefusedError as error:
            # Programs find an optimum, but no proof that additions can check.
            message = error.message.removesuffix(", try ilp or cpsat")
            over = "" if self.table.states is None else "a proof over all levels "
            raise RefusedError(over + message) from None

    def refined_cells_up_to(self, threshold: int, buckets: Buckets) -> Cells:
        """Return cells that are single states in all assignments up to a threshold."""
        from hypar_opt.solvers.elimination.optima import rows_within

        rows = rows_within(threshold, buckets, self.sizes, 0, NEVER)
        refined = []
        for layer, allowed, before in zip(self.layers, rows, self.refined, strict=True):
            cells, sizes = (
                np.unique(allowed.choices[0]),
                np.diff(layer.starts, append=len(layer.columns)),
            )
            refined.append((*before, *layer.names[cells[sizes[cells] > 1]].tolist()))
        return Cells(self.table, self.groups, refined)


def _maximum_flow(table: CostTable) -> FlowProof:
    from hypar_opt.solvers.minimum_cut import networks_of
    from hypar_opt.solvers.pseudo_boolean import PseudoBoolean

    networks = networks_of(PseudoBoolean.of(table))
    (maximum,) = networks.maximum_flows(NEVER)
    flows = [networks.unit * flow for flow in maximum.flows(np.arange(len(networks.tail))).tolist()]
    layers = table.layers
    return FlowProof(
        layer_flows=tuple(
            into - out for into, out in zip(flows[:layers], flows[layers : 2 * layers], strict=True)
        ),
        pair_flows=tuple(flows[2 * layers :]),
    )


def bound_of(table: ReferenceTable, proof: FlowProof | EliminationProof, where: str) -> int:
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
    if not all(map(len, table.columns)):
        raise CheckFailedError(f"{where}: a layer is allowed no choice")
    if isinstance(proof, FlowProof):
        return _flow_bound(table.by_edge, proof, where)
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
        # The saving if both layers have their second choice.
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
        # A pair is charged if only the earlier layer has its second choice.
        for (u, _), saved in network.capacities.items():
            network.charges[u] -= saved
        return network

    def _fixed(self, allowed: list[list[bool]]) -> _Network:
        """Return the network with layers of a single allowed choice merged into constants."""
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
    # The excess of each layer, which is 0 in a flow.
    residuals = list(proof.layer_flows)
    for (u, v), flow in zip(pairs, proof.pair_flows, strict=True):
        if not 0 <= flow <= network.capacities[u, v]:
            raise CheckFailedError(
                f"{where}, pair_flows: from layer {u} to layer {v} it should be 0 to"
                f" {network.capacities[u, v]}, got {flow}"
            )
        residuals[u] -= flow
        residuals[v] += flow
    bound = network.constant
    for layer, (flow, charge) in enumerate(zip(proof.layer_flows, network.charges, strict=True)):
        if not -max(charge, 0) <= flow <= max(-charge, 0):
            raise CheckFailedError(
                f"{where}, layer_flows: of layer {layer} it should be {-max(charge, 0)} to"
                f" {max(-charge, 0)}, got {flow}"
            )
        if residuals[layer]:
            raise CheckFailedError(
                f"{where}: {residuals[layer]} more flow into layer {layer} than out of it"
            )
        bound += min(charge, 0) + max(flow, 0)
    return bound


class _Part(NamedTuple):
    """A charge over the cells of some layers, in the order of elimination.

    Parameters
    ----------
    layers
    charge
        Shared by the parts of one ``kind``.
    kind
    constant
        What is added to all charges.
    """

    layers: tuple[int, ...]
    charge: Integers
    kind: Hashable
    constant: int = 0


def _elimination_bound(table: ReferenceTable, proof: EliminationProof, where: str) -> int:
    _check_shape(table, proof, where)
    constants = proof.constants or (0,) * len(proof.order)
    # A file may hold any integers: int64 only where no sum of them can overflow it.
    entries = [0, *(abs(entry) for message in proof.messages for entry in message)]
    highest = max(entries) + max(map(abs, constants))
    dtype = exact_dtype(table.max_total + (len(constants) + 1) * highest)
    cells = Cells(table, proof.groups, proof.refined)
    position = {layer: n for n, layer in enumerate(proof.order)}
    neighbours: list[set[int]] = [set() for _ in constants]
    buckets = [
        [_Part((layer,), charge, tuple(charge.tolist()))] for layer, charge in enumerate(cells.node)
    ]
    for (u, v), charge in zip(table.ends.tolist(), cells.edge, strict=True):
        neighbours[u].add(v)
        neighbours[v].add(u)
        first, second = sorted((u, v), key=position.__getitem__)
        in_order = charge if first == u else charge.T
        buckets[first].append(_Part((first, second), in_order, (id(charge), first == u)))
    bound = 0
    reduced: dict[Hashable, int] = {}
    for layer, number, constant in zip(
        proof.order, proof.numbers or range(len(constants)), constants, strict=True
    ):
        scope = tuple(sorted(neighbours[layer], key=position.__getitem__))
        for other in scope:
            neighbours[other] = (neighbours[other] | set(scope)) - {other, layer}
        shape = tuple(cells.sizes[n] for n in scope)
        if len(proof.messages[number]) != prod(shape):
            raise CheckFailedError(
                f"{where}, messages: of layer {layer} there should be {prod(shape)} entries, got"
                f" {len(proof.messages[number])}"
            )
        message: Integers = np.array(proof.messages[number], dtype).reshape(shape)
        # Buckets of equal charges up to constants have equal reduced costs up to these.
        among = [(part.kind, *map((layer, *scope).index, part.layers)) for part in buckets[layer]]
        bucket = number, *among
        if bucket not in reduced:
            charges = [
                part.charge.astype(dtype, copy=False).reshape(
                    [cells.sizes[n] if n in part.layers else 1 for n in (layer, *scope)]
                )
                for part in sorted(buckets[layer], key=lambda part: part.charge.size)
            ]
            # Small arrays first, so that they are added before they are broadcast.
            by_cell = zip(*charges, strict=True)
            reduced[bucket] = min(int(np.min(reduce(add, rows) - message)) for rows in by_cell)
        if reduced[bucket] + sum(part.constant for part in buckets[layer]) < constant:
            raise CheckFailedError(f"{where}: a reduced cost of layer {layer} is negative")
        if scope:
            buckets[scope[0]].append(_Part(scope, message, (number, shape), constant))
        else:
            bound += int(message) + constant
    return bound


def _check_shape(table: ReferenceTable, proof: EliminationProof, where: str) -> None:
    """Check that a proof by messages has the parts that its table needs.

    Raises
    ------
    CheckFailedError
    """
    layers, levels = len(table.node), len(() if table.states is None else table.states)
    if sorted(proof.order) != list(range(layers)):
        raise CheckFailedError(f"{where}, order: should be every layer once")
    for key, entries, count in (
        (
            "messages" if proof.numbers is None else "numbers",
            proof.numbers or proof.messages,
            layers,
        ),
        ("constants", proof.constants, layers),
        ("groups", proof.groups, levels),
        ("refined", proof.refined, layers),
    ):
        if entries is not None and len(entries) != count:
            raise CheckFailedError(f"{where}, {key}: should be {count}, got {len(entries)}")
    if max(proof.numbers or (0,)) >= len(proof.messages):
        raise CheckFailedError(f"{where}, numbers: there are {len(proof.messages)} messages")
