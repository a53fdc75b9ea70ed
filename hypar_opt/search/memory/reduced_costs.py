"""Reduced-cost fixing, and the k best plans of what it leaves.

A plan that costs less than a limit has, at a price of memory, charges of at most that limit and the
price of the capacity. A column (one mode and state of a node) whose bound is above that is in no
such plan. The plans of the remaining columns are ranked by their charges.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from heapq import merge
from itertools import compress, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.integers import exact_dtype
from hypar_opt.search.memory.relaxation import LayerModes, Pick
from hypar_opt.solvers.elimination.classes import columns_within
from hypar_opt.solvers.loaded_graph import LoadedGraph, edges_between
from hypar_opt.solvers.within_load import cheapest_within

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.integers import Integers


class RemainingColumn(NamedTuple):
    """One mode and state of a node, which a plan of interest may have.

    Parameters
    ----------
    column
        Of the table that `LayerModes.table` returns.
    charge, load, transient
        Charges; and bytes of all accelerators together, all the time and at least for a moment.
    reduced_cost_bound
        A lower bound on the charges of a plan that has it, with bytes at a price.
    """

    column: int
    pick: Pick
    charge: int
    load: int
    transient: int
    reduced_cost_bound: int


@dataclass(frozen=True, eq=False)
class RemainingColumns:
    """The columns of all nodes that remain, and their charges.

    Parameters
    ----------
    order
        The nodes in the order in which they are decided; all else follows it.
    of_nodes
        At least one each.
    ports
        Numbers of the block modes and states that columns have.
    edges
        Of ports, by places in ``order``.
    """

    order: Sequence[int]
    of_nodes: Sequence[Sequence[RemainingColumn]]
    ports: Sequence[NDArray[np.intp]]
    edges: Mapping[tuple[int, int], Integers]

    def fixed_below(self, limit: int) -> RemainingColumns | None:
        """Return the columns of plans whose charges, with bytes at the price, are within a limit.

        None if there is no such plan.
        """
        masks = [[pick.reduced_cost_bound <= limit for pick in picks] for picks in self.of_nodes]
        of_nodes = [[*compress(*columns)] for columns in zip(self.of_nodes, masks, strict=True)]
        if not all(of_nodes):
            return None
        remaining = [ports[mask] for ports, mask in zip(self.ports, masks, strict=True)]
        numbers, ports = zip(
            *(np.unique(column_ports, return_inverse=True) for column_ports in remaining),
            strict=True,
        )
        edges = {
            (source, target): pairs[np.ix_(numbers[source], numbers[target])]
            for (source, target), pairs in self.edges.items()
        }
        return RemainingColumns(self.order, of_nodes, ports, edges)

    @cached_property
    def thresholds(self) -> list[int]:
        """The transient bytes that a plan may have at most, as its columns state them."""
        lowest = max(min(pick.transient for pick in picks) for picks in self.of_nodes)
        transients = {pick.transient for picks in self.of_nodes for pick in picks}
        return sorted({lowest, *(bytes_ for bytes_ in transients if bytes_ > lowest)})

    def graph(self, threshold: int) -> tuple[LoadedGraph, list[list[RemainingColumn]]]:
        """Return the graph of the columns of at most so many transient bytes, and these."""
        masks = [[pick.transient <= threshold for pick in picks] for picks in self.of_nodes]
        columns = [[*compress(*of_node)] for of_node in zip(self.of_nodes, masks, strict=True)]
        costs = [_integers(pick.charge for pick in picks) for picks in columns]
        loads = [_integers(pick.load for pick in picks)[:, None] for picks in columns]
        ports = [ports[mask] for ports, mask in zip(self.ports, masks, strict=True)]
        return LoadedGraph(costs, loads, ports, self.edges), columns


def _integers(values: Iterable[int]) -> Integers:
    numbers = [*values]
    return np.array(numbers, exact_dtype(max(numbers, default=0)))


_FEWEST_GROUPS, _MOST_GROUPS = 4, 16
"""Thresholds of transient bytes are searched in groups, each at the capacity of its lowest one."""

_COLUMNS = 2**14
"""The most columns of the graphs of all groups together, unless these are the fewest."""

_ROWS = 2**20
"""The most rows of a bucket that are tried; plans of more are too many to compare."""


@dataclass(frozen=True)
class KBest:
    """The plans of a number of micro-batches that may fit, ranked with bytes at a price.

    Raises
    ------
    RefusedError, NoAnswerError
        In its methods: if there are too many plans, or a deadline passes.
    """

    modes: LayerModes
    price: Fraction

    def charge_limit(self, goal: Fraction) -> int:
        """Return the most that plans up to a goal are charged, with bytes at the price."""
        modes = self.modes
        limit = goal * modes.per_unit + modes.charges(self.price) * modes.capacity
        return int(limit) + 1

    def columns(self, goal: Fraction) -> RemainingColumns | None:
        """Return the columns of plans up to a goal; None if there is no such plan."""
        modes = self.modes
        table = modes.table(self.price, all_modes=True)
        limit, order = self.charge_limit(goal), modes.order
        charges, of_blocks = modes.charges(self.price), modes.priced_modes(self.price)
        priced = [of_block.priced(charges) for of_block in of_blocks]
        cache: dict[Hashable, list[RemainingColumn]] = {}
        of_nodes = []
        for node, (columns, bounds) in enumerate(
            columns_within(table, limit, modes.search.deadline, _ROWS)
        ):
            kinds = [int(of_block.kinds[node]) for of_block in modes.node_modes]
            key = *kinds, columns.tobytes(), *bounds.tolist()
            if key not in cache:
                cache[key] = [
                    column
                    for pair in zip(columns.tolist(), bounds.tolist(), strict=True)
                    for column in self._modes_in(kinds, priced, limit, *pair)
                ]
            of_nodes.append(cache[key])
        if not all(of_nodes):
            return None
        numbers, ports = zip(
            *(
                np.unique([pick.column for pick in picks], return_inverse=True)
                for picks in of_nodes
            ),
            strict=True,
        )
        return RemainingColumns(
            order,
            [of_nodes[node] for node in order],
            [ports[node] for node in order],
            edges_between(table, numbers, order),
        )

    def _modes_in(
        self, kinds: Sequence[int], priced: Sequence[Integers], limit: int, column: int, bound: int
    ) -> Iterator[RemainingColumn]:
        """Yield a node's modes in a column, of plans within a limit of charges.

        Parameters
        ----------
        bound
            On the charges of plans that have the column in its cheapest mode.
        """
        of_block, state = divmod(column, len(self.modes.states))
        modes, kind = self.modes.node_modes[of_block], kinds[of_block]
        amounts = modes.times, modes.loads, modes.transients
        charged = priced[of_block][:, kind, state]
        bounds = bound - int(charged.min()) + charged
        for mode in np.flatnonzero(modes.pareto_mask[:, kind, state] & (bounds <= limit)):
            charge, load, transient = (int(amount[mode, kind, state]) for amount in amounts)
            pick = of_block, int(mode), state
            yield RemainingColumn(column, pick, charge, load, transient, int(bounds[mode]))

    def plans(
        self, columns: RemainingColumns, goal: Fraction, margin: int = 0
    ) -> Iterator[tuple[int, list[Pick]]]:
        """Yield plans that may fit with their charges, in the order of these.

        Transient bytes are a maximum, and not a sum: for each threshold, the plans below it have
        what is left of the capacity.

        Parameters
        ----------
        margin
            Bytes of a device that are to be left.
        """
        modes, deadline = self.modes, self.modes.search.deadline
        whole = modes.total_capacity - margin * modes.search.instance.problem.accelerators
        limit, price = int(goal * modes.per_unit), modes.charges(self.price)
        count = _COLUMNS // max(1, sum(map(len, columns.of_nodes)))
        count = min(max(count, _FEWEST_GROUPS), _MOST_GROUPS, len(columns.thresholds))
        groups = np.array_split(columns.thresholds, count)
        charge = itemgetter(0)

        def below(group: Integers) -> Iterator[tuple[int, tuple[RemainingColumn, ...]]]:
            graph, of_nodes = columns.graph(int(group[-1]))
            capacity = whole - int(group[0])
            for charges, numbers in cheapest_within(graph, [capacity], limit, deadline, price):
                yield charges, tuple(picks[n] for picks, n in zip(of_nodes, numbers, strict=True))

        for _, of_equal_charges in groupby(merge(*map(below, groups), key=charge), charge):
            yielded = set()  # a plan below one threshold is below others, too
            for charges, plan in of_equal_charges:
                if plan not in yielded:
                    yielded.add(plan)
                    by_node = sorted(zip(columns.order, plan, strict=True))
                    yield charges, [column.pick for _, column in by_node]
