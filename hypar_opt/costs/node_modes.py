"""Tables whose nodes train in the cheapest of several modes, and blocks in one of a few.

A mode of a single node (what is sharded of its weights, whether its inner tensor is recomputed)
does not affect its boundaries, so that a node is charged the minimum over its modes. Whether a
block is recomputed as a whole is one choice for all its nodes: each state occurs once per mode.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.device_load import at_price
from hypar_opt.costs.kinds import index_by_key
from hypar_opt.costs.state_charges import state_indices
from hypar_opt.costs.state_classes import ClassTable, Partition
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.step.states import state_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.device_load import DeviceLoad
    from hypar_opt.costs.kinds import Kinds
    from hypar_opt.costs.state_charges import State
    from hypar_opt.step.states import Indices, States


@dataclass(frozen=True, eq=False)
class NodeModes:
    """Charges and loads of nodes in several modes, and the boundaries that the modes share.

    Parameters
    ----------
    table
        The table of one mode, whose boundaries are those of all modes.
    kinds : (nodes,)
    times, loads, transients : (modes, kinds, states)
        Charges; and bytes of all accelerators together: held throughout, and transient ones at
        least.
    priced_loads : (modes, kinds, states)
        The bytes that have a price: `loads`, and in `with_peak` a part of the peak.
    cache
        The charges of `priced`, by price.
    """

    table: ClassTable
    kinds: Indices
    times: Integers
    loads: Integers
    transients: Integers
    priced_loads: Integers
    cache: dict[Fraction, Integers] = field(init=False, default_factory=dict)

    @classmethod
    def of(
        cls,
        table: ClassTable,
        further_charges: Sequence[tuple[Kinds, Integers]],
        loads: Sequence[DeviceLoad],
        transients: Sequence[Amount],
        states: Sequence[State],
    ) -> NodeModes:
        """Return the modes of a table, given what nodes are charged and hold in each.

        Parameters
        ----------
        further_charges
            The charges of kinds of nodes in further modes, as `StateTable.of_nodes` returns them.
        loads, transients
            The bytes that nodes hold in each mode: throughout, and transient ones at least.
        """
        charges = [(table.node_kinds, table.node)]
        charges += [(of_nodes.numbers, charged) for of_nodes, charged in further_charges]
        own_kinds = zip(*(numbers.tolist() for numbers, _ in charges), strict=True)
        keys = zip(*(load.node_keys for load in loads), strict=True)
        kinds, first = index_by_key(zip(own_kinds, keys, strict=True))
        times = [charged[numbers[first]] for numbers, charged in charges]
        load_bytes, transient_bytes = (
            [by_state(amount, first, states) for amount in amounts]
            for amounts in ([load.of for load in loads], transients)
        )
        table = replace(table, allowed=table.allowed[table.node_kinds[first]])
        exact_loads = _exact(load_bytes)
        amounts = _exact(times), exact_loads, _exact(transient_bytes), exact_loads
        return cls(table, kinds, *amounts)

    def with_peak(self, kind: int, least: int, count: int) -> NodeModes:
        """Return the modes with a price on the mean transient bytes of a kind of nodes, too.

        Parameters
        ----------
        kind
            Theirs.
        least
            A lower bound on the peak, which is not priced.
        count
            Of the nodes.
        """
        loads = self.loads.copy()
        loads[:, kind] += np.maximum(self.transients[:, kind] - least, 0) // count
        return replace(self, priced_loads=loads)

    @cached_property
    def pareto_mask(self) -> NDArray[np.bool_]:
        """Whether a state's mode is Pareto-optimal in time and bytes; of equal modes, the first.

        ``(modes, kinds, states)``
        """
        mask = np.ones(self.times.shape, bool)
        for mode, other in permutations(range(len(mask)), 2):
            no_more, equal = (
                np.logical_and.reduce(
                    [
                        compare(amounts[other], amounts[mode])
                        for amounts in (self.times, self.loads, self.transients)
                    ]
                ).astype(bool)
                for compare in (np.less_equal, np.equal)
            )
            mask[mode] &= ~(no_more & ((other < mode) | ~equal))
        return mask

    def priced(self, price: Fraction) -> Integers:
        """Return the charges of each mode with its bytes at a price, rounded down."""
        if price not in self.cache:
            self.cache[price] = self._at_price(price)
        return self.cache[price]

    def _at_price(self, price: Fraction) -> Integers:
        charged = at_price(self.priced_loads, price)
        largest = int(self.times.max(initial=0)) + int(charged.max(initial=0))
        dtype = exact_dtype(largest * (1 + len(self.kinds)))
        total: Integers = self.times.astype(dtype) + charged.astype(dtype)
        return total

    def at(self, price: Fraction, of_weights: NDArray[np.bool_]) -> ClassTable:
        """Return the table in which each node trains in its cheapest mode.

        Parameters
        ----------
        of_weights : (boundaries,)
            Which boundaries lead from shared weights: these charge mismatches, more than any node.
        """
        node, table = self.priced(price).min(axis=0), self.table
        kinds = frozenset(table.boundary_kinds[of_weights].tolist())
        priced = replace(table, node=node, node_kinds=self.kinds)
        return priced.with_big_m(kinds, 1 + int(node.max()))


def _exact(amounts: Sequence[Integers]) -> Integers:
    return np.array(amounts, exact_dtype(max(int(part.max(initial=0)) for part in amounts)))


Amount = Callable[["Indices", "States"], Integers]
"""Returns an amount of nodes in states."""


def by_state(amount: Amount, nodes: Indices, states: Sequence[State]) -> Integers:
    """Return an amount of nodes in every state: ``(nodes, states)``."""
    choices = (1 + np.array(states, np.intp).max(axis=0)).tolist()
    amounts = amount(nodes.reshape(-1, *[1] * len(choices)), state_grid(choices))
    of_states = np.broadcast_to(amounts, (len(nodes), *choices)).reshape(len(nodes), -1)
    return of_states[:, state_indices(states, choices)]


def with_block_choice(
    tables: Sequence[ClassTable], blocks: NDArray[np.intp], penalty: int
) -> ClassTable:
    """Return a table whose nodes have each state once per table, each table a mode of their blocks.

    A boundary is charged by the mode of its target. All nodes of a block have one mode.

    Parameters
    ----------
    tables
        The first without recomputation of blocks; in the others blocks are recomputed.
    blocks : (nodes,)
        The block, if it may be recomputed, of each node; -1 for none.
    penalty
        The charge where two nodes of a block differ in their modes: above every solution's cost.
    """
    first, inside = tables[0], blocks >= 0
    numbers = [table.node_kinds.tolist() for table in tables]
    node_kinds, nodes = index_by_key(zip(*numbers, inside.tolist(), strict=True))
    sources, targets = first.ends.T
    in_one_block = inside[sources] & (blocks[sources] == blocks[targets])
    numbers = [table.boundary_kinds.tolist() for table in tables]
    boundary_kinds, boundaries = index_by_key(zip(*numbers, in_one_block.tolist(), strict=True))
    kinds = [table.boundary_kinds[boundaries] for table in tables]
    block_kinds, states = in_one_block[boundaries], first.node.shape[1]
    dtype = exact_dtype(8 * penalty)

    def pairs(kind: int, sources: NDArray[np.intp], targets: NDArray[np.intp]) -> Integers:
        charged: Integers = np.empty((len(sources), len(targets)), dtype)
        for mode, table in enumerate(tables):
            columns = np.flatnonzero(targets // states == mode)
            if len(columns):
                ends = sources % states, targets[columns] % states
                charged[:, columns] = table.pairs(int(kinds[mode][kind]), *ends)
        if block_kinds[kind]:
            charged[(sources // states)[:, None] != targets // states] = penalty
        return charged

    partitions = []
    for of_modes in zip(*(table.partitions for table in tables), strict=True):
        count = of_modes[0].lower_bounds.shape[-1]
        columns = [
            np.tile(partition.lower_bounds[of_kinds], (1, len(tables), 1))
            for partition, of_kinds in zip(of_modes, kinds, strict=True)
        ]
        lowest: Integers = np.concatenate(columns, axis=2).astype(dtype)
        mode = np.arange(len(tables)).repeat(count)
        lowest[block_kinds[:, None, None] & (mode[:, None] != mode)] = penalty
        classes = [partition.classes + n * count for n, partition in enumerate(of_modes)]
        partitions.append(Partition(np.concatenate(classes), lowest))
    node = [table.node[table.node_kinds[nodes]] for table in tables]
    allowed = [table.allowed[table.node_kinds[nodes]] for table in tables]
    allowed[1:] = [may_have & inside[nodes][:, None] for may_have in allowed[1:]]
    of_kinds = zip(tables, kinds, strict=True)
    highest = np.max([table.highest[numbers] for table, numbers in of_kinds], axis=0)
    return replace(
        first,
        highest=np.where(block_kinds, penalty, highest),
        partitions=partitions,
        node=np.concatenate(node, axis=1).astype(dtype),
        allowed=np.concatenate(allowed, axis=1),
        node_kinds=node_kinds,
        pairs=pairs,
        boundary_kinds=boundary_kinds,
    )
